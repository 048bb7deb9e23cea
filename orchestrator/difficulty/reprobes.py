"""Second probes of a pool, drawn from the posterior of its pass rates. Pure: NumPy and Arrow."""

from contextlib import suppress

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.estimates import GRID, distinct_pairs, fit_prior, posteriors, rates
from orchestrator.difficulty.proportions import counts
from orchestrator.plugins.streams import generator
from policies import PolicyError, SelectFunction, labelled_rows
from tasks import OUTCOMES


class _Reprobes:
    """Draws further probes of a difficulty table's prompts, K samples each.

    A prompt's pass rate is drawn from its posterior, and the kinds of its failures from its own
    shares (smoothed by one average failure of the pool). The share of unscorable samples and the
    prior stay the same, since a pool's distribution hardly changes.
    """

    def __init__(self, table: pa.Table, samples: int, group_size: int) -> None:
        self.table = table
        self.samples = samples
        self.group_size = group_size
        n = counts(table, "n")
        scorable = counts(table, "scorable")
        right = counts(table, "successes")
        unparsed = counts(table, "unparsed")
        truncated = counts(table, "truncated")
        error = counts(table, "error")
        self.prior = fit_prior(right, scorable)
        s, total, self.pair = distinct_pairs(right, scorable)
        weights = np.concatenate([*posteriors(s, total, self.prior)])
        ends = np.cumsum(weights, axis=1)
        # One sorted array for all pairs: the weights of pair i end between i and i + 1.
        self.ends = (np.arange(len(s))[:, None] + ends / ends[:, -1:]).ravel()
        unscored = np.rint(samples * (n - scorable) / np.maximum(n, 1)).astype(int)
        self.scorable = np.maximum(samples - unscored, np.minimum(scorable, 1))
        self.error = np.rint(samples * error / np.maximum(n, 1)).astype(int)
        self.error = np.minimum(self.error, samples - self.scorable)
        self.misread = None  # the share of wrong answers that are right in another form
        if "form_failures" in table.column_names and not table["form_failures"].null_count:
            misread = counts(table, "form_failures") - unparsed - truncated
            self.misread = misread / np.maximum(counts(table, "wrong"), 1)
        labelled = labelled_rows(table)
        # Errors, and all samples of a prompt without a gold answer.
        self.unmarked = [self.error, np.where(labelled, 0, samples - self.error)]
        unparsed = unparsed * labelled
        truncated = truncated * labelled
        failures = scorable - right
        out = (n - scorable - error) * labelled  # truncated and not scored
        self.unparsed = _smoothed(unparsed, failures)
        self.truncated = _smoothed(truncated - out, failures - unparsed)

    def draw(self, rng: np.random.Generator) -> pa.Table:
        """One further probe's difficulty table, rows in the same order."""
        # A pass rate from the posterior of the prompt's pair, by inverse transform sampling.
        end = np.searchsorted(self.ends, self.pair + rng.random(len(self.pair)), side="right")
        right = rng.binomial(self.scorable, GRID[end - self.pair * len(GRID)])
        unparsed = rng.binomial(self.scorable - right, self.unparsed)
        truncated = rng.binomial(self.scorable - right - unparsed, self.truncated)
        wrong = self.scorable - right - unparsed - truncated
        truncated += self.samples - self.scorable - np.sum(self.unmarked, axis=0)
        by_outcome = dict(
            zip(OUTCOMES, (right, wrong, unparsed, truncated, *self.unmarked), strict=True)
        )
        # Sample 0 is any of the K: its outcome is drawn in proportion to the counts.
        ends = np.cumsum(list(by_outcome.values()), axis=0)
        first = (rng.integers(0, self.samples, len(right)) >= ends).sum(axis=0)
        drawn: dict[str, np.ndarray | pa.Array] = {
            **by_outcome,
            **rates(right, self.scorable, self.prior, self.group_size),
            "n": np.full(len(right), self.samples),
            "first": pa.array(OUTCOMES).take(pa.array(first)),
            "short": np.zeros(len(right), bool),
        }
        if self.misread is not None:
            misread = np.rint(wrong * self.misread).astype(int)
            drawn["form_failures"] = unparsed + truncated + misread
        schema = self.table.schema
        typed = {f.name: pa.array(drawn[f.name]).cast(f.type) for f in schema if f.name in drawn}
        return pa.table({name: typed.get(name, self.table[name]) for name in schema.names})


def _smoothed(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Shares part/whole, smoothed towards the overall share with the weight of one failure."""
    return np.asarray((part + part.sum() / max(whole.sum(), 1)) / (whole + 1))


def in_subset_probability(
    table: pa.Table,
    size: int,
    policy: SelectFunction,
    seed: int,
    samples: int,
    *,
    repeats: int = 200,
    group_size: int = 8,
) -> np.ndarray:
    """[prompts]: the share of `repeats` further probes of `samples` each that choose the prompt.

    table: schema DIFFICULTY. Ties are broken anew in every probe. If the policy cannot fill the
    subset from a probe (PolicyError), this probe chooses nothing.
    """
    probes = _Reprobes(table, samples, group_size)
    times = np.zeros(table.num_rows)
    for repeat in range(repeats):
        again = probes.draw(generator("second probe", seed, repeat))
        ties = generator("ties of a second probe", seed, repeat)
        with suppress(PolicyError):
            times[policy(again, size, ties)] += 1
    return times / repeats


def expected_overlap(probability: np.ndarray, chosen: np.ndarray) -> float:
    """Expected share of the rows `chosen` that a further probe chooses again."""
    return float(probability[chosen].mean())
