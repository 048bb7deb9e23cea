"""Pairs of policies, and what is said of them in words."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.stats.comparison import (
    Scores,
    adjust,
    compare_numbers,
    compare_policies,
    pair_seeds,
    sentence,
)
from orchestrator.stats.inference import Variances, holm, mean_effect, permutation_p

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


def test_what_does_not_outlive_holms_correction_says_so_and_what_it_would_take() -> None:
    (alone,) = compare_policies({"hard": runs(9, range(3)), "easy": runs(0, range(3))})
    assert alone.verdict == "a" and 0.001 < alone.p < 0.05
    found = adjust([alone] * 60)[0]
    assert found.verdict == "cannot tell" and found.tests == 60
    said = sentence(found, "GSM8K")
    assert said.startswith(
        f"hard leads easy by {found.effect:.1f} points [{found.low:.1f}, {found.high:.1f}] on "
        "GSM8K, but not after Holm's correction over 60 comparisons: cannot tell (3 seeds × "
    )
    assert re.search(r"about [\d,]+ (seeds|questions).* would be needed$", said)
    assert found.needed.seeds and alone.needed.seeds
    assert found.needed.seeds > alone.needed.seeds > 3


def test_the_one_who_leads_is_named_first() -> None:
    (found,) = compare_policies({"easy": runs(0, range(3)), "hard": runs(9, range(3))})
    said = sentence(adjust([found] * 60)[0])
    assert said.startswith(f"hard leads easy by {-found.effect:.1f} points [{-found.high:.1f}, ")


def of_questions(right: int, of: int = 15) -> Scores:
    """One run, one sample a question; the first ones are right."""
    return {0: ([f"q{i}" for i in range(of)], (np.arange(of) < right) * 1.0)}


def test_six_of_aimes_fifteen_against_five_cannot_be_told() -> None:
    """Paper A, table 4: pass@8 of 40.0 % and 33.3 %, whichever questions these were."""
    (found,) = compare_policies({"hard": of_questions(6), "base": of_questions(5)})
    assert (found.test, found.p, found.verdict) == ("McNemar", 1.0, "cannot tell")
    assert sentence(found, "AIME2025-I") == (
        "hard against base on AIME2025-I: cannot tell (+6.7 points [−7.6, +21.0], 1 seed × 15 "
        "questions, p = 1, Holm 1); about 120 questions would be needed; one seed says nothing of "
        "other seeds"
    )


def test_what_the_exact_test_does_not_find_is_not_found() -> None:
    (found,) = compare_policies({"hard": of_questions(5), "base": of_questions(0)})
    assert found.low > 0 and found.p == pytest.approx(2 * 0.5**5)
    assert "but not by the exact test (McNemar): cannot tell" in sentence(found)
    (found,) = compare_policies({"hard": of_questions(6), "base": of_questions(0)})
    assert found.verdict == "a"


def test_policies_that_never_differ_need_no_number() -> None:
    (found,) = compare_policies({"hard": of_questions(6), "base": of_questions(6)})
    assert "no difference was seen" in sentence(found)


def test_where_neither_alone_would_do_both_are_named() -> None:
    parts = Variances(seed=0.0004, item=0.04, rest=0.09)
    (found,) = compare_policies({"hard": runs(2, range(3)), "easy": runs(0, range(3))})
    small = replace(found, effect=1.0, low=-9.0, high=11.0, parts=parts, items=100)
    assert small.needed.seeds is None and small.needed.items is None
    assert re.search(r"about \d+ seeds × [\d,]+ questions would be needed$", sentence(small))
    tiny = replace(small, effect=1e-6)
    assert sentence(tiny).endswith("no number of seeds and questions within reason would do")


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
