"""Arms of item-level results, compared: `compare_policies` for results that no sweep made. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from orchestrator.plugins.json_values import json_value
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.report.sentences import pairing_caveats, rising
from orchestrator.stats.churn import Churn, Flips, Marks, churn, flips
from orchestrator.stats.comparison import Comparison, ItemScores, adjust, compare_policies
from orchestrator.stats.factors import (
    AnswerCounts,
    DividedGain,
    Factors,
    divided_gain,
    factors_of,
)
from orchestrator.stats.inference import (
    Available,
    Effect,
    SeedSpread,
    available,
    group_codes,
    mean_effect,
)
from tasks.marking.marks import FACTORS

MOST_PARTS = 50  # tiers or sources whose churn is shown
HANDFUL = 5  # questions on which two runs may well have equal scores


class ItemFile(NamedTuple):
    """A file of an arm: where it is, its format and SHA-256 ("" for a table in memory)."""

    path: str
    format: str
    sha256: str


class Rated(NamedTuple):
    """A question's samples in one run: how many have a score, their sum, and how many have none.

    marks: each sample by its number; None if a score is between right and wrong. answers: how
    many are finished, parsed and correct; None if not all outcomes are known.
    """

    samples: int
    total: float
    missing: int
    marks: Marks | None = None
    answers: AnswerCounts | None = None


@dataclass(frozen=True)
class ArmRun:
    """One run (training seed) of an arm: question id -> its samples."""

    seed: int
    items: Mapping[str, Rated]
    files: tuple[ItemFile, ...]

    @cached_property
    def scores(self) -> dict[str, float]:
        """Question -> mean score of its samples; without questions whose samples have no score."""
        return {i: each.total / each.samples for i, each in self.items.items() if each.samples}

    @property
    def is_identifiable(self) -> bool:
        """Whether another run with the same scores is unlikely to be a coincidence."""
        return len(self.scores) > HANDFUL and len({*self.scores.values()}) > 1

    @property
    def run(self) -> ItemScores:
        """The run as the comparison reads it, with the questions and samples that have no score."""
        counts = {i: (each.samples, each.total) for i, each in self.items.items()}
        samples = np.array([each.samples + each.missing for each in self.items.values()])
        return ItemScores.of_counts(counts, samples)


@dataclass(frozen=True)
class Arm:
    """The runs of one model or policy; `metric` names what their scores are.

    gain_per: for an arm of cells, points of accuracy gained per unit of `Ledger.units`, for units
    that all cells have used. rows: the row counts of its files.
    """

    name: str
    metric: str
    runs: tuple[ArmRun, ...]
    gain_per: Mapping[str, Effect] = field(default_factory=dict)
    rows: RowCounts = RowCounts(0)

    @cached_property
    def _available(self) -> Available:
        return available([run.scores for run in self.runs])

    @property
    def questions(self) -> list[str]:
        """The questions that have a score in some run, sorted.

        If runs share too little to tell how they differ, a question needs a score in every run.
        """
        return self._available.items

    def accuracy(self, groups: Mapping[str, str]) -> Effect | None:
        """Mean score over runs and `questions`, with an interval that is cut off at 0 and 1.

        None without a question; the interval is that of `mean_effect`, over `groups`.
        """
        if not self.questions:
            return None
        mean = mean_effect(self._available.values, group_codes(self.questions, groups))
        value, low, high = (min(max(x, 0.0), 1.0) for x in mean[:3])
        return Effect(value, low, high, mean.p)

    @property
    def samples(self) -> tuple[int, int]:
        """Fewest and most samples of a question with a score."""
        counts = [each.samples for run in self.runs for each in run.items.values() if each.samples]
        return min(counts, default=0), max(counts, default=0)

    @property
    def marks(self) -> list[dict[str, Marks]] | None:
        """For each run, question -> its samples; None if a score is between right and wrong."""
        runs = [{i: r.marks for i, r in run.items.items() if r.marks} for run in self.runs]
        every = all(
            len(marks) == len(run.items) for marks, run in zip(runs, self.runs, strict=True)
        )
        return runs if every else None

    @property
    def answers(self) -> list[dict[str, AnswerCounts]] | None:
        """For each run, question -> its samples; None if not all outcomes are known."""
        runs = [{i: r.answers for i, r in run.items.items() if r.answers} for run in self.runs]
        sizes = zip(runs, self.runs, strict=True)
        return runs if all(len(answers) == len(run.items) for answers, run in sizes) else None

    @property
    def factors(self) -> Factors | None:
        """The factors of its accuracy, over all runs; None if not all outcomes are known."""
        return factors_of(self.answers) if self.answers else None

    @property
    def missing(self) -> int:
        """Samples without a score."""
        return sum(each.missing for run in self.runs for each in run.items.values())


class Differing(NamedTuple):
    """A question that has a score in every arm: each arm's mean over the runs that have it."""

    item: str
    means: tuple[float, ...]

    @property
    def range(self) -> float:
        """Largest minus smallest mean."""
        return max(self.means) - min(self.means)


