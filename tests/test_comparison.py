"""Pairs of policies, their words, the mark that a curve reaches, and the power of a grid."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.power import Needed, detectable, minimum_detectable, needed, resolution
from orchestrator.report.comparison import (
    Scores,
    adjust,
    compare_numbers,
    compare_policies,
    pair_seeds,
    sentence,
    steps_to_match,
)
from orchestrator.report.statistics import Variances, holm, mean_effect, permutation_p

BASE = np.random.default_rng(9).beta(0.6, 0.5, 400)
IDS = [f"q{i}" for i in range(400)]


def runs(points: float, seeds: range, *, samples: int = 1, key: int = 0) -> Scores:
    """Runs whose accuracy is about `points` above the base's."""
    rng = np.random.default_rng([key, int(10 * points) + 1000])
    rates = np.clip(BASE + points / 100, 0, 1)
    return {seed: (IDS, rng.binomial(samples, rates) / samples) for seed in seeds}


def test_a_large_difference_is_found_and_said() -> None:
    (found,) = compare_policies({"hard": runs(25, range(3)), "easy": runs(0, range(3))})
    assert found.verdict == "a" and found.low > 0
    assert (found.seeds, found.items, found.left_out, found.same_seeds) == (3, 400, 0, True)
    assert found.low < found.bootstrap.low < found.effect < found.bootstrap.high < found.high
    p = words(found.p)
    assert sentence(found, "GSM8K") == (
        f"hard beats easy by {found.effect:.1f} points [{found.low:.1f}, {found.high:.1f}] "
        f"on GSM8K (3 seeds × 400 questions, p {p}, Holm {p.removeprefix('= ')})"
    )


def words(p: float) -> str:
    return "< .001" if p < 0.001 else f"= {p:.3f}".replace("= 0.", "= .")


def test_the_effect_is_that_of_the_paired_runs() -> None:
    one, two = runs(25, range(3)), runs(0, range(3))
    differences = np.array([one[s][1] - two[s][1] for s in range(3)])
    (found,) = compare_policies({"hard": one, "easy": two})
    expected = mean_effect(differences)
    assert (found.effect, found.low, found.high) == pytest.approx(
        tuple(100 * x for x in expected[:3])
    )
    assert found.p == expected.p and found.p_runs == permutation_p(differences)


def test_the_order_of_policies_turns_the_sign() -> None:
    one, two = runs(25, range(3)), runs(0, range(3))
    (forth,) = compare_policies({"hard": one, "easy": two})
    (back,) = compare_policies({"easy": two, "hard": one})
    assert (back.effect, back.low, back.high) == pytest.approx(
        (-forth.effect, -forth.high, -forth.low)
    )
    assert (forth.verdict, back.verdict) == ("a", "b") and forth.p == pytest.approx(back.p)
    assert sentence(back).startswith("hard beats easy by")


def test_one_seed_of_one_sample_is_mcnemars_and_says_that_it_is_one() -> None:
    one, two = runs(25, range(1)), runs(0, range(1))
    (found,) = compare_policies({"hard": one, "easy": two})
    a, b = one[0][1], two[0][1]
    other = scipy.stats.binomtest(int((a > b).sum()), int((a != b).sum())).pvalue
    assert found.test == "McNemar" and found.p == pytest.approx(other, abs=1e-9)
    assert sentence(found).endswith("one seed says nothing of other seeds")
    assert found.needed.seeds is None


def test_one_seed_of_many_samples_flips_whole_questions() -> None:
    pair = {"hard": runs(20, range(1), samples=4), "easy": runs(0, range(1), samples=4)}
    (found,) = compare_policies(pair)
    assert found.test == "permutation of questions" and found.verdict == "a"


def test_what_cannot_be_told_says_what_would_be_needed() -> None:
    (found,) = compare_policies({"hard": runs(2, range(3)), "middle": runs(0, range(3))})
    assert found.verdict == "cannot tell" and found.low < 0 < found.high
    said = sentence(found, "GSM8K")
    assert said.startswith("hard against middle on GSM8K: cannot tell (")
    assert "would be needed" in said or "would do" in said


