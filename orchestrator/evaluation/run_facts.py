"""What a log of a GRPO run holds: its groups, and series by update, as checks read them. Pure."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit

from orchestrator.difficulty.answers import votes_of
from orchestrator.difficulty.disputed import DisputedGolds, disputed_golds, tally
from orchestrator.evaluation.dependence import Dependence, dependence
from orchestrator.evaluation.run_log import METRICS, RunLog
from orchestrator.evaluation.visits import ALPHA, Visits
from tasks.marking.boxes import last_box
from tasks.marking.digits import read_last_number

Floats = npt.NDArray[np.float64]

NOT_LOGGED = "not in the log"
UNREADABLE = "in the log, but its values cannot be read"
LEAST_UPDATES = 8  # with a value, from which on a change is looked for
VISITS = 3  # after which a prompt without a live group counts as one


class Change(NamedTuple):
    """The mean of the first and of the last fifth of a series, and the interval of the change."""

    start: float
    end: float
    low: float
    high: float

    @property
    def fell(self) -> bool:
        """Beyond chance."""
        return self.high < 0

    @property
    def rose(self) -> bool:
        """Beyond chance."""
        return self.low > 0


def change_of(series: Floats) -> Change | None:
    """How a series by update, nan where unknown, ends against its start; None if it is too short.

    The noise of one value is estimated from differences of neighbours, so a trend is not noise.
    """
    known = series[np.isfinite(series)]
    if len(known) < LEAST_UPDATES:
        return None
    width = max(3, len(known) // 5)
    start, end = float(known[:width].mean()), float(known[-width:].mean())
    noise = float(np.sqrt(np.mean(np.diff(known) ** 2) / 2))
    margin = float(stdtrit(len(known) - 1, 1 - ALPHA / 2)) * noise * float(np.sqrt(2 / width))
    return Change(start, end, end - start - margin, end - start + margin)


@dataclass(frozen=True)
class Groups:
    """The groups of a log: arrays of [groups]. Unknown shares and kinds are nan.

    live: whether some completion is correct and some is not, where correctness is known, else
    whether rewards differ; rewarded: whether rewards differ; correct: the share of correct
    completions; length: mean tokens of a completion, or characters where tokens are unknown; alike,
    agree: the correlation of reward with length and with correctness, nan if either is constant;
    version: the mean number of the weights that wrote the completions.
    """

    update: npt.NDArray[np.int32]
    prompt: npt.NDArray[np.int64]  # position in `prompts`
    prompts: tuple[str, ...]
    size: Floats
    tokens: Floats
    reward: Floats
    correct: Floats
    rewarded: Floats
    live: Floats
    truncated: Floats
    length: Floats
    alike: Floats
    agree: Floats
    version: Floats


def groups_of(completions: pa.Table) -> Groups:
    """The groups of a table with the schema COMPLETIONS."""
    group = completions["group"].to_numpy()
    starts = np.flatnonzero(np.diff(group, prepend=group[:1] - 1))
    size = np.diff(starts, append=len(group)).astype(float)

    def column(name: str) -> Floats:
        return np.asarray(pc.cast(completions[name], pa.float64()).to_numpy(), dtype=float)

    def share(values: Floats) -> Floats:
        """The mean of the known values of each group."""
        known = np.isfinite(values)
        count = np.add.reduceat(known.astype(float), starts)
        sums = np.add.reduceat(np.where(known, values, 0.0), starts)
        mean: Floats = np.divide(sums, count, out=np.full(len(count), np.nan), where=count > 0)
        return mean

    encoded = completions["prompt"].combine_chunks().dictionary_encode()
    reward, correct, tokens = column("reward"), column("correct"), column("tokens")
    lengths = tokens
    if not np.isfinite(tokens).any():
        lengths = column_lengths(completions["text"])
    rewarded, advantages = (_differs(each, starts, size) for each in (reward, column("advantage")))
    rewarded = np.where(np.isfinite(advantages), advantages, rewarded)
    by_correct = _differs(correct, starts, size)

    def correlation(left: Floats, right: Floats) -> Floats:
        """Pearson's correlation within each group, from means of products."""
        both = np.isfinite(left) & np.isfinite(right)
        x, y = np.where(both, left, np.nan), np.where(both, right, np.nan)
        mean_x, mean_y = share(x), share(y)
        spread = np.maximum(share(x * x) - mean_x**2, 0) * np.maximum(share(y * y) - mean_y**2, 0)
        covariance, varied = share(x * y) - mean_x * mean_y, spread > 1e-9
        unknown: Floats = np.full(len(starts), np.nan)
        return np.asarray(np.divide(covariance, np.sqrt(spread), out=unknown, where=varied))

    return Groups(
        update=completions["update"].to_numpy()[starts],
        prompt=encoded.indices.to_numpy()[starts].astype(np.int64),
        prompts=tuple(encoded.dictionary.to_pylist()),
        size=size,
        tokens=share(tokens) * size,
        reward=share(reward),
        correct=share(correct),
        rewarded=rewarded,
        live=np.where(np.isfinite(by_correct), by_correct, rewarded),
        truncated=share(column("truncated")),
        length=share(lengths),
        alike=correlation(reward, lengths),
        agree=correlation(reward, correct),
        version=share(column("version")),
    )


