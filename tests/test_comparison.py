"""Comparisons of pairs of policies, and their sentences."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.stats.comparison import (
    RunScores,
    adjust,
    compare_learnable,
    compare_numbers,
    compare_policies,
    pair_seeds,
)
from orchestrator.stats.inference import SeedSpread, Variances, holm, mean_effect, permutation_p
from orchestrator.stats.sentences import sentence

BASE = np.random.default_rng(9).beta(0.6, 0.5, 400)
IDS = [f"q{i}" for i in range(400)]


def runs(points: float, seeds: range, *, samples: int = 1, key: int = 0) -> RunScores:
    """Runs whose accuracy is about `points` above the base's."""
    rng = np.random.default_rng([key, int(10 * points) + 1000])
    rates = np.clip(BASE + points / 100, 0, 1)
    return {seed: (IDS, rng.binomial(samples, rates) / samples) for seed in seeds}


def test_a_large_difference_has_a_verdict() -> None:
    (result,) = compare_policies({"hard": runs(25, range(3)), "easy": runs(0, range(3))})
    assert result.verdict == "a" and result.low > 0
    assert (result.seeds, result.items, result.left_out, result.same_seeds) == (3, 400, 0, True)
    p = p_in_words(result.p)
    assert sentence(result, "GSM8K") == (
        f"hard beats easy by {result.effect:.1f} points [{result.low:.1f}, {result.high:.1f}] "
        f"on GSM8K (3 seeds × 400 questions, p {p}, Holm-corrected p {p})"
    )


def p_in_words(p: float) -> str:
    return "< .001" if p < 0.001 else f"= {p:.3f}".replace("= 0.", "= .")


def test_the_effect_is_that_of_the_paired_runs() -> None:
    one, two = runs(25, range(3)), runs(0, range(3))
    differences = np.array([one[s][1] - two[s][1] for s in range(3)])
    (result,) = compare_policies({"hard": one, "easy": two})
    expected = mean_effect(differences)
    assert (result.effect, result.low, result.high) == pytest.approx(
        tuple(100 * x for x in expected[:3])
    )
    assert result.p == expected.p and result.p_runs == permutation_p(differences)


def test_as_many_seeds_as_questions_are_permuted_too() -> None:
    rng = np.random.default_rng(1)
    one, two = ({s: (IDS[:3], low + rng.random(3) / 4) for s in range(3)} for low in (0.5, 0))
    (result,) = compare_policies({"hard": one, "easy": two})
    assert (result.test, result.p_runs) == ("t over seeds and questions", 0.25)  # 2 of 2³ signs


def test_the_order_of_policies_flips_the_sign() -> None:
    one, two = runs(25, range(3)), runs(0, range(3))
    (forth,) = compare_policies({"hard": one, "easy": two})
    (back,) = compare_policies({"easy": two, "hard": one})
    assert (back.effect, back.low, back.high) == pytest.approx(
        (-forth.effect, -forth.high, -forth.low)
    )
    assert (forth.verdict, back.verdict) == ("a", "b") and forth.p == pytest.approx(back.p)
    assert sentence(back).startswith("hard beats easy by")


def test_one_seed_of_one_sample_uses_mcnemars_test() -> None:
    one, two = runs(25, range(1)), runs(0, range(1))
    (result,) = compare_policies({"hard": one, "easy": two})
    a, b = one[0][1], two[0][1]
    other = scipy.stats.binomtest(int((a > b).sum()), int((a != b).sum())).pvalue
    assert result.test == "McNemar" and result.p == pytest.approx(other, abs=1e-9)
    assert result.needed.seeds is None


def test_one_seed_of_many_samples_flips_whole_questions() -> None:
    pair = {"hard": runs(20, range(1), samples=4), "easy": runs(0, range(1), samples=4)}
    (result,) = compare_policies(pair)
    assert result.test == "permutation of questions" and result.p < 0.001


def test_a_single_seed_names_no_winner() -> None:
    (result,) = compare_policies({"hard": runs(25, range(1)), "easy": runs(0, range(1))})
    assert result.low > 0 and result.p_holm < 0.001
    assert result.verdict == "inconclusive" and not result.covers_seeds
    assert sentence(result, "GSM8K") == (
        f"hard is ahead of easy by {result.effect:.1f} points [{result.low:.1f}, "
        f"{result.high:.1f}] on GSM8K in this seed: inconclusive (1 seed × 400 questions, "
        f"p < .001, Holm-corrected p < .001); needs more seeds"
    )


