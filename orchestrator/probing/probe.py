"""Ray Data: a pool's owed prompts -> a pool of sampler actors -> marked samples in the store.

Each actor writes its own part under its final name, whole, so a kill loses only the parts in work.
What is owed is computed from the rows that are there; running again samples only the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from cluster.actors import map_over_actors
from cluster.resources import probe_share
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pools import Pool
from orchestrator.probing.sample_store import COUNTED, compact, read_samples, write_key, write_part
from orchestrator.probing.samples import MarkingError, Wanted, draw
from orchestrator.storage.store import Store
from tasks import Prompt

ROWS_PER_PART = 640  # enough to fill a batch, few enough that a kill costs seconds

# Called with (samples done, samples in all).
Progress = Callable[[int, int], None]


def run_probe(
    store: Store,
    spec: ProbeSpec,
    pool: Pool,
    missing: list[Wanted],
    cluster: Mapping[str, float],
    progress: Progress,
) -> pa.Table:
    """Sample what is `missing` of a probe, then return all of it, sorted (columns COUNTED).

    Needs a connected Ray where anything is owed. Raises RuntimeError when samples are still owed
    after the run.
    """
    if missing:
        write_key(store, spec)
        _sample(store, spec, missing, cluster, progress)
        compact(store, spec.key)
    return read_samples(store, spec, pool.task, pool.prompts(spec.split), COUNTED)


def _sample(
    store: Store,
    spec: ProbeSpec,
    missing: list[Wanted],
    cluster: Mapping[str, float],
    progress: Progress,
) -> None:
    parts = part_tables(missing)
    share = probe_share(cluster, len(parts), spec.settings.gpus)
    total = sum(len(indices) for _, indices in missing)
    arguments = {"spec": spec, "storage": store.uri, "cpus": share.cpus}
    done = 0
    progress(done, total)
    for row in map_over_actors(parts, ProbeActor, arguments, share):
        if row["failure"]:
            raise MarkingError(row["failure"])
        done += row["samples"]
        progress(done, total)


def part_tables(missing: list[Wanted]) -> list[pa.Table]:
    """The owed prompts in parts of about ROWS_PER_PART samples, prompts of like length together.

    Each table has one row: column `part`, a list of prompts with the indices wanted of each.
    """
    ordered = sorted(missing, key=lambda want: (len(want[0].question), want[0].prompt_id))
    parts: list[list[Wanted]] = [[]]
    rows = 0
    for want in ordered:
        if rows >= ROWS_PER_PART:
            parts.append([])
            rows = 0
        rows += len(want[1])
        parts[-1].append(want)
    return [pa.table({"part": [_part_rows(part)]}) for part in parts]


def _part_rows(part: list[Wanted]) -> list[dict[str, Any]]:
    return [{**asdict(prompt), "samples": indices} for prompt, indices in part]


class ProbeActor:
    """One model in one process; called with a part, it samples, marks and writes it."""

    def __init__(self, spec: ProbeSpec, storage: str, cpus: float) -> None:
        import torch

        from orchestrator.sampling import load_sampler

        torch.set_num_threads(max(1, int(cpus)))
        self.spec, self.store = spec, Store(storage)
        self.task = spec.dataset.build()
        self.sampler = load_sampler(spec.model, spec.settings.engine)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Draw a part; returns its number of samples, or why it cannot be judged."""
        wanted: list[Wanted] = []
        [part] = batch["part"].to_pylist()
        for row in part:
            indices = row.pop("samples")
            wanted.append((Prompt(**row), indices))
        rows, failure = self.draw_part(wanted)
        return pa.table({"samples": [len(rows)], "failure": [failure]})

    def draw_part(self, wanted: list[Wanted]) -> tuple[list[dict[str, Any]], str]:
        """Write the samples as a part; returns (prompt_id, sample, outcome) of each.

        What cannot be judged comes back as a reason, not an exception: Ray's account of one has
        lost its cause.
        """
        most = self.spec.dataset.max_marking_errors
        try:
            samples = draw(self.sampler, self.task, wanted, self.spec.settings.sampling(), most)
        except MarkingError as error:
            return [], str(error)
        write_part(self.store, self.spec.key, samples)
        return samples.select(["prompt_id", "sample", "outcome"]).to_pylist(), ""
