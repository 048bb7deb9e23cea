"""Comparison with paper A: its numbers, their best-case uncertainty, and which orderings hold."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from factories import finished_sweep

from orchestrator.cli.main import main
from orchestrator.config.entries import PolicyEntry
from orchestrator.planning.cells import ExtraEval
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


@pytest.mark.parametrize(
    ("row", "a", "b", "says"),
    [
        (0, "hard", "random", "holds"),
        (5, "hard", "random", "inconclusive"),
        (3, "hard", "easy", "holds"),
        (0, "easy", "hard", "contrary"),
    ],
)
def test_best_case_verdicts_on_published_gains(row: int, a: str, b: str, says: str) -> None:
    """Phi-4 on shuffled objects: 32.8 against 28.8 is five questions of 125."""
    assert published.PUBLISHED[row].difference("gain", a, b)[1] == says


def test_learnable_percentages_are_compared_as_shares_of_a_thousand_groups() -> None:
    phi = published.PUBLISHED[5]
    points, says = phi.difference("learnable", "hard", "random")
    assert points == pytest.approx(-0.2) and says == "inconclusive"
    assert phi.difference("learnable", "hard", "easy")[1] == "holds"
    assert published.tally(published.Ordering("learnable", "hard", "easy")) == "holds in 7 of 7"


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
    assert not paper.orderings(families(strange)).body


def test_orderings_are_judged_by_the_pairs_of_the_report(rows: list[Row]) -> None:
    (family,) = families(rows)
    table = paper.orderings([family])
    assert len(table.body) == len(published.ORDERINGS) + 3 + 1
    cells_by_claim = {line[0]: line[1:] for line in table.body}
    pair = next(c for c in family.accuracy if {c.a, c.b} == {"hard", "random"})
    verdict = "inconclusive" if pair.spans_zero else ("supported" if pair.low > 0 else "refuted")
    assert cells_by_claim["hard gains more than random"][1].startswith(f"{verdict} (")
    assert cells_by_claim["hard gains more than random"][0] == "holds in 6 of 7, inconclusive in 1"
    assert cells_by_claim["hard leads easy early on"][1].endswith(" after 2")
    (fit,) = (cells for claim, cells in cells_by_claim.items() if claim.endswith("R²"))
    assert fit[0] == "0.670 of 24 points and 0.641 of 28 points"
    assert fit[1] == "–", "four policies are too few"


def test_one_seed_compares_learnable_by_updates_and_has_no_early_verdict(rows: list[Row]) -> None:
    one = [row for row in rows if row.cell.seed == 0]
    ends = [dataclasses.replace(r, counts={"": {u: r.counts[""][u] for u in (0, 4)}}) for r in one]
    cells_by_claim = {line[0]: line[2] for line in paper.orderings(families(ends)).body}
    assert not cells_by_claim["hard gains more than easy"].endswith("one seed)")
    learnable = [text for claim, text in cells_by_claim.items() if "more learnable" in claim]
    assert learnable[0].endswith("; 4 updates of one seed)")
    assert cells_by_claim["hard leads easy early on"] == "–"


def with_aime(row: Row, right: int) -> Row:
    """A row whose cell was also evaluated on 15 questions of AIME, 8 samples each."""
    task = dataclasses.replace(row.cell.probe.dataset, name="aime", task="aime2025")
    probe = row.cell.probe.model_copy(update={"dataset": task})
    evaluated = ExtraEval(probe=probe, dataset="aime", greedy=False, test_hash="")
    base, final = ({f"q{i}": (8, int(i < n)) for i in range(15)} for n in (5, right))
    counts = {**row.counts, "aime": {0: base, row.cell.updates: final}}
    cell = row.cell.model_copy(update={"extra_evals": [evaluated]})
    return dataclasses.replace(row, cell=cell, counts=counts)


def test_aime_is_compared_with_the_papers_six_questions_against_five(rows: list[Row]) -> None:
    evaluated = [with_aime(row, 6 if row.cell.policy == "hard" else 5) for row in rows]
    published, measured = paper.aime(families(evaluated)).body
    assert published[3:5] == ("pass@8", "33.3")
    assert published[7].startswith("40.0 (+6.7 [−7.6, +21.0]): inconclusive")
    assert all(entry.endswith("inconclusive") for entry in published[5:])
    assert measured[3:5] == ("pass@8 on aime", "33.3")
    assert measured[7].startswith("40.0 (+6.7 [−")
    assert not paper.aime(families(rows)).body


def test_data_without_published_numbers_gives_no_comparison(rows: list[Row]) -> None:
    other = []
    for row in rows:
        dataset = dataclasses.replace(row.cell.probe.dataset, task="arithmetic")
        probe = row.cell.probe.model_copy(update={"dataset": dataset})
        other.append(dataclasses.replace(row, cell=row.cell.model_copy(update={"probe": probe})))
    (table,) = paper.tables(families(other))
    assert table.title == paper.orderings(families(other)).title
    single = families([row for row in other if row.cell.policy == "hard"])
    assert paper.tables(single) == []
    about, text = page.paper_a(single).blocks
    assert text == Paragraph(paper.NOT_APPLICABLE)


@pytest.mark.slow
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
