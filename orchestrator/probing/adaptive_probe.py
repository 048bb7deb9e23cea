"""Drives an adaptive probe: sampler actors that are handed what can still change a subset.

Ray Data has no way back from results to what is read next, so the actors are called one by one
here. Each is handed a part as soon as it is free, and the choice of the next part knows all that
was said so far; the model is loaded once. Parts are written and resumed as those of any probe.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cluster.actors import RESTARTS
from cluster.resources import probe_share
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pools import Pool
from orchestrator.probing.adaptive import Target, known_counts, owed_rows
from orchestrator.probing.probe import ProbeActor, Progress
from orchestrator.probing.sample_store import (
    COUNTED,
    compact,
    load_samples,
    read_samples,
    write_key,
)
from orchestrator.probing.samples import MarkingError, Wanted
from orchestrator.storage.store import Store
from tasks import Prompt

ROWS_PER_CALL = 128  # a sampler's batch: full, and small enough to learn from soon


class Frontier:
    """What was said so far of a pool, and what to ask next."""

    def __init__(
        self, spec: ProbeSpec, pool: Pool, targets: Sequence[Target], rows: pa.Table
    ) -> None:
        self.samples = spec.settings.samples
        self.targets = targets
        # In the order of a difficulty table, whose row numbers decide ties.
        self.prompts = sorted(pool.prompts(spec.split), key=lambda p: p.prompt_id)
        self.ids = [p.prompt_id for p in self.prompts]
        self.tiers = [p.tier for p in self.prompts]
        cut = {"truncated"} if spec.settings.count_truncated == "exclude" else set[str]()
        self.uncounted = frozenset({"error"} | cut)
        self.said: dict[str, dict[int, str]] = {}
        self.in_flight: set[str] = set()
        self.hear(rows.to_pylist())

    def hear(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take in marked samples (prompt_id, sample, outcome)."""
        for row in rows:
            self.said.setdefault(row["prompt_id"], {})[row["sample"]] = row["outcome"]
            self.in_flight.discard(row["prompt_id"])

    @property
    def drawn(self) -> int:
        """Samples there are."""
        return sum(map(len, self.said.values()))

    def missing_samples(self) -> list[Prompt]:
        """Prompts that need another sample, the most promising first."""
        counts = known_counts(self.said, self.ids, self.uncounted)
        rows = owed_rows(self.targets, counts, self.tiers, self.samples)
        return [self.prompts[row] for row in rows]

    def next_part(self, size: int) -> list[Wanted]:
        """Up to `size` prompts that nobody works on, one more sample of each."""
        free = [p for p in self.missing_samples() if p.prompt_id not in self.in_flight][:size]
        self.in_flight |= {p.prompt_id for p in free}
        return [(p, [self._next_index(p.prompt_id)]) for p in free]

    def _next_index(self, prompt_id: str) -> int:
        have = self.said.get(prompt_id, {})
        return next(i for i in range(self.samples) if i not in have)


def frontier(store: Store, spec: ProbeSpec, pool: Pool, targets: Sequence[Target]) -> Frontier:
    """The frontier of what the store holds of a probe."""
    rows = load_samples(store, spec, pool.prompts(spec.split), COUNTED, pool.task)
    return Frontier(spec, pool, targets, rows)


def run_adaptive(
    store: Store,
    spec: ProbeSpec,
    pool: Pool,
    front: Frontier,
    cluster: Mapping[str, float],
    progress: Progress,
) -> pa.Table:
    """Sample until every target's subset is certain; returns the samples there are (COUNTED).

    Needs a connected Ray where anything is owed. Raises MarkingError as any probe does.
    """
    if front.missing_samples():
        write_key(store, spec)
        _sample(store, spec, front, cluster, progress)
        compact(store, spec.key)
    return read_samples(store, spec, pool.task, pool.prompts(spec.split), COUNTED, partial=True)


def _sample(
    store: Store, spec: ProbeSpec, front: Frontier, cluster: Mapping[str, float], progress: Progress
) -> None:
    import ray

    total = len(front.prompts) * front.samples
    calls = -(-len(front.missing_samples()) // ROWS_PER_CALL)
    share = probe_share(cluster, calls, spec.settings.gpus)
    actor = ray.remote(
        num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=RESTARTS, max_task_retries=RESTARTS
    )(ProbeActor)
    workers: list[Any] = [actor.remote(spec, store.uri, share.cpus) for _ in range(share.actors)]
    coming = {worker.__ray_ready__.remote(): worker for worker in workers}
    idle: list[Any] = []
    working: dict[Any, Any] = {}
    try:
        while True:
            while idle and (part := front.next_part(ROWS_PER_CALL)):
                worker = idle.pop()
                working[worker.draw_part.remote(part)] = worker
            if not working and (idle or not coming):
                return
            [done], _ = ray.wait([*working, *coming], num_returns=1)
            if done in coming:  # a cluster that grows may take a while, or never give it
                ray.get(done)
                idle.append(coming.pop(done))
                continue
            idle.append(working.pop(done))
            rows, failure = ray.get(done)
            if failure:
                raise MarkingError(failure)
            front.hear(rows)
            progress(front.drawn, total)
    finally:
        for worker in workers:
            ray.kill(worker)