@dataclass(frozen=True)
class ItemAnalysis:
    """Compared arms. questions: id -> text, where files hold it; notes: remarks of the readers.

    groups: question -> its group, of related questions. kinds: tier and source -> question -> its
    name.
    """

    arms: tuple[Arm, ...]
    comparisons: tuple[Comparison, ...]
    questions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def seeds(self) -> dict[str, int]:
        """Arm -> number of runs."""
        return {arm.name: len(arm.runs) for arm in self.arms}

    @property
    def caveats(self) -> list[str]:
        """What limits the comparisons, and the notes."""
        return [*pairing_caveats(self.seeds, self.comparisons, "arms"), *self.notes]

    @cached_property
    def churns(self) -> list[Churn | None]:
        """The churn of each comparison: `a` gained the questions that it answers and `b` does not.

        None if scores are not right or wrong.
        """
        return [churn([each], self.groups) if each else None for each in self._flips]

    @cached_property
    def _flips(self) -> list[Flips | None]:
        marks = {arm.name: arm.marks for arm in self.arms}
        pairs = [(marks[c.b], marks[c.a]) for c in self.comparisons]
        return [flips(b, a) if a and b else None for b, a in pairs]

    @cached_property
    def part_churns(self) -> list[list[tuple[str, str, Churn]]]:
        """For each comparison, the churn of each tier and source: kind, name, churn.

        A kind with one name, or with more than MOST_PARTS, is left out.
        """
        return [
            [
                (kind, name, part)
                for kind, name, own in self._question_parts
                if each and (part := churn([each], self.groups, own))
            ]
            for each in self._flips
        ]

    @cached_property
    def divided(self) -> list[list[tuple[str, str, DividedGain]]]:
        """For each comparison, the parts of the difference, as if `b` became `a`.

        Kind, name, parts: first for all questions, with empty kind and name, then for each tier and
        source as in `part_churns`. Empty if outcomes of an arm are unknown.
        """
        answers = {arm.name: arm.answers for arm in self.arms}
        kinds = [("", "", None), *self._question_parts]
        divided: list[list[tuple[str, str, DividedGain]]] = []
        for c in self.comparisons:
            divided.append([])
            before, after = answers[c.b], answers[c.a]
            if not before or not after:
                continue
            for kind, name, own in kinds:
                if gain := divided_gain(before, after, self.groups, own, paired=False):
                    divided[-1].append((kind, name, gain))
        return divided

    @property
    def unknown_outcomes(self) -> list[str]:
        """The arms with unknown outcomes, whose differences cannot be divided."""
        return [arm.name for arm in self.arms if arm.answers is None]

    @cached_property
    def _question_parts(self) -> list[tuple[str, str, set[str]]]:
        """Kind and name of each tier and source, and its questions."""
        parts = []
        for kind, of in self.kinds.items():
            names = rising({*of.values()})
            for name in names if 1 < len(names) <= MOST_PARTS else ():
                parts.append((kind, name, {item for item, known in of.items() if known == name}))
        return parts

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """The comparisons of a and b in plain values; null if a number is not known.

        * `effect`, `low`, `high`: the difference a − b in points, with its 95 % interval
        * `p`, `p_holm` (corrected for `tests` pairs), `p_runs` (given these runs), `test`
        * `scope` (`models` or `policies`), `covers_seeds`, `significant`, `verdict` (`a`, `b` or
          `inconclusive`)
        * `runs` of a and b, `seeds` (the fewer), `questions`, `groups` of related ones, `left_out`
        * `needed_seeds`, `needed_questions`, `needed_both` for a difference of the observed size,
          and the ranges `needed_seeds_range`, `needed_questions_range`
        * `only_a`, `only_b`: questions that it alone answers; `only_by_chance`: the expected number
          of each if both were alike; `parts`: the same for each tier and source
        * `consists_of`: for all questions, and for each tier and source, the parts of the
          difference in points, and the factors `of_a` and `of_b`
        * `missing`: the shares of samples without a score; `missing_p`: p of the difference between
          these shares; `bounds`: the interval's ends over all values of the missing scores
        """
        only = [
            {
                "consists_of": [
                    {"kind": kind, "name": name, **divided_values(gain)}
                    for kind, name, gain in divided
                ],
                "only_a": own.gained if own else None,
                "only_b": own.lost if own else None,
                "only_by_chance": own.by_chance if own else None,
                "parts": [
                    {
                        **{"kind": kind, "name": name, "questions": part.questions},
                        **{"only_a": part.gained, "only_b": part.lost},
                        "only_by_chance": part.by_chance,
                    }
                    for kind, name, part in parts
                ],
            }
            for own, parts, divided in zip(self.churns, self.part_churns, self.divided, strict=True)
        ]
        values = map(comparison_values, self.comparisons)
        return [{**pair, **more} for pair, more in zip(values, only, strict=True)]

    @cached_property
    def differing(self) -> list[Differing]:
        """The shared questions, first those on which arms differ most, then by id."""
        shared = set.intersection(*({*arm.questions} for arm in self.arms))
        scores = {
            i: [[r.scores[i] for r in arm.runs if i in r.scores] for arm in self.arms]
            for i in shared
        }
        means = (
            Differing(i, tuple(sum(each) / len(each) for each in arms))
            for i, arms in scores.items()
        )
        return sorted(means, key=lambda each: (-each.range, each.item))

    def to_dict(self) -> dict[str, Any]:
        """What `decile compare --json` prints; numbers that are not finite are null.

        * `arms`: `name`, `metric`; `score`, `low`, `high`: the mean as a share with its 95 %
          interval, over the `questions` that have a score in some run; `samples_per_question`:
          fewest and most; `missing_samples`; `factors` (`finished`, `parsed_where_finished`,
          `correct_where_parsed`; null if unknown); `gain_per`: for cells, points gained per unit
          of cost; `runs` with `seed`, `questions` and `files` (`path`, `format`, `sha256`)
        * `comparisons`: an entry per pair of arms, a and b
        * `caveats`: what limits the comparison, in words
        """
        arms = []
        for arm in self.arms:
            accuracy = arm.accuracy(self.groups)
            levels = accuracy[:3] if accuracy else (None, None, None)
            runs = [
                {
                    "seed": run.seed,
                    "questions": len(run.scores),
                    "files": [file._asdict() for file in run.files],
                }
                for run in arm.runs
            ]
            arms.append(
                {
                    "name": arm.name,
                    "metric": arm.metric,
                    **dict(zip(("score", "low", "high"), levels, strict=True)),
                    "questions": len(arm.questions),
                    "samples_per_question": list(arm.samples),
                    "missing_samples": arm.missing,
                    "factors": arm.factors and factor_values(arm.factors),
                    "row_counts": arm.rows.to_dict(),
                    "gain_per": {
                        unit: dict(zip(("effect", "low", "high"), rate, strict=False))
                        for unit, rate in arm.gain_per.items()
                    },
                    "runs": runs,
                }
            )
        return {
            "arms": json_value(arms),
            "comparisons": self.pairs,
            "caveats": self.caveats,
        }


