"""The analysis of a store and its views: verdicts, claims, tables, figures, page, notebook."""

import csv
import dataclasses
import re
import time
import xml.etree.ElementTree as ET
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from factories import (
    cell_record,
    finished_cell,
    finished_sweep,
    sample_row,
    small_plan,
)
from matplotlib.figure import Figure as MplFigure
from report_cases import CLAIMS, POLICIES, full_sweep, plan, probed, read, rows, store, sweep  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)

from orchestrator import __version__
from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report import sentences
from orchestrator.report.analysis import analyse
from orchestrator.report.compare import families, policy_key, read_spreads
from orchestrator.report.content import Figure, FigureRow, Section, Table, by_file_name, svg_of
from orchestrator.report.html_pages import page_html, section_html, write_page
from orchestrator.report.render import terminal_report, verdict_text
from orchestrator.report.rows import OWN, Row, read_rows
from orchestrator.report.sample_blocks import Completions
from orchestrator.report.sections import axes, figures, tables
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.report.sentences import SINGLE_SEED
from orchestrator.report.verdict_blocks import FamilyVerdict
from orchestrator.stats.inference import Effect, seed_spread
from orchestrator.storage.schema import EVALUATIONS, SAMPLES
from orchestrator.storage.store import Store
from orchestrator.tracking.views import description
from orchestrator.training.record import CellRecord, finish

STYLES = figures.policy_styles(POLICIES)


def lopsided_store(folder: Path) -> Store:
    """A finished sweep: hard ends all correct with long answers, the others all wrong."""
    plan, store = full_sweep(folder)
    for number, cell in enumerate(plan.cells):
        record = cell_record(plan, cell, seed=number)
        hard = cell.policy == "hard"
        groups = [row | {"tokens": [60 if hard else 20] * 4} for row in record.groups.rows]
        outcome = "correct" if hard else "wrong"
        rows = [
            row | ({"outcome": outcome} if row["update"] else {})
            for row in record.evaluations.to_pylist()
        ]
        evaluations = pa.Table.from_pylist(rows, schema=EVALUATIONS)
        again = CellRecord(GroupRecorder(groups), evaluations, seconds=20.0)
        finish(store, cell, again, {"trl": "0"})
    return store


