"""What the report says of a store: verdicts, claims, tables, figures, one page without network."""

import ast
import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from factories import cell_record, finished_cell, small_plan

from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.planning.plan import Plan
from orchestrator.probing.sample_store import write_part
from orchestrator.report import breakdown, drawing, figures, group_figures, markup, sections, tables
from orchestrator.report.families import families
from orchestrator.report.page import write_page
from orchestrator.report.pool import pool_figures
from orchestrator.report.rows import OWN, Row, read_rows
from orchestrator.report.verdicts import (
    caveats,
    claim_lines,
    read_at,
    sentences,
    text_verdicts,
)
from orchestrator.storage.schema import EVALUATIONS, SAMPLES
from orchestrator.storage.store import Store
from orchestrator.training.record import CellRecord, finish

POLICIES = ("hard", "easy", "middle", "random")
SECTIONS = (
    "Verdicts",
    "Gains",
    "Learnable groups",
    "Test sets",
    "Where the gain lies",
    "Cells and ledger",
    "How to reproduce",
)
CLAIMS = (
    "hard > random on small by 3",
    "learnable easy < hard on small by 10",
    "hard = middle on small within 2 for stub",
)


def full_plan(folder: Path, **settings: object) -> Plan:
    return small_plan(folder, policies=POLICIES, seeds=(0, 1), claims=list(CLAIMS), **settings)


def filled(plan: Plan, folder: Path) -> Store:
    store = Store(str(folder / "runs"))
    for number, cell in enumerate(plan.cells):
        finished_cell(store, plan, cell, seed=number)
    return store


