"""Samples a probe with Ray Data: missing prompts -> sampler actors -> marked parts in the store.

Each actor writes its own part atomically, so a kill loses only the parts in progress. What is
missing is computed from the stored rows; running again samples only the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.actors import map_over_actors
from cluster.resources import probe_share
from orchestrator.planning.cells import ProbeSpec
from orchestrator.probing.outcomes import (
    MissingSamples,
    OutcomeReader,
    Outcomes,
    PartTables,
    load_outcomes,
)
from orchestrator.probing.sample_store import COUNTED, compact, write_key, write_part
from orchestrator.probing.samples import (
    MarkingError,
    ProbeError,
    SampleRequest,
    draw,
    mark_samples,
)
from orchestrator.sampling.base import Completion, Interrupted, SamplingError
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.storage.store import Store
from tasks import Prompt, Task, TaskError
from tasks.prompt_table import PromptTable


class Probe(NamedTuple):
    """A probe, its pool, and the samples that it is missing."""

    spec: ProbeSpec
    prompts: PromptTable
    task: Task
    missing: MissingSamples


def same_sampler(one: ProbeSpec, other: ProbeSpec) -> bool:
    """Whether the actors of one probe can draw the other, too."""
    return one.model == other.model and all(
        getattr(one.settings, name) == getattr(other.settings, name)
        for name in ("engine", "engine_args", "engine_python", "gpus_per_sampler")
    )


def run_probes(
    store: Store,
    probes: Sequence[Probe],
    cluster: Mapping[str, float],
    progress: Callable[[int, int, int], None],
) -> Iterator[Outcomes]:
    """Sample what probes of the same sampler are missing, then yield the outcomes of each.

    The same actors draw one probe after the other, because an engine takes seconds to minutes to
    start. `progress` is called with a probe's position, samples done, and total samples. Needs a
    connected Ray if anything is missing. Raises ProbeError where sampling or marking fails, and
    RuntimeError when samples are still missing after the run.
    """
    tables = {n: PartTables(probe.missing) for n, probe in enumerate(probes) if probe.missing}
    readers = {n: OutcomeReader(probes[n].spec, probes[n].prompts, probes[n].task) for n in tables}
    done = dict.fromkeys(tables, 0)
    for number in tables:
        write_key(store, probes[number].spec)
    if tables:
        first = min(tables)
        progress(first, 0, probes[first].missing.samples)
    for row in _drawn_parts(store, probes, tables, cluster):
        if row["failure"]:
            raise ProbeError(row["failure"])
        number, total = row["probe"], probes[row["probe"]].missing.samples
        done[number] += row["samples"]
        progress(number, done[number], total)
        if done[number] == total:
            compact(store, probes[number].spec.key, readers[number].add)
    for number, probe in enumerate(probes):
        reader = readers.get(number)
        if reader and not reader.stale and reader.outcomes.complete:
            yield reader.outcomes
        else:
            yield load_outcomes(store, probe.spec, probe.prompts, probe.task, partial=False)


def _drawn_parts(
    store: Store,
    probes: Sequence[Probe],
    tables: Mapping[int, PartTables],
    cluster: Mapping[str, float],
) -> Iterator[dict[str, Any]]:
    """Draw the parts of the probes at these positions; yields what ProbeActor returns."""
    if not tables:
        return
    settings = probes[0].spec.settings
    gpus, most = settings.gpus_per_sampler, most_on_cpus(settings.engine)
    share = probe_share(cluster, sum(map(len, tables.values())), gpus, most)
    specs = [probe.spec for probe in probes]
    arguments = {"specs": specs, "storage": store.uri, "cpus": share.cpus}
    parts = (
        table.append_column("probe", pa.array([number] * table.num_rows, pa.int32()))
        for number, of_probe in tables.items()
        for table in of_probe
    )
    yield from map_over_actors(parts, ProbeActor, arguments, share, settings.engine_python)


class ProbeActor:
    """One model in one process; called with a part, it samples, marks and writes it."""

    def __init__(self, specs: Sequence[ProbeSpec], storage: str, cpus: float) -> None:
        import torch

        from orchestrator.sampling import load_sampler

        torch.set_num_threads(max(1, int(cpus)))
        self.specs, self.store, self.failure = specs, Store(storage), ""
        datasets = {spec.dataset.name: spec.dataset for spec in specs}
        self.tasks = {name: dataset.build() for name, dataset in datasets.items()}
        model, settings = specs[0].model, specs[0].settings
        try:
            self.sampler = load_sampler(model, settings.engine, engine_args=settings.engine_args)
        except SamplingError as error:
            self.failure = str(error)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Draw a part; returns its probe and number of samples, or why it cannot be marked."""
        requests: list[SampleRequest] = []
        [part], [number] = batch["part"].to_pylist(), batch["probe"].to_pylist()
        for row in part:
            indices = row.pop("samples")
            requests.append((Prompt(**row), indices))
        rows, failure = self.draw_part(requests, number)
        return pa.table({"probe": [number], "samples": [len(rows)], "failure": [failure]})

    def draw_part(
        self, requests: list[SampleRequest], number: int = 0
    ) -> tuple[list[dict[str, Any]], str]:
        """Write the samples as a part of a probe; returns (prompt_id, sample, outcome) of each.

        A failure to sample or to mark is returned as text, not raised: Ray's wrapped exceptions
        lose their cause. It ends the probe, so that nothing is drawn after it. What was drawn
        before a server failed is written.
        """
        if not self.failure:
            rows, self.failure = self._draw_part(requests, self.specs[number])
            return rows, self.failure
        return [], self.failure

    def _draw_part(
        self, requests: list[SampleRequest], spec: ProbeSpec
    ) -> tuple[list[dict[str, Any]], str]:
        task, failure = self.tasks[spec.dataset.name], ""
        results: Sequence[Sequence[Completion | None]]
        try:
            try:
                results = draw(self.sampler, task, requests, spec.settings.sampling())
            except Interrupted as error:
                results, failure = error.drawn, str(error)
            max_errors = spec.dataset.max_marking_errors
            samples = mark_samples(task, requests, results, max_errors)
        except (MarkingError, SamplingError, TaskError) as error:
            return [], str(error)
        if samples.num_rows:
            write_part(self.store, spec.key, spec.split, samples)
        return samples.select(COUNTED).to_pylist(), failure
