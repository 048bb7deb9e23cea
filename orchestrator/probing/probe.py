"""Samples the probes of a plan: missing prompts -> sampler actors -> marked parts in the store.

Each actor stores its samples about every half minute, so that a kill does not lose more. Missing
samples are computed from the stored rows; running again draws only these.

An adaptive probe draws only samples that can still change a subset. Ray Data cannot choose its next
input from results, so actors are called one by one: each free actor gets the next part, chosen from
all outcomes so far.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cluster.actors import RESTARTS, map_over_actors, worker_options
from cluster.part_progress import PartReporter, following
from cluster.resources import probe_share
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of, cells_ranked_by, same_probe
from orchestrator.planning.plan import Plan
from orchestrator.probing.adaptive import Counts, Target, undecided_rows
from orchestrator.probing.episodes import SampleRequest
from orchestrator.probing.outcomes import NONE, MissingSamples, Outcomes, PartSize, PartTables
from orchestrator.probing.probe_folder import COUNTED, ProbeFolder, write_key, write_part
from orchestrator.probing.samples import MarkingError, ProbeError, draw, mark_samples
from orchestrator.sampling.base import Completion, Interrupted, Listener, SamplingError
from orchestrator.sampling.engine_args import most_on_cpus
from orchestrator.storage.store import Store
from policies.base import Needs
from tasks import OUTCOMES, Prompt, Task, TaskError
from tasks.marking.marks import UNSCORED_BY

Ints = npt.NDArray[np.int64]

_NAMES = np.array([*OUTCOMES, None], dtype=object)
ROWS_PER_CALL = 128  # fills a sampler's batch, and is small enough for frequent updates
STORE_SECONDS = (
    20.0  # between two files of completions from an engine that returns them as they end
)
SCAN_SHARE = 0.02  # samples, as a share of the pool, after which it is scanned again


class StoredSample(TypedDict):
    """The counted fields of a stored sample."""

    prompt_id: str
    sample: int
    outcome: str
    score: float | None


class AdaptiveState:
    """The outcomes of a pool so far, and the samples to draw next.

    Rows are in the order of a difficulty table; row numbers break ties.
    """

    def __init__(self, spec: ProbeSpec, targets: Sequence[Target], outcomes: Outcomes) -> None:
        self.samples = spec.settings.samples
        self.targets = targets
        self.prompts = outcomes.prompts.take(outcomes.prompts.order)
        self.tiers = self.prompts.column("tier").to_pylist()
        unscored = UNSCORED_BY[spec.settings.count_truncated]
        self.unscored = [OUTCOMES.index(name) for name in unscored]
        self.codes = outcomes.by_id
        self.in_flight = np.zeros(len(self.prompts), dtype=bool)
        self._waiting = np.empty(0, dtype=np.int64)  # undecided rows of the last scan
        self._news: int | None = None  # samples since the last scan; None before the first

    def record(self, rows: Sequence[StoredSample]) -> None:
        """Add marked samples."""
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
        """The most samples that the undecided prompts may still need."""
        return int(np.count_nonzero(self.codes[self.undecided()] == NONE))

    def next_part(self, size: int) -> list[SampleRequest]:
        """One more sample of up to `size` undecided prompts that are not in flight.

        The pool is scanned after every SCAN_SHARE of it, because a scan of a million prompts takes
        seconds, and when nothing else is left. Some prompts of the last scan may be decided by now;
        their samples are wasted, but do not change a subset.
        """
        enough = len(self.prompts) * SCAN_SHARE
        idle = not len(self._waiting) and not self.in_flight.any()
        if self._news is None or self._news >= enough or (self._news and idle):
            rows = self.undecided()
            self._waiting = rows[~self.in_flight[rows]]
            self._news = 0
        free = self._waiting[:size]
        self._waiting = self._waiting[size:]
        self.in_flight[free] = True
        indices = np.argmax(self.codes[free] == NONE, axis=1)
        return [
            (prompt, [index])
            for prompt, index in zip(self.prompts.take(free), indices.tolist(), strict=True)
        ]


def run_adaptive(
    folder: ProbeFolder,
    state: AdaptiveState,
    cluster: Mapping[str, float],
    progress: Callable[[int, int], None],
) -> Outcomes:
    """Sample until every target's subset is certain; returns the outcomes of all stored samples.

    `progress` is called with the samples done and the total. Needs a connected Ray if anything is
    undecided. Raises ProbeError like any probe.
    """
    store, spec = folder.store, folder.spec
    undecided = len(state.undecided())
    if not undecided:
        return folder.outcomes()
    import ray

    write_key(store, spec)
    total = len(state.prompts) * state.samples
    gpus = spec.settings.gpus_per_sampler
    most = most_on_cpus(spec.settings.engine)
    share = probe_share(cluster, undecided, gpus, most)
    size = min(ROWS_PER_CALL, -(-undecided // share.actors))
    actor = ray.remote(
        num_cpus=share.cpus,
        num_gpus=share.gpus,
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
        **worker_options(spec.settings.engine_python),
    )(ProbeActor)
    counts = PartCounts([total], lambda _, done, samples: progress(done, samples))
    counts.done[0] = state.drawn
    workers: list[Any] = []
    idle: list[Any] = []
    working: dict[Any, tuple[Any, str]] = {}
    with following(counts.follow) as channel, ExitStack() as ending:
        for _ in range(share.actors):
            workers.append(actor.remote([spec], store.uri, share.cpus, channel))
            ending.callback(ray.kill, workers[-1])
        starting = {worker.__ray_ready__.remote(): worker for worker in workers}
        for number in count():
            while idle and (part := state.next_part(size)):
                worker, name = idle.pop(), f"0/{number}-{len(idle)}"
                working[worker.draw_part.remote(part, 0, name)] = worker, name
            if not working and (idle or not starting):
                break
            [done], _ = ray.wait([*working, *starting], num_returns=1)
            if done in starting:  # an autoscaling cluster may provide it late or never
                ray.get(done)
                idle.append(starting.pop(done))
                continue
            worker, name = working.pop(done)
            idle.append(worker)
            rows, failure = ray.get(done)
            if failure:
                raise ProbeError(failure)
            state.record(rows)
            counts.ended(name, len(rows))
    folder.compact()
    return folder.outcomes()


def same_sampler(one: ProbeSpec, other: ProbeSpec) -> bool:
    """Whether the actors of one probe can also draw the other."""
    return one.model == other.model and all(
        getattr(one.settings, name) == getattr(other.settings, name)
        for name in ("engine", "engine_args", "engine_python", "gpus_per_sampler")
    )


class PartCounts:
    """Samples drawn for each probe, in parts that have ended and parts in progress.

    A part's name begins with the position of its probe in `totals`. `progress` is called with this
    position, the samples done and the total whenever more are done.
    """

    def __init__(self, totals: Sequence[int], progress: Callable[[int, int, int], None]) -> None:
        self.totals, self.progress = totals, progress
        self.done = [0] * len(totals)
        self._shown, self._ended = [-1] * len(totals), set[str]()
        self._lock = threading.Lock()

    def ended(self, part: str, samples: int) -> None:
        """A part with this many samples has ended."""
        number = int(part.partition("/")[0])
        with self._lock:
            self._ended.add(part)
            self.done[number] += samples
            self._show(number, self.done[number])

    def follow(self, counts: Mapping[str, int]) -> None:
        """Ended samples of each part that an actor is drawing."""
        with self._lock:
            done = [*self.done]
            for part, count in counts.items():
                if part and part not in self._ended:
                    done[int(part.partition("/")[0])] += count
            for number, total in enumerate(self.totals):
                if done[number] > self.done[number]:  # the last part has not ended
                    self._show(number, min(done[number], total - 1))

    def _show(self, number: int, done: int) -> None:
        if done > self._shown[number]:  # a part may have been lost and restarted
            self._shown[number] = done
            self.progress(number, done, self.totals[number])


def run_probes(
    probes: Sequence[tuple[ProbeFolder, MissingSamples]],
    cluster: Mapping[str, float],
    progress: Callable[[int, int, int], None],
) -> Iterator[Outcomes]:
    """Draw the missing samples of probes with the same sampler, then yield the outcomes of each.

    The same actors draw one probe after the other, because an engine takes seconds to minutes to
    start. `progress` is called with a probe's position, the samples done and the total. Needs a
    connected Ray if anything is missing. Raises ProbeError if sampling or marking fails, and
    RuntimeError if samples are still missing after the run.
    """
    work = {number: missing for number, (_, missing) in enumerate(probes) if missing}
    if work:
        specs = [folder.spec for folder, _ in probes]
        store = probes[0][0].store
        for number in work:
            write_key(store, specs[number])
        settings = specs[0].settings
        gpus = settings.gpus_per_sampler
        most = most_on_cpus(settings.engine)
        share = probe_share(cluster, sum(map(len, work.values())), gpus, most)
        counts = PartCounts([missing.samples for _, missing in probes], progress)
        counts.ended(f"{min(work)}/", 0)
        with following(counts.follow) as channel:
            arguments = {
                "specs": specs,
                "storage": store.uri,
                "cpus": share.cpus,
                "channel": channel,
            }
            parts = (
                table
                for number, missing in work.items()
                for table in PartTables(
                    missing,
                    PartSize().count(missing.samples, len(missing), share.actors),
                    str(number),
                )
            )
            results = map_over_actors(parts, ProbeActor, arguments, share, settings.engine_python)
            with closing(results) as rows:  # an error would keep them until Ray has ended
                for row in rows:
                    if row["failure"]:
                        raise ProbeError(row["failure"])
                    counts.ended(row["name"], row["samples"])
                    number = int(row["name"].partition("/")[0])
                    if counts.done[number] == counts.totals[number]:
                        probes[number][0].compact()
    for folder, _ in probes:
        yield folder.outcomes(partial=False)


class ProbeActor:
    """One model in one process; called with a part, it samples, marks and writes it.

    Its progress in a part is reported to the `channel` of `following`, if any.
    """

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        storage: str,
        cpus: float,
        channel: str = "",
    ) -> None:
        import torch

        from orchestrator.sampling import load_sampler

        torch.set_num_threads(max(1, int(cpus)))
        self.specs = specs
        self.store = Store(storage)
        self.failure = ""
        self.size = PartSize()
        self.reporter = PartReporter(channel)
        self.piece = [0] * len(specs)  # samples for about half a minute, once measured
        datasets = {spec.dataset.name: spec.dataset for spec in specs}
        self.tasks = {name: dataset.build() for name, dataset in datasets.items()}
        model, settings = specs[0].model, specs[0].settings
        try:
            self.sampler = load_sampler(model, settings.engine, engine_args=settings.engine_args)
        except SamplingError as error:
            self.failure = str(error)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Draw a part; returns its name and number of samples, or why it cannot be marked.

        If a dead actor had begun the part, only samples that it has not stored are drawn.
        """
        requests: list[SampleRequest] = []
        [part], [name] = batch["part"].to_pylist(), batch["name"].to_pylist()
        for row in part:
            indices = row.pop("samples")
            requests.append((Prompt(**row), indices))
        number = int(name.partition("/")[0])
        samples = sum(len(indices) for _, indices in requests)
        if self.reporter.start(name):
            spec = self.specs[number]
            prompts = [prompt for prompt, _ in requests]
            folder = ProbeFolder(self.store, spec, prompts, self.tasks[spec.dataset.name]).read()
            requests = [
                (prompt, [i for i in indices if tokens[i] < 0])
                for (prompt, indices), tokens in zip(requests, folder.tokens, strict=True)
            ]
        _, failure = self.draw_part([r for r in requests if r[1]], number)
        return pa.table({"name": [name], "samples": [samples], "failure": [failure]})

    def draw_part(
        self, requests: Sequence[SampleRequest], number: int = 0, name: str = ""
    ) -> tuple[list[StoredSample], str]:
        """Write the samples of a probe in pieces; returns them, and the failure that ended them, if
        any.

        The first piece has the size of a full batch. Each further one is half a minute of work at
        the last piece's speed; an engine may store part of it earlier. Nothing is drawn after a
        failure.
        """
        if self.failure:
            return [], self.failure
        if name:
            self.reporter.start(name)
        rows: list[StoredSample] = []
        requests = list(requests)
        total = np.cumsum([len(indices) for _, indices in requests])
        start = 0
        while start < len(requests) and not self.failure:
            before = total[start - 1] if start else 0
            size = self.piece[number] or self.size.batch
            pieces = max(1, round((total[-1] - before) / size))  # of even size
            end = int(np.searchsorted(total, before + (total[-1] - before) / pieces)) + 1
            began = time.monotonic()
            drawn, self.failure = self._draw_piece(requests[start:end], number)
            seconds, start = time.monotonic() - began, end
            rows += drawn
            self.piece[number] = self.size.piece(seconds, len(drawn))
        return rows, self.failure

    def _draw_piece(
        self, requests: list[SampleRequest], number: int
    ) -> tuple[list[StoredSample], str]:
        """Draw, mark and write samples; returns them.

        A failure to sample or to mark is returned as text, not raised, because Ray's wrapped
        exceptions lose their cause. It ends the probe. Samples drawn before a server failed are
        written, and so are episodes that ended before too many failed.
        """
        spec = self.specs[number]
        task, failure = self.tasks[spec.dataset.name], ""
        writer = PieceWriter(self.store, spec, task, requests, self.reporter)
        max_errors = spec.dataset.max_marking_errors
        results: Sequence[Sequence[Completion | None]]
        try:
            try:
                settings = spec.settings.sampling()
                results = draw(self.sampler, task, requests, settings, max_errors, writer)
            except Interrupted as error:
                results, failure = error.drawn, str(error)
            results = writer.unstored(results)
            try:
                samples = mark_samples(task, requests, results, max_errors)
            except MarkingError as error:
                if task.environment is None:
                    raise
                failure = str(error)
                played = [  # without the episodes that failed
                    [c if c and c.episode and not c.episode.failure else None for c in completions]
                    for completions in results
                ]
                samples = mark_samples(task, requests, played, max_errors)
        except (MarkingError, SamplingError, TaskError) as error:
            return writer.rows, str(error)
        writer.write(samples)
        self.reporter.add(len(writer.rows) - writer.reported)
        return writer.rows, failure


