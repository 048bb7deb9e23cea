"""The store -> one row per finished cell: the only module of the report that reads results."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.experiment import value_text
from orchestrator.evaluation.drift import Drift, drift_of
from orchestrator.evaluation.groups import GroupShares, group_shares
from orchestrator.evaluation.metrics import (
    answer_counts,
    bands,
    by_update,
    held_out,
    marks,
    own_test_set,
    part,
    pass_at_k,
    per_prompt,
    scores,
)
from orchestrator.evaluation.turns import Turns, episode_numbers, turns_by
from orchestrator.planning.cells import Cell, axes_without
from orchestrator.planning.result import Result
from orchestrator.report.fairness import AXES, Point, cost_curve
from orchestrator.report.sentences import rising
from orchestrator.selection.stored import read_subset
from orchestrator.selection.subsets import reason
from orchestrator.stats.churn import Marks
from orchestrator.stats.comparison import ItemScores
from orchestrator.stats.correlation import independent_points
from orchestrator.stats.factors import RunAnswers, factor_scores
from orchestrator.stats.inference import Effect, group_codes, mean_effect
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import DISCARDED, REFRESHED, TABLES, CellFolder
from orchestrator.training.record import with_label_count

SHOWN_QUESTIONS = 4
SHOWN_TIERS = 5  # tiers with a shown question, if completions are episodes
OWN = ""  # the cell's own test set; other names are out-of-distribution test sets

# prompt_id -> (samples without error, correct samples); sampled answers only
QuestionCounts = Mapping[str, tuple[int, int]]
SampleCounts = Mapping[int, QuestionCounts]  # by update


class AnswerText(NamedTuple):
    """One completion, and its outcome; `episode` is that of SAMPLES."""

    completion: str | None
    outcome: str
    episode: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Row:
    """A finished cell.

    gain: final minus base accuracy with its 95 % interval, as shares; nan where no question could
    be scored in both. counts: test set (OWN, or its name) -> sample counts. marks: update ->
    question of the own test set -> its samples. kinds: "tier", "source" and "band" -> question of
    the own test set -> its tier, source or band. held_out: counts before and after training, of
    samples that assign no bands. answers_read: test set -> update -> question -> its samples that
    are finished, parsed and correct; other_reading: question of the own test set -> its mean
    correctness under the marking that rewards do not use, before and after training, None where
    there is no such marking. shares, tier_shares: update, tier -> its groups by kind. costs: axis
    of `fairness.AXES` -> cumulative cost after each update. log: the trainer's, name -> update ->
    value. answers: some test questions -> a completion before and after training. mislabeled:
    prompts of the subset whose gold answer label noise has replaced; None without label noise.
    groups: test set -> question -> the group of related questions that it belongs to, if any.
    drift: from groups and refreshes. turns: of the own test set's episodes before and after
    training, by question; both are empty if completions are not episodes.
    """

    cell: Cell
    result: Result
    gain: Effect
    counts: Mapping[str, SampleCounts]
    marks: Mapping[int, Mapping[str, Marks]]
    kinds: Mapping[str, Mapping[str, str]]
    held_out: tuple[QuestionCounts, QuestionCounts]
    answers_read: Mapping[str, Mapping[int, RunAnswers]]
    other_reading: tuple[Mapping[str, float], Mapping[str, float]] | None
    shares: Mapping[int, GroupShares]
    tier_shares: Mapping[str, GroupShares]
    costs: Mapping[str, np.ndarray]
    ties: dict[str, int] | None
    log: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    answers: Mapping[str, tuple[AnswerText, AnswerText]] = field(default_factory=dict)
    mislabeled: int | None = None
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    drift: Drift = Drift()
    turns: tuple[Mapping[str, Turns], Mapping[str, Turns]] = ({}, {})

    @cached_property
    def curve(self) -> dict[int, float]:
        """Evaluated update -> accuracy on the own test set; nan without a scored question."""
        scores = {update: list(self.scores(update).values()) for update in self.counts[OWN]}
        return {u: float(np.mean(values)) if values else np.nan for u, values in scores.items()}

    def scores(self, update: int) -> dict[str, float]:
        """Question of the own test set -> mean correctness of its samples after an update."""
        return {i: c / n for i, (n, c) in self.counts[OWN][update].items() if n}

    def run(
        self, update: int, test_set: str = OWN, k: int = 1, only: Collection[str] | None = None
    ) -> ItemScores:
        """An evaluation as a run to compare, with the questions and samples that have no score.

        k: the k of pass@k; only: restrict it to these questions.
        """
        counts = self.counts[test_set][update]
        if only is not None:
            counts = {i: each for i, each in counts.items() if i in only}
        samples = self.samples(test_set)
        if k == 1:
            return ItemScores.of_counts(counts, samples)
        values = []
        for n, c in counts.values():
            every = max(n, samples)
            worst, best = pass_at_k(every, c, k), pass_at_k(every, c + every - n, k)
            values.append((pass_at_k(n, c, k) if n >= k else np.nan, worst, best - worst))
        scores, low, missing = np.array(values, float).reshape(-1, 3).T
        return ItemScores([*counts], scores, low, missing)

    def factor(
        self, name: str, update: int, test_set: str, only: Collection[str] | None = None
    ) -> ItemScores | None:
        """A factor of the accuracy of an evaluation (`factor_scores`); None if it is unknown."""
        read = self.answers_read[test_set][update]
        if only is not None:
            read = {i: each for i, each in read.items() if i in only}
        return factor_scores(read, name, self.samples(test_set))

    def run_at(self, point: Point) -> ItemScores:
        """The same at a point, interpolated between the evaluations before and after it."""
        if not point.share:
            return self.run(point.update)
        ends = [self.run(point.update), self.run(point.later)]
        return ItemScores.weighted(ends, [1 - point.share, point.share])

    @property
    def labels(self) -> int:
        """Gold answers that selection and training have used."""
        return int(self.costs["labels"][-1])

    def samples(self, test_set: str) -> int:
        """Samples per question of a test set, those with an error included."""
        extra = (e.probe for e in self.cell.extra_evals if e.dataset == test_set and not e.greedy)
        spec = self.cell.baseline if test_set == OWN else next(extra)
        return spec.settings.samples


def read_rows(
    store: Store,
    cells: Sequence[Cell],
    mislabeled: Mapping[str, Set[str]] = MappingProxyType({}),
    groups: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    sources: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[Row]:
    """The rows of the finished cells, in the given order.

    `mislabeled`: `variant_key` of a data set with label noise -> ids of the prompts with a wrong
    gold. `groups`, `sources`: name of a data set -> its groups of related test questions
    (`Pool.groups`), and their sources (`Pool.sources`).
    """
    rows = (
        _read_row(
            store,
            cell,
            mislabeled.get(cell.probe.dataset.variant_key),
            groups,
            sources.get(cell.probe.dataset.name, {}),
        )
        for cell in cells
    )
    return [row for row in rows if row is not None]


def axes_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each row, the axes of all rows as columns of a table; values of mixed types as text."""
    columns: dict[str, list[Any]] = {}
    for axis in dict.fromkeys(axis for row in rows for axis in row.cell.axes):
        values = [row.cell.axes.get(axis) for row in rows]
        types = {type(value) for value in values if value is not None}
        if len(types) > 1 and not types <= {int, float}:
            values = [None if value is None else value_text(value) for value in values]
        columns[axis] = values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class QuestionPart(NamedTuple):
    """The test questions of a tier or source; all of them where `kind` is empty."""

    kind: Literal["", "tier", "source"]
    name: str
    questions: Collection[str] | None


