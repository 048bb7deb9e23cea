"""The probes of a plan: check the markers, draw the samples, select the subsets."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import floor
from typing import Any

import pyarrow.compute as pc

from cluster.actors import run_in_worker
from orchestrator.config.problems import Problem
from orchestrator.cost.memory import gpu_type
from orchestrator.difficulty.outcomes import outcome_counts
from orchestrator.difficulty.probe_table import CellTables
from orchestrator.difficulty.proportions import counts
from orchestrator.difficulty.remedies import pool_warning
from orchestrator.difficulty.summary import fit_warning, summarise, summary_lines
from orchestrator.difficulty.suspects import no_suspects
from orchestrator.evaluation.groups import Tally, explain_dead_groups
from orchestrator.pipeline.long_prompts import check_long_prompts
from orchestrator.pipeline.probe_texts import probe_labels, samples_text
from orchestrator.pipeline.run import Run, probe_id
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of, readers_of, same_probe
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import Dataset
from orchestrator.plugins.counts import counted
from orchestrator.plugins.durations import duration
from orchestrator.probing.checks import (
    EngineFails,
    MarkerFails,
    check_dataset,
    check_engine,
    check_environment,
)
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe import needing_all, sample, sampler_groups
from orchestrator.selection.candidates import check_candidates
from orchestrator.selection.stored import (
    mean_pass_rate,
    pass_rate_change,
    read_subset,
    store_subset,
    subset_size,
)
from orchestrator.selection.subsets import reason
from orchestrator.storage.store import Store
from policies import PolicyError


def check_markers(datasets: Iterable[Dataset], say: Callable[[str], None]) -> None:
    """Check every dataset's marker in a Ray worker, before anything is sampled.

    Raises MarkerFails.
    """
    for dataset in {dataset.name: dataset for dataset in datasets}.values():
        try:
            say(f"marker of {dataset.name}: {run_in_worker(check_dataset, dataset)}")
        except MarkerFails as error:
            raise MarkerFails(f"dataset {dataset.name}: {error}; nothing was run") from error


def check_environments(plan: Plan) -> None:
    """Start the environment of every dataset that has one, and reset it with one row, here.

    Raises MarkerFails.
    """
    for spec in {spec.dataset.name: spec for spec in plan.probes}.values():
        pool = plan.pool(spec)
        if pool.task.environment is not None:
            try:
                check_environment(pool.task, pool.test[:1])
            except MarkerFails as error:
                raise MarkerFails(f"dataset {spec.dataset.name}: {error}") from error


def check_engines(run: Run) -> None:
    """Check in Ray workers that engines with libraries of their own can be imported there.

    The probe's engine is skipped if all samples are stored. Raises UserError at the line of the
    first engine that cannot be imported.
    """
    checked, plan = set(), run.plan
    for spec in plan.probes:
        settings, block = spec.settings, "probe" if spec.split == "train" else "evaluate"
        engine = settings.engine, settings.engine_python
        needs_check = settings.engine == "vllm" or settings.engine_python
        if engine in checked or not needs_check or spec.model.recorded:
            continue
        if block == "probe" and not run.pending_after_earlier_probes(spec).samples:
            continue
        checked.add(engine)
        try:
            version = check_engine(settings, min(1.0, floor(run.cluster.get("GPU", 0.0))))
        except EngineFails as error:
            setting = "engine_python" if settings.engine_python else "engine"
            path = ("experiments", plan.name, block, setting)
            problem = Problem("engine-fails", f"{error}; nothing was run", *path)
            raise plan.source.error(problem) from error
        run.progress.say(f"engine of {block}: {version}")


def run_probes(run: Run) -> list[tuple[ProbeSpec, CellTables]]:
    """Draw the missing samples of every probe, then select the subsets.

    Returns the training probes with the difficulty tables of their cells.

    Raises UserError or MarkerFails before anything is sampled, ProbeError if samples cannot be
    drawn or marked, and PolicyError if subsets cannot be filled or are too small; the other subsets
    are stored.
    """
    plan, store = run.plan, run.store
    check_long_prompts(run, gpu_type(run.cluster))
    check_engines(run)
    check_markers([spec.dataset for spec in plan.probes], run.progress.say)
    tables: list[tuple[ProbeSpec, CellTables]] = []

    def other(spec: ProbeSpec) -> CellTables:
        return next(of_probe for each, of_probe in tables if same_probe(spec, each))

    for specs in sampler_groups(plan):
        for spec, outcomes in _draw(run, specs):
            if spec.split == "train":
                tables.append((spec, CellTables(outcomes, run.folder(spec), others=other)))
    failures = []
    for spec, of_probe in tables:
        if lacking := plan.lacking_golds.get(spec.dataset.variant_key):
            run.progress.say(f"no subset of {spec.dataset.variant_key}: {lacking}")
            continue
        for cell in cells_of(plan.cells, spec):
            try:
                subset = store_subset(store, cell, of_probe.of(cell), of_probe.own_table(cell))
                check_candidates(cell, subset)
            except PolicyError as error:  # the other subsets are stored anyway
                failures.append(error)
    if failures:
        others = len(failures) - 1
        more = f" (and {counted(others, 'more cell')})" if others > 0 else ""
        raise PolicyError(f"{failures[0]}{more}") from failures[0]
    return tables


def _draw(run: Run, specs: Sequence[ProbeSpec]) -> Iterator[tuple[ProbeSpec, Outcomes]]:
    """Draw the missing samples of probes of one sampler; yields the outcomes of each."""
    names, progress = probe_labels(run.plan.probes), run.progress
    labels = [f"probe {names[probe_id(spec)]}" for spec in specs]
    pending = [run.pending_after_earlier_probes(spec) for spec in specs]
    for label, spec, each in zip(labels, specs, pending, strict=True):
        total = len(run.folder(spec).prompts) * spec.settings.samples
        text = samples_text(total, each.samples, at_most=each.at_most, shared=each.shared)
        if not each.at_most and spec.settings.adaptive and spec.split == "train":
            needing = ", ".join(needing_all(run.plan, spec))
            text += f" (stopping early is not possible for {needing})"
        progress.say(f"{label}: {text}")
    seconds, last = [0.0] * len(specs), time.monotonic()

    def on_progress(number: int, done: int, total: int) -> None:
        nonlocal last
        progress.probe(probe_id(specs[number]), labels[number], done, total)
        seconds[number] += time.monotonic() - last
        last = time.monotonic()

    group = list(zip(map(run.folder, specs), pending, strict=True))
    for number, outcomes in enumerate(sample(group, run.cluster, on_progress)):
        seconds[number] += time.monotonic() - last
        last = time.monotonic()
        count = f"{counted(outcomes.drawn, 'sample')} stored"
        progress.probed(f"{labels[number]}: {count} ({duration(seconds[number])})")
        yield specs[number], outcomes
    if progress.meter and any(each.samples for each in pending):
        progress.meter.add(sum(seconds), floor(run.cluster.get("GPU", 0.0)))


def difficulty_lines(
    cells: Sequence[Cell], store: Store, probes: Sequence[tuple[ProbeSpec, CellTables]]
) -> Iterator[str]:
    """What each probe shows about its pool, and the subset of its first cell.

    For an adaptive probe, how many samples it saved.
    """
    for spec, tables in probes:
        cell = readers_of(cells, spec)[0]
        ranked, samples = tables.of(cell), cell.probe.settings.samples
        own_table = tables.own_table(cell)
        table = ranked if own_table is None else own_table
        if stopped := int(pc.sum(table["short"]).as_py() or 0):
            drawn, total = int(pc.sum(table["n"]).as_py()), table.num_rows * samples
            share = f"{drawn:,} of {counted(total, 'sample')} drawn ({drawn / total:.0%})"
            yield (
                f"{share}; sampling stopped early for {counted(stopped, 'prompt')}, so no estimates"
            )
            continue
        group, size = cell.batch.group_size, subset_size(store, cell)
        policy = cell.static_policy.build()
        summary = summarise(
            ranked,
            size,
            policy,
            cell.seed,
            samples,
            group_size=group,
            own_table=own_table,
            stream=cell.stream,
        )
        yield f"difficulty of {spec.dataset.variant_key} for {spec.model.title}:"
        yield from (f"  {line}" for line in summary_lines(table, samples, summary))
        successes, scorable = counts(table, "successes"), counts(table, "scorable")
        limit = cell.probe.settings.limit_text
        for name, own in {cell.policy: cell for cell in readers_of(cells, spec)}.items():
            if own.static_policy.build().excludes_suspected and (
                text := no_suspects(tables.of(own))
            ):
                yield f"warning: {name}: {text}"
            chosen = read_subset(store, own)
            if chosen is not None and (text := reason(chosen).get("form_note", "")):
                yield f"warning: {name}: {text}"
        remedy = pool_warning(successes, scorable, size, outcome_counts(table), limit)
        yield from (f"warning: {text}" for text in (fit_warning(table), remedy) if text)


class OtherSubsets:
    """The prompts that other policies would choose for the cells of a plan, from its probes."""

    def __init__(
        self, plan: Plan, store: Store, probes: Sequence[tuple[ProbeSpec, CellTables]]
    ) -> None:
        self._plan = plan
        self._store = store
        self._changes: dict[tuple[str, str], float] = {}
        self._pass_rates: dict[str, float] = {}
        self._tables = {
            cell.cell_id: tables for spec, tables in probes for cell in cells_of(plan.cells, spec)
        }

    def with_explanation(self, cell: Cell, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """A trial's report on an update, with the reason if nothing could be learned from it."""
        if report.get("explanation") or "groups" not in report:
            return report
        tally = Tally(**report["groups"])
        return {
            **report,
            "explanation": explain_dead_groups(
                cell, tally, partial(self._change, cell), partial(self._pass_rate, cell)
            ),
        }

    def _pass_rate(self, cell: Cell) -> float:
        """The `mean_pass_rate` of the cell's prompts."""
        if cell.subset_key not in self._pass_rates:
            self._pass_rates[cell.subset_key] = mean_pass_rate(self._store, cell)
        return self._pass_rates[cell.subset_key]

    def _change(self, cell: Cell, policy: str) -> float:
        """`pass_rate_change` of a policy that chooses as many prompts as the experiment says."""
        key = cell.subset_key, policy
        if key not in self._changes:
            total = len(self._plan.pool(cell.probe).train)
            size = self._plan.settings_of(cell).subset_size(total)
            tables = self._tables[cell.cell_id]
            self._changes[key] = pass_rate_change(
                self._store, cell, policy, size, tables.of(cell), tables.own_table(cell)
            )
        return self._changes[key]


def is_probed(run: Run, *, kept_only: bool = False) -> bool:
    """Whether every sample and subset of the plan is stored.

    With `kept_only`, probes without any file are left out: once its cells are finished, nothing
    needs a probe, and it may have been deleted to save space.
    """
    plan, store = run.plan, run.store
    kept = [spec for spec in plan.probes if not kept_only or store.sizes("probes", spec.key)]
    pending = any(run.pending_after_earlier_probes(spec).samples for spec in kept)
    keys = {spec.key for spec in kept}
    chosen = [
        cell for cell in plan.cells if cell.probe.dataset.variant_key not in plan.lacking_golds
    ]
    cells = [cell for cell in chosen if cell.probe.key in keys]
    return not pending and all(read_subset(store, cell) is not None for cell in cells)
