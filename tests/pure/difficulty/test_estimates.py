"""Estimates of pass rates from a probe, and of the agreement with a second probe."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import betainc
from scipy.stats import betabinom

from orchestrator.difficulty import estimates
from orchestrator.difficulty.estimates import (
    GRID,
    Prior,
    fit_p,
    fit_prior,
    live_chance,
    posterior_mean,
    rates,
    reliability,
)
from orchestrator.difficulty.proportions import wilson
from orchestrator.difficulty.reprobes import expected_overlap, in_subset_probability
from orchestrator.difficulty.summary import fit_warning, summarise
from orchestrator.difficulty.table import difficulty
from orchestrator.plugins.difficulty_table import DIFFICULTY
from policies import Policy, PolicyError, get_policy
from tasks import OUTCOMES

GSM8K = (0.24, 0.21)  # of a Beta fitted to the public 0…10 of 10 histogram of Qwen3-4B


def pool(
    prompts: int, seed: int, shape: tuple[float, float] = GSM8K
) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.beta(*shape, prompts), rng


HARD = get_policy("hard")
# Pools that a Beta fits and pools that it does not: name -> pass rates of prompts
GENERATORS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "beta": lambda rng, size: rng.beta(0.3, 0.6, size),
    "atoms": lambda rng, size: rng.choice([0, 1, -1], size, p=[0.45, 0.15, 0.4]),
    "never": lambda rng, size: np.where(rng.random(size) < 0.25, 0, rng.beta(3, 3, size)),
    "two points": lambda rng, size: rng.choice([0.1, 0.7], size),
    "bimodal": lambda rng, size: np.where(
        rng.random(size) < 0.5, rng.beta(2, 18, size), rng.beta(18, 2, size)
    ),
}


def drawn_rates(name: str, rng: np.random.Generator, size: int) -> np.ndarray:
    """Pass rates of a generator; those that are not at 0 or 1 are uniform for `atoms`."""
    p = GENERATORS[name](rng, size)
    return np.where(p < 0, rng.random(size), p)


def beta_prior(alpha: float, beta: float) -> Prior:
    """A Beta distribution on the grid."""
    edges = np.concatenate([[0], (GRID[1:] + GRID[:-1]) / 2, [1]])
    return Prior(np.diff(betainc(alpha, beta, edges)))


def icc(prior: Prior) -> float:
    """Share of one sample's variance that lies between prompts."""
    variance = prior.weights @ (GRID - prior.mean) ** 2
    return float(variance / (prior.mean * (1 - prior.mean)))


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


@pytest.mark.parametrize(
    ("successes", "n", "mean", "note"),
    [
        ([], [], 0.5, "no scorable sample"),
        ([0, 0], [0, 0], 0.5, "no scorable sample"),
        ([0] * 4, [5] * 4, 0.5 / 5, "all wrong"),
        ([5] * 4, [5] * 4, 4.5 / 5, "all correct"),
        ([1, 0, 0], [1, 1, 1], 1.5 / 4, "one sample"),
        ([1, 0, 0, 0], [5] * 4, 0.7 / 5, ""),
    ],
)
def test_the_prior_of_a_degenerate_pool_says_why(
    successes: list[int], n: list[int], mean: float, note: str
) -> None:
    """One further prompt is assumed, of which nothing is known."""
    prior = fit_prior(np.array(successes, int), np.array(n, int))
    assert prior.mean == pytest.approx(mean, abs=0.03)
    assert note in prior.note and bool(prior.note) == bool(note)


def test_the_prior_is_recovered_from_a_million_prompts() -> None:
    p, rng = pool(1_000_000, 0)
    prior = fit_prior(rng.binomial(10, p), np.full(len(p), 10))
    expected = beta_prior(*GSM8K)
    assert (prior.mean, icc(prior)) == pytest.approx((expected.mean, icc(expected)), rel=0.01)
    between = np.cumsum(prior.weights - expected.weights)[(GRID > 0.02) & (GRID < 0.98)]
    assert np.abs(between).max() < 0.05


def test_the_public_histogram_gives_the_published_share_between_prompts() -> None:
    counts = [599, 162, 123, 83, 92, 90, 86, 88, 95, 146, 764]
    s, n = np.repeat(np.arange(11), counts), np.full(sum(counts), 10)
    assert icc(fit_prior(s, n)) == pytest.approx(0.69, abs=0.01)
    assert fit_p(s, n) > 0.05


def test_stopping_at_the_first_success_does_not_bias_the_prior() -> None:
    p, rng = pool(20_000, 1)
    right = rng.random((len(p), 10)) < p[:, None]
    n = np.where(right.any(axis=1), right.argmax(axis=1) + 1, 10)
    prior = fit_prior(right.any(axis=1).astype(int), n)
    assert prior.mean == pytest.approx(p.mean(), rel=0.05)