def question_parts(rows: Sequence[Row]) -> list[QuestionPart]:
    """All questions of the rows' own test set, then those of each tier and source.

    A kind with one name is left out.
    """
    parts = [QuestionPart("", "", None)]
    kinds: tuple[Literal["tier", "source"], ...] = ("tier", "source")
    for kind in kinds:
        of = rows[0].kinds[kind]
        names = rising({*of.values()})
        for name in names if len(names) > 1 else ():
            own = {i for i, each in of.items() if each == name}
            parts.append(QuestionPart(kind, name, own))
    return parts


def training_tiers(rows: Sequence[Row]) -> list[str]:
    """The tiers of the training prompts, in rising order."""
    return rising({tier for row in rows for tier in row.tier_shares if tier})


def learnable_gain_points(rows: Sequence[Row]) -> list[tuple[Row, tuple[float, float]]]:
    """Rows with their learnable % and gain in points; without rows that have no scored question."""
    pairs = [(row, (row.result.learnable_pct, 100 * row.result.gain)) for row in rows]
    return [(row, point) for row, point in pairs if all(map(isfinite, point))]


def learnable_gain_means(rows: Sequence[Row]) -> list[list[tuple[float, float]]]:
    """The same of each set of prompts, a list for each block, as means over seeds.

    A block's cells differ only in the policy and in the seeds of training and probe. Its points
    are those of `independent_points`.
    """
    blocks: dict[tuple[str, ...], dict[str, dict[str, tuple[float, float]]]] = {}
    for row, point in learnable_gain_points(rows):
        block = blocks.setdefault(axes_without(row.cell, "policy", "seed", "probe_seed"), {})
        trained = row.result.same_as or row.cell.cell_id
        block.setdefault(row.cell.policy, {})[trained] = point
    return [independent_points([*block.values()]) for block in blocks.values()]


