"""What an experiment would run, from the plan and the store; runs nothing."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from types import MappingProxyType
from typing import Any

import numpy as np

from orchestrator.cli.plan_notes import plan_notes
from orchestrator.config.experiment import Axes, axes_text, value_text
from orchestrator.cost.schedule import CHART_COLUMNS
from orchestrator.cost.work import Speed
from orchestrator.difficulty.remedies import pool_warning
from orchestrator.pipeline.manifest import changed_settings
from orchestrator.pipeline.probe_texts import probe_labels, samples_text
from orchestrator.pipeline.run import Run, probe_id
from orchestrator.pipeline.timetable import Site, Timetable, timetable
from orchestrator.planning.cells import Cell, readers_of
from orchestrator.planning.flaws import overlap_line
from orchestrator.planning.load import repositories
from orchestrator.planning.overlap import describe
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.report.layout import wrapped
from orchestrator.report.probe_analysis import form_notes
from orchestrator.selection.stored import same_training
from orchestrator.stats.planned_power import collapse_seen, minimum_detectable, resolution
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state
from tasks import OUTCOMES
from tasks.prompt_table import PromptTable
from tasks.sources.hub import cached_folder

CHART_LABELS = 14  # columns of a schedule's labels and borders
SCORED = ("correct", "error")
HASH = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True)
class CellSummary:
    """A cell and how far it has come."""

    cell_id: str
    name: str
    model: str
    dataset: str
    policy: str
    seed: int
    probe_seed: int
    axes: Mapping[str, Any]
    size: int
    updates: int
    prompts_per_update: int
    rollouts: int
    rollouts_at_most: int
    labels: int | None
    """Gold answers that it uses before its first update; None: those of the prompts it draws."""
    labels_at_most: int
    done: bool
    trained: bool
    resumes_after: int
    """Updates of its checkpoint."""
    same_as: str | None
    """The cell with the same prompts that is trained in its place."""

    @property
    def state(self) -> str:
        """How far it is, in words."""
        if self.resumes_after:
            return f"at update {self.resumes_after} of {self.updates}"
        if self.done:
            return "finished"
        return "trained" if self.trained else "to run"

    def line(self, column: int) -> str:
        """As text, with the state in `column` columns."""
        draws, copies = self.rollouts_at_most // self.rollouts, self.prompts_per_update // self.size
        parts = [
            f"  {self.cell_id}  {self.state:<{column}}  {self.name}: "
            f"{counted(self.size, 'prompt')}, {counted(self.updates, 'update')} × "
            f"{counted(self.prompts_per_update, 'prompt')}"
        ]
        if copies > 1:
            parts.append(f", each {copies} times")
        if draws > 1:
            parts.append(f", up to {draws} times as many drawn")
        if self.same_as:
            parts.append(f"; the same prompts as {self.same_as}, trained once")
        return "".join(parts)


@dataclass(frozen=True, kw_only=True)
class ProbeSummary:
    """A probe, and what it is missing."""

    probe_key: str
    label: str
    model: str
    dataset: str
    split: str
    prompts: int
    samples: int
    missing_samples: int
    missing_at_most: bool
    """Whether an adaptive probe may stop before all of them."""
    shared_samples: int
    """Missing samples that another probe of this plan draws."""
    weak_signal: str
    form_failures: Mapping[str, str]
    """By policy: a note if many of a stored subset's prompts fail by the form of completions."""


@dataclass(frozen=True, kw_only=True)
class DatasetSummary:
    """A dataset's sizes and provenance, its overlap with test sets, and its resolution."""

    dataset: str
    train: int
    test: int
    provenance: Mapping[str, str]
    notes: Sequence[str]
    overlap: Mapping[str, Sequence[Mapping[str, Any]]]
    containment: Mapping[str, Mapping[str, Any]]
    resolution: str
    overlap_text: Sequence[str]
    containment_text: Sequence[str]
    missing_gold_answers: str = ""
    """Why no cell can be trained on it yet; empty if cells can be."""
    row_counts: RowCounts
    row_counts_of: Mapping[str, RowCounts]
    """The row counts of the files of labels and corrections."""

    @property
    def lines(self) -> list[str]:
        """As text."""
        sizes = f"{counted(self.train, 'training prompt')}, {counted(self.test, 'test question')}"
        origin = "; ".join(f"{split}: {text}" for split, text in self.provenance.items())
        lacking = self.missing_gold_answers and f"can only be probed: {self.missing_gold_answers}"
        rows = [self.row_counts.line()]
        rows += [counts.line(file) for file, counts in self.row_counts_of.items()]
        details = [origin, *rows, *self.notes, lacking, *self.overlap_text]
        details += [*self.containment_text, self.resolution]
        return [f"{self.dataset}: {sizes}", *(f"  {line}" for line in details if line)]


