"""Drives an adaptive probe: sampler actors draw only what can still change a subset.

Ray Data cannot feed results back into what is read next, so actors are called one by one. Each free
actor gets the next part, chosen from all outcomes so far; the model is loaded once. Parts are
written and resumed like those of any probe.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.actors import RESTARTS
from cluster.interpreter import worker_options
from cluster.resources import probe_share
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.pools import Pool
from orchestrator.probing.adaptive import Counts, Target, undecided_rows
from orchestrator.probing.outcomes import NONE, Outcomes, load_outcomes
from orchestrator.probing.probe import ProbeActor
from orchestrator.probing.sample_store import compact, write_key
from orchestrator.probing.samples import ProbeError, SampleRequest
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.storage.store import Store
from tasks import OUTCOMES

Ints = npt.NDArray[np.int64]

_NAMES = np.array([*OUTCOMES, None], dtype=object)
ROWS_PER_CALL = 128  # fills a sampler's batch, and is small enough to learn from soon
SCAN_SHARE = 0.02  # samples, as a share of the pool, after which it is scanned again


class Frontier:
    """The outcomes of a pool so far, and which samples to draw next.

    Rows are in the order of a difficulty table, whose row numbers break ties.
    """

    def __init__(self, spec: ProbeSpec, targets: Sequence[Target], outcomes: Outcomes) -> None:
        self.samples = spec.settings.samples
        self.targets = targets
        self.prompts = outcomes.prompts.take(outcomes.prompts.order)
        self.tiers = self.prompts.column("tier").to_pylist()
        truncated = ["truncated"] if spec.settings.count_truncated == "exclude" else []
        self.unscored = [OUTCOMES.index(name) for name in ("error", *truncated)]
        self.codes = outcomes.by_id
        self.in_flight = np.zeros(len(self.prompts), dtype=bool)
        self._waiting = np.empty(0, dtype=np.int64)  # undecided rows of the last scan
        self._news: int | None = None  # samples since then; None before the first

    def record(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add marked samples (prompt_id, sample, outcome)."""
        at = self.prompts.rows_of(pa.array([row["prompt_id"] for row in rows], pa.string()))
        for prompt, row in zip(at.tolist(), rows, strict=True):
            self.codes[prompt, row["sample"]] = OUTCOMES.index(row["outcome"])
        self.in_flight[at] = False
        self._news = None if self._news is None else self._news + len(rows)

    @property
    def drawn(self) -> int:
        """Samples drawn so far."""
        return int(np.count_nonzero(self.codes != NONE))

    def undecided(self) -> Ints:
        """Rows that need another sample, the most promising first."""
        first = self.codes[:, 0]
        counts = Counts(
            np.count_nonzero(self.codes == OUTCOMES.index("correct"), axis=1),
            np.count_nonzero(np.isin(self.codes, self.unscored), axis=1),
            np.count_nonzero(self.codes != NONE, axis=1),
            _NAMES[np.where(first == NONE, len(OUTCOMES), first)],
        )
        return undecided_rows(self.targets, counts, self.tiers, self.samples)

    def remaining(self) -> int:
        """Samples that the undecided prompts may still need, at most."""
        return int(np.count_nonzero(self.codes[self.undecided()] == NONE))

    def next_part(self, size: int) -> list[SampleRequest]:
        """One more sample of up to `size` undecided prompts that are not in flight.

        The pool is scanned after every SCAN_SHARE of it, and when nothing else is left: a scan of a
        million prompts takes seconds. Some prompts of the last scan are decided by now; a sample
        of those is wasted, and changes no subset.
        """
        enough = len(self.prompts) * SCAN_SHARE
        idle = not len(self._waiting) and not self.in_flight.any()
        if self._news is None or self._news >= enough or (self._news and idle):
            rows = self.undecided()
            self._waiting, self._news = rows[~self.in_flight[rows]], 0
        free, self._waiting = self._waiting[:size], self._waiting[size:]
        self.in_flight[free] = True
        indices = np.argmax(self.codes[free] == NONE, axis=1)
        return [
            (prompt, [index])
            for prompt, index in zip(self.prompts.take(free), indices.tolist(), strict=True)
        ]


def load_frontier(store: Store, spec: ProbeSpec, pool: Pool, targets: Sequence[Target]) -> Frontier:
    """The frontier of a probe's stored samples."""
    outcomes = load_outcomes(store, spec, pool.prompts(spec.split), pool.task)
    return Frontier(spec, targets, outcomes)


def run_adaptive(
    store: Store,
    spec: ProbeSpec,
    pool: Pool,
    frontier: Frontier,
    cluster: Mapping[str, float],
    progress: Callable[[int, int], None],
) -> Outcomes:
    """Sample until every target's subset is certain; returns the outcomes of all stored samples.

    `progress` is called with samples done and total samples. Needs a connected Ray if anything is
    undecided. Raises ProbeError like any probe.
    """
    if len(frontier.undecided()):
        write_key(store, spec)
        _sample(store, spec, frontier, cluster, progress)
        compact(store, spec.key)
    return load_outcomes(store, spec, pool.prompts(spec.split), pool.task)


def _sample(
    store: Store,
    spec: ProbeSpec,
    frontier: Frontier,
    cluster: Mapping[str, float],
    progress: Callable[[int, int], None],
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
    workers: list[Any] = [actor.remote([spec], store.uri, share.cpus) for _ in range(share.actors)]
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
