"""What static policies would have chosen in a recorded run, and how its difficulty drifts. Pure.

A policy chooses by some visits, and its groups are counted at later ones. These have different
completions, so luck in the first visits is not counted as success. Intervals (95 %) are from
`RESAMPLES` pools drawn from the prompts with replacement. Every policy chooses anew in each pool,
so intervals include the luck of ties.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.difficulty.estimates import fit_prior, live_chance, posterior_mean
from orchestrator.evaluation.online_replay import OnlineReplay, bins_of
from orchestrator.evaluation.recording import Floats, Recording, mean_by_prompt
from orchestrator.plugins.json_values import json_value
from orchestrator.plugins.streams import generator
from orchestrator.stats.rankings import rank_agreement
from orchestrator.stats.resampled import Estimate
from policies import Policy, PolicyError, choice_rng

Rows = npt.NDArray[np.int64]
Tables = tuple[pa.Table, pa.Table | None]  # to choose by, and of the next look, if any

RESAMPLES = 200  # pools; 5 of them lie beyond each end of an interval
DRAWS = 50  # choices with different ties, whose mean is the estimate
ENDS = 5  # visits whose mean is the start, or the end, of a run, as far as both do not overlap
REFERENCE = "random"
DISTANCES = (1, 2, 5, 10, 20, 40)  # visits between two looks
STARTS = 6  # pairs of visits at each distance
LOOKS = (1, 2, 4)  # visits that a forecast rests on
CHANGED = 10  # prompts that are listed


class Outcome(NamedTuple):
    """The outcome of one choice. live: [later visits], shares of its groups; the others are shares.

    never, always: of its prompts that are not solved, or always solved, at all later visits.
    repeated: of its prompts that the same policy chooses by the next look; tied: by the same look
    with different ties.
    """

    live: Floats
    never: float
    always: float
    repeated: float
    tied: float


@dataclass(frozen=True)
class Replayed:
    """What a policy would have chosen: `outcomes` of its draws, and of the resampled pools."""

    policy: str
    size: int
    outcomes: Sequence[Outcome]
    resampled: Sequence[Outcome]
    reads_rates: bool
    chosen: Floats  # [prompts]: how often each is chosen, 0 to 1

    @property
    def unfilled(self) -> int:
        """The resampled pools with too few prompts of a kind; intervals exclude them."""
        return sum(bool(np.isnan(each.never)) for each in self.resampled)

    def estimate(self, statistic: Callable[[Outcome], float]) -> Estimate:
        """A statistic of the choice."""
        return Estimate.of(
            float(np.mean([*map(statistic, self.outcomes)])),
            np.array([*map(statistic, self.resampled)]),
        )

    def less(self, other: "Replayed", statistic: Callable[[Outcome], float]) -> Estimate:
        """The difference of a statistic of two policies, paired by pool."""
        own, others = (float(np.mean([*map(statistic, each.outcomes)])) for each in (self, other))
        pairs = zip(self.resampled, other.resampled, strict=True)
        return Estimate.of(own - others, np.array([statistic(a) - statistic(b) for a, b in pairs]))

    @cached_property
    def live(self) -> Floats:
        """[later visits]: the share of live groups."""
        return np.asarray(np.mean([each.live for each in self.outcomes], axis=0))

    @cached_property
    def later(self) -> Estimate:
        """The share of live groups at all later visits."""
        return self.estimate(mean_live)

    @cached_property
    def start(self) -> Estimate:
        """The share at the first visits."""
        return self.estimate(first_live)

    @cached_property
    def end(self) -> Estimate:
        """The share at the last visits."""
        return self.estimate(last_live)


def mean_live(outcome: Outcome) -> float:
    """The share of live groups at all later visits."""
    return float(outcome.live.mean())


def end_visits(visits: int) -> int:
    """The number of visits at the start and end of `visits`: at most half; 0 for a single one."""
    return min(ENDS, visits // 2)


def first_live(outcome: Outcome) -> float:
    """The share at the first `end_visits` of them; nan for a single one."""
    count = end_visits(len(outcome.live))
    return float(outcome.live[:count].mean()) if count else np.nan


def last_live(outcome: Outcome) -> float:
    """The share at the last `end_visits` of them; nan for a single one."""
    count = end_visits(len(outcome.live))
    return float(outcome.live[-count:].mean()) if count else np.nan


def never(outcome: Outcome) -> float:
    """The share of its prompts that no later completion solves."""
    return outcome.never


def always(outcome: Outcome) -> float:
    """The share of its prompts that every later completion solves."""
    return outcome.always


def repeated(outcome: Outcome) -> float:
    """The share of its prompts that the next look would choose again."""
    return outcome.repeated


def tied(outcome: Outcome) -> float:
    """The share of its prompts that the same look would choose with different ties."""
    return outcome.tied


SHARES = (never, always, repeated, tied)


class Crossing(NamedTuple):
    """Two policies, the first of which has more live groups at first, and fewer at the end.

    visit: after which the second one is ahead.
    """

    first: str
    second: str
    visit: Estimate


class Forecast(NamedTuple):
    """A forecast of live groups at the next ENDS visits, from `samples` completions per prompt.

    predicted, observed: means over prompts; error: their difference with its interval. brier,
    plain: the mean squared error of the probe's estimator, and of the plain rate. bins: prompts,
    mean forecast and share observed of tenths of the prompts by their forecasts.
    """

    samples: int
    predicted: float
    observed: float
    error: Estimate
    brier: Estimate
    plain: Estimate
    bins: tuple[tuple[int, float, float], ...]


class DriftAt(NamedTuple):
    """Two visits `distance` apart: rank correlation of their rates, and shared hardest tenth."""

    distance: int
    correlation: Estimate
    shared: Estimate


class Changed(NamedTuple):
    """A prompt with the mean rates of its first and last `end_visits`."""

    prompt_id: str
    start: float
    end: float


class Replay:
    """A recording, the visits or the probe that policies choose by, and what they would choose.

    looks: the number of first visits that a choice is based on. probe: a difficulty table in the
    order of the prompts, in place of visits. budget: the number of prompts of a choice. online: the
    replay of policies that choose during training, if any.
    """

    def __init__(
        self,
        recording: Recording,
        policies: Sequence[Policy],
        budget: int,
        looks: int = 1,
        probe: pa.Table | None = None,
        online: OnlineReplay | None = None,
    ) -> None:
        self.recording, self.budget, self.probe = recording, budget, probe
        self.online = online
        self.looks = looks if probe is None else 0
        self.refused: dict[str, str] = {}
        self.policies = {policy.name: policy for policy in policies}

    @cached_property
    def _tables(self) -> Tables:
        """The table to choose by, and that of the next look; None if a probe is the table."""
        if self.probe is not None:
            return self.probe, None
        next_look = None
        if 2 * self.looks <= self.recording.visits:
            next_look = self.recording.difficulty(self.looks, self.looks)
        return self.recording.difficulty(0, self.looks), next_look

    def choose(self, policy: Policy, table: pa.Table, seed: int) -> Rows:
        """The rows that a policy chooses. Raises PolicyError if it cannot."""
        return policy(table, self.budget, choice_rng(seed, policy.stream))

    @cached_property
    def replayed(self) -> dict[str, Replayed]:
        """What each policy would have chosen, and its outcomes, by its name.

        Policies that cannot choose from such a table are in `refused`, with the reason.
        """
        count, table = len(self.recording.prompt_ids), self._tables[0]
        rng = generator("resampled recordings")
        pools = rng.integers(0, count, (RESAMPLES, count))
        again = [(rows, self._resampled(rows)) for rows in pools]
        replayed = {}
        for name, policy in self.policies.items():
            try:
                choices = [self.choose(policy, table, seed) for seed in range(DRAWS)]
            except PolicyError as error:
                self.refused[name] = str(error)
                continue
            everything = np.arange(count)
            chosen = np.bincount(np.concatenate(choices), minlength=count) / DRAWS
            outcomes = [
                self._outcome(policy, own, everything, self._tables, seed)
                for seed, own in enumerate(choices)
            ]
            resampled = [
                self._chosen_anew(policy, rows, tables, seed)
                for seed, (rows, tables) in enumerate(again)
            ]
            size = len(choices[0])
            reads = policy.needs != "nothing"
            replayed[name] = Replayed(name, size, outcomes, resampled, reads, chosen)
        return replayed

    def _resampled(self, rows: Rows) -> Tables:
        """The tables of a pool drawn from the prompts, with a prior of its own."""
        if self.probe is not None:
            return self.probe.take(pa.array(rows)), None
        pool = self.recording.part(rows)
        next_look = None
        if self._tables[1] is not None:
            next_look = pool.difficulty(self.looks, self.looks)
        return pool.difficulty(0, self.looks), next_look

    def _chosen_anew(self, policy: Policy, rows: Rows, tables: Tables, seed: int) -> Outcome:
        """The outcome of the choice from a resampled pool; nan if it has too few of a kind."""
        try:
            own = self.choose(policy, tables[0], seed)
        except PolicyError:
            return Outcome(np.full(self.recording.visits - self.looks, np.nan), *[np.nan] * 4)
        return self._outcome(policy, own, rows, tables, seed)

    def _outcome(self, policy: Policy, own: Rows, rows: Rows, tables: Tables, seed: int) -> Outcome:
        """The outcome of the choice `own` of these prompts; a pool may have a prompt several times.

        own: rows of the tables; rows: the prompt of each row of the tables.
        """
        table, next_look = tables
        chosen = rows[own]
        live = self.recording.live[chosen, self.looks :]
        rates = self.recording.rates[chosen, self.looks :]
        tied = repeated = np.nan
        if not policy.takes_all:
            tied = _shared(own, self.choose(policy, table, seed + RESAMPLES))
            if next_look is not None:
                with suppress(PolicyError):  # that look may have too few prompts of a kind
                    repeated = _shared(own, self.choose(policy, next_look, seed + RESAMPLES))
        known = ~np.isnan(rates)
        return Outcome(
            mean_by_prompt(live.T),
            float((np.where(known, rates, 0) == 0).all(axis=1).mean()),
            float((np.where(known, rates, 1) == 1).all(axis=1).mean()),
            repeated,
            tied,
        )

    @cached_property
    def crossings(self) -> list[Crossing]:
        """Pairs of policies that are each ahead for a time, both beyond chance."""
        crossings = []
        for one, two in combinations(self.replayed.values(), 2):
            if one.less(two, first_live).value < 0:
                one, two = two, one
            if one.less(two, first_live).low > 0 > one.less(two, last_live).high:
                pairs = zip(one.resampled, two.resampled, strict=True)
                ahead = [a.live - b.live for a, b in pairs]
                places = [self._place(each) for each in ahead if np.isfinite(each).all()]
                visit = Estimate.of(self._place(one.live - two.live), np.array(places, float))
                crossings.append(Crossing(one.policy, two.policy, visit))
        return crossings

    def _place(self, ahead: Floats) -> int:
        """The visit after which a difference is negative: it is the sum that is largest there."""
        return self.looks + 1 + int(np.argmax(np.cumsum(ahead)))

    @property
    def probe_rollouts(self) -> int | None:
        """The completions that the choice is based on; None if the probe does not record them."""
        if self.probe is not None:
            counts = self.probe["n"].to_pylist() if "n" in self.probe.column_names else [None]
            return None if None in counts else sum(counts)
        return int(self.recording.marked[:, : self.looks].sum())

    def passes_to_repay(self, replayed: Replayed) -> float | None:
        """After how many passes over the choice the rollouts of its probe are saved.

        The reference, `random`, takes more rollouts for as many live groups. inf: never; None for a
        policy that needs no probe, without the reference, and if a value is unknown.
        """
        reference = self.replayed.get(REFERENCE)
        if reference is None or not replayed.reads_rates or self.probe_rollouts is None:
            return None
        own, other = replayed.later.value, reference.later.value
        if not np.isfinite(own - other):
            return None
        if own <= other:
            return float("inf")
        # A live group of the choice takes 1 / own groups, one of the reference 1 / other.
        saved = self.recording.group_size * (own / other - 1)  # rollouts, by each group
        return self.probe_rollouts / saved / replayed.size

    def parts(self, column: str) -> dict[str, dict[str, tuple[float, float]]]:
        """By policy and value of a column: the share of the choice, and of its live groups."""
        values = np.array(self.recording.columns[column])
        live = np.nan_to_num(mean_by_prompt(self.recording.live[:, self.looks :]))
        return {
            name: {
                value: (
                    float(each.chosen[own].sum() / each.chosen.sum()),
                    float((each.chosen * live)[own].sum() / max(each.chosen[own].sum(), 1e-12)),
                )
                for value in np.unique(values).tolist()
                if (own := values == value).any()
            }
            for name, each in self.replayed.items()
        }

    @cached_property
    def forecasts(self) -> list[Forecast]:
        """The forecasts of the probe's estimator for the visits that follow, from LOOKS of them."""
        last = self.recording.visits - ENDS
        return [forecast(self.recording, looks) for looks in LOOKS if looks <= last]

    @cached_property
    def drift(self) -> list[DriftAt]:
        """How alike two visits are, by their distance."""
        visits, rates = self.recording.visits, self.recording.rates
        distances = [each for each in DISTANCES if each < visits]
        rng = generator("resampled drift")
        count = len(rates)
        pools = [np.arange(count), *rng.integers(0, count, (RESAMPLES // 4, count))]
        drift = []
        for distance in distances:
            starts = np.unique(np.linspace(0, visits - distance - 1, STARTS).astype(int))
            values = np.array([_agreement(rates[rows], starts, distance) for rows in pools])
            correlation, shared = (Estimate.of(v[0], v[1:]) for v in values.T)
            drift.append(DriftAt(distance, correlation, shared))
        return drift

    def half_life(self, replayed: Replayed) -> float | None:
        """The visits after which half of a choice's difference to the reference is left.

        Uses means over `end_visits`. inf: more than the run has; None for the reference itself, and
        without a difference beyond chance at first.
        """
        reference = self.replayed.get(REFERENCE)
        if reference is None or replayed is reference:
            return None
        start = replayed.less(reference, first_live)
        if not (start.low > 0 or start.high < 0):
            return None
        count = end_visits(len(replayed.live))
        ahead = (replayed.live - reference.live) * np.sign(start.value)
        means = np.convolve(ahead, np.ones(count) / count, "valid")
        below = np.flatnonzero(means <= means[0] / 2)
        return float(below[0]) if len(below) else float("inf")

    @cached_property
    def changed(self) -> list[Changed]:
        """The prompts whose rate rose or fell most, the largest change first."""
        rates = self.recording.rates
        count = end_visits(self.recording.visits)
        start = mean_by_prompt(rates[:, :count])
        end = mean_by_prompt(rates[:, self.recording.visits - count :])
        change = np.abs(np.nan_to_num(end - start))
        order = np.argsort(-change, kind="stable")[:CHANGED]
        order = order[change[order] > 0]
        ids = self.recording.prompt_ids
        return [Changed(ids[row], float(start[row]), float(end[row])) for row in order]

    def to_dict(self) -> dict[str, Any]:
        """All values, for JSON."""
        recording, reference = self.recording, self.replayed.get(REFERENCE)
        policies = {
            name: {
                "size": each.size,
                "live": each.later,
                "minus_random": reference and each.less(reference, mean_live),
                "live_first": each.start,
                "live_last": each.end,
                "live_by_visit": each.live.round(6).tolist(),
                "half_life": self.half_life(each),
                "passes_to_repay": self.passes_to_repay(each),
                "resampled_pools": len(each.resampled) - each.unfilled,
            }
            | {statistic.__name__: each.estimate(statistic) for statistic in SHARES}
            for name, each in self.replayed.items()
        }
        values: dict[str, Any] = json_value(
            {
                "run": recording.name,  # its name
                "layout": recording.layout,  # the trainer, or table
                "prompts": len(recording.prompt_ids),  # number of prompts
                "visits": recording.visits,  # visits of each prompt
                "group_size": recording.group_size,  # completions of a group
                "chosen_by_visits": self.looks,  # the first visits by which policies choose
                # completions of these visits; null with a probe
                "probe_rollouts": self.probe_rollouts,
                # by policy: its size, the live groups of its choice with interval, by visit, and
                # compared with random; half-life and passes to repay
                "policies": policies,
                "refused": self.refused,  # policies that cannot choose, and why
                # where one policy's choice becomes better than another's
                "crossings": self.crossings,
                "forecasts": self.forecasts,  # what the probe's estimator predicts, and what came
                "drift": self.drift,  # agreement of pass rates between visits
                "changed": self.changed,  # prompts whose pass rates changed most
                # policies that choose during training; null without --online
                "online": self.online and [vars(each) for each in self.online.played],
                # how well online estimates predict; null without --online
                "predictions": self.online and self.online.predictions,
                # by column of the data: the same for its values
                "parts": {name: self.parts(name) for name in recording.columns},
                "notes": recording.notes,
                "row_counts": recording.rows.to_dict(),
            }
        )
        return values


def _shared(one: Rows, two: Rows) -> float:
    """The share of one choice that is in another."""
    return len(np.intersect1d(one, two)) / max(1, len(one))


def _agreement(rates: Floats, starts: Rows, distance: int) -> tuple[float, float]:
    """Mean rank correlation, and mean share of the hardest tenth, of pairs of visits."""
    pairs = []
    for start in starts.tolist():
        one, two = rates[:, start], rates[:, start + distance]
        known = ~np.isnan(one) & ~np.isnan(two)
        pairs.append(rank_agreement(one[known], two[known]))
    correlation, shared = np.mean(pairs, axis=0)
    return float(correlation), float(shared)


def forecast(recording: Recording, looks: int) -> Forecast:
    """The forecast of the probe's estimator for the ENDS visits after the first `looks`."""
    size = recording.group_size
    successes = recording.correct[:, :looks].sum(axis=1)
    samples = recording.marked[:, :looks].sum(axis=1)
    came = mean_by_prompt(recording.live[:, looks : looks + ENDS])
    known = np.isfinite(came) & (samples > 0)
    successes, samples, came = successes[known], samples[known], came[known]
    rate = successes / samples

    def errors(rows: Rows) -> tuple[Floats, Floats]:
        """Forecasts for a pool, with its own prior; mean error, and both mean squared errors."""
        prior = fit_prior(successes[rows], samples[rows])
        own = posterior_mean(live_chance(size), successes[rows], samples[rows], prior)
        plain = 1 - rate[rows] ** size - (1 - rate[rows]) ** size
        noise = came[rows] * (1 - came[rows])  # of single groups, which are live or not
        squares = [(each - came[rows]) ** 2 + noise for each in (own, plain)]
        return own, np.array([each.mean() for each in (own - came[rows], *squares)])

    pools = generator("resampled forecasts").integers(0, len(came), (RESAMPLES // 4, len(came)))
    predicted, values = errors(np.arange(len(came)))
    resampled = np.array([errors(rows)[1] for rows in pools])
    error, brier, of_plain = map(Estimate.of, values, resampled.T)
    means = float(predicted.mean()), float(came.mean())
    return Forecast(looks * size, *means, error, brier, of_plain, bins_of(predicted, came))
