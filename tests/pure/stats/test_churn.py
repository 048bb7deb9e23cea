"""Questions gained and lost: what holds for any samples, and the tables of a sweep and of arms."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from factories import finished_sweep
from hypothesis import given
from hypothesis import strategies as st

import decile
from orchestrator.report.analysis import analyse
from orchestrator.report.churn import churn_by_part, churn_table
from orchestrator.report.fairness import gain_rates, per_cost
from orchestrator.report.rows import OWN, Row, read_rows
from orchestrator.report.sections.page import sweep_page
from orchestrator.report.sections.tables import churns, gain_per_cost
from orchestrator.report.sentences import in_digits, rate_text
from orchestrator.stats.churn import Marks, RunMarks, churn, flips
from orchestrator.stats.inference import Effect, mcnemar_p, mean_effect

QUESTIONS = [f"q{i}" for i in range(12)]
RATES = np.random.default_rng(4).beta(0.6, 0.5, 3000)


@st.composite
def runs(draw: st.DrawFn, most: int = 4, count: int = 1) -> list[RunMarks]:
    """Runs with scores of all questions, of one to `most` samples each."""
    sides = []
    for _ in range(count):
        scored = [draw(st.integers(1, 2**most - 1)) for _ in QUESTIONS]
        correct = [word & draw(st.integers(0, 2**most - 1)) for word in scored]
        sides.append(dict(zip(QUESTIONS, map(Marks, scored, correct), strict=True)))
    return sides


def accuracy(side: list[RunMarks]) -> float:
    return float(np.mean([each.rate for run in side for each in run.values()]))


@given(runs(count=2), runs(count=3))
def test_net_is_the_difference_of_accuracies_and_sides_may_be_swapped(
    a: list[RunMarks], b: list[RunMarks]
) -> None:
    forth, back = churn([flips(a, b)]), churn([flips(b, a)])
    assert forth and back
    assert forth.net == pytest.approx(12 * (accuracy(b) - accuracy(a)))
    assert (forth.gained, forth.lost) == pytest.approx((back.lost, back.gained))
    assert forth.by_chance == pytest.approx(back.by_chance) and forth.p == pytest.approx(back.p)


@given(runs(most=1), runs(most=1))
def test_single_samples_are_counted_and_tested_by_mcnemar(
    a: list[RunMarks], b: list[RunMarks]
) -> None:
    first, second = (np.array([run[i].correct for i in QUESTIONS]) for run in (a[0], b[0]))
    own = churn([flips(a, b)])
    assert own and (own.questions, own.by_chance) == (12, None)
    assert (own.gained, own.lost) == ((second > first).sum(), (first > second).sum())
    assert own.p == mcnemar_p(first, second)
    related = churn([flips(a, b)], dict.fromkeys(QUESTIONS[:4], "one"))
    assert related and related[:4] == own[:4]
    codes = np.array([0, 0, 0, 0, *range(1, 9)])
    clustered = mean_effect((second - first)[None, :].astype(float), codes)
    assert related.p == pytest.approx(clustered.p)


@given(runs(), runs(), st.sets(st.sampled_from(QUESTIONS), min_size=1, max_size=11))
def test_parts_add_up(a: list[RunMarks], b: list[RunMarks], part: set[str]) -> None:
    changed = [flips(a, b), flips(b, b)]
    every = churn(changed)
    one, other = churn(changed, only=part), churn(changed, only={*QUESTIONS} - part)
    assert every and one and other
    assert np.add(one[:3], other[:3]) == pytest.approx(every[:3])


@pytest.mark.parametrize(
    ("samples", "of_side", "common"),
    [(4, 1, False), (4, 1, True), (2, 3, False), (2, 3, True), (1, 3, False)],
)
def test_sides_that_are_alike_churn_as_by_chance(samples: int, of_side: int, common: bool) -> None:
    """Without any change, about Σ p (1 − p) questions are gained, and as many lost.

    common: sample i of every run has the same random number.
    """
    rng = np.random.default_rng([samples, of_side])
    shared = rng.random((samples, len(RATES)))

    def side(rates: np.ndarray) -> list[RunMarks]:
        own = rng.random((of_side, samples, len(rates)))
        correct = np.tile(shared, (of_side, 1, 1)) < rates if common else own < rates
        words = (correct << np.arange(samples)[:, None]).sum(axis=1).tolist()
        return [{str(i): Marks(2**samples - 1, w) for i, w in enumerate(run)} for run in words]

    own = churn([flips(side(RATES), side(RATES))])
    expected = (RATES * (1 - RATES)).sum()
    assert own and own.by_chance == pytest.approx(expected, rel=0.06)
    assert (own.gained, own.lost) == pytest.approx((expected, expected), rel=0.06)
    moved = np.where(np.arange(len(RATES)) % 2, RATES, RATES[::-1])
    changed = churn([flips(side(RATES), side(moved))])
    beyond = ((RATES - moved) ** 2).sum()
    assert changed and changed.by_chance is not None
    assert changed.gained + changed.lost - 2 * changed.by_chance == pytest.approx(beyond, rel=0.06)


def test_questions_without_a_score_are_left_out() -> None:
    a = {"x": Marks(0b11, 0b01), "y": Marks(), "z": Marks(1, 1)}
    b = {"x": Marks(0b11, 0b11), "y": Marks(3, 3), "z": Marks(1, 0), "w": Marks(1, 1)}
    own = churn([flips([a], [b])])
    assert own and own[:4] == (2, 0.5, 1.0, 2 * 0.25), "z has no second sample"
    assert churn([flips([a], [{}])]) is None and churn([flips([a], [b])], only={"y"}) is None


# ---- a sweep


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    plan, store = finished_sweep(tmp_path_factory.mktemp("sweep"), seeds=(0, 1))
    return read_rows(store, plan.cells)


def test_the_churn_of_a_policy_and_of_its_tiers_and_sources(rows: list[Row]) -> None:
    hard = [row for row in rows if row.cell.policy == "hard"]
    ids = [*hard[0].counts[OWN][0]]
    of = {i: "ab"[n % 2] for n, i in enumerate(ids)}
    hard = [replace(row, kinds={**row.kinds, "source": of}) for row in hard]
    every, *parts = churn_by_part(hard)
    assert every.churn.net == pytest.approx(12 * np.mean([row.result.gain for row in hard]))
    assert [(part.kind, part.name) for part in parts] == [
        *(("tier", name) for name in "357"),
        *(("source", name) for name in "ab"),
    ]
    for kind in ("tier", "source"):
        own = [part.churn[:4] for part in parts if part.kind == kind]
        assert np.sum(own, axis=0) == pytest.approx(every.churn[:4])
    one_tier = {**hard[0].kinds, "tier": dict.fromkeys(ids, "1")}
    same = [replace(row, kinds=one_tier) for row in hard]
    assert {part.kind for part in churn_by_part(same)} == {"", "source"}


def test_the_table_has_every_pair_of_evaluations(rows: list[Row]) -> None:
    table = churn_table(rows)
    spans = zip(table["from_update"].to_pylist(), table["to_update"].to_pylist(), strict=True)
    assert [*dict.fromkeys(spans)] == [(0, 4), (0, 2), (2, 4)]
    whole = [r for r in table.to_pylist() if r["part"] == "all" and r["from_update"] == 0]
    gains = {(r["cell_id"], r["to_update"]): r["net"] / r["questions"] for r in whole}
    for row in rows:
        assert gains[row.cell.cell_id, 4] == pytest.approx(row.result.gain)
        assert gains[row.cell.cell_id, 2] == pytest.approx(row.curve[2] - row.curve[0])


def test_the_page_shows_churn_and_gain_per_cost(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=(0, 1))
    analysis = analyse(plan, store)
    page = sweep_page(analysis)
    every, parts = churns(analysis.families)
    assert page.tables["questions_gained_and_lost"] == every and [*every.head[2:5]] == [
        *("questions", "gained", "lost")
    ]
    assert len(every.body) == 2 and len(parts.body) == 6 and parts.folded
    assert page.tables["gain_per_cost"] == gain_per_cost(analysis.families)


def test_a_gain_is_divided_by_each_seeds_own_cost(rows: list[Row], tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=("hard",), seeds=(0, 1))
    [family] = analyse(plan, store).families
    used = [{"gpu_seconds": 7200, "labels": 40}, {"gpu_seconds": 3600, "labels": 0}]
    dear = []
    for row, costs in zip(family.rows, used, strict=True):
        ledger = row.result.ledger.model_copy(update=costs)
        dear.append(replace(row, result=row.result.model_copy(update={"ledger": ledger})))
    lines = {line[1]: line[2] for line in gain_per_cost([replace(family, rows=tuple(dear))]).body}
    assert [*lines] == ["GPU hour", "1M generated tokens", "100 labels"]
    assert lines["100 labels"] == "–", "one seed has used none"
    assert [*gain_per_cost([family]).body[0][1:2]] == ["hour"]


def test_a_gain_per_cost_is_mean_gain_by_mean_cost() -> None:
    changes = [dict.fromkeys("abcd", gain) for gain in (0.25, 0.5, 0.75)]
    rates = gain_rates(changes, [{"x": 1.0, "y": 2.0}, {"x": 2.0}, {"x": 3.0}])
    assert [*rates] == ["x"], "two cells have used no y"
    assert rates["x"].mean == pytest.approx(100 * 0.5 / 2)
    costs = np.array([1.0, 2.0, 3.0])
    values = np.array([[0.1, 0.5], [0.2, 0.3], [0.9, 0.4]])
    assert per_cost(values, costs).mean() == pytest.approx(values.mean() / 2)
    assert per_cost(values, np.full(3, 4.0)) == pytest.approx(values / 4)
    rate = values.mean() / 2
    deviations = (values.mean(axis=1) - rate * costs) / 2
    assert per_cost(values, costs).mean(axis=1) - rate == pytest.approx(deviations)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Effect(1580.0, 1200.0, 1960.0, 0.01), "+1,600 [+1,200, +2,000]"),
        (Effect(-0.0123, -0.0145, -0.0101, 0.01), "−0.012 [−0.015, −0.010]"),
        (Effect(10.0, 4.9, 15.1, 0.01), "–"),
        (Effect(math.nan, -math.inf, math.inf, 1.0), "–"),
        (None, "–"),
    ],
)
def test_a_gain_per_cost_is_shown_where_its_interval_is_narrow(
    rate: Effect | None, text: str
) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "+1,200"), (-0.012349, "−0.012"), (9.999, "+10"), (0, "+0.0"), (math.nan, "–")],
)
def test_two_significant_digits(value: float, text: str) -> None:
    assert in_digits(value) == text


# ---- arms


def items(*scores: float) -> pa.Table:
    return pa.table({"id": QUESTIONS[: len(scores)], "correct": [*map(float, scores)]})


def test_arms_have_them_by_tier_and_source_where_files_agree(tmp_path: Path) -> None:
    a, b = items(1, 1, 1, 0, 1, 0, 0), items(0, 0, 1, 1, 1, 0, 0)
    tiers, sources = pa.array([*"1122222"]), [pa.array([*"xxyyyyy"]), pa.array([*"xyyyyyy"])]
    a = a.append_column("tier", tiers).append_column("source", sources[0])
    b = b.append_column("tier", tiers).append_column("source", sources[1])
    comparison = decile.compare({"a": a, "b": b})
    [pair] = comparison.to_dict()["comparisons"]
    parts = {
        (p["kind"], p["name"]): (p["only_a"], p["only_b"], p["questions"]) for p in pair["parts"]
    }
    assert parts == {
        ("tier", "1"): (2, 0, 2),
        ("tier", "2"): (0, 1, 5),
        ("source", "x"): (1, 0, 1),  # of the second question the files name two sources
        ("source", "y"): (0, 1, 5),
    }
    page = comparison.save(tmp_path / "page.html").read_text()
    assert "source x" in page
    assert "source x" not in repr(comparison)
    assert "parts" not in comparison.to_pandas()


def test_arms_have_the_questions_that_one_alone_answers() -> None:
    a, b = items(1, 1, 1, 0, 1, 0, 0), items(0, 0, 1, 1, 1, 0, 0)
    [pair] = decile.compare({"a": a, "b": b}).to_dict()["comparisons"]
    assert (pair["only_a"], pair["only_b"], pair["only_by_chance"]) == (2, 1, None)
    assert pair["effect"] == pytest.approx(100 * (2 - 1) / 7)
    several = decile.compare({"a": [a, b], "b": [b, items(1, 0, 1, 1, 1, 0, 0)]})
    [pair] = several.to_dict()["comparisons"]
    assert pair["effect"] == pytest.approx(100 * (pair["only_a"] - pair["only_b"]) / 7)
    assert pair["only_by_chance"] == pytest.approx((3 / 2 + 1 / 2) / 2), "two seeds of an arm"
    frame = several.to_pandas()
    assert frame["only_a"][0] == pair["only_a"]
    [graded] = decile.compare({"a": a, "b": items(0.5, 0, 1, 1, 1, 0, 0)}).to_dict()["comparisons"]
    assert graded["only_a"] is None, "a score between right and wrong"


def test_arms_of_cells_have_their_gain_per_cost(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=(0, 1))
    folders: dict[str, list[str]] = {}
    for cell in plan.cells:
        folders.setdefault(cell.policy, []).append(str(tmp_path / "runs" / "cells" / cell.cell_id))
    cells = decile.compare(folders)
    rows = read_rows(store, plan.cells)
    for arm in cells.to_dict()["arms"]:
        own = [row for row in rows if row.cell.policy == arm["name"]]
        rate = 100 * np.mean([r.result.gain for r in own]) / np.mean([r.labels / 100 for r in own])
        assert [*arm["gain_per"]] == ["hour", "1M generated tokens", "100 labels"]
        gain = arm["gain_per"]["100 labels"]
        assert gain["effect"] == pytest.approx(rate) and gain["low"] <= rate <= gain["high"]
    table = pa.table({"prompt_id": [*rows[0].counts[OWN][0]], "correct": [1.0] * 12})
    mixed = decile.compare({"cells": folders["hard"], "table": table}).to_dict()["arms"]
    assert [bool(arm["gain_per"]) for arm in mixed] == [True, False]
