"""The probes of a plan, start to end: markers tried, samples drawn, subsets chosen, people told."""

import time
from collections.abc import Mapping
from functools import partial
from math import floor

import pyarrow as pa
import pyarrow.compute as pc

from cluster.actors import run_in_worker
from orchestrator.cost.caps import UsageMeter
from orchestrator.cost.expected import GPU, expect, kind_of, probe_id, probe_labels
from orchestrator.cost.forecast import Forecast, duration
from orchestrator.cost.schedule import Capacity
from orchestrator.difficulty.table import summarise, summary_lines
from orchestrator.pipeline.progress import Progress
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.marker_check import MarkerFails, check_dataset
from orchestrator.probing.probes import (
    PendingSamples,
    cells_of,
    difficulty_of,
    needing_all,
    pending_samples,
    sample,
)
from orchestrator.selection.subsets import build_policy, read_subset, store_subset
from orchestrator.storage.store import Store


def probes_forecast(plan: Plan, store: Store, cluster: Mapping[str, float]) -> Forecast:
    """What the probes that are owed will take."""
    found = expect(plan, store, [], cluster, kind_of(cluster) or GPU)
    return Forecast([], {}, Capacity((1.0,), 1), found.probes)


def check_markers(plan: Plan, progress: Progress) -> None:
    """Try every dataset's marker in a Ray worker, before anything rests on it.

    Raises MarkerFails, and nothing was sampled or trained.
    """
    for dataset in {spec.dataset.name: spec.dataset for spec in plan.probes}.values():
        try:
            progress.say(f"marker of {dataset.name}: {run_in_worker(check_dataset, dataset)}")
        except MarkerFails as error:
            raise MarkerFails(f"dataset {dataset.name}: {error}; nothing was run") from error


def run_probes(
    plan: Plan,
    store: Store,
    cluster: Mapping[str, float],
    progress: Progress,
    account: UsageMeter | None = None,
) -> None:
    """Sample what the plan's probes owe, then choose the subsets; tells what that took.

    Raises MarkerFails before anything, and MarkingError where too many answers cannot be judged.
    """
    check_markers(plan, progress)
    tables: dict[str, pa.Table] = {}
    labels = probe_labels(plan.probes)
    for spec in plan.probes:
        label = f"probe {labels[probe_id(spec)]}"
        began = time.monotonic()
        lacks = pending_samples(plan, store, spec)
        progress.say(f"{label}: {_owed_text(plan, spec, lacks)}")
        tell = partial(progress.probe, probe_id(spec), label)
        samples = sample(plan.pool(spec), store, spec, lacks.work, cluster, tell)
        took = time.monotonic() - began
        if account and lacks.samples:
            account.probed(took, floor(cluster.get("GPU", 0.0)))
        progress.say(f"{label}: {samples.num_rows} samples ({duration(took)})")
        if spec.split == "train":
            tables[probe_id(spec)] = table = difficulty_of(plan, spec, samples)
            for line in probe_lines(plan, spec, table):
                progress.say(f"  {line}")
    for cell in plan.cells:
        store_subset(store, cell, tables[probe_id(cell.probe)])


def _owed_text(plan: Plan, spec: ProbeSpec, lacks: PendingSamples) -> str:
    """What is there and what is owed, before anything is sampled."""
    total = len(plan.pool(spec).prompts(spec.split)) * spec.settings.samples
    there = f"{total - lacks.samples:,} of {total:,} samples in the store"
    if lacks.at_most:
        return f"{there} or not needed; at most {lacks.samples:,} to draw"
    if spec.settings.adaptive and spec.split == "train":
        names = ", ".join(needing_all(plan, spec))
        return f"{there}, {lacks.samples:,} to draw (all: {names} cannot stop early)"
    return f"{there}, {lacks.samples:,} to draw"


def probe_lines(plan: Plan, spec: ProbeSpec, table: pa.Table) -> list[str]:
    """What a probe says of its pool, for people; of one that stopped early, what that saved."""
    samples = spec.settings.samples
    short = int(pc.sum(table["short"]).as_py() or 0)
    if short:
        drawn, total = int(pc.sum(table["n"]).as_py()), table.num_rows * samples
        share = f"{drawn:,} of {total:,} samples drawn ({drawn / total:.0%})"
        return [f"{share}; {short:,} prompts were decided early, so nothing is estimated"]
    cell = cells_of(plan, spec)[0]
    group = int(cell.grpo["num_generations"])
    summary = summarise(
        table, cell.size, build_policy(cell.rule), cell.seed, samples, group_size=group
    )
    return [f"(subset of {cell.name})", *summary_lines(summary)]


def missing_probes(plan: Plan, store: Store) -> bool:
    """Whether any sample or subset of the plan is still owed."""
    samples = any(pending_samples(plan, store, spec).samples for spec in plan.probes)
    return samples or any(read_subset(store, cell) is None for cell in plan.cells)
