"""In a Jupyter kernel: errors without tracebacks, one display of the progress, PNG figures."""

import base64
import io
from pathlib import Path

import matplotlib.image
import pytest
from factories import finished_sweep, small_plan
from paths import ROOT
from report_cases import POLICIES, probed

from notebooks import Output, code_cells, run_cells
from orchestrator.report.analysis import analyse
from orchestrator.report.sections.page import sweep_page

SETUP = """
import time
from pathlib import Path
import decile
from cluster.ending import at_end
from orchestrator.config.catalog import load_config
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.planning.plan import make_plan
"""
PROGRESS = """
plan = make_plan(load_config(Path("experiments.yaml")), "small")
display = ProgressDisplay.of(plan)
display.say("before")
cell = plan.cells[0]
with display:
    for number in range(12):
        display.say(f"line {number} <b>")
    for done in range(0, 161):
        display.probe("id", "probe", done, 160)
    display.started(cell)
    for update in range(1, 5):
        display.update(cell, {"update": update, "metrics": {}})
    display.say("last line")
    during = display._region._shown
    display.finished(cell, "done")
"""


def data_of(outputs: list[Output]) -> list[dict[str, str]]:
    return [output["data"] for output in outputs if "data" in output]


def test_a_kernel_shows_one_message_one_display_and_png_figures(tmp_path: Path) -> None:
    small_plan(tmp_path)
    (tmp_path / "line\nbreak\x1b[31m.yaml").write_text("storage: 3")
    setup, absent, invalid, progress, during, interrupted = run_cells(
        [
            SETUP,
            "decile.load('absent.yaml')",
            "decile.load('line\\nbreak\\x1b[31m.yaml')",
            PROGRESS,
            "print(during['text/plain'])",
            PROGRESS.replace('display.finished(cell, "done")', "raise decile.UserError('broken')"),
        ],
        tmp_path,
    )
    assert not [output for output in setup if output["output_type"] == "error"]
    for [error] in (absent, invalid):
        [line] = error["traceback"]
        assert error["ename"] == "UserError" and line.startswith("UserError: ")
        assert len(line.splitlines()) == 1 and "\x1b" not in line and ".yaml" in line
    stream, display = progress
    assert (stream["name"], stream["text"]) == ("stdout", "before\n")
    [shown] = data_of([display])
    lines = shown["text/plain"].splitlines()
    printed = [*(f"line {i} <b>" for i in range(12)), "last line"]
    assert lines[:-1] == printed and lines[-1].startswith("[1/2] ")
    assert "line 3 &lt;b&gt;" in shown["text/html"]
    [stream] = during
    assert "line 2 " not in stream["text"] and "line 11 " in stream["text"]
    assert "4/4" in stream["text"] and "cells finished" in stream["text"]
    _, display, error = interrupted
    assert display["data"]["text/plain"].splitlines() == printed, "the frame has gone"
    assert error["traceback"] == ["UserError: broken"]


def png_sizes(text: str) -> list[tuple[int, ...]]:
    """The sizes of the PNG images in a text of HTML."""
    parts = [part.partition('"')[0] for part in text.split("data:image/png;base64,")[1:]]
    return [matplotlib.image.imread(io.BytesIO(base64.b64decode(part))).shape for part in parts]


def test_the_notebook_shows_every_figure_and_table_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = finished_sweep(tmp_path, policies=POLICIES, seeds=(0, 1))
    probed(plan, store)
    page = sweep_page(analyse(plan, store))
    monkeypatch.setenv("DECILE_FILE", str(tmp_path / "experiments.yaml"))
    monkeypatch.setenv("DECILE_STORAGE", store.root)
    monkeypatch.setenv("DECILE_EXPERIMENT", plan.name)
    cells = [*code_cells(ROOT / "notebooks" / "results.ipynb"), "results.plot()", "results"]
    cells.append("results.plot().savefig('figure.png')")
    outputs = run_cells(cells, tmp_path)
    assert [o for each in outputs for o in each if o["output_type"] in ("error", "stream")][
        1:
    ] == []
    html = "".join(d.get("text/html", "") for each in outputs for d in data_of(each))
    assert len(page.figures) == 8 and "<svg" not in html
    assert all(figure.img in html for figure in page.figures.values())
    assert all(width > 900 for _, width, _ in png_sizes(html))
    titles = {table.title for table in page.tables.values()} - {"Cells"}  # how to reproduce
    assert len(titles) >= 8 and all(f"<h3>{title}</h3>" in html for title in titles)
    [plot] = data_of(outputs[-3])
    assert matplotlib.image.imread(io.BytesIO(base64.b64decode(plot["image/png"]))).shape[1] > 900
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


# In the kernel: the published gains that are not a whole number of test questions.
FRACTIONAL = """
lines = "".join(PUBLISHED.values()).split("\\n")[1:]
questions = [int(line.split()[1]) for line in lines]
whole = [100 * round(g * n / 100) / n for g, n in zip(gains, np.repeat(questions, 4))]
print([gain for gain, near in zip(gains, whole) if abs(gain - near) > 0.0051], len(gains))
"""


def test_the_notebook_of_a_paper_shows_its_numbers_and_those_of_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = finished_sweep(tmp_path, policies=POLICIES, seeds=(0, 1))
    page = sweep_page(analyse(plan, store))
    monkeypatch.setenv("DECILE_FILE", str(tmp_path / "experiments.yaml"))
    monkeypatch.setenv("DECILE_STORAGE", store.root)
    monkeypatch.setenv("DECILE_EXPERIMENT", plan.name)
    cells = code_cells(ROOT / "notebooks" / "paper_a.ipynb")
    outputs = run_cells([*cells, FRACTIONAL], tmp_path)
    assert not [o for each in outputs for o in each if o["output_type"] == "error"]
    _, published, measured, fractional = ("".join(o["text"] for o in each) for each in outputs)
    assert "Qwen3-4B, hard: gain +34.2 ± 2.6, learnable 34.1 ± 2.9" in published
    assert "tables 1 and 2: 0.670" in published and "table 3: 0.641" in published
    assert fractional == "[10.12, 12.52] 28\n"
    for name in ("gain_in_accuracy", "learnable_pct"):
        assert page.tables[name].csv.strip() in measured