def _read_row(
    store: Store,
    cell: Cell,
    mislabeled: Set[str] | None,
    groups_by_name: Mapping[str, Mapping[str, str]],
    sources: Mapping[str, str],
) -> Row | None:
    folder = CellFolder(store, cell.cell_id)
    finished = folder.finished()
    if finished is None:
        return None
    result, tables = finished
    result = with_label_count(cell, result, tables)
    groups, evaluations, log = (tables[name] for name in TABLES)
    lost, again = tables.get(DISCARDED), tables.get(REFRESHED)
    drawn = groups if lost is None else pa.concat_tables([groups, lost])
    paid = drawn if again is None else pa.concat_tables([drawn, again])
    subset = read_subset(store, cell)
    seconds, labels = result.ledger.seconds, cell.labels_before(result.size)
    steps = by_update(evaluations)
    counts, answers_read = _by_question(steps)
    base, final = own_test_set(steps[0]), own_test_set(steps[cell.updates])
    related = {name: groups_by_name.get(name or cell.probe.dataset.name, {}) for name in counts}
    of_tiers = _of_each_tier(base)
    tiers = zip(base["prompt_id"].to_pylist(), base["tier"].to_pylist(), strict=True)
    by_name: dict[str, dict[int, float]] = {}
    for each in log.to_pylist():
        by_name.setdefault(each["name"], {})[each["update"]] = each["value"]
    return Row(
        cell,
        result,
        gain=_gain(counts[OWN], cell.updates, related[OWN]),
        counts=counts,
        marks={update: marks(own_test_set(table)) for update, table in steps.items()},
        kinds={
            "tier": {i: tier for i, tier in tiers if tier},
            "source": sources,
            "band": bands(base),
        },
        held_out=(held_out(base), held_out(final)),
        answers_read=answers_read,
        other_reading=_other_reading(base, final),
        shares=group_shares(groups, lost),
        tier_shares=group_shares(groups, by="tier"),
        costs={axis: cost_curve(axis, cell.updates, paid, log, seconds, labels) for axis in AXES},
        ties=reason(subset)["ties"] if subset is not None else None,
        log=by_name,
        answers=before_and_after(evaluations, len(of_tiers) or SHOWN_QUESTIONS, of_tiers or None),
        mislabeled=None
        if mislabeled is None or subset is None
        else len(mislabeled & {*subset["prompt_id"].to_pylist()}),
        groups=related,
        drift=Drift() if subset is None else drift_of(subset, drawn, again),
        turns=(
            turns_by(episode_numbers(base), "prompt_id"),
            turns_by(episode_numbers(final), "prompt_id"),
        ),
    )