def compare_arms(
    arms: Sequence[Arm],
    questions: Mapping[str, str],
    stored: Mapping[str, SeedSpread] = MappingProxyType({}),
    notes: Sequence[str] = (),
    groups: Mapping[str, str] = MappingProxyType({}),
    kinds: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> ItemAnalysis:
    """Every pair of arms, Holm-corrected together; `stored`, `groups` as in `compare_policies`.

    Two arms with one run each and an unknown spread between seeds are two models.
    """
    scores = {arm.name: {run.seed: run.run for run in arm.runs} for arm in arms}
    pairs = [
        replace(c, scope="models") if c.runs == (1, 1) and not c.covers_seeds else c
        for c in compare_policies(scores, stored, groups=groups)
    ]
    comparisons = tuple(adjust(pairs))
    remarks = (*notes, *_shared_runs(arms))
    return ItemAnalysis(tuple(arms), comparisons, questions, remarks, groups, kinds)


def distinct_runs(name: str, runs: Sequence[ArmRun]) -> tuple[tuple[ArmRun, ...], list[str]]:
    """The runs of an arm that count as seeds, and notes that name the others.

    A run without a score is left out, unless no run has one. A run that equals an earlier one on
    every question is a copy of it, or the same run evaluated again. Cells of a storage all count.
    """
    scored = [run for run in runs if run.scores] or [*runs]
    kept = {run.seed for run in scored}
    empty = [run.seed for run in runs if run.seed not in kept]
    first: dict[frozenset[tuple[str, float]], ArmRun] = {}
    copies: dict[int, list[int]] = {}
    for run in scored:
        if run.is_identifiable and all(file.format != "cell" for file in run.files):
            earlier = first.setdefault(frozenset(run.scores.items()), run)
            if earlier is not run:
                copies.setdefault(earlier.seed, []).append(run.seed)
    copied = {seed for seeds in copies.values() for seed in seeds}
    notes = [
        f"{name}: {_seeds_text(seeds)} the same score as seed {seed} on every question, so they "
        "count once: a copy, or the same run evaluated again, is not a further seed"
        for seed, seeds in copies.items()
    ]
    if empty:
        notes.append(f"{name}: {_seeds_text(empty)} no score on any question, and left out")
    return tuple(run for run in scored if run.seed not in copied), notes


def _seeds_text(seeds: Sequence[int]) -> str:
    noun, verb = ("seed", "has") if len(seeds) == 1 else ("seeds", "have")
    return f"{noun} {', '.join(map(str, seeds))} {verb}"


def _shared_runs(arms: Sequence[Arm]) -> list[str]:
    """Notes on runs of two arms that have the same score on every question."""
    notes = []
    first: dict[frozenset[tuple[str, float]], tuple[str, ArmRun]] = {}
    for name, run in ((arm.name, run) for arm in arms for run in arm.runs if run.is_identifiable):
        other, earlier = first.setdefault(frozenset(run.scores.items()), (name, run))
        if earlier is not run:
            notes.append(
                f"{other} (seed {earlier.seed}) and {name} (seed {run.seed}) have the same score "
                "on every question: a copy, or the same run evaluated again, is not a further seed"
            )
    return notes


def comparison_values(c: Comparison) -> dict[str, Any]:
    """A comparison in plain values: points, p values, and the sample sizes needed."""
    needed, (least, most) = c.needed, c.needed_range
    values = {
        **{"a": c.a, "b": c.b, "effect": c.effect, "low": c.low, "high": c.high},
        **{"p": c.p, "p_holm": c.p_holm, "p_runs": c.p_runs, "test": c.test, "tests": c.tests},
        **{"seeds": c.seeds, "runs": [*c.runs], "questions": c.items, "left_out": c.left_out},
        **{"groups": c.groups, "missing": [*c.missing], "missing_p": c.missing_p},
        "bounds": [*c.bounds],
        **{"covers_seeds": c.covers_seeds, "significant": c.significant, "verdict": c.verdict},
        "scope": c.scope,
        **{"needed_seeds": needed.seeds, "needed_questions": needed.items},
        "needed_both": None if needed.both is None else list(needed.both),
        "needed_seeds_range": [least.seeds, most.seeds],
        "needed_questions_range": [least.items, most.items],
    }
    plain: dict[str, Any] = json_value(values)
    return plain


def factor_values(factors: Factors) -> dict[str, float | None]:
    """The factors of an accuracy by name; None: unknown."""
    return {name.replace("-", "_"): f for name, f in zip(FACTORS, factors, strict=True)}


def divided_values(gain: DividedGain) -> dict[str, Any]:
    """A divided difference in plain values: points; None: unknown."""
    points: dict[str, Any] = dict.fromkeys(factor_values(gain.after))
    for name, part in zip(points, gain.parts or (), strict=False):
        ends = zip(("effect", "low", "high"), part[:3], strict=True)
        points[name] = {end: json_value(100 * value) for end, value in ends}
    sides = {"of_a": factor_values(gain.after), "of_b": factor_values(gain.before)}
    return {"questions": gain.questions, "parts": points, **sides, "unknown": gain.unknown or None}