@dataclass(frozen=True, kw_only=True)
class PlanSummary(Timetable):
    """What `decile plan` prints, as text or as JSON."""

    experiment: str
    about: str
    storage: str
    notes: Sequence[str]
    cells: Sequence[CellSummary]
    cells_to_run: int
    changed: Mapping[str, Mapping[str, tuple[Any, Any]]]
    """Settings in which cells that run again differ from stored ones: (then, now), by cell_id."""
    probes: Sequence[ProbeSummary]
    updates_to_run: int
    rollouts_to_run: int
    refresh_rollouts_to_run: int
    rollouts_to_run_at_most: int
    datasets: Sequence[DatasetSummary]
    not_downloaded: Sequence[Mapping[str, Any]]
    fetch_command: str
    detectable_points: Mapping[str, float]
    collapse_seen: str

    def text(self, width: int | None = None) -> str:
        """In lines of at most `width` columns."""
        title = f"{self.experiment}: {self.about}" if self.about else self.experiment
        column = max((len(cell.state) for cell in self.cells), default=0)
        lines = [title, f"storage: {self.storage}", *self.notes, ""]
        lines += [cell.line(column) for cell in self.cells]
        lines += ["", f"{counted(len(self.cells), 'cell')}, {self.cells_to_run} to run"]
        lines += _changed_lines(self.changed)
        lines += _label_lines(self.cells)
        for probe in self.probes:
            samples = samples_text(
                probe.samples,
                probe.missing_samples,
                at_most=probe.missing_at_most,
                shared=probe.shared_samples,
            )
            lines.append(f"probe {probe.label}: {samples}")
            if probe.weak_signal:
                lines.append(f"  warning: {probe.weak_signal}")
            lines += [f"  {policy}: {note}" for policy, note in probe.form_failures.items()]
        if self.updates_to_run:
            lines.append(self._work())
        if self.cells_to_run:
            lines += self.lines([vars(cell) for cell in self.cells])
        else:
            lines.append("ETA: nothing to run")
        lines += [line for dataset in self.datasets for line in dataset.lines]
        lines.append(self.collapse_seen)
        for each in self.not_downloaded:
            names = ", ".join(each["names"])
            lines.append(f"not downloaded: {names} ({each['hub']}@{each['revision']})")
        if self.not_downloaded:
            lines.append(f"for machines without internet access, first run {self.fetch_command}")
        return wrapped("\n".join(lines), width, indent=4)

    def _work(self) -> str:
        most, refreshes = self.rollouts_to_run_at_most, self.refresh_rollouts_to_run
        rollouts = counted(self.rollouts_to_run, "rollout")
        if most > self.rollouts_to_run:
            rollouts += f" (up to {most:,} with discarded ones)"
        if refreshes:
            rollouts += f" ({refreshes:,} in refreshes)"
        return f"{counted(self.updates_to_run, 'update')}, {rollouts} to run"


