"""What the stages of a command share: the plan, its storage, the cluster and the progress."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from types import MappingProxyType

from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.outcomes import MissingSamples
from orchestrator.probing.probe import PendingSamples, pending_samples
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.store import Store


@dataclass(frozen=True)
class Run:
    """A plan on a storage, and on a cluster (Ray's resource counts) once that is known.

    folders: by probe_id, so that each part of a probe is read once.
    """

    plan: Plan
    store: Store
    progress: ProgressDisplay
    cluster: Mapping[str, float] = field(default_factory=dict)
    folders: dict[str, ProbeFolder] = field(default_factory=dict)

    @classmethod
    def of(
        cls, plan: Plan, store: Store, cluster: Mapping[str, float] = MappingProxyType({})
    ) -> "Run":
        """A run with a progress display of its own."""
        return cls(plan, store, ProgressDisplay.of(plan), cluster)

    def folder(self, spec: ProbeSpec) -> ProbeFolder:
        """The stored samples of a probe."""
        name = probe_id(spec)
        if name not in self.folders:
            pool = self.plan.pool(spec)
            prompts = pool.prompts(spec.split)
            self.folders[name] = ProbeFolder(self.store, spec, prompts, pool.task)
        return self.folders[name]

    def pending_after_earlier_probes(self, spec: ProbeSpec) -> PendingSamples:
        """What a probe still has to sample once the probes before it in the plan are drawn.

        Pools that differ in their label noise share prompts: the first of their probes draws these,
        and the others draw the rest.
        """
        pending = pending_samples(self.plan, spec, self.folder(spec))
        work = pending.work
        for earlier in takewhile(lambda each: probe_id(each) != probe_id(spec), self.plan.probes):
            if not _shares_prompts(earlier, spec):
                continue
            drawn = pending_samples(self.plan, earlier, self.folder(earlier)).work
            if isinstance(work, MissingSamples) and isinstance(drawn, MissingSamples):
                work = work.without(drawn)
        if work is pending.work:
            return pending
        return PendingSamples(work, pending.samples - work.samples)


def _shares_prompts(one: ProbeSpec, other: ProbeSpec) -> bool:
    """Whether two probes of one data set share a folder and differ in their label noise."""
    if (one.key, one.split, one.dataset.name) != (other.key, other.split, other.dataset.name):
        return False
    return one.dataset.variant_key != other.dataset.variant_key


def probe_id(spec: ProbeSpec) -> str:
    """A probe's identity within a plan."""
    return f"{spec.key}/{spec.dataset.variant_key}/{spec.split}/{spec.settings.samples}"
