"""The power of a design: the detectable difference, and the required sample size."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from factories import small_plan
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.cli.plan_summary import plan_summary
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.stats.inference import (
    Variances,
    difference_effect,
    mcnemar_p,
    permutation_p,
    seed_spread,
)
from orchestrator.stats.planned_power import collapse_seen, fewest, minimum_detectable, resolution
from orchestrator.stats.power import Design, Needed, detectable, needed
from orchestrator.storage.store import Store


def test_one_seed_is_the_power_of_the_t_test() -> None:
    parts = Variances(0, 0.05, 0.2)
    size = detectable(parts, Design(1, 40))
    shift, critical = size / np.sqrt(0.25 / 40), scipy.stats.t.isf(0.025, 39)
    assert scipy.stats.nct.sf(critical, 39, shift) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("parts", [Variances(0.0004, 0.04, 0.09), Variances(0.0004, 0, 0)])
def test_the_detectable_difference_is_detected_in_80_of_100(parts: Variances) -> None:
    rng, result = np.random.default_rng(0), []
    size, shapes = detectable(parts, Design(3, 60)), ((2, 3, 1), (2, 1, 60), (2, 3, 60))
    for _ in range(1000):
        noise = [rng.normal(0, np.sqrt(v / 2), s) for v, s in zip(parts, shapes, strict=True)]
        first, second = sum(noise, np.zeros(shapes[2]))
        spreads = seed_spread(first.mean(axis=1)), seed_spread(second.mean(axis=1))
        result.append(difference_effect(size + first, second, spreads).low > 0)
    assert np.mean(result) == pytest.approx(0.8, abs=0.04)


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d.,]*\d|\d", text)]


def test_the_line_of_the_plan_states_points_seeds_questions_and_comparisons() -> None:
    one, two = (minimum_detectable(1319, 3, 4, level=level) for level in (0.05, 0.025))
    assert one < two < 10, "under ten points with a decimal"
    stated = numbers(resolution("x", 1319, 3, 4, comparisons=2).partition("x: ")[2])
    assert stated[:4] == [round(one, 1), 3, 1319, round(two, 1)] and stated[-1] == 2
    few = minimum_detectable(210)
    assert few > 10 and numbers(resolution("x", 210).partition("x: ")[2])[:3] == [
        round(few),
        1,
        210,
    ]
    assert numbers(resolution("x", 15, 3))[-3:] == [40, 3, 15]
    assert numbers(resolution("x", 1))[-2:] == [1, 1]


def test_a_collapse_is_seen_in_80_of_100_with_four_seeds() -> None:
    assert numbers(collapse_seen(1))[-4:] == [33, 1, 80, 4]
    assert numbers(collapse_seen(3))[-4:] == [70, 3, 80, 4]
    assert numbers(collapse_seen(4))[-2:] == [80, 4]


@pytest.mark.parametrize(("differ", "p"), [(5, 0.0625), (6, 0.03125)])
def test_five_questions_are_never_significant_and_six_may_be(differ: int, p: float) -> None:
    a, b = (np.arange(15) < differ) * 1.0, np.zeros(15)
    assert mcnemar_p(a, b) == permutation_p(a - b) == p
    assert (p < 0.05) == (differ >= fewest())


def test_fewer_than_six_questions_of_one_seed_detect_nothing() -> None:
    assert minimum_detectable(5, 1, 8) == minimum_detectable(5) == 100
    assert minimum_detectable(9, 1, 8) < 100


@pytest.mark.parametrize("items", [15, 60, 250])
def test_one_seed_of_one_sample_has_the_power_of_mcnemars_test(items: int) -> None:
    rng, size = np.random.default_rng(0), minimum_detectable(items) / 100
    share = 0.26 + size**2  # what `power` assumes of questions that differ, and the effect's own
    drawn = rng.choice(
        [1, -1, 0], (2000, items), p=[(share + size) / 2, (share - size) / 2, 1 - share]
    )
    result = [mcnemar_p(d == 1, d == -1) <= 0.05 and d.sum() > 0 for d in drawn]
    assert np.mean(result) == pytest.approx(0.8, abs=0.03)


def test_six_questions_must_all_differ_to_one_side() -> None:
    # Independent answers: one policy solves (1 + d)/2 of the questions, the other (1 - d)/2.
    size = minimum_detectable(6) / 100
    assert ((1 + size) / 2) ** (2 * 6) == pytest.approx(0.8, abs=1e-4)


def test_the_required_number_suffices_and_one_less_does_not() -> None:
    parts = Variances(0.0004, 0.04, 0.09)
    assert needed(parts, 0.03, Design(3, 100)).seeds is None  # at 100 questions no number would do
    seeds = needed(parts, 0.035, Design(3, 500)).seeds
    items = needed(parts, 0.05, Design(5, 100)).items
    assert seeds and seeds > 3 and items and items > 100
    assert (
        detectable(parts, Design(seeds, 500)) <= 0.035 < detectable(parts, Design(seeds - 1, 500))
    )
    assert detectable(parts, Design(5, items)) <= 0.05 < detectable(parts, Design(5, items - 1))


@pytest.mark.parametrize("effect", [0.0, float("nan"), 1e-9])
def test_no_sample_size_detects_no_difference(effect: float) -> None:
    assert needed(Variances(0.0004, 0.04, 0.09), effect, Design(3, 100)) == Needed(None, None, None)


def test_seeds_and_questions_together_suffice_where_neither_does() -> None:
    parts = Variances(0.0004, 0.04, 0.09)
    result = needed(parts, 0.01, Design(3, 100))
    assert result.seeds is None and result.items is None and result.both
    seeds, items = result.both
    fewer = Design(seeds - 3, items - 100)
    assert detectable(parts, Design(seeds, items)) <= 0.01 < detectable(parts, fewer)


def test_one_seed_or_one_question_tells_nothing_about_more_of_them() -> None:
    by_item, by_seed = Variances(0, 0.04, 0.09), Variances(0.0004, 0, 0.09)
    one_seed = needed(by_item, 0.06, Design(1, 100))
    assert (one_seed.seeds, one_seed.both) == (None, None) and one_seed.items
    enough, fewer = (Design(1, items) for items in (one_seed.items, one_seed.items - 1))
    assert detectable(by_item, enough) <= 0.06 < detectable(by_item, fewer)
    one_question = needed(by_seed, 0.2, Design(3, 1))
    assert (one_question.items, one_question.both) == (None, None) and one_question.seeds
    assert detectable(by_seed, Design(one_question.seeds, 1)) <= 0.2


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_one_question_has_a_detectable_difference(seeds: int) -> None:
    for level in (0.05, 0.05 / 28):
        assert detectable(Variances(2e-4, 0.5, 0.1), Design(seeds, 1, level)) > 0
        assert 0 < minimum_detectable(1, seeds, 4, level=level) <= 100


def test_an_effect_that_is_detected_already_needs_no_more() -> None:
    parts = Variances(0.0004, 0.04, 0.09)
    size = detectable(parts, Design(3, 100))
    grid = Design(3, 100)
    assert needed(parts, size, grid) == needed(parts, -size, grid) == Needed(3, 100, (3, 100))
    assert needed(parts, np.inf, grid) == Needed(None, None, None)


def test_a_stricter_level_needs_more() -> None:
    parts = Variances(0.0004, 0.04, 0.09)
    one, many = (needed(parts, 0.05, Design(5, 100, level)).items for level in (0.05, 0.05 / 3))
    assert one and many and many > one


def test_the_plan_states_the_detectable_difference_once_per_test_set(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=("hard", "easy", "middle"), seeds=(0, 1, 2))
    store = Store(str(tmp_path / "runs"))
    view = plan_summary(Run.of(plan, store), Site({"CPU": 2.0}))
    (line,) = (dataset.resolution for dataset in view.datasets)
    assert line == resolution("small", 12, 3, 8, comparisons=3)
    assert view.text().count(line) == 1
    assert view.detectable_points == {"small": round(minimum_detectable(12, 3, 8), 1)}
    assert view.text().count(collapse_seen(3)) == 1


@given(st.integers(2, 2000), st.integers(1, 8), st.integers(1, 16))
@example(6, 1, 1)  # every question must differ, to one side
@settings(max_examples=30)
def test_more_questions_and_samples_resolve_more(items: int, seeds: int, samples: int) -> None:
    result = minimum_detectable(items, seeds, samples)
    # two seeds: Cochran's quantile grows as seeds bring more of the variance, up to 3 %
    slack = 1.04 if seeds == 2 else 1.0
    assert 0 < minimum_detectable(2 * items, seeds, samples) <= slack * result <= 100 * slack
    assert minimum_detectable(items, seeds, samples + 1) <= result
    if seeds == 1:
        assert minimum_detectable(items + 1, 1, samples) <= result
    if seeds > 1:
        assert minimum_detectable(items, seeds + 1, samples) <= result
