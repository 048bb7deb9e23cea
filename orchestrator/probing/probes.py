"""The probes of a plan: how each is run, and which samples it is missing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from orchestrator.config.entries import build_online_policy, build_policy
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of
from orchestrator.planning.plan import Plan
from orchestrator.probing.adaptive import Target
from orchestrator.probing.adaptive_probe import Frontier, load_frontier, run_adaptive
from orchestrator.probing.outcomes import MissingSamples, Outcomes, missing_samples
from orchestrator.probing.probe import Probe, run_probes, same_sampler
from orchestrator.storage.store import Store
from policies import Needs, ScorePolicy, needs_of


class PendingSamples(NamedTuple):
    """The samples that a probe is missing; an adaptive probe may need fewer."""

    samples: int
    work: MissingSamples | Frontier

    @property
    def at_most(self) -> bool:
        """Whether `samples` is an upper bound: an adaptive probe may stop earlier."""
        return isinstance(self.work, Frontier)


def needing_all(plan: Plan, spec: ProbeSpec) -> list[str]:
    """The policies of a probe's cells that need every sample, so that it cannot stop early."""
    cells = cells_of(plan.cells, spec)
    names = {c.policy for c in cells if "all" in needs_of_cell(c)}
    return sorted(names | ({c.policy for c in cells} if any(c.match for c in cells) else set()))


def needs_of_cell(cell: Cell) -> set[Needs]:
    """What a cell's policy, and what it chooses from, depend on."""
    online = {needs_of(build_online_policy(cell.online))} if cell.online else set()
    return {needs_of(build_policy(cell.rule))} | online


def targets_of(plan: Plan, spec: ProbeSpec) -> list[Target] | None:
    """The subsets that an adaptive probe serves, or None for a probe that draws every sample."""
    if not spec.settings.adaptive or spec.split == "test" or needing_all(plan, spec):
        return None
    targets: dict[str, Target] = {}
    for cell in cells_of(plan.cells, spec):
        policy = build_policy(cell.rule)
        if needs_of(policy) == "nothing":
            continue
        assert isinstance(policy, ScorePolicy), "a policy that needs some of the samples has scores"
        targets[cell.subset_key] = Target(policy, cell.size, cell.seed)
    return list(targets.values())


def pending_samples(plan: Plan, store: Store, spec: ProbeSpec) -> PendingSamples:
    """What a probe of the plan still has to sample."""
    targets, pool = targets_of(plan, spec), plan.pool(spec)
    if targets is None:
        missing = missing_samples(store, spec, pool.prompts(spec.split))
        return PendingSamples(missing.samples, missing)
    frontier = load_frontier(store, spec, pool, targets)
    return PendingSamples(frontier.remaining(), frontier)


def sampler_groups(plan: Plan) -> list[list[ProbeSpec]]:
    """The probes of a plan, together those that the same actors can draw; adaptive ones alone."""
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
    plan: Plan,
    store: Store,
    group: Sequence[tuple[ProbeSpec, PendingSamples]],
    cluster: Mapping[str, float],
    progress: Callable[[int, int, int], None],
) -> Iterator[Outcomes]:
    """Draw the missing samples of probes of one sampler; yields the outcomes of each probe.

    `progress` is called with a probe's position, samples done, and total samples.
    """
    probes: list[Probe] = []
    for spec, pending in group:
        pool, work = plan.pool(spec), pending.work
        if isinstance(work, Frontier):
            yield run_adaptive(store, spec, pool, work, cluster, partial(progress, 0))
        else:
            probes.append(Probe(spec, pool.prompts(spec.split), pool.task, work))
    yield from run_probes(store, probes, cluster, progress)