def test_questions_that_a_run_lacks_are_left_out_and_counted() -> None:
    one, two = runs(25, range(2)), runs(0, range(2))
    ids, values = one[1]
    one = {**one, 1: (ids[::-1][:390], values[::-1][:390])}  # in another order, ten fewer
    (found,) = compare_policies({"hard": one, "easy": two})
    assert (found.items, found.left_out) == (390, 10)
    kept = np.array([one[0][1][10:] - two[0][1][10:], values[10:] - two[1][1][10:]])
    assert found.effect == pytest.approx(100 * kept.mean())


def test_other_seeds_are_paired_in_order_and_it_says_so() -> None:
    (found,) = compare_policies({"hard": runs(9, range(3)), "easy": runs(0, range(5, 9))})
    assert (found.seeds, found.same_seeds) == (3, False)


@given(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 9), min_size=1))
def test_shared_seeds_come_first_and_none_twice(one: set[int], two: set[int]) -> None:
    pairs = pair_seeds(list(one), list(two))
    assert {s for s, t in pairs if s == t} == one & two
    assert len(pairs) == min(len(one), len(two))
    assert len({s for s, _ in pairs}) == len({t for _, t in pairs}) == len(pairs)


def test_holm_is_over_all_pairs_and_over_a_larger_family_if_asked() -> None:
    found = compare_policies({f"p{k}": runs(6 * k, range(3)) for k in range(4)})
    assert [(c.a, c.b) for c in found][:3] == [("p0", "p1"), ("p0", "p2"), ("p0", "p3")]
    assert [c.p_holm for c in found] == holm([c.p for c in found])
    twice = adjust([*found, *found])
    assert [c.p_holm for c in twice] == holm([c.p for c in found] * 2)
    assert all(c.verdict == "cannot tell" for c in twice if c.p_holm > 0.05)


def test_no_shared_question_no_run_and_a_question_twice_are_refused() -> None:
    one = {0: (["a", "b"], np.array([0.0, 1.0]))}
    with pytest.raises(ValueError, match="x and y share no test question"):
        compare_policies({"x": one, "y": {0: (["c"], np.array([1.0]))}})
    with pytest.raises(ValueError, match="names a question twice"):
        compare_policies({"x": one, "y": {0: (["a", "a"], np.array([1.0, 0.0]))}})
    with pytest.raises(ValueError, match="without any finished run"):
        compare_policies({"x": one, "y": {}})


def test_numbers_of_runs_are_compared_by_a_paired_t_test() -> None:
    hard, easy = {0: 34.0, 1: 36.0, 2: 31.5}, {0: 4.0, 1: 3.5, 2: 5.0}
    (found,) = compare_numbers({"hard": hard, "easy": easy})
    other = scipy.stats.ttest_rel(list(hard.values()), list(easy.values()))
    ends = other.confidence_interval(0.95)
    expected = (ends.low, ends.high, other.pvalue)
    assert (found.low, found.high, found.p) == pytest.approx(expected, abs=1e-9)
    assert "(3 seeds, p = " in sentence(found)


def test_one_number_each_says_nothing() -> None:
    (found,) = compare_numbers({"hard": {0: 34.0}, "easy": {0: 4.0}})
    assert found.verdict == "cannot tell" and found.p == 1
    assert "[−∞, +∞]" in sentence(found) and "two seeds are the least" in sentence(found)


# ---- steps to match


def curve(*marks: float, items: int = 300) -> dict[int, np.ndarray]:
    """Evaluations every ten updates with these exact accuracies."""
    order = np.random.default_rng(1).permutation(items)
    return {10 * k: (order < round(m * items)) * 1.0 for k, m in enumerate(marks)}


def test_the_mark_is_reached_between_two_evaluations() -> None:
    target = curve(0.6)[0]
    found = steps_to_match(curve(0.2, 0.4, 0.8, 0.9), target)
    assert found.update == pytest.approx(15)
    assert found.low is not None and found.high is not None
    assert 10 < found.low < 15 < found.high < 20 and found.reached == 1


def test_a_mark_that_is_never_reached_has_no_update() -> None:
    assert steps_to_match(curve(0.2, 0.3), curve(0.9)[0]) == (None, None, None, 0)


def test_a_base_above_the_mark_is_there_at_once() -> None:
    assert steps_to_match(curve(0.9, 0.9), curve(0.5)[0]) == (0, 0, 0, 1)