@pytest.fixture(scope="module")
def lopsided(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return read_rows(lopsided_store(tmp_path_factory.mktemp("lopsided")), plan.cells)


def only_verdict(rows: list[Row], compare_at: str = "updates") -> FamilyVerdict:
    (family,) = families(rows, compare_at)  # type: ignore[arg-type]
    return family_verdict(family)


def test_a_row_agrees_with_the_result(rows: list[Row]) -> None:
    row = rows[0]
    assert row.curve[0] == pytest.approx(row.result.accuracy_base)
    assert row.curve[row.cell.updates] == pytest.approx(row.result.accuracy_final)
    assert len(row.scores(0)) == len(row.counts[OWN][0]) == 12
    assert row.costs["tokens"][-1] == row.result.ledger.generated_tokens
    assert set(row.shares) == {1, 2, 3, 4}
    table = tables.results(rows)
    shown = dict(zip(table.head, table.body[0], strict=True))
    assert shown["generated tokens"] == f"{row.result.ledger.generated_tokens:,}"


def test_every_pair_of_policies_gets_one_sentence(rows: list[Row]) -> None:
    verdict = only_verdict(rows)
    assert {frozenset((p.comparison.a, p.comparison.b)) for p in verdict.pairs} == {
        frozenset((a, b)) for a in POLICIES for b in POLICIES if a != b
    }
    assert all(p.comparison.seeds == 2 and p.comparison.items == 12 for p in verdict.pairs)
    assert verdict.read_at == "final accuracy, after update 4"
    (family,) = families([r for r in rows if r.cell.policy == "hard"])
    verdict = family_verdict(family)
    assert verdict.pairs == () and verdict.lines == [verdict.single]
    swept = family_verdict(dataclasses.replace(family, setting_axes={"allocation": "sqrt"}))
    assert "allocation=" in swept.single and "allocation=" not in verdict.single


def test_a_decided_pair_comes_first_and_names_unequal_budgets(lopsided: list[Row]) -> None:
    verdict = only_verdict(lopsided)
    assert verdict.pairs[0].decided
    assert verdict.pairs[0].text.startswith("hard beats ")
    assert verdict.pairs[0].text.endswith("; not at equal generated tokens")
    others = [p for p in verdict.pairs if "hard" not in (p.comparison.a, p.comparison.b)]
    assert not any("not at equal" in pair.text for pair in others)
    for value in ("generated tokens", "hard (seeds 0, 1)", "67 %", "compare_at: tokens"):
        assert value in verdict.caveats[0]


def test_at_equal_tokens_each_cell_is_read_within_the_common_budget(lopsided: list[Row]) -> None:
    (family,) = families(lopsided, "tokens")
    at = {r.cell.policy: family.points[r.cell.cell_id].update for r in lopsided}
    assert at == {"hard": 0, "easy": 4, "middle": 4, "random": 4}  # evaluated at 0, 2 and 4
    verdict = family_verdict(family)
    assert "equal tokens" in verdict.read_at
    assert not any("generated tokens" in text for text in verdict.caveats)


def test_the_terminal_shows_the_analysis(plan: Plan, store: Store) -> None:
    analysis = analyse(plan, store)
    text = verdict_text(analysis)
    assert text.startswith("stub on small (final accuracy, after update 4; ")
    assert all(pair.text in text for pair in family_verdict(analysis.families[0]).pairs)
    assert "hard > random on small by 3: " in text
    report = terminal_report(analysis)
    assert report.split("\n\n")[1].startswith("model  dataset  policy") and report.endswith(text)
    assert "claims: 3 inconclusive" in report.split("\n")[0]
    results = {word for row in tables.results(analysis.rows).body for word in row[4].split()}
    for width in (80, 40):
        narrow = terminal_report(analysis, width)
        assert max(map(len, narrow.split("\n"))) <= width
        assert {*text.split()} | results <= {*narrow.split()}, "every word is kept"


def test_single_and_unequal_seeds_are_one_caveat_each(rows: list[Row]) -> None:
    verdict = only_verdict([r for r in rows if r.cell.seed == 0])
    assert verdict.caveats == (SINGLE_SEED,)
    assert not any("single seed" in pair.text for pair in verdict.pairs)
    counts = "hard 2, easy 2, middle 2, random 1"
    assert any(caveat.endswith(counts) for caveat in only_verdict(rows[:-1]).caveats)


def test_the_spread_between_seeds_comes_from_the_stores_other_cells(tmp_path: Path) -> None:
    finished_sweep(tmp_path, policies=("easy", "middle"), seeds=(0, 1, 2), name="other")
    few, store = finished_sweep(tmp_path, policies=("easy", "middle"))
    unlike, _ = finished_sweep(tmp_path, policies=("easy", "middle"), updates=6)
    spreads = read_spreads(store, few.cells)[policy_key(few_cells(tmp_path, "easy")[0])]
    finals = [row.result.accuracy_final for row in read_rows(store, few_cells(tmp_path, "easy"))]
    assert spreads.accuracy == seed_spread(finals)
    analysis = analyse(few, store)
    (pair,) = family_verdict(analysis.families[0]).pairs
    assert "points from 3 stored runs" in pair.text
    [caveat] = family_verdict(analysis.families[0]).caveats
    assert "single seed" in caveat and caveat != SINGLE_SEED
    (alone,) = family_verdict(analyse(unlike, store).families[0]).pairs
    assert "stored runs" not in alone.text and "needs more seeds" in alone.text


def few_cells(folder: Path, policy: str) -> list[Cell]:
    return small_plan(folder, policies=(policy,), seeds=(0, 1, 2), name="other").cells


def test_gains_agree_with_the_results(rows: list[Row]) -> None:
    compared = families(rows)
    table = tables.gains(compared)
    assert table.head == ("model and data", *POLICIES)
    hard = {r.cell.seed: 100 * r.result.gain for r in rows if r.cell.policy == "hard"}
    assert table.body[0][1].startswith(f"{np.mean([*hard.values()]):+.1f} [".replace("-", "−"))
    worst = min(hard, key=hard.__getitem__)
    beside = f"; worst {hard[worst]:+.1f}, seed {worst}".replace("-", "−")
    assert table.body[0][1].endswith(beside)
    assert tables.learnable(compared).body[0][1].count("[") == 1
    one = tables.learnable(families([r for r in rows if r.cell.seed == 0]))
    assert "[" not in one.body[0][1]  # one number has no interval


def with_far_set(row: Row, right: int) -> Row:
    """A row whose cell was also evaluated on another test set: 3 questions, 8 samples."""
    base = {f"q{i}": (8, 1) for i in range(3)}
    final = {f"q{i}": (8, right) for i in range(3)}
    counts = {**row.counts, "far": {0: base, row.cell.updates: final}}
    return dataclasses.replace(row, counts=counts)


def test_pass_at_8_is_shown_for_another_test_set(rows: list[Row]) -> None:
    table = tables.pass_at(families([with_far_set(r, right=0) for r in rows]))
    lines = {(line[1], line[2]): line for line in table.body}
    assert set(lines) == {
        (s, m) for s in ("small (its own)", "far") for m in ("accuracy", "pass@8")
    }
    assert lines["far", "pass@8"][3] == "100.0"
    assert lines["far", "pass@8"][4].startswith("0.0 (−100.0")
    assert lines["far", "accuracy"][3] == "12.5"


def test_the_largest_k_is_one_that_every_question_has(rows: list[Row]) -> None:
    assert tables.best_k(rows, OWN) == 8
    few = dataclasses.replace(rows[0], counts={OWN: {0: {"q": (5, 1)}}})
    assert tables.best_k([few], OWN) == 4
    assert tables.best_k([few], "far") is None


def test_the_page_names_the_version_and_the_date_of_the_last_result(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=("hard", "random"))
    for cell, day in zip(plan.cells, (3, 2), strict=True):
        place = ("cells", cell.cell_id, "result.json")
        opened = store.open_json(*place)
        assert opened is not None
        written = datetime.fromisoformat(opened.value["finished_at"])
        assert abs(written.timestamp() - time.time()) < 3600
        own = {"finished_at": f"2026-01-0{day}T04:05:00+00:00"}
        store.write_json(opened.value | own, *place, files=opened.files)
    html = page_html(sweep_page(analyse(plan, store)))
    assert f"Decile {__version__}, last result 2026-01-03 04:05 UTC" in html


def test_training_curves_show_what_the_trainer_logged(rows: list[Row]) -> None:
    groups = families(rows)[0].by_policy()
    plain = svg_text(figures.training_curves(groups, STYLES))
    assert "learnable %" in plain and "completion length, tokens" in plain
    assert not [text for text in plain if text.startswith(("reward", "KL"))], "not in these logs"
    logged = {"reward": {1: 0.5, 2: 0.75}, "kl": {1: 0.0, 2: 0.1}}
    full = [dataclasses.replace(row, log=logged) for row in rows[:2]]
    mixed = {"hard": full, "easy": [dataclasses.replace(row, log={}) for row in full]}
    assert "reward" in svg_text(figures.training_curves(mixed, STYLES))
    plain = svg_text(figures.training_curves({"hard": full}, STYLES))
    assert {"reward", "learnable %", "hard"} <= set(plain)
    assert any(text.startswith("KL") for text in plain)
    assert "completion length, tokens" not in plain


def svg_text(figure: MplFigure) -> list[str]:
    """The texts of a figure, which stand in it as comments."""
    return re.findall(r"<!-- (.*?) -->", svg_of(figure))


def test_completions_before_and_after_stand_side_by_side(plan: Plan, store: Store) -> None:
    analysis = analyse(plan, store)
    (section,) = (s for s in sweep_page(analysis).sections if s.anchor.startswith("completions"))
    blocks = [block for block in section.blocks if isinstance(block, Completions)]
    assert len(blocks) == 4
    prompts = sorted(plan.pool(plan.cells[0].baseline).test, key=lambda p: p.prompt_id)
    assert [block.question for block in blocks] == [p.question for p in prompts[:4]]
    names = [name for name, _, _ in blocks[0].answers]
    after = [f"after training on {policy}, seed 0" for policy in POLICIES]
    assert names == ["before: base model", *after]
    assert blocks[0].answers[0][2].startswith("<b>after 0</b>")
    assert blocks[0].answers[1][2].startswith("<b>after 4</b>")
    html = section_html(section)
    assert "&lt;b&gt;after 4&lt;/b&gt;" in html and "<b>after" not in html


def table_html(*tables: Table) -> str:
    return section_html(Section("s", "S", tables))


def test_a_table_shows_repeated_first_cells_once_and_keeps_them_hidden() -> None:
    body = [("a/b", "1.0 (+2.0 [0.1, 3.9])"), ("a/b", "2.0"), ("<c>", "3.0 [1.0, 5.0]")]
    html = table_html(Table("T", ("x", "y"), body))
    assert html.count('rowspan="2"') == html.count("<td hidden>a/<wbr>b</td>") == 1
    assert "<td>1.0<small> (+2.0 [0.1, 3.9])</small></td>" in html
    assert "<td>&lt;c&gt;</td><td>3.0<small> [1.0, 5.0]</small></td>" in html
    assert "<h3>T</h3>" in html


def test_a_long_table_is_folded_with_its_length() -> None:
    few, many = (Table("T", ("x",), [(str(n),) for n in range(k)]) for k in (24, 25))
    assert "<details>" not in table_html(few)
    assert "<details><summary>T: 25 rows</summary>" in table_html(many)
    assert "<details><summary>T: 24 rows</summary>" in table_html(
        dataclasses.replace(few, folded=True)
    )


def test_tables_and_figures_are_files_with_unique_names() -> None:
    table = Table("A <b> %", ("x, y",), [('"a/b" [<1]',)])
    assert list(csv.reader(table.csv.splitlines())) == [["x, y"], ['"a/b" [<1]']]
    figure = Figure("Model 1.5B & more: what it is", lambda: axes.new_axes()[0])
    assert list(by_file_name([table, table])) == ["a_b_pct", "a_b_pct_2"]
    assert list(by_file_name([figure])) == ["model_1_5b_more"]
    svg = ET.fromstring(figure.file)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert svg.attrib["aria-label"] == figure.caption


def test_an_empty_store_gives_a_page(plan: Plan, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    analysis = analyse(plan, Store(str(tmp_path / "nothing")))
    assert "\n" not in terminal_report(analysis)
    write_page(sweep_page(analysis), page)
    text, reader = read(page)
    assert "0 of 8 cells finished" in text
    assert reader.headings[-1] == "How to reproduce"


def test_a_policy_has_one_colour_in_every_figure_and_sweep(rows: list[Row]) -> None:
    few, many = (figures.policy_styles(p) for p in (("random", "mine"), ("mine", *POLICIES)))
    assert list(few) == ["random", "mine"]
    assert few["random"] == many["random"] == (axes.COLOURS[3], figures.MARKERS[3])
    assert [many[p][0] for p in POLICIES] == list(axes.COLOURS[:4])
    assert len({*figures.policy_styles(f"p{n}" for n in range(44)).values()}) == 44
    random = [row for row in rows if row.cell.policy == "random"]
    for figure in (
        figures.accuracy_curves(random, STYLES),
        figures.learnable_against_gain({"a": random}, STYLES),
    ):
        svg = svg_of(figure)
        assert axes.COLOURS[3].lower() in svg.lower()
        assert axes.COLOURS[0].lower() not in svg.lower()
        assert svg.startswith('<svg fill="currentColor"') and "currentColor" in svg[30:]
        assert "#000000" not in svg and "http" not in svg, "text has the colour of the page"


def test_r_squared_needs_eight_policies(rows: list[Row]) -> None:
    few = svg_of(figures.learnable_against_gain({"a": rows}, STYLES))
    assert "stroke-dasharray" not in few and "R²" not in few, "eight cells of four policies"
    renamed = [
        dataclasses.replace(row, cell=row.cell.model_copy(update={"policy": f"policy {number}"}))
        for number, row in enumerate(rows)
    ]
    styles = {row.cell.policy: STYLES["hard"] for row in renamed}
    many = svg_of(figures.learnable_against_gain({"a": renamed}, styles))
    assert "stroke-dasharray" in many and "R²" in many


def test_a_gain_has_one_interval_in_all_tables(rows: list[Row]) -> None:
    one = [row for row in rows if row.cell.seed == 0]
    by_cell = tables.results(one)
    column = by_cell.head.index("gain in points [95 %]")
    compared = families(one)
    levels = tables.pass_at(compared).body[0]
    for number, text in enumerate(tables.gains(compared).body[0][1:]):
        assert by_cell.body[number][column] == text
        assert levels[4 + number].endswith(f"({text})")


def test_a_policy_that_changes_nothing_has_an_interval_of_its_own(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=("hard",))
    (cell,) = plan.cells
    record = cell_record(plan, cell)
    base = record.evaluations.filter(pc.equal(record.evaluations["update"], 0)).to_pylist()
    same = [row | {"update": update} for update in (0, 2, 4) for row in base]
    evaluations = pa.Table.from_pylist(same, schema=EVALUATIONS)
    finish(store, cell, CellRecord(record.groups, evaluations, seconds=2.0), {})
    (row,) = read_rows(store, plan.cells)
    low = 100 * (1 - 0.025 ** (1 / 12))  # questions whose answers might still change
    assert tables.results([row]).body[0][5] == f"+0.0 [−{low:.1f}, +{low:.1f}]"


def test_no_interval_of_a_difference_exceeds_100_points() -> None:
    assert sentences.effect_text(Effect(0.5, -2.7, 3.7, 0.5)) == "+50.0 [−100.0, +100.0]"
    assert sentences.effect_text(Effect(0.5, -np.inf, np.inf, 1.0)) == "+50.0"
    assert sentences.effect_text(Effect(np.nan, np.nan, np.nan, 1.0)) == "–"


def test_each_model_and_dataset_is_a_separate_family(rows: list[Row]) -> None:
    cell = rows[0].cell
    model = dataclasses.replace(cell.probe.model, name="other")
    probe = cell.probe.model_copy(update={"model": model})
    other = dataclasses.replace(rows[0], cell=cell.model_copy(update={"probe": probe}))
    compared = families([*rows, other])
    assert [f.title for f in compared] == ["stub on small", "other on small"]
    assert tables.gains(compared).body[1][2:] == ("–", "–", "–")


def test_evaluations_of_another_set_in_the_store_are_read(plan: Plan, tmp_path: Path) -> None:
    cell, store = plan.cells[0], Store(str(tmp_path / "runs"))
    finished_cell(store, plan, cell)
    record = cell_record(plan, cell)
    one = sample_row("q", 0, outcome="correct")
    samples = pa.Table.from_pylist([one], schema=SAMPLES)
    for update in (0, cell.updates):
        far = as_evaluation(samples, update, {"q": ""}, dataset="far")
        record.add_evaluation(far.cast(EVALUATIONS))
    finish(store, cell, record, {})
    (row,) = read_rows(store, [cell])
    assert row.counts["far"] == {0: {"q": (1, 1)}, cell.updates: {"q": (1, 1)}}


def test_a_policy_whose_cells_end_below_the_base_model_is_named(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=["hard", "random"], seeds=[0, 1, 2])
    rows = read_rows(store, plan.cells)
    large, small = Effect(-0.3, -0.4, -0.2, 1e-6), Effect(-0.1, -0.2, 0, 0.008)
    clear = {("hard", 0): large, ("hard", 2): small}
    gain = {"hard": Effect(-0.05, -0.12, 0.02, 0.02), "random": Effect(0.1, 0.05, 0.15, 1e-6)}
    changed = [
        dataclasses.replace(
            row, gain=clear.get((row.cell.policy, row.cell.seed), gain[row.cell.policy])
        )
        for row in rows
    ]
    [family] = families(changed)
    verdict = family_verdict(family)
    [line] = verdict.below_base
    assert line.startswith("hard ") and "2 of 3 seeds: −30.0 [−40.0, −20.0]" in line
    assert "seed 0, the worst" in line and line in verdict.lines
    assert line.partition(":")[0] in description([verdict])
    assert line in section_html(Section("a", "A", (verdict,)))
    assert [row.cell.seed for row in family.collapsed["hard"]] == [0, 2]
    [family] = families(rows)
    assert family_verdict(family).below_base == ()


SECTIONS = (
    "Verdicts",
    "Gains",
    "Learnable groups",
    "Training curves",
    "Test sets",
    "Where the gain comes from",
    "Completions before and after: stub on small",
    "Cells and ledger",
    "How to reproduce",
)


def test_a_sweep_whose_questions_cannot_be_scored_is_analysed(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=("hard", "random"))
    for cell in plan.cells:
        record = cell_record(plan, cell)
        failed = [r | {"outcome": "error"} for r in record.evaluations.to_pylist()]
        evaluations = pa.Table.from_pylist(failed, schema=EVALUATIONS)
        finish(store, cell, CellRecord(record.groups, evaluations, seconds=2.0), {})
    analysis = analyse(plan, store)
    (pair,) = family_verdict(analysis.families[0]).pairs
    assert pair.text.startswith("hard vs. random on small: inconclusive (")
    assert tables.results(analysis.rows).body[0][4:6] == ("– → –", "–")
    write_page(sweep_page(analysis), tmp_path / "page.html")
    assert "nan" not in re.sub(
        r"<svg.*?</svg>", "", (tmp_path / "page.html").read_text(), flags=re.S
    )


def test_the_page_has_every_section_and_no_external_resources(
    plan: Plan, store: Store, tmp_path: Path
) -> None:
    for name in ("page.html", "again.html"):
        write_page(sweep_page(analyse(plan, store)), tmp_path / name)
    text, reader = read(tmp_path / "page.html")
    assert (tmp_path / "again.html").read_text() == text, "the same store gives the same page"
    assert [h for h in reader.headings if h in SECTIONS] == list(SECTIONS)
    assert reader.loads == []
    assert not re.search(r"https?://|url\((?!#)|@import|<script", text)
    assert text.count("<svg") == text.count('role="img"') == 6
    assert all(cell.cell_id in text and cell.subset_key in text for cell in plan.cells)


def test_user_text_is_escaped(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, about="<img src=x> & <i>more</i>", claims=[CLAIMS[0]])
    page = tmp_path / "page.html"
    write_page(sweep_page(analyse(plan, store)), page)
    text, reader = read(page)
    assert "&lt;img src=x&gt; &amp; &lt;i&gt;more" in text
    assert "<i>" not in text and "hard > random" not in text
    assert reader.loads == []


def test_the_pool_is_shown_where_its_probe_is_in_the_store(tmp_path: Path) -> None:
    plan, store = full_sweep(tmp_path)
    section = sweep_page(analyse(plan, store)).sections[-2]
    assert section.title == "Difficulty: stub on small" and not section.figures
    assert "decile probe" in section_html(section)
    probed(plan, store)
    section = sweep_page(analyse(plan, store)).sections[-2]
    histogram, outcomes = section.figures
    assert "40 prompts" in histogram.caption
    assert len(section.blocks) == 1 and isinstance(section.blocks[0], FigureRow)  # not adaptive
    assert all(f"<!-- {name} -->" in outcomes.svg for name in ("pool", *POLICIES))