def lopsided(plan: Plan, folder: Path) -> Store:
    """As `filled`, but hard ends all right, the others all wrong, and its answers are long."""
    store = filled(plan, folder)
    for number, cell in enumerate(plan.cells):
        record = cell_record(plan, cell, seed=number)
        hard = cell.policy == "hard"
        groups = [row | {"tokens": [60 if hard else 20] * 4} for row in record.groups.rows]
        ended = "correct" if hard else "wrong"
        rows = [
            row | ({"outcome": ended} if row["update"] else {})
            for row in record.evaluations.to_pylist()
        ]
        evaluations = pa.Table.from_pylist(rows, schema=EVALUATIONS)
        again = CellRecord(GroupRecorder(groups), evaluations, seconds=20.0)
        finish(store, cell, again, {"trl": "0"})
    return store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small sweep, all of whose cells are finished; tests only read it."""
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def plan(folder: Path) -> Plan:
    return full_plan(folder)


@pytest.fixture(scope="module")
def store(plan: Plan, folder: Path) -> Store:
    return filled(plan, folder)


@pytest.fixture(scope="module")
def rows(plan: Plan, store: Store) -> list[Row]:
    return read_rows(store, plan.cells)


@pytest.fixture(scope="module")
def uneven(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return read_rows(lopsided(plan, tmp_path_factory.mktemp("uneven")), plan.cells)


def test_a_row_holds_what_the_result_says(rows: list[Row]) -> None:
    row = rows[0]
    assert row.curve[0] == pytest.approx(row.result["accuracy_base"])
    assert row.curve[row.cell.updates] == pytest.approx(row.result["accuracy_final"])
    assert len(row.scores(0)) == len(row.counts[OWN][0]) == 12
    assert row.costs["tokens"][-1] == row.result["ledger"]["generated_tokens"]
    assert set(row.shares) == {1, 2, 3, 4}


def test_every_pair_is_one_sentence(rows: list[Row]) -> None:
    (family,) = families(rows)
    said = sentences(family)
    assert {frozenset((c.a, c.b)) for c, _ in said} == {
        frozenset((a, b)) for a in POLICIES for b in POLICIES if a != b
    }
    assert all(c.seeds == 2 and c.items == 12 for c, _ in said)
    assert read_at(family) == "final accuracy, after 4 updates"
    assert all("on small" in text for _, text in said)


def test_a_decided_pair_comes_first_and_says_when_it_is_not_at_equal_cost(
    uneven: list[Row],
) -> None:
    (family,) = families(uneven)
    first = sentences(family)[0][1]
    assert first.startswith("hard beats ")
    assert first.endswith("; not at equal generated tokens")
    assert not any("not at equal" in t for c, t in sentences(family) if "hard" not in (c.a, c.b))
    told = caveats(family)
    assert told[0] == "not comparable on generated tokens: hard (seeds 0, 1); up to 67 % apart"
    assert "compare_at: tokens" in told[1]


def test_at_equal_tokens_each_cell_is_read_where_it_had_spent_the_same(
    uneven: list[Row],
) -> None:
    (family,) = families(uneven, "tokens")
    at = {r.cell.policy: family.points[n].update for n, r in enumerate(uneven)}
    assert at == {"hard": 0, "easy": 4, "middle": 4, "random": 4}  # evaluated at 0, 2 and 4
    assert "equal tokens" in read_at(family)
    assert not any("generated tokens" in text for text in caveats(family))


def test_claims_are_held_against_the_numbers(plan: Plan, uneven: list[Row]) -> None:
    lines = claim_lines(plan.experiment, families(uneven))
    assert [line.text for line in lines] == list(CLAIMS)
    assert lines[0].verdict == "supported"
    assert lines[2].verdict == "refuted"
    assert {line.verdict for line in claim_lines(plan.experiment, [])} == {"inconclusive"}


def test_the_terminal_says_the_same(plan: Plan, rows: list[Row]) -> None:
    text = text_verdicts(plan, rows)
    assert text.startswith("stub on small (final accuracy, after 4 updates)\n  ")
    assert all(said in text for _, said in sentences(families(rows)[0]))
    assert "hard > random on small by 3: " in text
    assert text_verdicts(plan, []) == ""


def test_one_seed_and_unequal_seeds_are_said_aloud(rows: list[Row]) -> None:
    (family,) = families([r for r in rows if r.cell.seed == 0])
    assert any(text.startswith("one seed") for text in caveats(family))
    (family,) = families(rows[:-1])
    assert (
        "policies do not have equally many finished seeds: hard 2, easy 2, middle 2, random 1"
        in (caveats(family))
    )


def test_a_single_policy_has_nothing_to_be_compared_with(plan: Plan, rows: list[Row]) -> None:
    alone = [r for r in rows if r.cell.policy == "hard"]
    assert "only hard is finished" in text_verdicts(plan, alone)
    assert "only hard is finished" in sections.verdicts(plan.experiment, families(alone))


def test_gains_are_those_of_the_results(rows: list[Row]) -> None:
    found = families(rows)
    table = tables.gains(found)
    assert table.head == ("model and data", *POLICIES)
    mean = 100 * np.mean([r.result["gain"] for r in rows if r.cell.policy == "hard"])
    assert table.body[0][1].startswith(f"{mean:+.1f} [".replace("-", "−"))
    assert tables.learnable(found).body[0][1].count("[") == 1
    one = tables.learnable(families([r for r in rows if r.cell.seed == 0]))
    assert "[" not in one.body[0][1]  # one number has no interval


def with_far_set(row: Row, right: int) -> Row:
    """A row whose cell was also asked another test set: 3 questions, 8 samples."""
    base = {f"q{i}": (8, 1) for i in range(3)}
    final = {f"q{i}": (8, right) for i in range(3)}
    counts = {**row.counts, "far": {0: base, row.cell.updates: final}}
    return dataclasses.replace(row, counts=counts)


def test_pass_at_8_on_another_test_set(rows: list[Row]) -> None:
    table = tables.pass_at(families([with_far_set(r, right=0) for r in rows]))
    lines = {(line[1], line[2]): line for line in table.body}
    assert set(lines) == {
        (s, m) for s in ("small (its own)", "far") for m in ("accuracy", "pass@8")
    }
    assert lines["far", "pass@8"][3] == "100.0"
    assert lines["far", "pass@8"][4].startswith("0.0 (−100.0")
    assert lines["far", "accuracy"][3] == "12.5"


def test_the_largest_k_that_every_question_has(rows: list[Row]) -> None:
    assert tables.best_k(rows, OWN) == 8
    few = dataclasses.replace(rows[0], counts={OWN: {0: {"q": (5, 1)}}})
    assert tables.best_k([few], OWN) == 4
    assert tables.best_k([few], "far") is None


class Reader(HTMLParser):
    """Headings, text, and attributes that would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag in ("script", "link", "img", "iframe", "object", "embed"):
            self.loads.append(tag)
        self.loads += [
            str(value)
            for name, value in attrs
            if name in ("src", "srcset", "href", "xlink:href", "action")
            and not str(value).startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
            self.open.pop()


def read(page: Path) -> tuple[str, Reader]:
    reader, text = Reader(), page.read_text()
    reader.feed(text)
    return text, reader


def test_the_page_has_every_section_and_loads_nothing(
    plan: Plan, store: Store, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    write_page(plan, store, page)
    text, reader = read(page)
    assert [h for h in reader.headings if h in SECTIONS] == list(SECTIONS)
    assert reader.loads == []
    assert not re.search(r"https?://|url\((?!#)|@import|<script", text)
    assert text.count("<svg") == text.count('role="img"') == 5
    assert all(cell.cell_id in text and cell.subset_key in text for cell in plan.cells)
    assert "hard vs. random on small" in text or "beats" in text


def test_a_table_shows_once_what_lines_begin_with_and_every_line_has_it() -> None:
    body = [("a/b", "1.0 (+2.0 [0.1, 3.9])"), ("a/b", "2.0"), ("<c>", "3.0 [1.0, 5.0]")]
    html = markup.table(tables.Table("T", ("x", "y"), body, ""))
    assert html.count('rowspan="2"') == html.count("<td hidden>a/<wbr>b</td>") == 1
    assert "<td>1.0<small> (+2.0 [0.1, 3.9])</small></td>" in html
    assert "<td>&lt;c&gt;</td><td>3.0<small> [1.0, 5.0]</small></td>" in html
    assert re.findall(r"<h3>(.*?)</h3><div class=\"scroll\"", html) == ["T"]


def test_a_long_table_is_folded_and_says_how_long_it_is() -> None:
    few, many = (tables.Table("T", ("x",), [(str(n),) for n in range(k)], "") for k in (24, 25))
    assert "<details>" not in markup.table(few)
    assert markup.table(many).startswith("<details><summary>T: 25 rows</summary><h3>T</h3>")


def test_the_same_store_gives_the_same_page(plan: Plan, store: Store, tmp_path: Path) -> None:
    write_page(plan, store, tmp_path / "one.html")
    write_page(plan, store, tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_text_of_others_is_escaped(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, name="<i>sweep</i>", about="<img src=x> & more", claims=[CLAIMS[0]])
    page = tmp_path / "page.html"
    write_page(plan, filled(plan, tmp_path), page)
    text, reader = read(page)
    assert "&lt;img src=x&gt; &amp; more" in text
    assert "<i>" not in text and "hard > random" not in text
    assert reader.loads == []


def test_an_empty_store_gives_a_page_that_says_so(plan: Plan, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(plan, Store(str(tmp_path / "nothing")), page)
    text, reader = read(page)
    assert "No cell has a result yet" in text and "0 of 8 cells finished" in text
    assert reader.headings[-1] == "How to reproduce"


def test_a_half_finished_sweep_of_one_policy(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=("random",))
    store = Store(str(tmp_path / "runs"))
    finished_cell(store, plan, plan.cells[0])
    write_page(plan, store, tmp_path / "page.html")
    assert "only random is finished" in (tmp_path / "page.html").read_text()


def test_a_figure_takes_the_colour_of_the_page(rows: list[Row]) -> None:
    for svg in (
        figures.accuracy_curves(rows),
        figures.learnable_against_gain({"a": rows, "b": rows[:2]}),
        group_figures.group_areas(families(rows)[0].by_policy()),
        group_figures.group_tiers(families(rows)[0].by_policy()),
        figures.tier_bars(
            {"base": {"3": breakdown.Bar(50.0)}, "hard": {"3": breakdown.Bar(60.0, 55, 65)}}
        ),
    ):
        assert svg.startswith('<svg fill="currentColor"')
        assert "currentColor" in svg[30:] and "#000000" not in svg and "http" not in svg


def test_more_policies_than_colours_are_all_drawn(rows: list[Row]) -> None:
    many = []
    for number in range(9):
        cell = rows[0].cell.model_copy(update={"policy": f"p{number}"})
        many.append(dataclasses.replace(rows[0], cell=cell))
    assert len({drawing.style(n) for n in range(49)}) == 49
    assert figures.accuracy_curves(many).count("<use") > figures.accuracy_curves(many[:7]).count(
        "<use"
    )


def test_r_squared_needs_three_cells(rows: list[Row]) -> None:
    few = figures.learnable_against_gain({"a": rows[:2]})
    assert "stroke-dasharray" not in few  # no line through two points
    assert "stroke-dasharray" in figures.learnable_against_gain({"a": rows})


def test_models_and_datasets_are_families_of_their_own(rows: list[Row]) -> None:
    cell = rows[0].cell
    model = dataclasses.replace(cell.probe.model, name="other")
    probe = cell.probe.model_copy(update={"model": model})
    other = dataclasses.replace(rows[0], cell=cell.model_copy(update={"probe": probe}))
    found = families([*rows, other])
    assert [f.title for f in found] == ["stub on small", "other on small"]
    assert tables.gains(found).body[1][2:] == ("–", "–", "–")


def test_another_set_in_the_store_reaches_the_row(plan: Plan, tmp_path: Path) -> None:
    cell, store = plan.cells[0], Store(str(tmp_path / "runs"))
    finished_cell(store, plan, cell)
    record = cell_record(plan, cell)
    one = {
        "prompt_id": "q",
        "sample": 0,
        "outcome": "correct",
        "other_outcome": "correct",
        "tokens": 3,
    }
    for update in (0, cell.updates):
        samples = pa.Table.from_pylist([one], schema=SAMPLES)
        record.add_evaluation(
            as_evaluation(samples, update, {"q": ""}, dataset="far").cast(EVALUATIONS)
        )
    finish(store, cell, record, {})
    (row,) = read_rows(store, [cell])
    assert row.counts["far"] == {0: {"q": (1, 1)}, cell.updates: {"q": (1, 1)}}


def probed(plan: Plan, store: Store) -> None:
    """Every prompt of the pools sampled as often as the probes ask; each other sample is right."""
    for spec in (spec for spec in plan.probes if spec.split == "train"):
        rows = [
            {
                "prompt_id": prompt.prompt_id,
                "sample": sample,
                "completion": f"\\boxed{{{prompt.answer if sample % 2 else '(Z)'}}}",
                "tokens": 9,
                "finish": "stop",
            }
            for prompt in plan.pool(spec).train
            for sample in range(spec.settings.samples)
        ]
        write_part(store, spec.key, spec.split, pa.Table.from_pylist(rows, schema=SAMPLES))


def test_the_pool_is_drawn_where_its_probe_is_in_the_store(tmp_path: Path) -> None:
    plan = full_plan(tmp_path)
    store = filled(plan, tmp_path)
    spec = plan.cells[0].probe
    with pytest.raises(RuntimeError, match="run it first"):
        pool_figures(plan, store, spec)
    probed(plan, store)
    found = pool_figures(plan, store, spec)
    assert (found.title, found.prompts, found.early) == ("stub on small", 40, False)
    assert all(f"<!-- {name} -->" in found.outcomes for name in ("pool", *POLICIES))
    write_page(plan, store, tmp_path / "page.html")
    text, reader = read(tmp_path / "page.html")
    assert "Difficulty: stub on small" in reader.headings and text.count("<svg") == 7


def test_the_notebook_draws_every_figure_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = full_plan(tmp_path)
    store = filled(plan, tmp_path)
    probed(plan, store)
    write_page(plan, store, tmp_path / "page.html")
    monkeypatch.setenv("DECILE_FILE", str(tmp_path / "experiments.yaml"))
    monkeypatch.setenv("DECILE_STORAGE", store.root)
    monkeypatch.setenv("DECILE_EXPERIMENT", plan.name)
    shown = "".join(executed(Path(__file__).parents[1] / "notebooks" / "results.ipynb"))
    svg = re.compile(r"<svg.*?</svg>", re.DOTALL)
    plain = [
        re.sub(' role="img" aria-label="[^"]*"', "", s)
        for s in svg.findall((tmp_path / "page.html").read_text())
    ]
    assert len(plain) == 7 and set(svg.findall(shown)) == set(plain)
    assert all(
        f"<h3>{title}</h3>" in shown
        for title in (
            "Gain in accuracy",
            "Learnable %",
            "What the groups could teach",
            "Test sets: accuracy and pass@k",
            "Accuracy by tier",
            "Ledger",
        )
    )


def executed(notebook: Path) -> list[str]:
    """Run a notebook's code; what its cells' last expressions show as HTML."""
    names: dict[str, object] = {}
    shown = []
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, notebook.name, "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), names)
                shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else "")
    return shown