class PieceWriter(Listener):
    """Periodically stores completions of a piece, if the engine returns them as they end.

    rows: the stored samples. reported: the samples that have ended.
    """

    def __init__(
        self,
        store: Store,
        spec: ProbeSpec,
        task: Task,
        requests: Sequence[SampleRequest],
        reporter: PartReporter,
    ) -> None:
        super().__init__(self._count, self._complete)
        self.store = store
        self.spec = spec
        self.task = task
        self.requests = requests
        self.reporter, self.reported = reporter, 0
        self.rows: list[StoredSample] = []
        self._stored: set[tuple[int, int]] = set()
        self._pending: dict[tuple[int, int], Completion] = {}
        self._written = time.monotonic()

    def _count(self, more: int) -> None:
        self.reported += more
        self.reporter.add(more)

    def _complete(self, request: int, place: int, completion: Completion) -> None:
        self._pending[request, place] = completion
        if time.monotonic() - self._written < STORE_SECONDS:
            return
        results = [
            [self._pending.get((i, j)) for j in range(len(indices))]
            for i, (_, indices) in enumerate(self.requests)
        ]
        errors = self.spec.dataset.max_marking_errors
        self.write(mark_samples(self.task, self.requests, results, errors))
        self._stored |= self._pending.keys()
        self._pending.clear()
        self._written = time.monotonic()

    def unstored(
        self, results: Sequence[Sequence[Completion | None]]
    ) -> list[list[Completion | None]]:
        """The completions of the whole piece; None for stored ones."""
        return [
            [None if (i, j) in self._stored else each for j, each in enumerate(of_prompt)]
            for i, of_prompt in enumerate(results)
        ]

    def write(self, samples: pa.Table) -> None:
        """Write rows (schema SAMPLES) as a part, if there are any."""
        if samples.num_rows:
            write_part(self.store, self.spec.key, self.spec.split, samples)
            self.rows += samples.select(COUNTED).to_pylist()