def plan_summary(
    run: Run,
    site: Site,
    width: int | None = None,
    pilot: Mapping[str, Speed] = MappingProxyType({}),
) -> PlanSummary:
    """Cells, probes, remaining work, timetable and datasets.

    The chart of the schedule fits `width` columns. `pilot`: speeds that were measured just now.
    """
    plan, store = run.plan, run.store
    chart_columns = CHART_COLUMNS if width is None else min(CHART_COLUMNS, width - CHART_LABELS)
    states = {cell.cell_id: cell_state(store, cell) for cell in plan.cells}
    settled = [cell for cell in plan.cells if states[cell.cell_id] is CellState.FINISHED]
    unsettled = [cell for cell in plan.cells if states[cell.cell_id] is not CellState.FINISHED]
    same = same_training(store, [*settled, *unsettled])
    untrained = [c for c in unsettled if states[c.cell_id].needs_training and c.cell_id not in same]
    started = [each for each, state in states.items() if state is CellState.RUNNING]
    last = {cell_id: CellFolder(store, cell_id).last_update() for cell_id in started}
    updates = {cell_id: update for cell_id, update in last.items() if update}
    left = {c.cell_id: c.updates - updates.get(c.cell_id, 0) for c in untrained}
    tasks = {name: pool.task for name, pool in plan.pools.items()}
    models = [spec.model for cell in plan.cells for spec in cell.probes]
    return PlanSummary(
        **vars(timetable(run, untrained, site, chart_columns, updates, pilot)),
        experiment=plan.name,
        about=plan.experiment.about,
        storage=store.uri,
        notes=plan_notes(run, site),
        cells=[_cell(cell, states[cell.cell_id], updates, same) for cell in plan.cells],
        cells_to_run=len(unsettled),
        changed=changed_settings(plan, store, untrained),
        probes=_probes(run),
        updates_to_run=sum(left.values()),
        rollouts_to_run=sum(_part(c.rollouts + c.refresh_rollouts, c, left) for c in untrained),
        refresh_rollouts_to_run=sum(_part(c.refresh_rollouts, c, left) for c in untrained),
        rollouts_to_run_at_most=sum(_part(c.max_rollouts, c, left) for c in untrained),
        datasets=[_dataset(plan, name) for name in plan.pools],
        not_downloaded=[
            {"kind": each.kind, "hub": each.id, "revision": each.revision, "names": names}
            for each, names in repositories(models, tasks).items()
            if cached_folder(each) is None
        ],
        fetch_command=plan.fetch_command,
        detectable_points={
            name: round(minimum_detectable(*_test_size(plan, name)), 1)
            for name, pool in plan.pools.items()
            if pool.test
        },
        collapse_seen=collapse_seen(len(plan.experiment.grid.seed)),
    )


def _cell(
    cell: Cell, state: CellState, updates: Mapping[str, int], same: Mapping[str, Cell]
) -> CellSummary:
    return CellSummary(
        cell_id=cell.cell_id,
        name=cell.name,
        **cell.fixed_axes,
        axes=cell.setting_axes,
        size=cell.size,
        updates=cell.updates,
        prompts_per_update=cell.prompts_per_update,
        rollouts=cell.rollouts,
        rollouts_at_most=cell.max_rollouts,
        labels=cell.labels_before(cell.size),
        labels_at_most=cell.most_labels,
        done=state is CellState.FINISHED,
        trained=state is CellState.TRAINED,
        resumes_after=updates.get(cell.cell_id, 0),
        same_as=same[cell.cell_id].name if cell.cell_id in same else None,
    )


def _label_lines(cells: Sequence[CellSummary]) -> list[str]:
    """The gold answers that each policy uses, a line per data set and values of axes."""
    used: dict[tuple[str, str], dict[str, str]] = {}  # data set and its axes as JSON, by policy
    for cell in cells:
        amount = f"{'up to ' if cell.labels is None else ''}{cell.labels_at_most:,}"
        policies = used.setdefault((cell.dataset, json.dumps(cell.axes)), {})
        policies[cell.policy] = f"{cell.policy} {amount}"
    places: dict[tuple[str, str], list[Axes]] = {}  # with the same labels of each policy
    for (dataset, axes), policies in used.items():
        places.setdefault((dataset, ", ".join(policies.values())), []).append(json.loads(axes))
    lines = []
    for (dataset, text), values in places.items():
        several = sum(name == dataset for name, _ in places) > 1
        same = {n: v for n, v in values[0].items() if several and all(e[n] == v for e in values)}
        lines.append(f"labels of {', '.join(filter(None, [dataset, axes_text(same)]))}: {text}")
    return lines