def test_a_known_spread_between_seeds_decides_with_one_seed() -> None:
    pair = {"hard": runs(25, range(1)), "easy": runs(0, range(1))}
    small, large = SeedSpread(0.01**2, 8, 12), SeedSpread(0.15**2, 8, 12)
    (alone,) = compare_policies(pair)
    (result,) = compare_policies(pair, small)
    assert (result.verdict, result.covers_seeds) == ("a", True)
    assert result.low < alone.low < alone.high < result.high and result.p > 0
    assert sentence(result).startswith("hard beats easy by ")
    assert "1 seed × 400 questions, sd between seeds 1.0 points from 12 cells, p" in sentence(
        result
    )
    (result,) = compare_policies(pair, large)
    assert result.verdict == "inconclusive" and result.low < 0 < result.high
    assert sentence(result).endswith("; needs more seeds")


def test_the_spread_of_other_cells_does_not_replace_that_of_the_pairs_own_seeds() -> None:
    pair = {"hard": runs(25, range(3)), "easy": runs(0, range(3))}
    assert compare_policies(pair, SeedSpread(0.2, 8, 12)) == compare_policies(pair)


def test_inconclusive_pairs_name_the_sample_size_needed() -> None:
    (result,) = compare_policies({"hard": runs(2, range(3)), "middle": runs(0, range(3))})
    assert result.verdict == "inconclusive" and result.low < 0 < result.high
    text = sentence(result, "GSM8K")
    assert text.startswith("hard vs. middle on GSM8K: inconclusive (")
    assert "would be needed" in text or "would be enough" in text


def test_questions_missing_from_a_run_are_left_out_and_counted() -> None:
    one, two = runs(25, range(2)), runs(0, range(2))
    ids, values = one[1]
    one = {**one, 1: (ids[::-1][:390], values[::-1][:390])}  # in another order, ten fewer
    (result,) = compare_policies({"hard": one, "easy": two})
    assert (result.items, result.left_out) == (390, 10)
    kept = np.array([one[0][1][10:] - two[0][1][10:], values[10:] - two[1][1][10:]])
    assert result.effect == pytest.approx(100 * kept.mean())


def test_unshared_seeds_are_paired_by_rank_and_flagged() -> None:
    (result,) = compare_policies({"hard": runs(9, range(3)), "easy": runs(0, range(5, 9))})
    assert (result.seeds, result.same_seeds) == (3, False)


@given(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 9), min_size=1))
def test_shared_seeds_come_first_and_none_twice(one: set[int], two: set[int]) -> None:
    pairs = pair_seeds(list(one), list(two))
    assert {s for s, t in pairs if s == t} == one & two
    assert len(pairs) == min(len(one), len(two))
    assert len({s for s, _ in pairs}) == len({t for _, t in pairs}) == len(pairs)


def test_holm_is_over_all_pairs_and_over_a_larger_family_if_asked() -> None:
    result = compare_policies({f"p{k}": runs(6 * k, range(3)) for k in range(4)})
    assert [(c.a, c.b) for c in result][:3] == [("p0", "p1"), ("p0", "p2"), ("p0", "p3")]
    assert [c.p_holm for c in result] == holm([c.p for c in result])
    twice = adjust([*result, *result])
    assert [c.p_holm for c in twice] == holm([c.p for c in result] * 2)
    assert all(c.verdict == "inconclusive" for c in twice if c.p_holm > 0.05)


def test_a_difference_lost_to_holms_correction_is_inconclusive() -> None:
    (alone,) = compare_policies({"hard": runs(9, range(3)), "easy": runs(0, range(3))})
    assert alone.verdict == "a" and 0.001 < alone.p < 0.05
    result = adjust([alone] * 60)[0]
    assert result.verdict == "inconclusive" and result.tests == 60
    text = sentence(result, "GSM8K")
    assert text.startswith(
        f"hard is ahead of easy by {result.effect:.1f} points "
        f"[{result.low:.1f}, {result.high:.1f}] on GSM8K, but not significantly "
        "after Holm's correction over 60 comparisons: inconclusive (3 seeds × "
    )
    assert re.search(r"about [\d,]+ (seeds|questions).* would be needed$", text)
    assert result.needed.seeds and alone.needed.seeds
    assert result.needed.seeds > alone.needed.seeds > 3