@dataclass(frozen=True)
class PendingSamples:
    """The samples that a probe is missing; an adaptive probe may need fewer.

    shared: further missing samples that another probe of the plan draws.
    """

    work: MissingSamples | AdaptiveState
    shared: int = 0

    @cached_property
    def samples(self) -> int:
        """How many."""
        return self.work.samples if isinstance(self.work, MissingSamples) else self.work.remaining()

    @property
    def at_most(self) -> bool:
        """Whether `samples` is an upper bound: an adaptive probe may stop earlier."""
        return isinstance(self.work, AdaptiveState)


def _needs(cell: Cell, spec: ProbeSpec) -> Needs:
    """The part of a probe that determines the subset of a cell."""
    rule = cell.static_policy.build()
    ranking = cell.difficulty
    ranks: ProbeSpec | None = cell.probe
    if ranking is not None:
        ranks = None if ranking.file else ranking.probe or cell.probe
    if ranks is None or not same_probe(ranks, spec):  # suspected golds may still depend on it
        return "all" if rule.reads_answers and same_probe(cell.probe, spec) else "nothing"
    by_agreement = ranking is not None and ranking.by == "agreement"
    return (
        "all" if cell.bounding_rules or (by_agreement and rule.needs != "nothing") else rule.needs
    )


def needing_all(plan: Plan, spec: ProbeSpec) -> list[str]:
    """The policies of a probe's cells that need every sample and so prevent an early stop."""
    names = {
        cell.policy for cell in cells_ranked_by(plan.cells, spec) if _needs(cell, spec) == "all"
    }
    for cell in cells_of(plan.cells, spec):
        needs = {_needs(cell, spec)}
        if cell.online:
            needs.add(cell.online.build_online().needs)
        if cell.allocation:
            needs.add(cell.allocation.build().needs)
        if "all" in needs:
            names.add(cell.policy)
    return sorted(names)