def _dataset(plan: Plan, name: str) -> DatasetSummary:
    pool, grid = plan.pools[name], plan.experiment.grid
    comparisons = 1  # of policies, in the report; a further test set adds no comparisons
    if name in grid.dataset:
        tables = len(grid.model) * len(grid.dataset) * max(1, len(grid.probe_seed))
        comparisons = tables * len(plan.experiment.variants) * comb(len(grid.policy), 2)
    trained = {cell.probe.dataset.name for cell in plan.cells}
    test_sets: dict[str, PromptTable] = {}
    if name in trained:
        test_sets = {other: each.test for other, each in plan.pools.items()}
        test_sets |= pool.benchmarks
    overlaps = {other: pool.overlap(questions) for other, questions in test_sets.items()}
    contained = {other: pool.containment(questions) for other, questions in test_sets.items()}
    own = {name, *pool.benchmarks}
    droppable = own | {*plan.experiment.ood_sets}
    return DatasetSummary(
        dataset=name,
        train=len(pool.train),
        test=len(pool.test),
        provenance=pool.task.provenance,
        notes=[*pool.notes, *(pool.flaw_lines if name in grid.dataset else [])],
        overlap={other: [o._asdict() for o in items] for other, items in overlaps.items()},
        containment={
            other: found._asdict() | {"prompts": [each._asdict() for each in found.prompts]}
            for other, found in contained.items()
            if found
        },
        resolution=resolution(name, *_test_size(plan, name), comparisons) if pool.test else "",
        missing_gold_answers=plan.lacking_golds.get(name, ""),
        row_counts=pool.rows,
        row_counts_of=pool.rows_of,
        overlap_text=[
            overlap_line(
                pool.train,
                items,
                describe(items, len(pool.train), _test_title(plan, other)),
                droppable=not pool.dataset.drop_overlap and other in droppable,
            )
            for other, items in overlaps.items()
            if items or other in own
        ],
        containment_text=[
            pool.containment_line(found, _test_title(plan, other))
            for other, found in contained.items()
            if found and (found.prompts or other in own)
        ],
    )


def _test_title(plan: Plan, name: str) -> str:
    """The test questions of a data set, or a file of them, as a line names them."""
    return f"the test set of {name}" if name in plan.pools else name


def _part(rollouts: int, cell: Cell, left: Mapping[str, int]) -> int:
    """The rollouts of a cell's remaining updates."""
    return -(-rollouts * left[cell.cell_id] // cell.updates)


def _probes(run: Run) -> list[ProbeSummary]:
    labels = probe_labels(run.plan.probes)
    probes = []
    for spec in run.plan.probes:
        prompts, pending = run.folder(spec).prompts, run.pending_after_earlier_probes(spec)
        weak, outcomes = "", run.folder(spec).outcomes() if spec.split == "train" else None
        labelled = run.plan.pool(spec).labelled
        if outcomes is not None and outcomes.complete and labelled.any():
            codes = outcomes.codes[labelled]
            correct, error = (np.sum(codes == OUTCOMES.index(o), 1) for o in SCORED)
            size = min(cell.size for cell in readers_of(run.plan.cells, spec))
            by_outcome = np.bincount(codes.ravel(), minlength=len(OUTCOMES))
            weak = pool_warning(
                successes=correct,
                scorable=codes.shape[1] - error,
                size=size,
                outcomes=dict(zip(OUTCOMES, by_outcome.tolist(), strict=True)),
                limit=spec.settings.limit_text,
            )
        probes.append(
            ProbeSummary(
                probe_key=spec.key,
                label=labels[probe_id(spec)],
                model=spec.model.title,
                dataset=spec.dataset.name,
                split=spec.split,
                prompts=len(prompts),
                samples=len(prompts) * spec.settings.samples,
                missing_samples=pending.samples,
                missing_at_most=pending.at_most,
                shared_samples=pending.shared,
                weak_signal=weak,
                form_failures=form_notes(run.plan, run.store, spec),
            )
        )
    return probes


def _test_size(plan: Plan, dataset: str) -> tuple[int, int, int]:
    """A dataset's test questions, seeds, and samples per question, which decide the power.

    If the number of samples is an axis, the smallest counts.
    """
    own = any(cell.probe.dataset.name == dataset for cell in plan.cells)
    samples = min(
        each.evaluate.samples if own else each.evaluate.ood_samples or each.evaluate.samples
        for _, each in plan.experiment.variants
    )
    return len(plan.pools[dataset].test), len(plan.experiment.grid.seed), samples


def _changed_lines(changed: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> list[str]:
    """Why cells run again: the settings in which they differ from stored ones."""
    cells: dict[str, int] = {}
    for settings in changed.values():
        parts = []
        for name, values in settings.items():
            then, now = (value_text(value) for value in values)
            # Texts and data are compared by hashes: only that they have changed is known.
            opaque = any(HASH.search(text) or text.endswith("…") for text in (then, now))
            parts.append(name if opaque else f"{name} {then} → {now}")
        text = ", ".join(parts)
        cells[text] = cells.get(text, 0) + 1
    return [
        f"  {count} to run again, because settings have changed: {text} (stored results are kept)"
        for text, count in cells.items()
    ]
