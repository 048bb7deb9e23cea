"""Drives an adaptive probe: sampler actors draw only what can still change a subset.

Ray Data cannot feed results back into what is read next, so actors are called one by one. Each free
actor gets the next part, chosen from all outcomes so far; the model is loaded once. Parts are
written and resumed like those of any probe.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cluster.actors import RESTARTS
from cluster.interpreter import worker_options
from cluster.resources import probe_share
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pools import Pool
from orchestrator.probing.adaptive import Target, count_outcomes, undecided_rows
from orchestrator.probing.probe import ProbeActor, Progress
from orchestrator.probing.sample_store import (
    COUNTED,
    compact,
    load_samples,
    read_samples,
    write_key,
)
from orchestrator.probing.samples import ProbeError, SampleRequest
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.storage.store import Store
from tasks import Prompt

ROWS_PER_CALL = 128  # fills a sampler's batch, and is small enough to learn from soon


class Frontier:
    """The outcomes of a pool so far, and which samples to draw next."""

    def __init__(
        self, spec: ProbeSpec, pool: Pool, targets: Sequence[Target], rows: pa.Table
    ) -> None:
        self.samples = spec.settings.samples
        self.targets = targets
        # In the order of a difficulty table, whose row numbers break ties.
        self.prompts = sorted(pool.prompts(spec.split), key=lambda p: p.prompt_id)
        self.ids = [p.prompt_id for p in self.prompts]
        self.tiers = [p.tier for p in self.prompts]
        truncated = {"truncated"} if spec.settings.count_truncated == "exclude" else set[str]()
        self.unscored = frozenset({"error"} | truncated)
        self.outcomes: dict[str, dict[int, str]] = {}  # prompt_id -> sample index -> outcome
        self.in_flight: set[str] = set()
        self.record(rows.to_pylist())

    def record(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add marked samples (prompt_id, sample, outcome)."""
        for row in rows:
            self.outcomes.setdefault(row["prompt_id"], {})[row["sample"]] = row["outcome"]
            self.in_flight.discard(row["prompt_id"])

    @property
    def drawn(self) -> int:
        """Samples drawn so far."""
        return sum(map(len, self.outcomes.values()))

    def undecided(self) -> list[Prompt]:
        """Prompts that need another sample, the most promising first."""
        counts = count_outcomes(self.outcomes, self.ids, self.unscored)
        rows = undecided_rows(self.targets, counts, self.tiers, self.samples)
        return [self.prompts[row] for row in rows]

    def remaining(self) -> int:
        """Samples that the undecided prompts may still need, at most."""
        return sum(self.samples - len(self.outcomes.get(p.prompt_id, ())) for p in self.undecided())

    def next_part(self, size: int) -> list[SampleRequest]:
        """One more sample of up to `size` undecided prompts that are not in flight."""
        free = [p for p in self.undecided() if p.prompt_id not in self.in_flight][:size]
        self.in_flight |= {p.prompt_id for p in free}
        part: list[SampleRequest] = []
        for prompt in free:
            drawn = self.outcomes.get(prompt.prompt_id, {})
            part.append((prompt, [next(i for i in range(self.samples) if i not in drawn)]))
        return part


def load_frontier(store: Store, spec: ProbeSpec, pool: Pool, targets: Sequence[Target]) -> Frontier:
    """The frontier of a probe's stored samples."""
    rows = load_samples(store, spec, pool.prompts(spec.split), COUNTED, pool.task)
    return Frontier(spec, pool, targets, rows)


def run_adaptive(
    store: Store,
    spec: ProbeSpec,
    pool: Pool,
    frontier: Frontier,
    cluster: Mapping[str, float],
    progress: Progress,
) -> pa.Table:
    """Sample until every target's subset is certain; returns all stored samples (COUNTED).

    Needs a connected Ray if anything is undecided. Raises ProbeError like any probe.
    """
    if frontier.undecided():
        write_key(store, spec)
        _sample(store, spec, frontier, cluster, progress)
        compact(store, spec.key)
    return read_samples(store, spec, pool.task, pool.prompts(spec.split), COUNTED, partial=True)


def _sample(
    store: Store,
    spec: ProbeSpec,
    frontier: Frontier,
    cluster: Mapping[str, float],
    progress: Progress,
) -> None:
    import ray

    total = len(frontier.prompts) * frontier.samples
    calls = -(-len(frontier.undecided()) // ROWS_PER_CALL)
    gpus, most = spec.settings.gpus_per_sampler, most_on_cpus(spec.settings.engine)
    share = probe_share(cluster, calls, gpus, most)
    actor = ray.remote(
        num_cpus=share.cpus,
        num_gpus=share.gpus,
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
        **worker_options(spec.settings.engine_python),
    )(ProbeActor)
    workers: list[Any] = [actor.remote(spec, store.uri, share.cpus) for _ in range(share.actors)]
    starting = {worker.__ray_ready__.remote(): worker for worker in workers}
    idle: list[Any] = []
    working: dict[Any, Any] = {}
    try:
        while True:
            while idle and (part := frontier.next_part(ROWS_PER_CALL)):
                worker = idle.pop()
                working[worker.draw_part.remote(part)] = worker
            if not working and (idle or not starting):
                return
            [done], _ = ray.wait([*working, *starting], num_returns=1)
            if done in starting:  # an autoscaling cluster may take a while, or never provide it
                ray.get(done)
                idle.append(starting.pop(done))
                continue
            idle.append(working.pop(done))
            rows, failure = ray.get(done)
            if failure:
                raise ProbeError(failure)
            frontier.record(rows)
            progress(frontier.drawn, total)
    finally:
        for worker in workers:
            ray.kill(worker)
