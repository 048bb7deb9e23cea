"""Samples a probe with Ray Data: missing prompts -> sampler actors -> marked parts in the store.

Each actor writes its own part atomically, so a kill loses only the parts in progress. What is
missing is computed from the stored rows; running again samples only the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cluster.actors import map_over_actors
from cluster.resources import probe_share
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pools import Pool
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
from tasks import Prompt, TaskError

# Called with (samples done, total samples).
Progress = Callable[[int, int], None]


def run_probe(
    store: Store,
    spec: ProbeSpec,
    pool: Pool,
    missing: MissingSamples,
    cluster: Mapping[str, float],
    progress: Progress,
) -> Outcomes:
    """Sample what is `missing` of a probe, then return the outcomes of all of it.

    Needs a connected Ray if anything is missing. Raises ProbeError where sampling or marking fails,
    and RuntimeError when samples are still missing after the run.
    """
    prompts = pool.prompts(spec.split)
    reader = OutcomeReader(spec, prompts, pool.task)
    if missing:
        write_key(store, spec)
        _sample(store, spec, missing, cluster, progress)
        compact(store, spec.key, reader.add)
    if missing and not reader.stale and reader.outcomes.complete:
        return reader.outcomes
    return load_outcomes(store, spec, prompts, pool.task, partial=False)


def _sample(
    store: Store,
    spec: ProbeSpec,
    missing: MissingSamples,
    cluster: Mapping[str, float],
    progress: Progress,
) -> None:
    tables = PartTables(missing)
    gpus, most = spec.settings.gpus_per_sampler, most_on_cpus(spec.settings.engine)
    share = probe_share(cluster, len(tables), gpus, most)
    arguments = {"spec": spec, "storage": store.uri, "cpus": share.cpus}
    done, total = 0, missing.samples
    progress(done, total)
    python = spec.settings.engine_python
    for row in map_over_actors(tables, ProbeActor, arguments, share, python):
        if row["failure"]:
            raise ProbeError(row["failure"])
        done += row["samples"]
        progress(done, total)


class ProbeActor:
    """One model in one process; called with a part, it samples, marks and writes it."""

    def __init__(self, spec: ProbeSpec, storage: str, cpus: float) -> None:
        import torch

        from orchestrator.sampling import load_sampler

        torch.set_num_threads(max(1, int(cpus)))
        self.spec, self.store = spec, Store(storage)
        self.task, self.failure = spec.dataset.build(), ""
        try:
            self.sampler = load_sampler(
                spec.model, spec.settings.engine, engine_args=spec.settings.engine_args
            )
        except SamplingError as error:
            self.failure = str(error)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Draw a part; returns its number of samples, or why it cannot be marked."""
        requests: list[SampleRequest] = []
        [part] = batch["part"].to_pylist()
        for row in part:
            indices = row.pop("samples")
            requests.append((Prompt(**row), indices))
        rows, failure = self.draw_part(requests)
        return pa.table({"samples": [len(rows)], "failure": [failure]})

    def draw_part(self, requests: list[SampleRequest]) -> tuple[list[dict[str, Any]], str]:
        """Write the samples as a part; returns (prompt_id, sample, outcome) of each.

        A failure to sample or to mark is returned as text, not raised: Ray's wrapped exceptions
        lose their cause. It ends the probe, so that nothing is drawn after it. What was drawn
        before a server failed is written.
        """
        if not self.failure:
            rows, self.failure = self._draw_part(requests)
            return rows, self.failure
        return [], self.failure

    def _draw_part(self, requests: list[SampleRequest]) -> tuple[list[dict[str, Any]], str]:
        settings, failure = self.spec.settings.sampling(), ""
        results: Sequence[Sequence[Completion | None]]
        try:
            try:
                results = draw(self.sampler, self.task, requests, settings)
            except Interrupted as error:
                results, failure = error.drawn, str(error)
            max_errors = self.spec.dataset.max_marking_errors
            samples = mark_samples(self.task, requests, results, max_errors)
        except (MarkingError, SamplingError, TaskError) as error:
            return [], str(error)
        if samples.num_rows:
            write_part(self.store, self.spec.key, self.spec.split, samples)
        return samples.select(COUNTED).to_pylist(), failure
