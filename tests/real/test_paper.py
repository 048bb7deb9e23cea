"""Comparison with paper A: its numbers, their best-case uncertainty, beside measured ones."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from factories import finished_sweep

from orchestrator.cli.main import main
from orchestrator.config.entries import PolicyEntry
from orchestrator.report import published
from orchestrator.report.compare import families
from orchestrator.report.content import Paragraph
from orchestrator.report.rows import Row, read_rows
from orchestrator.report.sections import page, paper, tables

POLICIES = ("hard", "easy", "middle", "random")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small sweep, all of whose cells are finished; tests only read it."""
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    plan, store = finished_sweep(folder, policies=POLICIES, seeds=(0, 1))
    return read_rows(store, plan.cells)


# ---- what was published


@pytest.mark.parametrize(
    ("models", "cells", "value"), [(published.PUBLISHED, 24, 0.670), (published.ALL, 28, 0.641)]
)
def test_r_squared_agrees_with_the_papers_tables(
    models: tuple[published.Published, ...], cells: int, value: float
) -> None:
    result = published.published_r_squared(models)
    assert (result.points, round(result.value, 3)) == (cells, value)
    assert result.low < value < result.high


def test_the_stored_numbers_agree_with_the_paper() -> None:
    """Gains are whole questions but for two, learnable percentages whole groups of 1,000."""
    fractional = [
        (row.model, gain)
        for row in published.ALL
        for gain in row.gain.values()
        if abs(gain - 100 * round(gain * row.questions / 100) / row.questions) > 0.0051
    ]
    assert fractional == [("Qwen3-14B", 10.12), ("Qwen3-14B", 12.52)]
    groups = [10 * share for row in published.ALL for share in row.learnable.values()]
    assert groups == pytest.approx(np.round(groups), abs=1e-9)


def test_a_published_gain_has_the_interval_of_one_sided_changes() -> None:
    low, high = published.published_interval(34.19, 1319)
    changed = np.arange(1319) < 451
    ends = scipy.stats.ttest_1samp(changed, 0).confidence_interval(0.95)
    assert high - low == pytest.approx(100 * (ends.high - ends.low))
    assert (low + high) / 2 == pytest.approx(34.19)


# ---- with a store


def test_published_and_measured_numbers_share_columns(rows: list[Row]) -> None:
    result = families(rows)
    table = paper.gains(result)
    assert table.head == ("data", "model", "source", *published.POLICIES)
    assert [line[1:3] for line in table.body] == [
        ("Qwen3-4B", "paper A"),
        ("Qwen3-14B", "paper A"),
        ("Phi-4", "paper A"),
        ("stub", "measured"),
    ]
    mine = dict(zip(tables.gains(result).head, tables.gains(result).body[0], strict=True))
    assert table.body[-1][3:] == tuple(mine[policy] for policy in published.POLICIES)
    assert table.body[0][5].startswith("+13.6 [+7.")
    assert paper.learnable(result).body[0][4] == "5.7 [4.3, 7.1]"


def test_policies_are_matched_by_their_rule(rows: list[Row]) -> None:
    renamed = []
    for row in rows:
        name = {"hard": "lowest-tenth"}.get(row.cell.policy, row.cell.policy)
        renamed.append(dataclasses.replace(row, cell=row.cell.model_copy(update={"policy": name})))
    one, two = (paper.gains(families(group)).body[-1] for group in (rows, renamed))
    assert one == two
    learnable = {"rule": PolicyEntry(policy="learnable")}
    strange = [dataclasses.replace(r, cell=r.cell.model_copy(update=learnable)) for r in rows]
    assert paper.tables(families(strange))[0].body[-1][3:] == ("–",) * 4


def test_data_without_published_numbers_gives_no_comparison(rows: list[Row]) -> None:
    other = []
    for row in rows:
        dataset = dataclasses.replace(row.cell.probe.dataset, task="arithmetic")
        probe = row.cell.probe.model_copy(update={"dataset": dataset})
        other.append(dataclasses.replace(row, cell=row.cell.model_copy(update={"probe": probe})))
    assert paper.tables(families(other)) == []
    about, text = page.paper_a(families(other)).blocks
    assert text == Paragraph(paper.NOT_APPLICABLE)


def test_the_command_puts_the_paper_on_the_page_and_in_the_terminal(
    rows: list[Row], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = str(folder / "experiments.yaml"), tmp_path / "page.html"
    arguments = ["report", file, "-e", "small", "--out", str(page)]
    assert main(arguments) == 0
    assert "paper A" not in capsys.readouterr().out and 'id="paper"' not in page.read_text()
    assert main([*arguments, "--paper", "A"]) == 0
    assert "paper A" in capsys.readouterr().out and 'id="paper"' in page.read_text()
    assert main([*arguments, "--paper", "C"]) == 2
