"""Estimates of pass rates from a probe, and of the agreement with a second probe."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import beta as beta_function
from scipy.stats import betabinom

from orchestrator.difficulty.estimates import (
    CONCENTRATION,
    Prior,
    expected_learnability,
    expected_overlap,
    fit_prior,
    in_subset_probability,
    posterior_mean,
    rates,
    reliability,
    wilson,
)
from orchestrator.difficulty.table import difficulty, summarise
from orchestrator.storage.schema import DIFFICULTY
from policies import PolicyError, get_policy
from tasks import OUTCOMES

GSM8K = Prior(0.24, 0.21)  # fitted to the public 0…10 of 10 histogram of Qwen3-4B
HARD = get_policy("hard")

SHAPES = st.floats(0.01, 50)
PRIORS = st.builds(Prior, SHAPES, SHAPES)
POOLS = st.lists(
    st.integers(0, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=30
)


def arrays(pool: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    successes, n = np.array(pool, dtype=int).reshape(-1, 2).T
    return successes, n


def pool(prompts: int, seed: int, prior: Prior = GSM8K) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.beta(prior.alpha, prior.beta, prompts), rng


def probe(p: np.ndarray, samples: int, rng: np.random.Generator, **options: str) -> pa.Table:
    """A difficulty table of prompts with these pass rates; failures are of every kind."""
    right = rng.random((len(p), samples)) < p[:, None]
    kinds = rng.choice(
        ["wrong", "unparsed", "truncated", "error"], right.shape, p=[0.5, 0.1, 0.3, 0.1]
    )
    return difficulty(
        pa.table(
            {
                "prompt_id": np.repeat([f"p{i:05}" for i in range(len(p))], samples),
                "sample": np.tile(np.arange(samples, dtype=np.int32), len(p)),
                "outcome": np.where(right, "correct", kinds).ravel(),
            }
        ),
        **options,  # type: ignore[arg-type]
    )


def rates_only(p: np.ndarray, samples: int, rng: np.random.Generator) -> pa.Table:
    return pa.table({"pass_rate": rng.binomial(samples, p) / samples})


# The prior


@settings(max_examples=100)
@given(POOLS)
@pytest.mark.slow
def test_the_prior_of_any_pool_is_finite_and_ignores_the_order(
    rows: list[tuple[int, int]],
) -> None:
    prior = fit_prior(*arrays(rows))
    assert 0 < prior.alpha < np.inf and 0 < prior.beta < np.inf
    low, high = CONCENTRATION
    assert low * 0.999 <= prior.alpha + prior.beta <= high * 1.001
    assert fit_prior(*arrays(rows[::-1])) == prior
    assert fit_prior(*arrays([*rows, (0, 0)])) == prior


@pytest.mark.parametrize(
    ("successes", "n", "alpha", "beta", "note"),
    [
        ([], [], 1, 1, "no scorable sample"),
        ([0, 0], [0, 0], 1, 1, "no scorable sample"),
        ([0] * 4, [5] * 4, 0.5 / 21, 20.5 / 21, "all wrong"),
        ([5] * 4, [5] * 4, 20.5 / 21, 0.5 / 21, "all correct"),
        ([1, 0, 0], [1, 1, 1], 1.5 / 4, 2.5 / 4, "one sample per prompt"),
        ([3] * 9, [5] * 9, 6000, 4000, "no more variance"),
        ([0, 5] * 9, [5] * 18, 0.005, 0.005, "all correct or all wrong"),
    ],
)
def test_the_prior_of_a_degenerate_pool_says_why(
    successes: list[int], n: list[int], alpha: float, beta: float, note: str
) -> None:
    prior = fit_prior(np.array(successes, int), np.array(n, int))
    assert (prior.alpha, prior.beta) == pytest.approx((alpha, beta), rel=1e-3)
    assert note in prior.note


def test_the_prior_is_the_most_likely_one() -> None:
    p, rng = pool(300, 0, Prior(0.6, 1.3))
    n = rng.integers(1, 12, 300)
    s = rng.binomial(n, p)
    prior = fit_prior(s, n)

    def likelihood(alpha: float, beta: float) -> float:
        return float(betabinom.logpmf(s, n, alpha, beta).sum())

    best = likelihood(prior.alpha, prior.beta)
    assert prior.note == ""
    for factor in (0.8, 0.98, 1.02, 1.25):
        assert likelihood(prior.alpha * factor, prior.beta) < best
        assert likelihood(prior.alpha, prior.beta * factor) < best
        assert likelihood(prior.alpha * factor, prior.beta * factor) < best


def test_the_prior_is_recovered_from_a_million_prompts() -> None:
    p, rng = pool(1_000_000, 0)
    prior = fit_prior(rng.binomial(10, p), np.full(len(p), 10))
    assert prior[:2] == pytest.approx(GSM8K[:2], rel=0.01)


def test_the_public_histogram_gives_the_published_prior() -> None:
    counts = [599, 162, 123, 83, 92, 90, 86, 88, 95, 146, 764]
    prior = fit_prior(np.repeat(np.arange(11), counts), np.full(sum(counts), 10))
    assert prior[:2] == pytest.approx(GSM8K[:2], abs=0.006)
    assert prior.icc == pytest.approx(0.69, abs=0.005)


def test_swapping_successes_and_failures_swaps_alpha_and_beta() -> None:
    p, rng = pool(500, 3)
    s = rng.binomial(6, p)
    one, other = (fit_prior(x, np.full(500, 6)) for x in (s, 6 - s))
    assert one[:2] == pytest.approx(other[1::-1], rel=1e-4)


def test_stopping_at_the_first_success_does_not_bias_the_prior() -> None:
    p, rng = pool(20_000, 1)
    right = rng.random((len(p), 10)) < p[:, None]
    n = np.where(right.any(axis=1), right.argmax(axis=1) + 1, 10)
    prior = fit_prior(right.any(axis=1).astype(int), n)
    assert prior[:2] == pytest.approx(GSM8K[:2], rel=0.1)


# Posterior and learnability


@settings(max_examples=100)
@given(prior=PRIORS, n=st.integers(0, 40), data=st.data())
def test_the_posterior_mean_is_between_the_prior_mean_and_the_pass_rate(
    prior: Prior, n: int, data: st.DataObject
) -> None:
    s = data.draw(st.integers(0, n))
    prior_mean = prior.alpha / (prior.alpha + prior.beta)
    posterior = posterior_mean(np.array([s]), np.array([n]), prior).item()
    ends = sorted([prior_mean, s / n if n else prior_mean])
    assert ends[0] - 1e-12 <= posterior <= ends[1] + 1e-12


@settings(max_examples=100)
@given(prior=PRIORS, n=st.integers(0, 40), group=st.integers(1, 64), data=st.data())
def test_learnability_is_a_symmetric_probability_that_grows_with_the_group_size(
    prior: Prior, n: int, group: int, data: st.DataObject
) -> None:
    s = data.draw(st.integers(0, n))
    one = expected_learnability(np.array([s]), np.array([n]), prior, group).item()
    assert 0 <= one <= 1
    swapped = Prior(prior.beta, prior.alpha)
    mirrored = expected_learnability(np.array([n - s]), np.array([n]), swapped, group)
    assert mirrored.item() == pytest.approx(one, abs=1e-12)
    more = expected_learnability(np.array([s]), np.array([n]), prior, group + 1).item()
    assert more >= one - 1e-12
    assert group > 1 or one == pytest.approx(0, abs=1e-12)


@settings(max_examples=40)
@given(a=st.floats(0.05, 20), b=st.floats(0.05, 20), n=st.integers(0, 10), group=st.integers(1, 16))
def test_learnability_equals_the_integral_over_the_posterior(
    a: float, b: float, n: int, group: int
) -> None:
    for s in {0, n // 2, n}:
        x, y = a + s, b + n - s
        area, _ = quad(
            lambda p: 1 - p**group - (1 - p) ** group, 0, 1, weight="alg", wvar=(x - 1, y - 1)
        )
        learnability = expected_learnability(
            np.array([s]), np.array([n]), Prior(a, b), group
        ).item()
        assert learnability == pytest.approx(area / beta_function(x, y), abs=1e-7)


@pytest.mark.parametrize("most", [10, 998, 999, 1000, 5000])
def test_each_prompt_has_the_rates_of_its_own_counts(most: int) -> None:
    """Prompts with equal counts are computed once, however many samples they have."""
    n = np.array([most, 7, most, 0, most, 7, 1])
    s = np.array([3, 7, most, 0, 3, 0, 1])
    prior = Prior(0.4, 0.9)
    columns = rates(s, n, prior, 8)
    low, high = wilson(s, n)
    expected = {
        "low": low,
        "high": high,
        "posterior": posterior_mean(s, n, prior),
        "learnability": expected_learnability(s, n, prior, 8),
    }
    assert columns["pass_rate"].to_pylist() == [
        successes / total if total else None for successes, total in zip(s, n, strict=True)
    ]
    for name, values in expected.items():
        assert columns[name].is_null().to_pylist() == [not total for total in n]
        known = columns[name].to_numpy(zero_copy_only=False)[n > 0]
        assert known == pytest.approx(values[n > 0], abs=1e-15)
    of_each = [fit_prior(s[order], n[order])[:2] for order in (np.arange(7), np.arange(7)[::-1])]
    assert of_each[0] == pytest.approx(of_each[1])


def test_a_small_learnability_keeps_its_digits() -> None:
    learnability = expected_learnability(np.array([0]), np.array([5]), Prior(1e-9, 1.0), 8).item()
    assert learnability == pytest.approx(1e-9 * (1 / np.arange(6, 14)).sum(), rel=1e-6)


def test_extreme_priors_give_finite_learnability() -> None:
    for prior in (Prior(1e-30, 1.0), Prior(1e-30, 1e-30), Prior(1e9, 1e9)):
        learnability = expected_learnability(np.array([0, 3]), np.array([0, 3]), prior, 8)
        assert np.isfinite(learnability).all()


# Intervals and reliability


def test_the_wilson_interval_covers_95_percent() -> None:
    rng = np.random.default_rng(0)
    for n in (5, 10, 32):
        p = rng.random(40_000)
        low, high = wilson(rng.binomial(n, p), np.full(len(p), n))
        assert ((low <= p) & (p <= high)).mean() == pytest.approx(0.95, abs=0.012)


def test_reliability_is_the_correlation_of_two_probes() -> None:
    assert reliability(GSM8K, 5) == pytest.approx(0.917, abs=0.001)
    assert reliability(GSM8K, 1) == pytest.approx(GSM8K.icc)
    p, rng = pool(100_000, 0)
    for samples in (1, 5, 10):
        one, other = rng.binomial(samples, p), rng.binomial(samples, p)
        correlation = np.corrcoef(one, other)[0, 1]
        assert reliability(GSM8K, samples) == pytest.approx(correlation, abs=0.01)


# A second probe


@pytest.mark.parametrize(
    ("samples", "shared", "learnable"),
    [(1, None, 0.40), (5, 0.28, 0.216), (10, 0.31, 0.135), (32, 0.42, 0.056)],
)
def test_two_probes_share_few_of_the_hardest_prompts_and_few_are_learnable(
    samples: int, shared: float | None, learnable: float
) -> None:
    size, overlap, chance = 747, [], []
    for seed in range(4):
        p, rng = pool(7473, seed)
        one, other = (HARD(rates_only(p, samples, rng), size, rng) for _ in range(2))
        overlap.append(len(np.intersect1d(one, other)) / size)
        chance.append((1 - p**8 - (1 - p) ** 8)[one].mean())
    assert np.mean(chance) == pytest.approx(learnable, abs=0.02)
    assert shared is None or np.mean(overlap) == pytest.approx(shared, abs=0.03)


@pytest.mark.parametrize(("policy", "samples"), [("hard", 5), ("middle", 5), ("learnable", 10)])
def test_one_probe_predicts_overlap_and_learnability_of_another(policy: str, samples: int) -> None:
    rule, size = get_policy(policy), 300
    p, rng = pool(3000, 7)
    table = probe(p, samples, rng)
    chosen = rule(table, size, np.random.default_rng(0))
    again = [rule(probe(p, samples, rng), size, np.random.default_rng(s)) for s in range(1, 7)]
    overlap = np.mean([len(np.intersect1d(chosen, other)) / size for other in again])
    chances = in_subset_probability(table, size, rule, 0, samples, repeats=30)
    assert expected_overlap(chances, chosen) == pytest.approx(overlap, abs=0.06)
    learnability = table["learnability"].to_numpy(zero_copy_only=False)[chosen].mean()
    assert learnability == pytest.approx((1 - p**8 - (1 - p) ** 8)[chosen].mean(), abs=0.05)


def test_inclusion_probabilities_sum_to_the_subset_size_and_follow_the_seed() -> None:
    p, rng = pool(200, 0)
    table = probe(p, 5, rng)
    one, again = (in_subset_probability(table, 20, HARD, 3, 5, repeats=20) for _ in range(2))
    assert one.sum() == pytest.approx(20)
    assert (one == again).all() and ((one >= 0) & (one <= 1)).all()
    assert (one != in_subset_probability(table, 20, HARD, 4, 5, repeats=20)).any()


def test_reusing_tie_breakers_raises_the_expected_overlap() -> None:
    p, rng = pool(400, 0)
    table = probe(p, 5, rng)
    chosen = HARD(table, 40, np.random.default_rng(1))
    new, same = (
        expected_overlap(
            in_subset_probability(table, 40, HARD, 1, 5, repeats=30, same_ties=same), chosen
        )
        for same in (False, True)
    )
    assert new < 0.5 < 0.7 < same
    blind = get_policy("random")
    chances = in_subset_probability(table, 40, blind, 1, 5, repeats=10, same_ties=True)
    assert expected_overlap(chances, blind(table, 40, np.random.default_rng(1))) == 1


def test_a_second_probe_that_cannot_fill_the_subset_selects_nothing() -> None:
    def never(table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        raise PolicyError("too few")

    p, rng = pool(20, 0)
    chances = in_subset_probability(probe(p, 5, rng), 3, never, 0, 5, repeats=4)
    assert not chances.any()


def simulated(table: pa.Table, samples: int) -> pa.Table:
    """One further probe, as a policy sees it."""
    tables: list[pa.Table] = []

    def spy(table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        tables.append(table)
        return np.arange(size)

    in_subset_probability(table, 1, spy, 0, samples, repeats=1)
    return tables[0]


def test_a_simulated_probe_has_the_pools_prior_and_groups_of_eight() -> None:
    p, rng = pool(300, 1)
    table = probe(p, 5, rng)
    prior = fit_prior(table["successes"].to_numpy(), table["scorable"].to_numpy())
    again = simulated(table, 10)
    counted = again["successes"].to_numpy(), again["scorable"].to_numpy()
    for name, values in rates(*counted, prior, 8).items():
        assert again[name].combine_chunks().equals(values.cast(again[name].type)), name


@pytest.mark.parametrize("kind", ["wrong", "unparsed", "truncated"])
def test_a_simulated_prompt_fails_as_it_did_before(kind: str) -> None:
    """Ten failures of one kind, of half of the prompts: with one average failure, 10.5 of 11."""
    other = "wrong" if kind != "wrong" else "unparsed"
    ids = [f"p{i:04}" for i in range(2000)]
    outcomes = np.repeat([kind, other], 10_000)
    table = simulated(
        difficulty(pa.table({"prompt_id": np.repeat(ids, 10), "outcome": outcomes})), 40
    )
    shares = table[kind].to_numpy() / (40 - table["successes"].to_numpy())
    assert shares[:1000].mean() == pytest.approx(10.5 / 11, abs=0.005)
    assert shares[1000:].mean() == pytest.approx(0.5 / 11, abs=0.005)


@pytest.mark.parametrize(
    ("count_truncated", "scorable", "truncated"), [("wrong", 18, None), ("exclude", 14, 4)]
)
def test_a_simulated_probe_has_the_share_of_samples_that_cannot_be_scored(
    count_truncated: str, scorable: int, truncated: int | None
) -> None:
    """One error and two truncated ones among ten samples: twice as many among twenty."""
    outcomes = ["correct"] * 4 + ["wrong"] * 3 + ["truncated"] * 2 + ["error"]
    ids = np.repeat([f"p{i:04}" for i in range(2000)], 10)
    table = simulated(
        difficulty(
            pa.table({"prompt_id": ids, "outcome": outcomes * 2000}),
            count_truncated=count_truncated,  # type: ignore[arg-type]
        ),
        20,
    )
    assert {*table["scorable"].to_pylist()} == {scorable}
    assert {*table["error"].to_pylist()} == {2} and {*table["n"].to_pylist()} == {20}
    if truncated is None:  # of the failures, two in five
        failures = 18 - table["successes"].to_numpy()
        assert table["truncated"].to_numpy().sum() / failures.sum() == pytest.approx(0.4, abs=0.02)
    else:
        assert {*table["truncated"].to_pylist()} == {truncated}
    first = table["first"].to_pylist()
    for outcome, column in zip(OUTCOMES, ("successes", *OUTCOMES[1:]), strict=True):
        share = table[column].to_numpy().mean() / 20
        assert first.count(outcome) / 2000 == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("count_truncated", ["wrong", "exclude"])
def test_a_simulated_probe_is_a_valid_difficulty_table(count_truncated: str) -> None:
    tables: list[pa.Table] = []

    def spy(table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        tables.append(table)
        return np.arange(size)

    p, rng = pool(2000, 0)
    table = probe(p, 10, rng, count_truncated=count_truncated)
    in_subset_probability(table, 3, spy, 0, 20, repeats=2)
    for simulated in tables:
        assert simulated.schema.equals(DIFFICULTY)
        assert simulated["prompt_id"].equals(table["prompt_id"])
        rows = simulated.to_pylist()
        assert all(
            row["n"] == 20 == row["successes"] + sum(row[o] for o in OUTCOMES[1:]) for row in rows
        )
        excluded = "truncated" if count_truncated == "exclude" else None
        for row in rows:
            least = row["n"] - row["error"] - (row[excluded] if excluded else 0)
            assert row["scorable"] == least
            assert row["pass_rate"] == (row["successes"] / least if least else None)
            assert row["successes" if row["first"] == "correct" else row["first"]] > 0
        for name in ("successes", *OUTCOMES[1:]):
            share, before = (
                np.sum(t[name].to_numpy()) / np.sum(t["n"].to_numpy()) for t in (simulated, table)
            )
            assert share == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize(("policy", "samples"), [("hard", 4), ("easy", 4), ("hard", 10)])
def test_the_pass_rate_of_a_subset_is_that_of_new_samples(policy: str, samples: int) -> None:
    """The samples that chose the prompts say 0 % where 6 % of the next ones are correct."""
    p, rng = pool(1000, 5, Prior(0.3, 0.6))
    table = probe(p, samples, rng)
    told = summarise(table, 100, policy, 0, samples, repeats=2).pass_rate
    rows = get_policy(policy)(table, 100, np.random.default_rng(0))
    assert told == pytest.approx(p[rows].mean(), abs=0.05)  # rows are in the order of p