def _by_question(
    steps: Mapping[int, pa.Table],
) -> tuple[dict[str, SampleCounts], dict[str, Mapping[int, RunAnswers]]]:
    """Test set -> update -> counts of its sampled answers, as in `Row`; always has the own one."""
    counts: dict[str, dict[int, QuestionCounts]] = {OWN: {}}
    read: dict[str, dict[int, RunAnswers]] = {OWN: {}}
    for update, table in steps.items():
        for name in pc.unique(table["dataset"]).to_pylist():
            if (sampled := part(table, name, greedy=False)).num_rows:
                counts.setdefault(name, {})[update] = per_prompt(sampled)
                read.setdefault(name, {})[update] = answer_counts(sampled)
    return {**counts}, {**read}


def _other_reading(
    base: pa.Table, final: pa.Table
) -> tuple[dict[str, float], dict[str, float]] | None:
    """Scores under the marking that rewards do not use; None if all marks are the same there."""
    sides = (base, final)
    if any(side["other_outcome"].null_count for side in sides):
        return None
    if all(side["other_outcome"].equals(side["outcome"]) for side in sides):
        return None
    before, after = (scores(side, "other_outcome") for side in sides)
    return before, after


def _of_each_tier(base: pa.Table) -> list[str]:
    """The first question of each tier, in an evaluation of episodes; of many tiers, only some.

    Empty if completions are not episodes, or all have the same tier.
    """
    episodes = base.filter(base["episode"].is_valid()).select(["prompt_id", "tier"])
    first: dict[str, str] = {}
    for row in episodes.sort_by("prompt_id").to_pylist():
        first.setdefault(row["tier"], row["prompt_id"])
    tiers = rising(first)
    if len(tiers) < 2:
        return []
    places = np.linspace(0, len(tiers) - 1, min(SHOWN_TIERS, len(tiers))).round().astype(int)
    return [first[tiers[place]] for place in places]


def before_and_after(
    evaluations: pa.Table, most: int, questions: Collection[str] | None = None
) -> dict[str, tuple[AnswerText, AnswerText]]:
    """Some test questions -> the first completion of the base and of the final model.

    The questions come first by prompt_id, a hash, so that the choice is independent of success and
    the same for all cells of a test set. `questions`: the ids to choose from; None: all.
    """
    steps = by_update(own_test_set(evaluations))
    if not steps:
        return {}
    ends = [steps[update] for update in (min(steps), max(steps))]
    shared = set.intersection(*(set(pc.unique(table["prompt_id"]).to_pylist()) for table in ends))
    chosen = sorted(shared if questions is None else shared & set(questions))[:most]
    sides = []
    for table in ends:
        rows = table.filter(pc.is_in(table["prompt_id"], pa.array(chosen, pa.string())))
        last_to_first = sorted(rows.to_pylist(), key=lambda row: -row["sample"])
        sides.append(
            {
                r["prompt_id"]: AnswerText(r["completion"], r["outcome"], r["episode"])
                for r in last_to_first
            }
        )
    return {i: (sides[0][i], sides[1][i]) for i in chosen}


def _gain(counts: SampleCounts, updates: int, groups: Mapping[str, str]) -> Effect:
    """Final minus base accuracy over the questions that were scored in both."""
    final_counts = counts[updates]
    scored = [i for i, (n, _) in counts[0].items() if n and final_counts.get(i, (0, 0))[0]]
    if not scored:
        return Effect(np.nan, np.nan, np.nan, 1.0)
    before, after = (
        np.array([c / n for n, c in map(side.__getitem__, scored)])
        for side in (counts[0], final_counts)
    )
    return mean_effect((after - before)[None, :], group_codes(scored, groups))
