"""The probes of a plan: how each is run, and which samples it is missing."""

from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.config.entries import build_online_policy, build_policy
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import Pool
from orchestrator.probing.adaptive import Target
from orchestrator.probing.adaptive_probe import Frontier, load_frontier, run_adaptive
from orchestrator.probing.outcomes import MissingSamples, Outcomes, missing_samples
from orchestrator.probing.probe import Progress, run_probe
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


def sample(
    pool: Pool,
    store: Store,
    spec: ProbeSpec,
    work: MissingSamples | Frontier,
    cluster: Mapping[str, float],
    progress: Progress,
) -> Outcomes:
    """Draw a probe's missing samples; returns the outcomes of all of them."""
    if isinstance(work, Frontier):
        return run_adaptive(store, spec, pool, work, cluster, progress)
    return run_probe(store, spec, pool, work, cluster, progress)