def test_the_policy_ahead_is_named_first() -> None:
    (result,) = compare_policies({"easy": runs(0, range(3)), "hard": runs(9, range(3))})
    text = sentence(adjust([result] * 60)[0])
    assert text.startswith(
        f"hard is ahead of easy by {-result.effect:.1f} points [{-result.high:.1f}, "
    )


def of_questions(right: int, of: int = 15) -> RunScores:
    """One run, one sample a question; the first ones are right."""
    return {0: ([f"q{i}" for i in range(of)], (np.arange(of) < right) * 1.0)}


def test_six_of_aimes_fifteen_against_five_is_inconclusive() -> None:
    """Paper A, table 4: pass@8 of 40.0 % and 33.3 %, whichever questions these were."""
    (result,) = compare_policies({"hard": of_questions(6), "base": of_questions(5)})
    assert (result.test, result.p, result.verdict) == ("McNemar", 1.0, "inconclusive")
    assert sentence(result, "AIME2025-I") == (
        "hard vs. base on AIME2025-I: inconclusive (+6.7 points [−7.6, +21.0], 1 seed × 15 "
        "questions, p = 1, Holm-corrected p = 1); needs more seeds and about 120 questions"
    )


def test_the_exact_test_gives_p_with_one_seed() -> None:
    (result,) = compare_policies({"hard": of_questions(5), "base": of_questions(0)})
    assert result.low > 0 and result.p == pytest.approx(2 * 0.5**5)
    assert "ahead of base" in sentence(result) and "in this seed: inconclusive" in sentence(result)
    (result,) = compare_policies({"hard": of_questions(6), "base": of_questions(0)})
    assert result.p == pytest.approx(2 * 0.5**6)


def test_policies_that_never_differ_need_no_number() -> None:
    (result,) = compare_policies({"hard": of_questions(6), "base": of_questions(6)})
    assert "no difference was observed" in sentence(result)


def test_seeds_and_questions_are_named_where_neither_alone_suffices() -> None:
    parts = Variances(seed=0.0004, item=0.04, rest=0.09)
    (result,) = compare_policies({"hard": runs(2, range(3)), "easy": runs(0, range(3))})
    small = replace(result, effect=3.0, low=-9.0, high=11.0, variances=parts, items=100)
    assert small.needed.seeds is None and small.needed.items is None
    assert re.search(r"about \d+ seeds × [\d,]+ questions would be needed$", sentence(small))
    noisy = replace(small, variances=replace_all(parts, 1e4), effect=1.1)
    assert sentence(noisy).endswith("no realistic number of seeds and questions would be enough")


def replace_all(variances: Variances, factor: float) -> Variances:
    return Variances(*(factor * part for part in variances))


@pytest.mark.parametrize(
    ("effect", "seeds", "items", "end"),
    [
        (0.1, 3, 500, "; practically no difference was observed"),  # 316 seeds, 213,080 questions
        (0.3, 3, 500, "; about 37 seeds would be needed"),  # 23,676 questions
        (0.5, 3, 500, "; about 15 seeds or 8,600 questions would be needed"),
        (0.1, 3, 22_000, "; about 10 seeds or 220,000 questions would be needed"),
        (0.4, 1, 500, "; needs more seeds and about 9,900 questions"),
        (0.1, 1, 500, "; practically no difference was observed in this seed; needs more seeds"),
    ],
)
def test_an_absurd_sample_size_is_not_advised(
    effect: float, seeds: int, items: int, end: str
) -> None:
    (result,) = compare_policies({"hard": runs(2, range(3)), "easy": runs(0, range(3))})
    parts = Variances(seed=0.0, item=0.0, rest=0.02)
    size = {"effect": effect, "low": effect - 9, "high": effect + 9}
    c = replace(result, **size, variances=parts, seeds=seeds, items=items)
    assert sentence(c).endswith(end), (c.needed, sentence(c))


