"""Claims of every kind, judged on stored tables whose numbers are known."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from factories import cell_record, finished_cell, finished_sweep, small_plan

from orchestrator.config.claims import resolved_claim
from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.pipeline.manifest import write_manifest
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, parts_of
from orchestrator.planning.pools import Pool
from orchestrator.report.analysis import analyse
from orchestrator.report.claim_verdicts import ClaimResult, claim_results
from orchestrator.report.compare import Spreads, families, policy_key, read_spreads
from orchestrator.report.html_pages import page_html
from orchestrator.report.looks import EXTRA_LEVEL, Look
from orchestrator.report.render import verdict_text
from orchestrator.report.rows import Row, read_rows
from orchestrator.report.sections.page import sweep_page
from orchestrator.stats.inference import ALPHA, SeedSpread
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from orchestrator.tracking.views import sweep_view
from orchestrator.training.record import CellRecord, finish

SAMPLES_EACH = 8
FEW = {"task": "shuffled_objects", "options": {"train": 40, "test": 10, "seed": 5}}
FAR = {"task": "arithmetic", "options": {"train": 0, "test": 6}}
GRID: dict[str, list[Any]] = {
    "model": ["stub"],
    "dataset": ["small", "few"],
    "policy": ["hard", "random"],
    "seed": [0, 1, 2],
    "probe.samples": [2, 4],
}


def correct(cell: Cell, test_set: str, update: int, question: int) -> int:
    """How many of the 8 samples of a question are correct."""
    base = question % 2 if test_set == "far" else 2 + question % 2
    hard = cell.policy == "hard"
    lifts = {0: 0, 2: 2 * hard, 4: [3, 4, 3][cell.seed] if hard else [1, 1, 2][cell.seed]}
    elsewhere = cell.probe.dataset.name == "small" and test_set == "few" and update > 0
    other_model = cell.probe.model.name == "other" and update > 0
    return base + lifts[update] - elsewhere - other_model


def live_groups(cell: Cell, update: int) -> int:
    """How many of the two groups of an update are live."""
    if cell.policy == "random":
        return 1
    return 1 if cell.probe.settings.samples == 4 and update <= 2 and cell.seed != 1 else 2


def evaluation(cell: Cell, pool: Pool, update: int) -> pa.Table:
    rows = []
    for q, prompt in enumerate(pool.test):
        solved = correct(cell, pool.dataset.name, update, q)
        for sample in range(SAMPLES_EACH):
            row = {"prompt_id": prompt.prompt_id, "sample": sample, "tokens": 20, "finish": "stop"}
            rows.append(row | {"outcome": "correct" if sample < solved else "wrong"})
    own = pool.dataset.name == cell.probe.dataset.name
    samples = pa.Table.from_pylist(rows, schema=SAMPLES)
    return as_evaluation(
        samples, update, pool.tiers("test"), dataset="" if own else pool.dataset.name
    )


def finish_cell(store: Store, plan: Plan, cell: Cell) -> None:
    finished_cell(store, plan, cell)
    groups = []
    for number, row in enumerate(cell_record(plan, cell).groups.rows):
        live = number % 2 < live_groups(cell, row["update"])
        tokens = [40 if cell.policy == "hard" else 20] * 4
        outcomes = ["correct" if live else "wrong", *["wrong"] * 3]
        kinds = {"outcomes": outcomes, "rewards": [float(live), 0.0, 0.0, 0.0]}
        groups.append(row | {"tokens": tokens} | kinds)
    record = CellRecord(GroupRecorder(groups), seconds=10.0)
    for name, pool in plan.pools.items():
        own = name == cell.probe.dataset.name
        if own or name in [extra.dataset for extra in cell.extra_evals]:
            for update in (0, 2, 4) if own else (0, 4):
                record.add_evaluation(evaluation(cell, pool, update))
    finish(store, cell, record, {"trl": "0"})


def measured_sweep(folder: Path, **changes: Any) -> tuple[Plan, Store]:
    evaluate = {"every": 2, "samples": SAMPLES_EACH, "ood": ["small", "few", "far"]}
    settings: dict[str, Any] = {"grid": GRID, "evaluate": evaluate} | changes
    plan = small_plan(folder, datasets={"few": FEW, "far": FAR}, **settings)
    store = Store(str(folder / "runs"))
    for cell in plan.cells:
        finish_cell(store, plan, cell)
    return plan, store


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, list[Row]]:
    plan, store = measured_sweep(tmp_path_factory.mktemp("sweep"))
    return plan, read_rows(store, plan.cells)


def judged(plan: Plan, rows: Sequence[Row], text: str, **more: Any) -> list[ClaimResult]:
    """The verdicts on a claim, each with an interval of 95 %."""
    count = len(claims_of(plan, rows, [text], **more))
    look = Look("", frozenset(), frozenset(), ALPHA * count)
    return claims_of(plan, rows, [text], looks=[look], **more)


def claims_of(
    plan: Plan, rows: Sequence[Row], texts: Sequence[str], **more: Any
) -> list[ClaimResult]:
    parts = {name: parts_of(pool) for name, pool in plan.pools.items()}
    claims = [resolved_claim(text, plan.experiment) for text in texts]
    compare_at = plan.experiment.compare_at
    return claim_results(claims, families(rows, compare_at), parts=parts, **more)


def test_the_level_is_that_of_all_claims_together(sweep: tuple[Plan, list[Row]]) -> None:
    claims = ["hard > random on small for probe.samples=2", "hard > base on far", "r2 > 0.5"]
    one, *others = claims_of(*sweep, claims)
    assert len(others) > 1
    exact = [100 * np.array(side) / SAMPLES_EACH for side in ([3, 4, 3], [1, 1, 2])]
    _, low, high = welch(*exact, level=ALPHA / (1 + len(others)))
    assert one.interval == f"[{points(low)}, {points(high)}]"
    assert f"interval of {100 * (1 - ALPHA / (1 + len(others))):.4g} %" in one.reason
    look = Look("", frozenset(), frozenset(), EXTRA_LEVEL)
    (strict, *_) = claims_of(*sweep, claims[:1], looks=[look, look])
    _, low, high = welch(*exact, level=EXTRA_LEVEL)
    assert strict.interval == f"[{points(low)}, {points(high)}]"
    assert strict.verdict == "inconclusive" and strict.declared.endswith("; look 2")


def test_claims_about_unfinished_cells_are_inconclusive(sweep: tuple[Plan, list[Row]]) -> None:
    plan, rows = sweep
    random = next(row.cell for row in rows if row.cell.policy == "random")
    further = random.model_copy(update={"seed": 9})
    for text, verdict in (("hard > random on small", "inconclusive"), ("hard > base", "supported")):
        whole = judged(plan, rows, text)
        results = judged(plan, rows, text, missing=[further])
        assert {r.verdict for r in whole} == {"supported"}
        changed = [r for r, before in zip(results, whole, strict=True) if r != before]
        assert {r.verdict for r in changed} == ({verdict} - {"supported"})
        assert all("1 planned cell not finished" in r.limits for r in changed)


def with_policy(row: Row, policy: str, same_as: str | None = None) -> Row:
    """A row as if it were of another policy, in the only block of its data."""
    cell = row.cell.model_copy(update={"policy": policy, "setting_axes": {}})
    return replace(row, cell=cell, result=row.result.model_copy(update={"same_as": same_as}))


def points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def over_seeds(differences: Sequence[float]) -> tuple[str, str]:
    """The mean of the differences (in samples of 8) in points, and its t interval, by SciPy."""
    shares = 100 * np.array(differences) / SAMPLES_EACH
    low, high = scipy.stats.ttest_1samp(shares, 0).confidence_interval(1 - ALPHA)
    return points(shares.mean()), f"[{points(low)}, {points(high)}]"


def between(a: Sequence[float], b: Sequence[float]) -> tuple[str, str]:
    """The same of two sides (in samples of 8), by Welch."""
    mean, low, high = welch(*(100 * np.array(side) / SAMPLES_EACH for side in (a, b)))
    return points(mean - 1e-9), f"[{points(low)}, {points(high)}]"


def welch(a: np.ndarray, b: np.ndarray, level: float = ALPHA) -> tuple[float, float, float]:
    """The difference and its t interval by SciPy, with degrees of freedom moved as `welch_df`."""
    test, seeds = scipy.stats.ttest_ind(a, b, equal_var=False), len(a)
    df = seeds - 1 + (test.df - (seeds - 1)) * (seeds - 1) / seeds
    mean = float(np.mean(a) - np.mean(b))
    half = float(scipy.stats.t.isf(level / 2, df)) * mean / float(test.statistic)
    return mean, mean - half, mean + half


def one_varies(differences: Sequence[float], of: float = SAMPLES_EACH) -> tuple[str, str]:
    """The same of two sides of which one is the same in every seed."""
    shares = 100 * np.array(differences) / of
    half = scipy.stats.t.isf(ALPHA / 2, len(shares) - 1) * scipy.stats.sem(shares)
    mean = shares.mean()
    return points(mean), f"[{points(mean - half)}, {points(mean + half)}]"


def constant(difference: float, items: int) -> tuple[str, str]:
    """The same where no two seeds and questions differ."""
    differ, share = 1 - (ALPHA / 2) ** (1 / items), difference / SAMPLES_EACH
    low, high = share - differ * (1 + share), share + differ * (1 - share)
    return points(100 * share), f"[{points(100 * low)}, {points(100 * high)}]"


AREAS = [1.75, 2.0, 1.75], [0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("claim", "cells", "expected", "verdict"),
    [
        # Policies on their own test set, at the end: 3, 4, 3 against 1, 1, 2.
        ("hard > random on small", "stub on small", between([3, 4, 3], [1, 1, 2]), "supp"),
        ("gain hard > random on small", "stub on small", between([3, 4, 3], [1, 1, 2]), "supp"),
        ("random < hard on small", "stub on small", between([3, 4, 3], [1, 1, 2]), "supp"),
        # The base model.
        ("hard > base on small by 20", "stub on small", over_seeds([3, 4, 3]), "supported"),
        ("base > hard on small", "stub on small", over_seeds([-3, -4, -3]), "refuted"),
        # Another test set: trained on both.
        ("hard > random on far", "stub on few", between([3, 4, 3], [1, 1, 2]), "supp"),
        # Training sets: training on small costs one sample on few.
        ("few > small on few", "stub, hard", between([3, 4, 3], [2, 3, 2]), "inconclusive"),
        ("few > base on few", "stub, random", over_seeds([1, 1, 2]), "inconclusive"),
        # During training: 2 against 0 after update 2.
        ("hard > random on few at update 2", "stub on few", constant(2, 10), "inconclusive"),
        ("hard > random on few at 32 rollouts", "stub on few", between([3, 4, 3], [1, 1, 2]), "su"),
        # 640 tokens are update 2 of hard and update 4 of random.
        ("hard > random on few at 640 tokens", "stub on few", one_varies([1, 1, 0]), "inconclu"),
        # Halfway between 2 after update 2 and 3, 4, 3 after update 4.
        ("hard > base on few at 960 tokens", "stub on few", over_seeds([2.5, 3, 2.5]), "supp"),
        # Area: 0, 2, L against 0, 0, R at 0, 2, 4.
        ("hard > random on few over updates", "stub on few", between(*AREAS), "supp"),
        ("hard > random on few over tokens", "stub on few", one_varies([0.75, 0.75, 0.5]), "supp"),
        ("hard != random on few over tokens by 1", "", one_varies([0.75, 0.75, 0.5]), "supported"),
        ("hard >= random on few over tokens", "", one_varies([0.75, 0.75, 0.5]), "supported"),
        ("hard = random on few over tokens within 1", "", one_varies([0.75, 0.75, 0.5]), "refuted"),
        ("hard > random on few over tokens by 15", "", one_varies([0.75, 0.75, 0.5]), "refuted"),
    ],
)
def test_accuracy_claims(
    sweep: tuple[Plan, list[Row]],
    claim: str,
    cells: str,
    expected: tuple[str, str],
    verdict: str,
) -> None:
    results = judged(*sweep, claim)
    matching = [r for r in results if r.cells.startswith(cells)]
    assert len(matching) >= 2, [r.cells for r in results]
    assert {(r.value, r.interval) for r in matching} == {expected}
    assert all(r.verdict.startswith(verdict) for r in matching), matching[0].reason


@pytest.mark.parametrize(
    ("claim", "expected", "verdict"),
    [
        # Hard has 1,280 tokens and random 640; a cell takes 10 seconds; 8 samples are 100 points.
        ("gain hard > random on few per 640 tokens", ([1.5, 2, 1.5], [1, 1, 2]), "inconclusive"),
        ("gain per 20 seconds hard > random on few by 49", ([6, 8, 6], [2, 2, 4]), "inconclusive"),
        ("gain per hour hard > random on few by 2000", ([1080, 1440, 1080], [360, 360, 720]), "su"),
        ("gain hard > base on few per 64 tokens by 1", ([0.15, 0.2, 0.15], None), "supported"),
    ],
)
def test_a_gain_is_divided_by_what_each_cell_has_used(
    sweep: tuple[Plan, list[Row]],
    claim: str,
    expected: tuple[Sequence[float], Sequence[float] | None],
    verdict: str,
) -> None:
    """In the unit of the claim, by SciPy: the t interval over seeds."""
    a, b = (100 * np.array(side) / SAMPLES_EACH for side in (expected[0], expected[1] or [0, 0, 0]))
    interval = welch(a, b)
    if expected[1] is None:
        interval = (np.mean(a), *scipy.stats.ttest_1samp(a, 0).confidence_interval(1 - ALPHA))
    for result in judged(*sweep, claim):
        assert result.verdict.startswith(verdict), result.reason
        low, high = result.interval[1:-1].split(", ")
        shown = [float(x.replace("−", "-").replace(",", "")) for x in (result.value, low, high)]
        assert shown == pytest.approx(interval, rel=5e-2), "two digits"
        assert "points per " in result.reason


def test_the_cost_of_a_gain_is_that_of_where_it_is_read(sweep: tuple[Plan, list[Row]]) -> None:
    plan, rows = sweep
    [early, _] = judged(plan, rows, "gain hard > base on few per 64 tokens at update 2")
    assert early.value == f"+{100 * 2 / SAMPLES_EACH / 10:.1f}", "640 tokens"
    costs = [np.array([0, 64, 64 * (1 + row.cell.seed), 0, 0]) for row in rows]
    dear = [replace(r, costs={**r.costs, "tokens": c}) for r, c in zip(rows, costs, strict=True)]
    [mean, _] = judged(plan, dear, "gain hard > base on few per 64 tokens at update 2")
    assert mean.value == f"+{100 * 2 / SAMPLES_EACH / 2:.0f}", "of 64, 128 and 192 tokens"
    free = [replace(row, costs={**row.costs, "labels": np.zeros(5)}) for row in rows]
    one = judged(plan, free, "gain per label hard > random on few")[0]
    assert one.verdict == "inconclusive" and one.value == "–" and "no labels" in one.reason


def test_learnable_percentages_between_values_of_an_axis(sweep: tuple[Plan, list[Row]]) -> None:
    """Hard: 100 % with two samples; with four 75 %, and 100 % with seed 1; at update 2 50 %."""
    [result] = judged(*sweep, "probe.samples=2 > probe.samples=4 learnable on few for hard")
    assert result.cells == "stub on few, hard"
    assert (result.value, result.interval) == one_varies([25, 0, 25], of=100)
    assert result.sample == "3 seeds"
    [early] = judged(
        *sweep, "learnable probe.samples=2 > probe.samples=4 on few for hard at update 2"
    )
    [tokens] = judged(
        *sweep, "learnable probe.samples=2 > probe.samples=4 on few for hard at 700 tokens"
    )
    assert early.value == tokens.value == "+33.3"
    everywhere = judged(*sweep, "learnable probe.samples=2 > probe.samples=4")
    assert [r.cells for r in everywhere] == [
        f"stub on {dataset}, {policy}"
        for dataset in ("small", "few")
        for policy in ("hard", "random")
    ]
    [pair] = judged(*sweep, "learnable hard > random on small for probe.samples=2")
    assert (pair.value, pair.cells) == ("+50.0", "stub on small, probe.samples 2")


def test_pass_at_k_is_estimated_from_all_samples(sweep: tuple[Plan, list[Row]]) -> None:
    def value(correct: int) -> float:
        return 1 - comb(8 - correct, 4) / comb(8, 4)

    finals = [np.mean([value(q % 2 + lift) for q in range(6)]) for lift in (3, 4, 3)]
    base = np.mean([value(q % 2) for q in range(6)])
    for result in judged(*sweep, "hard > base on far pass@4 by 20"):
        assert result.value == points(100 * (np.mean(finals) - base))
        assert result.sample == "3 seeds × 6 questions"
        assert result.verdict == "supported"


def test_tiers_are_judged_each_by_itself(sweep: tuple[Plan, list[Row]]) -> None:
    plan, _ = sweep
    tiers = [*plan.pools["small"].tiers("test").values()]
    results = judged(*sweep, "hard > base on small in every tier for probe.samples=2")
    assert [r.cells for r in results] == [
        f"stub on small, probe.samples 2, tier {tier}" for tier in ("3", "5", "7")
    ]
    for result, tier in zip(results, ("3", "5", "7"), strict=True):
        assert result.sample == f"3 seeds × {tiers.count(tier)} questions"
        assert (result.value, result.interval) == over_seeds([3, 4, 3])
        [alone] = judged(*sweep, f"hard > base on small in tier {tier} for probe.samples=2")
        assert alone.value == result.value


def test_r_squared_is_of_all_cells_that_a_claim_is_about(sweep: tuple[Plan, list[Row]]) -> None:
    plan, rows = sweep
    [few] = judged(plan, rows, "r2 > 0.1")
    assert (few.verdict, few.value) == ("inconclusive", "–"), "two policies of each block"
    assert few.reason.endswith("only 0 have finished cells")
    four = [
        with_policy(row, f"{row.cell.policy}-{row.cell.probe.settings.samples}") for row in rows
    ]
    copies = [row for row in four if row.cell.policy == "hard-2"]
    copied = [with_policy(row, "copy", same_as=row.cell.cell_id) for row in copies]
    for every in (four, [*four, *copied]):
        [result] = judged(plan, every, "r2 > 0.1")
        r = []
        for dataset in ("small", "few"):
            cells: dict[str, list[tuple[float, float]]] = {}
            for row in four:
                if row.cell.probe.dataset.name == dataset:
                    point = (row.result.learnable_pct, row.result.gain)
                    cells.setdefault(row.cell.policy, []).append(point)
            x, y = np.array([np.mean(own, axis=0) for own in cells.values()]).T
            r.append(scipy.stats.linregress(x, y).rvalue)
        assert result.value == f"{np.tanh(np.arctanh(r).mean()) ** 2:.2f}"
        assert result.sample == "8 policies in 2 blocks"
    [flat] = judged(plan, four, "r2 > 0.1 on small")
    assert flat.reason.endswith("only 4 have finished cells")


def test_models_are_compared_by_their_cells_and_by_their_gains(tmp_path: Path) -> None:
    grid = GRID | {"model": ["stub", "other"], "dataset": ["small"]}
    grid.pop("probe.samples")
    plan, store = measured_sweep(tmp_path, grid=grid)
    rows = read_rows(store, plan.cells)
    for claim in ("stub > other on small", "gain other < stub on small"):
        results = judged(plan, rows, claim)
        assert [r.cells for r in results] == ["small, hard", "small, random"]
        expected = [between([3, 4, 3], [2, 3, 2]), between([1, 1, 2], [0, 0, 1])]
        assert [(r.value, r.interval) for r in results] == expected
    [one] = judged(plan, rows, "stub, hard > other, random on small by 5")
    assert (one.value, one.interval) == between([3, 4, 3], [0, 0, 1])


# ---- what cannot be judged


def test_an_evaluation_that_is_missing_is_named(sweep: tuple[Plan, list[Row]]) -> None:
    [_, one] = judged(*sweep, "hard > random on few at 700 tokens")
    assert one.verdict == "inconclusive"
    assert one.reason == "stub/few/random/s0/probe.samples=4 ends at 640 tokens"
    [one, _] = judged(*sweep, "hard > random on few at 300 tokens")
    assert re.match(
        "stub/few/hard/s0/probe.samples=2 .* 300 tokens: .* 640; .*evaluate.every", one.reason
    )
    plan, rows = sweep
    partly = [replace(row, counts={"": {u: row.counts[""][u] for u in (0, 4)}}) for row in rows]
    [one, _] = judged(plan, partly, "hard > random on few at update 2")
    assert re.match("stub/few/hard/s0/probe.samples=2 .* few after update 2$", one.reason)
    one = judged(plan, partly, "hard > random on far")[0]
    assert one.reason.endswith("on far after update 4")


def test_cells_that_are_missing_are_named(sweep: tuple[Plan, list[Row]]) -> None:
    plan, rows = sweep
    hard = [row for row in rows if row.cell.policy == "hard"]
    one = judged(plan, hard, "hard > random on small")[0]
    assert one.cells == "stub on small, probe.samples 2"
    assert "random" in one.reason and "hard" not in one.reason
    [none] = judged(plan, [], "hard > random on small")
    assert none.cells == "" and "hard or random" in none.reason
    [pair] = judged(plan, [], "r2 > 0.5")
    assert "only 0 have" in pair.reason


def test_one_seed_decides_nothing_unless_other_cells_tell_the_spread(
    sweep: tuple[Plan, list[Row]],
) -> None:
    plan, rows = sweep
    one = [row for row in rows if row.cell.seed == 0]
    result = judged(plan, one, "hard > base on small by 1")[0]
    assert result.verdict == "inconclusive" and result.reason.endswith("; needs more seeds")
    assert result.sample == "1 seed × 12 questions"
    learnable = judged(plan, one, "learnable hard > random on small")[0]
    assert "over 4 updates of one seed; needs more seeds" in learnable.reason
    store = Store(plan.source.config.storage)
    spreads = read_spreads(store, [row.cell for row in one])
    known = judged(plan, one, "hard > random on small by 1", spreads=spreads)[0]
    assert known.reason.endswith(" 6 stored runs"), "three of each side"
    assert known.sample == "1 seed × 12 questions"
    early = judged(plan, one, "hard > random on small at update 2", spreads=spreads)[0]
    assert early.reason.endswith("; needs more seeds"), "the spread is that of final results"


@pytest.mark.parametrize(
    ("claim", "effect", "sd"),
    [("hard > random on small", 25, 2), ("learnable hard > random on small", 50, 5)],
)
def test_with_one_seed_the_interval_is_that_of_the_known_spread(
    sweep: tuple[Plan, list[Row]], claim: str, effect: float, sd: float
) -> None:
    """Two samples of 8 at every question, one group of two in every update: items add no width."""
    plan, rows = sweep
    spread = Spreads(SeedSpread(0.02**2, 8, 12), SeedSpread(0.05**2, 8, 12))
    spreads = {policy_key(row.cell): spread for row in rows}
    one = [row for row in rows if row.cell.seed == 0]
    result = judged(plan, one, claim, spreads=spreads)[0]
    df = 8 + 8 * 8 / 9  # equal variances of eight degrees each
    half = scipy.stats.t.isf(ALPHA / 2, df) * np.sqrt(2) * sd
    assert result.cells == "stub on small, probe.samples 2"
    assert (result.value, result.interval) == (
        points(effect),
        f"[{points(effect - half)}, {points(effect + half)}]",
    )
    assert result.verdict == "supported"


def test_the_sample_of_a_claim_counts_seeds_of_both_sides_and_questions_scored_in_some_seed(
    sweep: tuple[Plan, list[Row]],
) -> None:
    plan, rows = sweep
    other = [r for r in rows if (r.cell.policy == "hard") == (r.cell.seed == 0)]
    first = rows[0].counts[""][4]
    lost = replace(rows[0], counts={"": {**rows[0].counts[""], 4: dict([*first.items()][2:])}})
    single = [replace(lost, cell=r.cell) for r in rows if r.cell.seed == 0]
    for own, claim, sample in (
        (other, "hard > random on small", "1 and 2 seeds × 12 questions"),
        ([lost, *rows[1:]], "hard > base on small", "3 seeds × 12 questions"),
        (single, "hard > base on small", "1 seed × 10 questions"),
    ):
        assert judged(plan, own, claim)[0].sample == sample


def test_an_axis_that_changes_no_cell_is_no_comparison(tmp_path: Path) -> None:
    grid = GRID | {"dataset": ["small"], "policy": ["hard", "full"], "budget": [8, 16]}
    grid.pop("probe.samples")
    plan, store = measured_sweep(tmp_path, grid=grid, evaluate={"every": 2, "samples": 8})
    claims = ("budget=16 > budget=8", "hard, budget=16 > full, budget=8")
    analysis = analyse(
        replace(plan, claims=[resolved_claim(c, plan.experiment) for c in claims]), store
    )
    hard, full = analysis.claims[:2]
    assert (hard.cells, full.cells) == ("stub on small, hard", "stub on small, full")
    assert hard.reason.startswith("budget=16 − budget=8 is +0.0 points [")
    assert "same cells" in full.reason
    assert analysis.claims[2].value == "+25.0", "full is the same cell at every budget"


def test_without_a_point_of_its_own_a_claim_is_read_where_policies_are_compared(
    sweep: tuple[Plan, list[Row]],
) -> None:
    plan, rows = sweep
    at_tokens = plan.experiment.model_copy(update={"compare_at": "tokens"})
    plan = replace(plan, experiment=at_tokens)
    result = judged(plan, rows, "hard > random on few")[0]
    assert (result.value, result.interval) == one_varies([1, 1, 0])
    pair = next(f for f in families(rows, "tokens") if f.dataset == "few").accuracy[0]
    assert points(pair.oriented("hard")[0]) == result.value
    assert "read after" not in result.reason
    for text in ("hard > random on far", "learnable hard > random on few"):
        assert re.search(
            r"; read after .* at \d.* to .* tokens", judged(plan, rows, text)[0].reason
        )
    assert "read after" not in judged(plan, rows, "hard > base on far")[0].reason
    across = judged(plan, rows, "few > small on few for hard")[0]
    assert across.value == points(100 * (2 - 2.333333) / 8), "small is tested on few at its end"


# ---- in the views


def test_a_claim_that_is_removed_and_comes_back_keeps_the_time_of_its_declaration(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path / "runs"))
    first = write_manifest(small_plan(tmp_path, claims=["hard > random"]), store)["claims"]
    assert first["hard > random"]["results"] == 0
    first["hard > random"]["at"] = "2026-01-01 00:00:00Z"
    store.write_json({"claims": first}, "sweeps", "small.json")
    write_manifest(small_plan(tmp_path), store)
    both = small_plan(tmp_path, claims=["hard > random", "random > hard"])
    claims = write_manifest(both, store)["claims"]
    assert claims["hard > random"]["at"] == "2026-01-01 00:00:00Z" != claims["random > hard"]["at"]


def test_every_view_shows_the_claims(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, claims=["hard > random", "r2 > 0.5"])
    analysis = analyse(plan, store)
    text, page = verdict_text(analysis), page_html(sweep_page(analysis))
    table = sweep_view(analysis).files["tables/claims.csv"].decode()
    assert [result.text for result in analysis.claims] == ["hard > random", "r2 > 0.5"]
    for result in analysis.claims:
        assert f"{result.text}: {result.verdict}" in text and result.reason in text
        assert result.value in table and result.cells.partition(" on ")[2] in page
    assert page.count('<tr class="inconclusive">') == table.count(",inconclusive,")