@pytest.mark.parametrize("samples", [8, 16])
@pytest.mark.parametrize("name", GENERATORS)
def test_the_forecast_of_a_subset_holds_for_pools_of_every_form(name: str, samples: int) -> None:
    """Live groups of eight: a Beta prior misses by 21 to 29 points on three of these pools."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        p = drawn_rates(name, rng, 1000)
        n = np.full(1000, samples)
        s = rng.binomial(n, p)
        prior, order = fit_prior(s, n), np.lexsort((rng.random(1000), s))
        live = posterior_mean(live_chance(8), s, n, prior) - (1 - p**8 - (1 - p) ** 8)
        rate = posterior_mean(GRID, s, n, prior) - p
        hard, easy = order[:100], order[-100:]
        errors.append([live[hard].mean(), live[easy].mean(), rate[hard].mean(), rate[easy].mean()])
    bias = np.abs(np.mean(errors, axis=0))
    assert (bias < [0.09, 0.09, 0.03, 0.03]).all(), bias


@pytest.mark.parametrize("name", GENERATORS)
def test_a_pool_of_any_form_fits_and_repeated_samples_do_not(name: str) -> None:
    rng = np.random.default_rng(0)
    p = drawn_rates(name, rng, 400)
    eight = np.full(400, 8)
    assert fit_p(rng.binomial(8, p), eight) > 0.05
    varied = rng.integers(1, 5, 400)
    assert fit_p(rng.binomial(varied, p), varied) > 0.05
    twice = 2 * rng.binomial(4, p)
    assert fit_p(twice, eight) < 0.01
    table = pa.table({"successes": twice, "scorable": eight})
    assert fit_warning(table)
    assert not fit_warning(pa.table({"successes": eight // 8, "scorable": eight // 8}))


# Posterior and learnability


@settings(max_examples=40)
@example(a=0.5, b=20, n=1, group=1)
@given(a=st.floats(0.5, 20), b=st.floats(0.5, 20), n=st.integers(0, 40), group=st.integers(1, 64))
def test_rate_and_learnability_equal_those_of_a_beta_posterior(
    a: float, b: float, n: int, group: int
) -> None:
    prior = beta_prior(a, b)
    for s in {0, n // 2, n}:
        x, y = a + s, b + n - s
        counts = np.array([s]), np.array([n])
        assert posterior_mean(GRID, *counts, prior).item() == pytest.approx(x / (x + y), abs=2e-3)
        expected = 1 - betabinom.pmf(0, group, x, y) - betabinom.pmf(group, group, x, y)
        learnability = posterior_mean(live_chance(group), *counts, prior)
        assert learnability.item() == pytest.approx(expected if group > 1 else 0, abs=2e-3)


@pytest.mark.parametrize("most", [10, 998, 999, 1000, 5000])
def test_each_prompt_has_the_rates_of_its_own_counts(most: int) -> None:
    """Prompts with equal counts are computed once, however many samples they have."""
    n = np.array([most, 7, most, 0, most, 7, 1])
    s = np.array([3, 7, most, 0, 3, 0, 1])
    prior = beta_prior(0.4, 0.9)
    columns = rates(s, n, prior, 8)
    low, high = wilson(s, n)
    expected = {
        "low": low,
        "high": high,
        "posterior": posterior_mean(GRID, s, n, prior),
        "learnability": posterior_mean(live_chance(8), s, n, prior),
    }
    assert columns["pass_rate"].to_pylist() == [
        successes / total if total else None for successes, total in zip(s, n, strict=True)
    ]
    for name, values in expected.items():
        assert columns[name].is_null().to_pylist() == [not total for total in n]
        known = columns[name].to_numpy(zero_copy_only=False)[n > 0]
        assert known == pytest.approx(values[n > 0], abs=1e-15)


def test_a_small_chance_of_a_live_group_keeps_its_digits() -> None:
    g = GRID[1]
    assert live_chance(8)[[0, 1, -2, -1]] == pytest.approx([0, 8 * g, 8 * g, 0], rel=1e-3)


def test_more_different_counts_than_are_fitted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    p, rng = pool(3000, 0, (0.6, 1.3))
    n = rng.integers(2, 400, 3000)
    s = rng.binomial(n, p)
    whole, rated = fit_prior(s, n), rates(s, n, beta_prior(0.6, 1.3), 8)
    monkeypatch.setattr(estimates, "MOST_FITTED", 300)
    monkeypatch.setattr(estimates, "BLOCK", 64)
    part = fit_prior(s, n)
    assert (part.mean, icc(part)) == pytest.approx((whole.mean, icc(whole)), abs=0.05)
    for name, values in rates(s, n, beta_prior(0.6, 1.3), 8).items():
        assert values.to_numpy() == pytest.approx(rated[name].to_numpy(), abs=1e-12)


# Intervals and reliability


def test_reliability_is_the_correlation_of_two_probes() -> None:
    p, rng = pool(100_000, 0)
    for samples in (2, 10):
        n = np.full(len(p), samples)
        correlation = np.corrcoef(rng.binomial(n, p), rng.binomial(n, p))[0, 1]
        assert reliability(rng.binomial(n, p), n, samples) == pytest.approx(correlation, abs=0.01)
        # From probes with fewer samples, of which some cannot be scored.
        fewer = rng.integers(1, 4, len(p))
        assert reliability(rng.binomial(fewer, p), fewer, samples) == pytest.approx(
            correlation, abs=0.01
        )


def test_equally_hard_prompts_have_no_reliable_ranking() -> None:
    rng = np.random.default_rng(0)
    n = np.full(360, 8)
    drawn = [reliability(rng.binomial(n, 0.02), n, 8) for _ in range(50)]
    assert np.mean(drawn) < 0.05 and min(drawn) == 0


@pytest.mark.parametrize(
    ("successes", "n", "value"),
    [
        ([0, 1, 1], [1, 1, 1], np.nan),  # one sample per prompt
        ([0, 0], [4, 4], np.nan),
        ([4, 4], [4, 4], np.nan),
        ([2], [4], np.nan),
        ([], [], np.nan),
        ([0, 4, 0], [4, 4, 0], 1),
        ([2, 2, 2], [4, 4, 4], 0),
    ],
)
def test_reliability_of_extreme_probes(successes: list[int], n: list[int], value: float) -> None:
    drawn = reliability(np.array(successes, int), np.array(n, int), 4)
    assert drawn == pytest.approx(value, nan_ok=True)


# A second probe


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


def test_a_prompt_that_was_scored_once_is_scored_in_a_simulated_probe() -> None:
    """The errors leave room for it: 19 of 20 round to 3 of 3."""
    rows = {"prompt_id": ["a"] * 20, "outcome": ["correct"] + ["error"] * 19}
    [row] = simulated(difficulty(pa.table(rows)), 3).to_pylist()
    assert (row["n"], row["scorable"], row["error"]) == (3, 1, 2)


@pytest.mark.parametrize("count_truncated", ["wrong", "exclude"])
def test_a_simulated_probe_is_a_valid_difficulty_table(count_truncated: str) -> None:
    p, rng = pool(2000, 0)
    table = probe(p, 10, rng, count_truncated=count_truncated)
    again = simulated(table, 20)
    assert again.schema.equals(DIFFICULTY) and again["prompt_id"].equals(table["prompt_id"])
    for row in again.to_pylist():
        assert row["n"] == 20 == row["successes"] + sum(row[o] for o in OUTCOMES[1:])
        left_out = row["truncated"] if count_truncated == "exclude" else 0
        assert row["scorable"] == row["n"] - row["error"] - left_out
        right, scorable = row["successes"], row["scorable"]
        assert row["pass_rate"] == (right / scorable if scorable else None)
        assert row["successes" if row["first"] == "correct" else row["first"]] > 0
    for name in ("successes", *OUTCOMES[1:]):
        share, before = (
            np.sum(t[name].to_numpy()) / np.sum(t["n"].to_numpy()) for t in (again, table)
        )
        assert share == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize(("policy", "samples"), [("hard", 4), ("easy", 10)])
def test_the_pass_rate_of_a_subset_is_that_of_new_samples(policy: str, samples: int) -> None:
    """The samples that chose the prompts say 0 % where 6 % of the next ones are correct."""
    p, rng = pool(1000, 5, (0.3, 0.6))
    table = probe(p, samples, rng)
    told = summarise(
        table, 100, Policy(policy, get_policy(policy)), 0, samples, repeats=2
    ).pass_rate
    rows = get_policy(policy)(table, 100, np.random.default_rng(0))
    assert told == pytest.approx(p[rows].mean(), abs=0.05)  # rows are in the order of p


POOLS = st.lists(
    st.integers(0, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=30
)


def arrays(pool: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    successes, n = np.array(pool, dtype=int).reshape(-1, 2).T
    return successes, n


# The prior


@settings(max_examples=100)
@given(POOLS)
def test_the_prior_of_any_pool_is_a_distribution_and_ignores_the_order(
    rows: list[tuple[int, int]],
) -> None:
    prior = fit_prior(*arrays(rows))
    assert (prior.weights >= 0).all() and prior.weights.sum() == pytest.approx(1)
    assert 0 < prior.mean < 1 and 0 < icc(prior) < 1
    for other in (rows[::-1], [*rows, (0, 0)]):
        again = fit_prior(*arrays(other))
        assert (again.weights == prior.weights).all() and again.note == prior.note
    swapped = fit_prior(*arrays([(n - s, n) for s, n in rows]))
    assert swapped.weights == pytest.approx(prior.weights[::-1], abs=1e-9)