def targets_of(plan: Plan, spec: ProbeSpec) -> list[Target] | None:
    """The subsets that an adaptive probe serves, or None for a probe that draws every sample."""
    if not spec.settings.adaptive or spec.split == "test" or needing_all(plan, spec):
        return None
    if not plan.pool(spec).labelled.all():  # choosing prompts to label needs every sample
        return None
    targets: dict[str, Target] = {}
    for cell in (*cells_of(plan.cells, spec), *cells_ranked_by(plan.cells, spec)):
        policy = cell.static_policy.build()
        if _needs(cell, spec) == "nothing":
            continue
        assert policy.scored, "a policy that needs some of the samples has scores"
        targets[cell.subset_key] = Target(policy.scored, cell.size, cell.seed, cell.stream)
    return list(targets.values())


def pending_samples(plan: Plan, spec: ProbeSpec, folder: ProbeFolder) -> PendingSamples:
    """The samples that a probe of the plan still has to draw."""
    targets = targets_of(plan, spec)
    if targets is None:
        return PendingSamples(folder.missing())
    return PendingSamples(AdaptiveState(spec, targets, folder.outcomes()))


def sampler_groups(plan: Plan) -> list[list[ProbeSpec]]:
    """The probes of a plan in groups that the same actors can draw; adaptive probes are alone."""
    groups: list[list[ProbeSpec]] = []
    shared: list[list[ProbeSpec]] = []
    for spec in plan.probes:
        alone = targets_of(plan, spec) is not None
        group = next((g for g in shared if same_sampler(g[0], spec)), None)
        if alone or group is None:
            group = []
            groups.append(group)
            if not alone:
                shared.append(group)
        group.append(spec)
    return groups


def sample(
    group: Sequence[tuple[ProbeFolder, PendingSamples]],
    cluster: Mapping[str, float],
    progress: Callable[[int, int, int], None],
) -> Iterator[Outcomes]:
    """Draw the missing samples of probes with one sampler; yields the outcomes of each probe.

    `progress` is called with a probe's position, the samples done and the total.
    """
    probes: list[tuple[ProbeFolder, MissingSamples]] = []
    for folder, pending in group:
        if isinstance(pending.work, AdaptiveState):
            yield run_adaptive(folder, pending.work, cluster, partial(progress, 0))
        else:
            probes.append((folder, pending.work))
    yield from run_probes(probes, cluster, progress)