def _differs(values: Floats, starts: npt.NDArray[np.int64], size: Floats) -> Floats:
    """1 where the known values of a group differ, 0 where not: [groups].

    nan where fewer than two, or half of the group or less, are known: those that are missing may be
    the ones that differ.
    """
    known = np.isfinite(values)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    low = np.minimum.reduceat(np.where(known, values, np.inf), starts)
    count = np.add.reduceat(known.astype(float), starts)
    enough = (count > 1) & (2 * count > size)
    differs: Floats = np.where(enough, high > low + 1e-9, np.nan)
    return differs


def column_lengths(texts: pa.ChunkedArray) -> Floats:
    """Characters of each text, nan where there is none."""
    lengths = pc.cast(pc.utf8_length(texts), pa.float64())
    return np.asarray(lengths.to_numpy(), dtype=float)


class Facts:
    """What the checks read of a log: its groups, and series by update."""

    def __init__(self, log: RunLog) -> None:
        self.log, self.groups = log, groups_of(log.completions)
        by_metric = {update for values in log.metrics.values() for update in values}
        self.updates = np.array(sorted(by_metric | {*self.groups.update.tolist()}), dtype=int)
        self._row = np.searchsorted(self.updates, self.groups.update)

    def series(self, name: str) -> Floats:
        """A metric by update, [updates]: from completions, else from the log; else nan."""
        return self._series[name]

    @cached_property
    def _series(self) -> dict[str, Floats]:
        """The series of every metric."""
        groups = self.groups
        own = {name: getattr(groups, name) for name in METRICS if hasattr(groups, name)}
        own |= {"dead": 1 - groups.live, "tokens": groups.tokens / np.maximum(1, groups.size)}
        series = {name: self._unknown() for name in METRICS}
        series |= {name: self.mean_by_update(values) for name, values in own.items()}
        series["stale"] = lag_of(self.updates, self.mean_by_update(self.groups.version))
        for name, values in self.log.metrics.items():
            for update, value in values.items():
                row = int(np.searchsorted(self.updates, update))
                if np.isnan(series[name][row]):
                    series[name][row] = value
        return series

    def _unknown(self) -> Floats:
        return np.full(len(self.updates), np.nan)

    def mean_by_update(self, values: Floats) -> Floats:
        """The mean of the known values of [groups] by update, [updates]."""
        known, rows = np.isfinite(values), len(self.updates)
        sums = np.bincount(self._row[known], values[known], rows)
        count = np.bincount(self._row[known], minlength=rows)
        return np.divide(sums, count, out=self._unknown(), where=count > 0)

    def change(self, name: str) -> Change | None:
        """`change_of` a series."""
        return change_of(self.series(name))

    def mean(self, name: str, *, last: bool = False) -> float:
        """The mean of a series, or of its last fifth; nan if nothing is known."""
        known = self.series(name)
        known = known[np.isfinite(known)]
        known = known[-max(3, len(known) // 5) :] if last else known
        return float(known.mean()) if len(known) else float("nan")

    @property
    def quality(self) -> Literal["correct", "reward"]:
        """The measure of completions: correctness if it is known, else reward."""
        return "correct" if np.isfinite(self.series("correct")).any() else "reward"

    @property
    def knows_live(self) -> bool:
        """Whether the share of live groups is known."""
        return bool(np.isfinite(self.live))

    @cached_property
    def live(self) -> float:
        """Share of live groups, 0 to 1; nan if nothing is known."""
        known = self.groups.live[np.isfinite(self.groups.live)]
        return float(known.mean()) if len(known) else 1 - self.mean("dead")

    @cached_property
    def varied(self) -> Floats:
        """1 where rewards of an update differ, 0 where all are equal, nan if unknown; [updates].

        Where they differ, all groups may still be dead.
        """
        spread, pooled = (
            self.series("reward_high") - self.series("reward_low"),
            self.series("reward_std"),
        )
        spread = np.where(np.isfinite(pooled), pooled, spread)
        return np.sign(np.round(np.abs(spread), 9))

    @cached_property
    def kinds(self) -> dict[str, int]:
        """Groups by kind: live, all_right, all_wrong; dead where correctness is unknown."""
        live, correct = self.groups.live, self.groups.correct
        dead = live == 0
        return {
            "live": int((live == 1).sum()),
            "all_right": int((dead & (correct == 1)).sum()),
            "all_wrong": int((dead & (correct == 0)).sum()),
            "dead": int((dead & np.isnan(correct)).sum()),
            "phantom": int(((self.groups.rewarded == 1) & dead & np.isfinite(correct)).sum()),
        }

    @property
    def judged(self) -> int:
        """The number of groups known to be live or not: the denominator of shares of kinds."""
        return sum(self.kinds[kind] for kind in ("live", "all_right", "all_wrong", "dead"))

    @cached_property
    def wasted(self) -> dict[str, float]:
        """Shares, 0 to 1, of rollouts, tokens and seconds in groups that are not live.

        Seconds of an update are divided among its groups by their tokens, else by rollouts.
        """
        if not np.isfinite(self.groups.live).any():
            return {}
        dead = self.groups.live == 0
        shares = {}
        amounts = {"rollouts": self.groups.size, "tokens": self.groups.tokens}
        for name, amount in amounts.items():
            total = float(np.nansum(amount))
            if total and np.isfinite(amount).all():
                shares[name] = float(amount[dead].sum()) / total
        seconds = self.series("seconds")
        if len(dead) and np.isfinite(seconds).any():
            weight = amounts["tokens" if "tokens" in shares else "rollouts"]
            by_update = self.mean_by_update(weight * dead) / self.mean_by_update(weight)
            timed = np.isfinite(seconds) & np.isfinite(by_update)
            shares["seconds"] = float((seconds * by_update)[timed].sum() / seconds[timed].sum())
        return shares

    @cached_property
    def without_signal(self) -> list[str]:
        """Prompts that were drawn at least VISITS times without a live group."""
        visits = np.bincount(self.groups.prompt, minlength=len(self.groups.prompts))
        live = np.bincount(self.groups.prompt, np.nan_to_num(self.groups.live), len(visits))
        return [self.groups.prompts[i] for i in np.flatnonzero((visits >= VISITS) & (live == 0))]

    @cached_property
    def sources(self) -> dict[str, tuple[int, int]]:
        """How many groups of each source are known to be live or not, and how many are live.

        {} if the log names no source, or does not show which groups are live.
        """
        table = self.log.completions
        starts = np.flatnonzero(np.diff(table["group"].to_numpy(), prepend=-1))
        of = table["source"].take(pa.array(starts)).to_pylist()
        known = np.isfinite(self.groups.live)
        return {
            name: (int(known[rows].sum()), int((self.groups.live[rows] == 1).sum()))
            for name in dict.fromkeys(of)
            if name is not None and known[rows := [each == name for each in of]].any()
        }

    def visits(self, name: str) -> Visits:
        """The groups by prompt, with one of the arrays of `Groups` that are shares or means."""
        return self._visits[name]

    @cached_property
    def _visits(self) -> dict[str, Visits]:
        groups, update = self.groups, self.groups.update.astype(np.int64)
        spans = dict.fromkeys(("correct", "live", "length"), (0.0, 1.0))
        known = groups.reward[np.isfinite(groups.reward)]
        spans["reward"] = (float(known.min(initial=np.inf)), float(known.max(initial=-np.inf)))
        return {
            name: Visits(update, groups.prompt, getattr(groups, name), span)
            for name, span in spans.items()
        }

    @cached_property
    def same_reward(self) -> bool:
        """Whether rewards carry no more than correctness, which may be read from them."""
        values = (self.log.completions[name].cast(pa.float64()) for name in ("reward", "correct"))
        reward, correct = (each.to_numpy() for each in values)
        scales = (correct, 2 * correct - 1, 100 * correct)
        return any(np.array_equal(reward, each, equal_nan=True) for each in scales)

    @cached_property
    def broken_rewards(self) -> set[int]:
        """The updates in which a completion has a reward that is not finite."""
        table = self.log.completions
        finite = pc.fill_null(pc.is_finite(table["reward"]), True)
        return {*table.filter(pc.invert(finite))["update"].to_pylist()}

    @cached_property
    def answers(self) -> pa.StringArray:
        """The answer in each text; null where none can be read."""
        texts = self.log.completions["text"].to_pylist()
        return pa.array([None if text is None else answer_of(text) for text in texts], pa.string())

    @cached_property
    def prompt_of(self) -> npt.NDArray[np.int64]:
        """The position in `groups.prompts` of the prompt of each completion, [rows]."""
        return np.repeat(self.groups.prompt, self.groups.size.astype(int))

    def dependence(self, of: npt.NDArray[np.bool_]) -> Dependence | None:
        """How far the answers of these completions, [rows], depend on their prompts."""
        answers = self.answers.dictionary_encode().indices.filter(pa.array(of)).to_numpy()
        return dependence(self.prompt_of[of], answers)

    @cached_property
    def golds(self) -> DisputedGolds | None:
        """Gold answers that completions dispute; None without texts or correctness."""
        table = self.log.completions
        known = pc.and_(pc.is_valid(table["text"]), pc.is_valid(table["correct"]))
        if not pc.any(known).as_py() or self.answers.null_count == len(table):
            return None
        table, answers = table.filter(known), self.answers.filter(known.combine_chunks())
        outcomes = [
            "correct" if correct else "unparsed" if answer is None else "wrong"
            for correct, answer in zip(
                table["correct"].to_pylist(), answers.to_pylist(), strict=True
            )
        ]
        samples = pa.table(
            {
                "prompt_id": table["prompt"].cast(pa.string()),
                "outcome": pa.array(outcomes, pa.string()),
                "extracted": answers,
            }
        )
        prompts = tally(samples)
        return disputed_golds(votes_of(samples, prompts), prompts)

    def why_unknown(self, *names: str) -> str:
        """Why nothing is known of these metrics or columns: absent, or unreadable."""
        related = {"dead": ("reward", "correct", "advantage"), "stale": ("version",)}
        names = (*names, *(each for name in names for each in related.get(name, ())))
        return UNREADABLE if self.log.unreadable & {*names} else NOT_LOGGED

    @property
    def absent(self) -> list[str]:
        """What the checks read and the log lacks."""
        unknown = [name for name in METRICS if not np.isfinite(self.series(name)).any()]
        logged = [name for name in unknown if self.why_unknown(name) == NOT_LOGGED]
        names = [METRICS[name].text for name in logged if METRICS[name].text]
        if not len(self.groups.update):
            names.append("completions with their prompts")
        elif not pc.any(pc.is_valid(self.log.completions["text"])).as_py():
            names.append("texts of completions")
        return names


def lag_of(updates: npt.NDArray[np.int_], version: Floats) -> Floats:
    """The updates by which weights are behind, [updates]; nan where their version is unknown.

    A version may count updates, or how often the sampler has received new weights: its usual growth
    shows which. If it is not the number of an update, the lag is relative to the first update.
    """
    known = np.isfinite(version)
    if known.sum() < LEAST_UPDATES:
        return np.full(len(updates), np.nan)
    at, of = updates[known], version[known]
    quarters = np.linspace(0, len(at) - 1, 5).astype(int)
    growth = np.diff(of[quarters]) / np.diff(at[quarters])
    rate = float(np.median(growth[growth > 0])) if (growth > 0).any() else 1.0
    if 1 / 2 < rate < 3 / 2:
        rate = 1.0
    is_own = rate == 1 and (at - of).min() >= 0 and (growth > 0).any()
    lag = np.full(len(updates), np.nan)
    lag[known] = at - of if is_own else (at - at[0]) - (of - of[0]) / rate
    return lag


def answer_of(text: str) -> str | None:
    r"""The answer in the last `\boxed{}` of a text, else its last number; None without either."""
    box = last_box(text)
    if box is not None:
        return box.strip()
    number = read_last_number(text)
    return None if number is None else str(number)
