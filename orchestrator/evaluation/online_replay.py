"""What online policies would have chosen and predicted in a recorded run. Pure.

Each update is one visit of the run: a policy draws groups of that visit, which all prompts had at
about the same time, each once. The policy learns from them as it does in training, through its
`History`. Predictions are made before each visit, from all groups of the visits before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import betaln

from orchestrator.difficulty.estimates import fit_prior, live_chance, posterior_mean
from orchestrator.difficulty.proportions import Z95
from orchestrator.evaluation.recording import Floats, Recording, mean_by_prompt
from orchestrator.plugins.streams import generator
from orchestrator.stats.resampled import Estimate
from policies import BuiltOnlinePolicy, History, get_online_policy

Rows = npt.NDArray[np.int64]
Build = Callable[[], BuiltOnlinePolicy]

POOLS = 10  # resampled; their scatter gives normal intervals. Few, because policies are slow
RESAMPLES = 200  # of the prompts, for intervals of scores
BINS = 10  # of predictions
PREDICTING = ("predicted", "mopps")  # policies that have a posterior of each pass rate
SURE = 0.01  # predictions of live groups stay so far from 0 and 1, where the log score is infinite
NEWER = 0.3  # weight of the last rate in the exponentially weighted one


class Drawn(NamedTuple):
    """What one run of a policy has drawn; `unanswered` groups are not in the recording."""

    groups: int
    live: int
    unanswered: int
    reached: float  # share of the prompts that are ever live with a live group drawn


@dataclass(frozen=True)
class Played:
    """An online policy in the recording. All values are shares.

    live: of the groups drawn; avoided: of the dead groups among as many random ones; rollouts:
    those needed, with its probe, for as many live groups as random choices give, relative to
    theirs; reached: of the prompts that are live at some visit, those drawn live; unanswered: of
    the groups that it requested, those that the recording lacks.
    """

    policy: str
    live: Estimate
    avoided: Estimate
    rollouts: Estimate
    reached: Estimate
    unanswered: float


class Prediction(NamedTuple):
    """How well the next group of every prompt is predicted.

    brier, log: mean squared error and mean negative log-likelihood (nats) of whether it is live.
    rate: mean squared error of its pass rate; nan where none is predicted. bins: predictions, mean
    prediction and observed share of live groups, of tenths of the predictions.
    """

    by: str
    brier: Estimate
    log: Estimate
    rate: Estimate
    bins: tuple[tuple[int, float, float], ...]

    @property
    def largest_error(self) -> float:
        """The largest error of a tenth."""
        return max((abs(predicted - came) for _, predicted, came in self.bins), default=np.nan)


class OnlineReplay:
    """A recording and the online policies to replay, each of which draws `size` groups per visit.

    looks: the number of first visits that are the probe of policies that need one.
    """

    def __init__(
        self, recording: Recording, policies: Mapping[str, Build], size: int, looks: int = 1
    ) -> None:
        self.recording, self.policies, self.size, self.looks = recording, policies, size, looks

    @cached_property
    def played(self) -> list[Played]:
        """Every policy, replayed. Raises PolicyError if one cannot be."""
        count = len(self.recording.prompt_ids)
        pools = generator("resampled online").integers(0, count, (POOLS, count))
        return [
            self._played(name, build, [np.arange(count), *pools])
            for name, build in self.policies.items()
        ]

    def _played(self, name: str, build: Build, pools: Sequence[Rows]) -> Played:
        values, missing = [], 0.0
        for seed, rows in enumerate(pools):
            policy = build()
            drawn = self.draw(policy, rows, seed)
            live = drawn.live / max(1, drawn.groups)
            random = float(np.nanmean(self.recording.live[rows, self.looks :]))
            probe = 0.0
            if policy.needs != "nothing":
                groups = self.size * (self.recording.visits - self.looks)
                probe = self.looks * len(rows) / groups
            avoided = 1 - (1 - live) / (1 - random) if random < 1 else np.nan
            rollouts = random / live + probe if live else np.nan
            values.append((live, avoided, rollouts, drawn.reached))
            if not seed:
                missing = drawn.unanswered / max(1, drawn.unanswered + drawn.groups)
        own, *others = np.array(values)
        half = Z95 * np.std(others, axis=0, ddof=1)
        least, most = np.array([0, -np.inf, 0, 0]), np.array([1, 1, np.inf, 1])
        ends = np.maximum(own - half, least), np.minimum(own + half, most)
        columns = zip(own.tolist(), *(end.tolist() for end in ends), strict=True)
        return Played(name, *map(Estimate._make, columns), missing)  # type: ignore[call-arg, arg-type]

    def draw(self, policy: BuiltOnlinePolicy, rows: Rows, seed: int) -> Drawn:
        """What a policy draws from a pool, which may contain a prompt several times."""
        run, looks = self.recording, self.looks
        correct, marked = run.correct[rows], run.marked[rows]
        probed = looks if policy.needs != "nothing" else 0
        history = History(
            pa.array([str(number) for number in range(len(rows))]),
            marked[:, :probed].sum(axis=1),
            correct[:, :probed].sum(axis=1),
            seed=seed,
            updates=run.visits - looks,
            group_size=run.group_size,
            columns={name: np.array(texts)[rows] for name, texts in run.columns.items()},
        )
        live = (correct > 0) & (correct < marked)
        seen, groups, unanswered = np.zeros(len(rows), dtype=bool), 0, 0
        count_live = 0
        for update, visit in enumerate(range(looks, run.visits), 1):
            right, total, is_live = correct[:, visit], marked[:, visit], live[:, visit]

            def draw(
                count: int,
                missing: int,
                update: int = update,
                right: Rows = right,
                total: Rows = total,
            ) -> int:
                ids = policy.next_ids(history, update, count, missing)
                chosen = np.array([int(each) for each in ids.to_pylist()])
                for row in chosen.tolist():
                    history.add(update, row, int(right[row]), int(total[row]))
                if not policy.discards:
                    return count
                return int(policy.keep(right[chosen], total[chosen]).sum())

            def fresh(update: int = update) -> int:
                return int(np.count_nonzero(history.fresh(update)))

            policy.fill(min(self.size, len(rows)), fresh, draw)
            drawn = ~history.fresh(update)
            groups += int((drawn & (total > 0)).sum())
            unanswered += int((drawn & (total == 0)).sum())
            count_live += int((drawn & is_live).sum())
            seen |= drawn & is_live
        ever = live[:, looks : run.visits].any(axis=1)
        return Drawn(groups, count_live, unanswered, float(seen[ever].mean()) if ever.any() else 0)

    @cached_property
    def predictions(self) -> list[Prediction]:
        """Predictions of the next group of every prompt, by each method."""
        run = self.recording
        came, rates = run.live[:, 1:], run.rates[:, 1:]
        predicted = predictions_of(run)
        return [score(by, *both, came, rates) for by, both in predicted.items()]


def score(by: str, predicted: Floats, rate: Floats, came: Floats, rates: Floats) -> Prediction:
    """Predictions of live groups and of rates, each [prompts, visits], with the outcomes."""
    predicted = np.where(np.isfinite(came) & np.isfinite(predicted), predicted, np.nan)
    chance = np.clip(predicted, SURE, 1 - SURE)
    errors = (
        (predicted - came) ** 2,
        -np.log(np.where(came == 1, chance, 1 - chance)) + 0 * predicted,
        (rate - rates) ** 2,
    )
    rng = generator("resampled predictions")

    def mean(values: Floats) -> Estimate:
        by_prompt = mean_by_prompt(values)
        by_prompt = by_prompt[np.isfinite(by_prompt)]
        if not len(by_prompt):
            return Estimate(np.nan, np.nan, np.nan)
        rows = rng.integers(0, len(by_prompt), (RESAMPLES, len(by_prompt)))
        return Estimate.of(float(by_prompt.mean()), by_prompt[rows].mean(axis=1))

    brier, log, of_rate = map(mean, errors)
    return Prediction(by, brier, log, of_rate, bins_of(predicted, came))


def bins_of(predicted: Floats, came: Floats) -> tuple[tuple[int, float, float], ...]:
    """Tenths of the predictions: their number, their mean, and the mean of the outcomes.

    Equal predictions are not divided: they belong to the tenth in which their middle lies.
    """
    known = np.isfinite(predicted) & np.isfinite(came)
    predicted, came = predicted[known], came[known]
    _, level, times = np.unique(predicted.round(12), return_inverse=True, return_counts=True)
    tenth = (BINS * (np.cumsum(times) - times / 2) / max(1, len(came))).astype(int)[level]
    return tuple(
        (int(own.sum()), float(predicted[own].mean()), float(came[own].mean()))
        for own in (tenth == number for number in range(BINS))
        if own.any()
    )


def predictions_of(run: Recording) -> dict[str, tuple[Floats, Floats]]:
    """Method -> chances of a live group, and pass rates, [prompts, visits - 1] each.

    For every visit except the first, from the groups of all visits before. Policies read them from
    a `History` without a probe, as in training.
    """
    count, size = len(run.prompt_ids), run.group_size
    zeros = np.zeros(count, int)
    ids = pa.array([str(number) for number in range(count)])
    history = History(ids, zeros, zeros, seed=0, updates=run.visits, group_size=size)
    everything = np.arange(count)
    predicting: dict[str, Any] = {name: get_online_policy(name) for name in PREDICTING}
    shares: dict[str, list[tuple[Floats, Floats]]] = {}
    weighted = run.rates[:, 0]
    for visit in range(1, run.visits):
        for row in np.flatnonzero(run.marked[:, visit - 1]).tolist():
            history.add(
                visit, row, int(run.correct[row, visit - 1]), int(run.marked[row, visit - 1])
            )
        right = run.correct[:, :visit].sum(axis=1)
        total = run.marked[:, :visit].sum(axis=1)
        last = run.rates[:, visit - 1]
        weighted = np.where(np.isnan(last), weighted, NEWER * last + (1 - NEWER) * weighted)
        prior = fit_prior(right, total)
        estimated = posterior_mean(live_chance(size), right, total, prior)
        pool = np.full(count, np.nanmean(run.live[:, visit - 1]))
        mean = right / np.maximum(total, 1)
        by = {
            "share of the last visit": (pool, np.full(count, np.nan)),
            "last rate": (live_of(history.pass_rate.astype(float), size), last),
            "mean rate": (live_of(mean, size), mean),
            "weighted rate": (live_of(weighted, size), weighted),
            "estimator of probes": (estimated, np.full(count, np.nan)),
        }
        for name, policy in predicting.items():
            a, b = policy.posterior(everything, visit + 1, history)
            by[name] = beta(a, b, size)
        for name, both in by.items():
            shares.setdefault(name, []).append(both)
    return {
        name: (np.stack([one for one, _ in each], 1), np.stack([two for _, two in each], 1))
        for name, each in shares.items()
    }


def live_of(rate: Floats, size: int) -> Floats:
    """The chance that a group is live, if this is its prompt's pass rate."""
    return np.asarray(1 - rate**size - (1 - rate) ** size)


def beta(a: Floats, b: Floats, size: int) -> tuple[Floats, Floats]:
    """The chance that a group is live and the pass rate, expected under Beta(a, b)."""
    whole = betaln(a, b)
    live = 1 - np.exp(betaln(a + size, b) - whole) - np.exp(betaln(a, b + size) - whole)
    return np.asarray(live), np.asarray(a / (a + b))
