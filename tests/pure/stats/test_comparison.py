"""Comparisons of pairs of policies, and their sentences."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from benchmarks.compare_null import power
from orchestrator.report.sentences import NO_DIFFERENCE, missing_text, sentence
from orchestrator.stats.changes import compare_learnable
from orchestrator.stats.comparison import Comparison, RunScores, adjust, compare_policies
from orchestrator.stats.inference import (
    SeedSpread,
    Variances,
    difference_effect,
    holm,
    permutation_p,
    seed_spread,
)

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
    assert (result.runs, result.items, result.left_out) == ((3, 3), 400, 0)
    assert sentence(result, "GSM8K").startswith(
        f"hard beats easy by {result.effect:.1f} points [{result.low:.1f}, {result.high:.1f}] "
    )


def test_the_effect_is_paired_by_question_and_of_all_runs() -> None:
    one, two = runs(25, range(10)), runs(0, range(20, 23))
    first, second = (np.array([run[1] for run in side.values()]) for side in (one, two))
    spreads = seed_spread(first.mean(axis=1)), seed_spread(second.mean(axis=1))
    (result,) = compare_policies({"hard": one, "easy": two})
    expected = difference_effect(first, second, spreads)
    assert result.runs == (10, 3) and "(10 and 3 seeds × 400 questions" in sentence(result)
    assert result.effect == pytest.approx(100 * (first.mean() - second.mean()))
    assert (result.effect, result.low, result.high) == pytest.approx(
        tuple(100 * x for x in expected[:3])
    )
    assert result.p == expected.p
    assert result.p_runs == permutation_p(first.mean(axis=0) - second.mean(axis=0))


def test_as_many_seeds_as_questions_are_permuted_too() -> None:
    rng = np.random.default_rng(1)
    one, two = ({s: (IDS[:3], low + rng.random(3) / 4) for s in range(3)} for low in (0.5, 0))
    (result,) = compare_policies({"hard": one, "easy": two})
    assert result.test != "McNemar" and result.p_runs == 0.25  # 2 of 2³ signs


def test_the_order_of_policies_flips_the_sign() -> None:
    one, two = runs(25, range(3)), runs(0, range(3))
    (forth,) = compare_policies({"hard": one, "easy": two})
    (back,) = compare_policies({"easy": two, "hard": one})
    assert (back.effect, back.low, back.high) == pytest.approx(
        (-forth.effect, -forth.high, -forth.low)
    )
    assert (forth.verdict, back.verdict) == ("a", "b") and forth.p == pytest.approx(back.p)
    assert sentence(back).startswith("hard beats easy by")


def test_one_seed_is_tested_by_its_questions_and_names_no_winner() -> None:
    one, two = runs(25, range(1)), runs(0, range(1))
    (result,) = compare_policies({"hard": one, "easy": two})
    a, b = one[0][1], two[0][1]
    other = scipy.stats.binomtest(int((a > b).sum()), int((a != b).sum())).pvalue
    assert result.test == "McNemar" and result.p == pytest.approx(other, abs=1e-9)
    assert result.needed.seeds is None
    assert result.low > 0 and result.p_holm < 0.001
    assert result.verdict == "inconclusive" and not result.covers_seeds
    assert sentence(result, "GSM8K").endswith(
        "(1 seed × 400 questions, p < .001, Holm-corrected p < .001); needs more seeds"
    )
    pair = {"hard": runs(20, range(1), samples=4), "easy": runs(0, range(1), samples=4)}
    (result,) = compare_policies(pair)
    assert result.test == "permutation of questions" and result.p < 0.001


def test_a_stored_spread_of_both_policies_decides_with_one_seed() -> None:
    pair = {"hard": runs(25, range(1)), "easy": runs(0, range(1))}
    small, large = SeedSpread(0.01**2, 8, 9), SeedSpread(0.15**2, 8, 9)
    (alone,) = compare_policies(pair)
    (result,) = compare_policies(pair, dict.fromkeys(pair, small))
    assert (result.verdict, result.covers_seeds) == ("a", True)
    assert result.low < alone.low < alone.high < result.high and result.p > 0
    assert result.stored == {"hard": small, "easy": small}
    assert "sd between seeds of hard 1.0 points from 9 stored runs" in sentence(result)
    (result,) = compare_policies(pair, dict.fromkeys(pair, large))
    assert result.verdict == "inconclusive" and result.low < 0 < result.high
    assert result.needed.seeds and result.needed.seeds > 1


def test_a_policy_with_one_run_is_not_judged_by_the_runs_of_another() -> None:
    pair = {"hard": runs(25, range(1)), "easy": runs(0, range(10))}
    for stored in ({}, {"easy": SeedSpread(0.01**2, 8, 9)}):
        (result,) = compare_policies(pair, stored)
        assert (result.verdict, result.covers_seeds) == ("inconclusive", False)
    (result,) = compare_policies(pair, {"hard": SeedSpread(0.01**2, 8, 9)})
    assert (result.verdict, [*result.stored]) == ("a", ["hard"])


def test_a_stored_spread_is_used_where_it_rests_on_more_runs() -> None:
    known = SeedSpread(0.02**2, 4, 5)
    widths = []
    for seeds in (1, 2, 3):
        pair = {"hard": runs(25, range(seeds)), "easy": runs(0, range(seeds))}
        (result,) = compare_policies(pair, dict.fromkeys(pair, known))
        assert result.spreads == (known, known)
        widths.append(result.high - result.low)
    assert widths[0] > widths[1] > widths[2]
    pair = {"hard": runs(25, range(6)), "easy": runs(0, range(6))}
    (result,) = compare_policies(pair, dict.fromkeys(pair, known))
    assert not result.stored and [s.cells for s in result.spreads if s] == [6, 6]


def test_other_policies_change_no_interval() -> None:
    pair = {"hard": runs(9, range(3)), "easy": runs(0, range(3))}
    calm = {f"p{k}": dict.fromkeys(range(5), (IDS, BASE)) for k in range(4)}
    (alone,), (among, *_) = compare_policies(pair), compare_policies(pair | calm)
    assert (among.low, among.high, among.p) == (alone.low, alone.high, alone.p)
    assert among.p_holm > alone.p_holm


def test_a_run_without_a_result_leaves_the_spread_of_the_others() -> None:
    assert seed_spread([0.5, np.nan, 0.6, 0.7]) == seed_spread([0.5, 0.6, 0.7])
    assert seed_spread([0.5, np.nan]) is None


def test_seeds_with_the_same_mean_by_chance_vary_as_their_residual() -> None:
    one = np.array([[1.0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]])  # means of .5, all questions differ
    two = np.array([[1.0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 1]])
    spreads = seed_spread(one.mean(axis=1)), seed_spread(two.mean(axis=1))
    assert [s.variance for s in spreads if s] == [0, 0]
    effect = difference_effect(one, two, spreads)
    assert effect.low < -1 and effect.p > 0.05


def test_all_runs_count() -> None:
    """Of ten runs against three, three pairs find 10 %."""
    assert power([10, 3], 4.0, 5.0, 200) >= 0.15


def test_questions_missing_from_every_run_are_left_out_and_counted() -> None:
    one, two = runs(25, range(2)), runs(0, range(2))
    ids, values = one[1]
    one = {n: (ids[::-1][:390], one[n][1][::-1][:390]) for n in one}  # in another order, ten fewer
    (result,) = compare_policies({"hard": one, "easy": two})
    assert (result.items, result.left_out) == (390, 10)
    kept = np.array([one[0][1][::-1] - two[0][1][10:], values[10:] - two[1][1][10:]])
    assert result.effect == pytest.approx(100 * kept.mean())


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
    assert "over 60 comparisons: inconclusive (3 seeds × " in sentence(result)
    assert result.needed.seeds and alone.needed.seeds
    assert result.needed.seeds > alone.needed.seeds >= 3
    mirrored = replace(
        result, a="easy", b="hard", effect=-result.effect, low=-result.high, high=-result.low
    )
    assert sentence(mirrored) == sentence(result), "the policy ahead is named first"


def of_questions(right: int, of: int = 15) -> RunScores:
    """One run, one sample a question; the first ones are right."""
    return {0: ([f"q{i}" for i in range(of)], (np.arange(of) < right) * 1.0)}


def advised_sizes(result: Comparison) -> list[str]:
    """The numbers of seeds and of questions that the sentence advises, after the verdict."""
    _, verdict, advice = sentence(result).partition("); ")
    assert verdict and advice
    return re.findall(r"\d[\d,]*", advice)


def test_seeds_and_questions_are_named_where_neither_alone_suffices() -> None:
    parts = Variances(seed=0.0004, item=0.04, rest=0.09)
    (result,) = compare_policies({"hard": runs(2, range(3)), "easy": runs(0, range(3))})
    small = replace(result, effect=3.0, low=-9.0, high=11.0, variances=parts, items=100)
    assert small.needed.seeds is None and small.needed.items is None
    assert re.search(r"about \d+ seeds × [\d,]+ questions would be needed$", sentence(small))
    noisy = replace(small, variances=replace_all(parts, 1e4), effect=1.1)
    assert advised_sizes(noisy) == []
    nothing = "the sample size needed cannot be estimated"
    constant = replace(small, variances=replace_all(parts, 0))
    equal = replace(small, effect=0.0)
    assert nothing in sentence(constant) and nothing in sentence(equal)
    assert "nothing varies" in sentence(constant) and "nothing varies" not in sentence(equal)


def replace_all(variances: Variances, factor: float) -> Variances:
    return Variances(*(factor * part for part in variances))


@pytest.mark.parametrize(
    ("effect", "seeds", "items", "advised"),
    [
        (0.1, 3, 500, []),  # 316 seeds, 213,080 questions
        (0.3, 3, 500, ["6"]),  # 36 as observed
        (0.5, 3, 500, ["5", "1,200"]),
        (0.1, 3, 22_000, ["4", "39,000"]),
        (0.4, 1, 500, ["9,900"]),
        (0.1, 1, 500, []),
    ],
)
def test_an_absurd_sample_size_is_not_advised(
    effect: float, seeds: int, items: int, advised: list[str]
) -> None:
    (result,) = compare_policies({"hard": runs(2, range(3)), "easy": runs(0, range(3))})
    parts = Variances(seed=0.0, item=0.0, rest=0.02)
    size = {"effect": effect, "low": effect - 9, "high": effect + 9}
    spreads = (SeedSpread(1e-4, 2, 3),) * 2 if seeds > 1 else (None, None)
    c = replace(result, **size, variances=parts, runs=(seeds, seeds), items=items, spreads=spreads)
    assert advised_sizes(c) == advised
    assert (NO_DIFFERENCE in sentence(c)) == (effect == 0.1 and items == 500)


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
        assert result.runs == (1, 1)
        assert result.spans_zero and not any(result.needed)
        assert "inconclusive" in sentence(result)
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
    stored = dict.fromkeys(shares, SeedSpread(0.02**2, 4, 5))
    (known,) = compare_learnable(percentages, shares, stored)
    assert (known.item, known.items) == ("run", 1), "seeds vary, and with them the updates"
    assert (known.verdict, known.stored) == ("a", stored)
    assert result.effect == pytest.approx(percentages["hard"][0] - percentages["easy"][0])
    differences = np.array([shares["hard"][0][u] - shares["easy"][0][u] for u in range(1, 41)])
    expected = scipy.stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((100 * expected.low, 100 * expected.high))
    assert "1 seed × 40 updates" in sentence(result)


def test_learnable_of_several_seeds_is_compared_by_seeds() -> None:
    shares = {"hard": {s: live(0.8, key=s) for s in (0, 1)}, "easy": {0: live(0.1), 1: live(0.1)}}
    percentages = {"hard": {0: 78.0, 1: 80.0}, "easy": {0: 15.8, 1: 12.0}}
    assert compare_learnable(percentages, shares) == compare_learnable(percentages, {})


def test_learnable_without_groups_stays_inconclusive() -> None:
    percentages = {"hard": {0: 78.0}, "easy": {0: 15.8}}
    for of_updates in ({}, {1: 0.5}):
        (result,) = compare_learnable(
            percentages, {"hard": {0: of_updates}, "easy": {0: of_updates}}
        )
        assert result.verdict == "inconclusive" and result.p == 1
        assert result.effect == pytest.approx(62.2) and result.high == np.inf


def test_no_run_and_a_question_twice_are_refused() -> None:
    one = {0: (["a", "b"], np.array([0.0, 1.0]))}
    twice = {0: (["a", "a"], np.array([1.0, 0.0]))}
    for arms in ({"x": one, "y": twice}, {"y": twice, "x": one}, {"x": one, "y": {}}):
        with pytest.raises(ValueError, match="^y\\b"):
            compare_policies(arms)


def test_numbers_of_runs_are_compared_by_a_t_test() -> None:
    hard, easy = {0: 34.0, 1: 36.0, 2: 31.5}, {0: 4.0, 1: 7.5, 2: 5.0}
    (result,) = compare_learnable({"hard": hard, "easy": easy}, {})
    welch = scipy.stats.ttest_ind([*hard.values()], [*easy.values()], equal_var=False)
    df = 2 + (welch.df - 2) * 2 / 3
    assert result.p == pytest.approx(2 * scipy.stats.t.sf(welch.statistic, df))
    half = result.effect / welch.statistic * scipy.stats.t.isf(0.025, df)
    assert (result.low, result.high) == pytest.approx((result.effect - half, result.effect + half))
    assert (result.test, result.p_runs) == ("t over seeds", 1.0), "one number cannot be permuted"
    (result,) = compare_learnable(
        {"hard": {0: 34.0}, "easy": {0: 4.0}}, {"hard": {0: {}}, "easy": {0: {}}}
    )
    assert (result.verdict, result.p) == ("inconclusive", 1)
    assert (result.low, result.high) == (-np.inf, np.inf)


def test_runs_that_do_not_vary_give_no_number() -> None:
    (result,) = compare_policies({"hard": of_questions(6), "base": of_questions(6)})
    assert advised_sizes(result) == []
    same = {s: (IDS[:9], np.ones(9)) for s in range(100)}
    (result,) = compare_policies({"a": same, "b": {s: (IDS[:9], np.zeros(9)) for s in range(2)}})
    assert result.needed == (None, None, None) and result.verdict == "a"
    few = {"a": {0: (IDS[:2], np.ones(2))}, "b": {0: (IDS[:2], np.zeros(2))}}
    (result,) = compare_policies(few)
    assert result.needed == (None, None, None) and result.low <= 0
    (known,) = compare_policies(few, dict.fromkeys(few, SeedSpread(0.01**2, 8, 9)))
    assert known.p >= known.p_runs == 0.5, "seeds that vary make p no smaller"


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("value", [0.25, 1.0])
@pytest.mark.parametrize("items", [1, 2, 5, 6, 14])
def test_questions_that_all_differ_by_the_same_are_judged_by_the_exact_test(
    seeds: int, value: float, items: int
) -> None:
    one, two = ({s: (IDS[:items], np.full(items, x)) for s in range(seeds)} for x in (value, 0.0))
    (result,) = compare_policies({"a": one, "b": two})
    assert result.p == pytest.approx(min(1.0, 2 * 0.5**items), rel=1e-12)
    if result.p > 0.05:
        assert result.spans_zero, "the interval says the same"
    if items == 14 and value == 1:
        assert result.verdict == ("a" if seeds > 1 else "inconclusive")


@pytest.mark.parametrize("shared", [1, 2, 5])
@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_a_few_shared_questions_decide_only_by_their_agreement(shared: int, seeds: int) -> None:
    """Of 100 questions per arm; one says nothing about others, whatever the seeds say."""
    rng = np.random.default_rng(shared)
    one, two = (
        {s: (ids, np.clip(rng.normal(mean, 0.02, 100), 0, 1)) for s in range(seeds)}
        for mean, ids in ((0.9, IDS[:100]), (0.1, IDS[100 - shared : 200 - shared]))
    )
    (result,) = compare_policies({"a": one, "b": two})
    assert result.items == shared and result.effect > 70
    if shared == 1:
        assert (result.verdict, result.p, result.low, result.high) == (
            "inconclusive", 1, -np.inf, np.inf,
        )  # fmt: skip
        assert sentence(result).endswith("needs more shared questions")


@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("items", [1, 2, 3, 80])
@pytest.mark.parametrize("grouped", [False, True])
def test_no_difference_of_shares_exceeds_100_points(seeds: int, items: int, grouped: bool) -> None:
    rng = np.random.default_rng(items)
    groups = dict.fromkeys(IDS[: items * 7 // 8], "big") if grouped else {}
    for _ in range(20):
        sides = {
            arm: {s: (IDS[:items], rng.binomial(1, share, items) * 1.0) for s in range(seeds)}
            for arm, share in (("a", 0.9), ("b", 0.3))
        }
        (c,) = compare_policies(sides, groups=groups)
        for low, high in ((c.low, c.high), c.bounds):
            assert (low, high) == (-np.inf, np.inf) or -100 <= low <= c.effect <= high <= 100
        if c.whole_range and np.isfinite(c.high):
            assert "whole range" in sentence(c)


def test_values_that_are_no_shares_are_not_cut_off() -> None:
    rng = np.random.default_rng(0)
    sides = {
        arm: {s: (IDS[:2], rng.normal(mean, 5, 2)) for s in range(2)}
        for arm, mean in (("a", 50), ("b", 0))
    }
    (c,) = compare_policies(sides)
    assert c.effect > 1000 and c.high > 2000


@pytest.mark.parametrize("seeds", [1, 3])
def test_differences_by_rounding_are_none(seeds: int) -> None:
    for off in (1e-17, 1e-12, 1.00000009e-9):
        one, two = (
            {s: (IDS[:50], np.full(50, value)) for s in range(seeds)} for value in (0.5 + off, 0.5)
        )
        (c,) = compare_policies({"a": one, "b": two})
        assert (c.effect, c.p, c.p_runs, c.needed) == (0, 1, 1, (None, None, None))
        assert c.spans_zero


def test_a_permutation_of_rounding_errors_is_no_evidence() -> None:
    noise = np.random.default_rng(0).normal(0, 1e-17, 60)
    assert permutation_p(noise) == 1
    cancelling = np.random.default_rng(0).permutation(np.repeat([0.1, 0.2, -0.3], 4))
    assert permutation_p(cancelling) == 1


def test_a_run_without_scores_may_have_any() -> None:
    sides = {"a": dict(runs(25, range(3))), "b": dict(runs(0, range(3)))}
    (whole,) = compare_policies(sides)
    assert whole.verdict == "a"
    sides["a"][3] = (IDS, np.full(len(IDS), np.nan))
    (result,) = compare_policies(sides)
    assert (result.effect, result.missing_runs, result.runs) == (whole.effect, (1, 0), (3, 3))
    worst = dict(sides["a"]) | {3: (IDS, np.zeros(len(IDS)))}
    (lowest,) = compare_policies({"a": worst, "b": sides["b"]})
    assert (result.verdict, result.low) == ("inconclusive", pytest.approx(lowest.low))
    del sides["a"][3]
    (planned,) = compare_policies(sides, missing_runs={"a": 1})
    assert (planned.low, planned.high, planned.p) == (result.low, result.high, result.p)
    assert "1 of 4 runs of a is missing" in missing_text(planned)