def test_a_pair_without_a_shared_question_is_inconclusive() -> None:
    runs_by_policy: dict[str, RunScores] = {
        "x": {0: (["a", "b"], np.array([0.0, 1.0]))},
        "y": {0: (["c"], np.array([1.0]))},
        "z": {0: ([], np.array([]))},
    }
    for result in compare_policies(runs_by_policy):
        assert (result.items, result.verdict, result.test) == (0, "inconclusive", "none")
        assert (result.p, result.p_runs, result.p_holm) == (1.0, 1.0, 1.0)
        assert np.isnan(result.effect) and (result.low, result.high) == (-np.inf, np.inf)
        assert result.variances == (0, 0, 0)
        assert (result.seeds, result.same_seeds) == (1, True)
        assert result.spans_zero and not any(result.needed)
        assert sentence(result).endswith(
            "inconclusive (no question was scored in every run of both)"
        )
    assert [result.left_out for result in compare_policies(runs_by_policy)] == [3, 2, 1]
    decided = {"hard": runs(25, range(3)), "easy": runs(0, range(3))}
    (alone,) = compare_policies(decided)
    [*_, last] = adjust([*compare_policies(runs_by_policy), alone])
    assert last.p_holm == 4 * alone.p, "a pair without a question is a test all the same"


def live(share: float, updates: int = 40, key: int = 0) -> dict[int, float]:
    """Update -> share of live groups among eight."""
    rng = np.random.default_rng([key, int(100 * share)])
    return {update: rng.binomial(8, share) / 8 for update in range(1, updates + 1)}


def test_learnable_of_one_seed_is_compared_by_updates() -> None:
    shares = {"hard": {0: live(0.8)}, "easy": {0: live(0.15)}}
    percentages = {
        policy: {
            seed: 100 * float(np.mean([*by_update.values()])) for seed, by_update in of.items()
        }
        for policy, of in shares.items()
    }
    (result,) = compare_learnable(percentages, shares)
    assert (result.seeds, result.items, result.item) == (1, 40, "update")
    assert result.verdict == "inconclusive"
    (known,) = compare_learnable(percentages, shares, SeedSpread(0.02**2, 4, 6))
    assert (known.verdict, known.spread and known.spread.cells) == ("a", 6)
    assert result.effect == pytest.approx(percentages["hard"][0] - percentages["easy"][0])
    differences = np.array([shares["hard"][0][u] - shares["easy"][0][u] for u in range(1, 41)])
    expected = scipy.stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((100 * expected.low, 100 * expected.high))
    assert "1 seed × 40 updates" in sentence(result)


def test_learnable_of_several_seeds_is_compared_by_seeds() -> None:
    shares = {"hard": {s: live(0.8, key=s) for s in (0, 1)}, "easy": {0: live(0.1), 1: live(0.1)}}
    percentages = {"hard": {0: 78.0, 1: 80.0}, "easy": {0: 15.8, 1: 12.0}}
    assert compare_learnable(percentages, shares) == compare_numbers(percentages)


def test_learnable_without_groups_stays_inconclusive() -> None:
    percentages = {"hard": {0: 78.0}, "easy": {0: 15.8}}
    (result,) = compare_learnable(percentages, {"hard": {0: {}}, "easy": {0: {}}})
    assert result.effect == pytest.approx(62.2) and result.verdict == "inconclusive"


def test_no_run_and_a_question_twice_are_refused() -> None:
    one = {0: (["a", "b"], np.array([0.0, 1.0]))}
    twice = {0: (["a", "a"], np.array([1.0, 0.0]))}
    with pytest.raises(ValueError, match="^y: a run contains the same question twice"):
        compare_policies({"x": one, "y": twice})
    with pytest.raises(ValueError, match="^y: a run contains the same question twice"):
        compare_policies({"y": twice, "x": one})
    with pytest.raises(ValueError, match="without any finished run"):
        compare_policies({"x": one, "y": {}})


def test_numbers_of_runs_are_compared_by_a_paired_t_test() -> None:
    hard, easy = {0: 34.0, 1: 36.0, 2: 31.5}, {0: 4.0, 1: 3.5, 2: 5.0}
    (result,) = compare_numbers({"hard": hard, "easy": easy})
    other = scipy.stats.ttest_rel(list(hard.values()), list(easy.values()))
    ends = other.confidence_interval(0.95)
    expected = (ends.low, ends.high, other.pvalue)
    assert (result.low, result.high, result.p) == pytest.approx(expected, abs=1e-9)
    assert (result.test, result.p_runs) == ("t over seeds", 1.0), "one number cannot be permuted"
    assert "(3 seeds, p = " in sentence(result)


def test_one_number_each_is_inconclusive() -> None:
    (result,) = compare_numbers({"hard": {0: 34.0}, "easy": {0: 4.0}})
    assert result.verdict == "inconclusive" and result.p == 1
    assert "[−∞, +∞]" in sentence(result) and sentence(result).endswith("; needs more seeds")
