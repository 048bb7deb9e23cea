"""The probes of a plan: check the markers, draw the samples, select the subsets."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import floor
from typing import Any

import pyarrow.compute as pc

from cluster.actors import run_in_worker
from orchestrator.config.entries import build_policy
from orchestrator.cost.caps import UsageMeter
from orchestrator.cost.forecast import Forecast, duration
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.speed import DEFAULT_GPU, gpu_type
from orchestrator.difficulty.probe_table import CellTables
from orchestrator.difficulty.table import summarise, summary_lines
from orchestrator.evaluation.groups import Tally, explain_dead_groups
from orchestrator.pipeline.estimate import estimate_costs, probe_id, probe_labels, samples_text
from orchestrator.pipeline.long_prompts import check_long_prompts
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of
from orchestrator.planning.plan import Plan
from orchestrator.probing.checks import EngineFails, MarkerFails, check_dataset, check_engine
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe import (
    PendingSamples,
    needing_all,
    pending_samples,
    sample,
    sampler_groups,
)
from orchestrator.selection.candidates import check_candidates
from orchestrator.selection.stored import pass_rate_change, read_subset, store_subset, subset_size
from orchestrator.storage.store import Store
from policies import PolicyError, policy_errors


def probe_forecast(plan: Plan, store: Store, cluster: Mapping[str, float]) -> Forecast:
    """The time of the unfinished probes."""
    estimates = estimate_costs(plan, store, [], cluster, gpu_type(cluster) or DEFAULT_GPU)
    return Forecast([], {}, Capacity((1.0,), 1), estimates.probes)


def check_markers(plan: Plan, progress: ProgressDisplay) -> None:
    """Check every dataset's marker in a Ray worker, before anything is sampled.

    Raises MarkerFails.
    """
    for dataset in {spec.dataset.name: spec.dataset for spec in plan.probes}.values():
        try:
            progress.say(f"marker of {dataset.name}: {run_in_worker(check_dataset, dataset)}")
        except MarkerFails as error:
            raise MarkerFails(f"dataset {dataset.name}: {error}; nothing was run") from error


def check_engines(
    plan: Plan, store: Store, cluster: Mapping[str, float], progress: ProgressDisplay
) -> None:
    """Check in Ray workers that engines with libraries of their own can be imported there.

    Not the probe's where all samples are stored. Raises UserError at the line of the first that
    cannot.
    """
    checked = set()
    for spec in plan.probes:
        settings, block = spec.settings, "probe" if spec.split == "train" else "evaluate"
        engine = settings.engine, settings.engine_python
        needs_check = settings.engine == "vllm" or settings.engine_python
        if engine in checked or not needs_check or spec.model.recorded:
            continue
        if block == "probe" and not pending_samples(plan, store, spec).samples:
            continue
        checked.add(engine)
        try:
            version = check_engine(settings, min(1.0, floor(cluster.get("GPU", 0.0))))
        except EngineFails as error:
            path = ("experiments", plan.name, block)
            setting = "engine_python" if settings.engine_python else "engine"
            raise plan.source.error(f"{error}; nothing was run", *path, setting) from error
        progress.say(f"engine of {block}: {version}")


def run_probes(
    plan: Plan,
    store: Store,
    cluster: Mapping[str, float],
    progress: ProgressDisplay,
    meter: UsageMeter | None = None,
) -> list[tuple[ProbeSpec, CellTables]]:
    """Draw the missing samples of every probe, then select the subsets.

    Returns the training probes with the difficulty tables of their cells.

    Raises UserError or MarkerFails before anything is sampled, ProbeError if samples cannot be
    drawn or marked, and PolicyError if subsets cannot be filled or are too small; the others are
    stored.
    """
    check_long_prompts(plan, store, cluster, gpu_type(cluster))
    check_engines(plan, store, cluster, progress)
    check_markers(plan, progress)
    tables: list[tuple[ProbeSpec, CellTables]] = []
    for specs in sampler_groups(plan):
        for spec, outcomes in _draw(plan, store, specs, cluster, progress, meter):
            if spec.split == "train":
                tables.append((spec, CellTables(outcomes)))
    failures = []
    for spec, of_probe in tables:
        for cell in cells_of(plan.cells, spec):
            try:
                check_candidates(cell, store_subset(store, cell, of_probe.of(cell)))
            except PolicyError as error:  # the other subsets are stored all the same
                failures.append(error)
    if failures:
        others = len(failures) - 1
        more = f" (and {others:,} more cell{'s' * (others > 1)})" * (others > 0)
        raise PolicyError(f"{failures[0]}{more}") from failures[0]
    return tables


def _draw(
    plan: Plan,
    store: Store,
    specs: Sequence[ProbeSpec],
    cluster: Mapping[str, float],
    progress: ProgressDisplay,
    meter: UsageMeter | None,
) -> Iterator[tuple[ProbeSpec, Outcomes]]:
    """Draw the missing samples of probes of one sampler; yields the outcomes of each."""
    names = probe_labels(plan.probes)
    labels = [f"probe {names[probe_id(spec)]}" for spec in specs]
    pending = [pending_samples(plan, store, spec) for spec in specs]
    for label, spec, of_spec in zip(labels, specs, pending, strict=True):
        progress.say(f"{label}: {_pending_text(plan, spec, of_spec)}")
    seconds, last = [0.0] * len(specs), time.monotonic()

    def on_progress(number: int, done: int, total: int) -> None:
        nonlocal last
        progress.probe(probe_id(specs[number]), labels[number], done, total)
        seconds[number] += time.monotonic() - last
        last = time.monotonic()

    group = list(zip(specs, pending, strict=True))
    for number, outcomes in enumerate(sample(plan, store, group, cluster, on_progress)):
        seconds[number] += time.monotonic() - last
        last = time.monotonic()
        count = f"{outcomes.drawn:,} samples stored"
        progress.probed(f"{labels[number]}: {count} ({duration(seconds[number])})")
        yield specs[number], outcomes
    if meter and any(each.samples for each in pending):
        meter.add(sum(seconds), floor(cluster.get("GPU", 0.0)))


def _pending_text(plan: Plan, spec: ProbeSpec, pending: PendingSamples) -> str:
    """What is stored and what is missing, before anything is sampled."""
    total = len(plan.pool(spec).prompts(spec.split)) * spec.settings.samples
    text = samples_text(total, pending.samples, at_most=pending.at_most)
    if not pending.at_most and spec.settings.adaptive and spec.split == "train":
        names = ", ".join(needing_all(plan, spec))
        return f"{text} (stopping early is not possible for {names})"
    return text


def difficulty_lines(
    plan: Plan, store: Store, probes: Sequence[tuple[ProbeSpec, CellTables]]
) -> Iterator[str]:
    """What each probe shows about its pool, and the subset of its first cell.

    For an adaptive probe, how many samples it saved.
    """
    for spec, tables in probes:
        yield from _pool_lines(plan, store, spec, tables)


def _pool_lines(plan: Plan, store: Store, spec: ProbeSpec, tables: CellTables) -> list[str]:
    cell = cells_of(plan.cells, spec)[0]
    table = tables.of(cell)
    samples = cell.probe.settings.samples
    stopped = int(pc.sum(table["short"]).as_py() or 0)
    if stopped:
        drawn, total = int(pc.sum(table["n"]).as_py()), table.num_rows * samples
        share = f"{drawn:,} of {total:,} samples drawn ({drawn / total:.0%})"
        return [f"{share}; sampling stopped early for {stopped:,} prompts, so no estimates"]
    group = cell.batch.group_size
    policy = build_policy(cell.rule)
    with policy_errors(policy, cell.rule.policy):
        size = subset_size(store, cell)
        summary = summarise(table, size, policy, cell.seed, samples, group_size=group)
    title = f"difficulty of {spec.dataset.name} for {spec.model.name}:"
    return [title, *(f"  {line}" for line in summary_lines(summary))]


class OtherSubsets:
    """The prompts that other policies would choose for the cells of a plan, from its probes."""

    def __init__(
        self, plan: Plan, store: Store, probes: Sequence[tuple[ProbeSpec, CellTables]]
    ) -> None:
        self._plan, self._store, self._changes = plan, store, dict[tuple[str, str], float]()
        self._tables = {c.cell_id: tables for s, tables in probes for c in cells_of(plan.cells, s)}

    def explained(self, cell: Cell, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """A trial's report on an update, with the reason if nothing could be learned from it."""
        if report.get("explanation") or "groups" not in report:
            return report
        tally = Tally(**report["groups"])
        return {
            **report,
            "explanation": explain_dead_groups(cell, tally, partial(self._change, cell)),
        }

    def _change(self, cell: Cell, policy: str) -> float:
        """`pass_rate_change` of a policy that chooses as many prompts as the experiment says."""
        key = cell.subset_key, policy
        if key not in self._changes:
            variants = self._plan.experiment.variants
            variant = next(variant for axes, variant in variants if axes == cell.swept)
            size = variant.subset_size(len(self._plan.pool(cell.probe).train))
            table = self._tables[cell.cell_id].of(cell)
            self._changes[key] = pass_rate_change(self._store, cell, policy, size, table)
        return self._changes[key]


def is_probed(plan: Plan, store: Store, *, kept_only: bool = False) -> bool:
    """Whether every sample and subset of the plan is stored.

    With `kept_only`, probes without any file are left out: once its cells are finished, nothing
    needs a probe, and it may have been deleted to save space.
    """
    kept = [spec for spec in plan.probes if not kept_only or store.sizes("probes", spec.key)]
    pending = any(pending_samples(plan, store, spec).samples for spec in kept)
    keys = {spec.key for spec in kept}
    cells = [cell for cell in plan.cells if cell.probe.key in keys]
    return not pending and all(read_subset(store, cell) is not None for cell in cells)