def test_a_mark_hardly_reached_has_an_open_end() -> None:
    rng = np.random.default_rng(0)
    target = (rng.random(200) < 0.6) * 1.0
    last = rng.permutation(target)
    found = steps_to_match({0: np.zeros(200), 10: last}, target)
    assert found.high is None and 0.3 < found.reached < 0.7


def test_other_questions_in_curve_and_target_are_refused() -> None:
    for wrong in ({}, {0: np.zeros(3)}):
        with pytest.raises(ValueError, match="same questions"):
            steps_to_match(wrong, np.zeros(4))


# ---- power


@given(st.integers(2, 2000), st.integers(1, 8), st.integers(1, 16))
@settings(max_examples=30, deadline=None)
def test_more_questions_and_samples_resolve_more(items: int, seeds: int, samples: int) -> None:
    found = minimum_detectable(items, seeds, samples)
    # two seeds: Cochran's quantile grows as seeds bring more of the variance, up to 3 %
    slack = 1.04 if seeds == 2 else 1.0
    assert 0 < minimum_detectable(2 * items, seeds, samples) <= slack * found <= 100 * slack
    assert minimum_detectable(items, seeds, samples + 1) <= found
    if seeds > 1:
        assert minimum_detectable(items, seeds + 1, samples) <= found


def test_one_seed_is_the_power_of_the_t_test() -> None:
    parts = Variances(0, 0.05, 0.2)
    size = detectable(parts, 1, 40)
    shift, critical = size / np.sqrt(0.25 / 40), scipy.stats.t.isf(0.025, 39)
    assert scipy.stats.nct.sf(critical, 39, shift) == pytest.approx(0.8, abs=1e-3)


def test_seeds_alone_are_the_power_of_the_t_test_over_seeds() -> None:
    parts = Variances(0.0004, 0, 0)
    size = detectable(parts, 4, 100)
    shift, critical = size / np.sqrt(0.0001), scipy.stats.t.isf(0.025, 3)
    power = scipy.stats.nct.sf(critical, 3, shift) + scipy.stats.nct.cdf(-critical, 3, shift)
    assert power == pytest.approx(0.8, abs=1e-3)


def test_a_found_difference_is_found_in_80_of_100() -> None:
    parts, rng = Variances(0.0004, 0.04, 0.09), np.random.default_rng(0)
    size, found = detectable(parts, 3, 60), []
    for _ in range(1000):
        shape = ((3, 1), (1, 60), (3, 60))
        noise = [rng.normal(0, np.sqrt(v), s) for v, s in zip(parts, shape, strict=True)]
        found.append(mean_effect(size + sum(noise, np.zeros(shape[2]))).low > 0)
    assert np.mean(found) == pytest.approx(0.8, abs=0.04)


def test_aime_resolves_little() -> None:
    assert resolution("AIME-15", 15, 3) == (
        "AIME-15 cannot resolve less than 40 points (3 seeds × 15 questions)"
    )
    assert resolution("GSM8K", 1319).endswith("; one seed says nothing of other seeds")
    assert "cannot tell any two policies apart" in resolution("one", 1)


def test_no_noise_resolves_all_and_wrong_counts_are_refused() -> None:
    assert minimum_detectable(9, 2, accuracy=1.0, seed_points=0) == 0
    with pytest.raises(ValueError, match="1 or more"):
        minimum_detectable(0)
    with pytest.raises(ValueError, match="shares"):
        minimum_detectable(9, agreement=1.5)


def test_what_is_needed_is_enough_and_one_less_is_not() -> None:
    parts = Variances(0.0004, 0.04, 0.09)
    assert needed(parts, 0.03, 3, 100).seeds is None  # at 100 questions no number would do
    seeds, items = needed(parts, 0.04, 3, 500).seeds, needed(parts, 0.05, 5, 100).items
    assert seeds and detectable(parts, seeds, 500) <= 0.04 < detectable(parts, seeds - 1, 500)
    assert items and detectable(parts, 5, items) <= 0.05 < detectable(parts, 5, items - 1)


@pytest.mark.parametrize("effect", [0.0, float("nan"), 1e-9])
def test_no_number_would_do_for_no_difference(effect: float) -> None:
    assert needed(Variances(0.0004, 0.04, 0.09), effect, 3, 100) == Needed(None, None)
