"""How hard the pool is, and what each subset took of it: the figures of a training probe."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.probe_table import difficulty_of
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.probes import targets_of
from orchestrator.probing.sample_store import COUNTED, read_samples
from orchestrator.report.figures import failure_histogram, outcome_bars
from orchestrator.selection.subsets import read_subset
from orchestrator.storage.store import Store


class PoolFigures(NamedTuple):
    """Prompts by the base model's successes, and outcomes in the pool and in each subset; SVG.

    early: whether the probe stopped sampling prompts whose fate was certain.
    """

    title: str
    prompts: int
    histogram: str
    outcomes: str
    early: bool


def pool_figures(plan: Plan, store: Store, spec: ProbeSpec) -> PoolFigures:
    """The figures of one training probe. Raises RuntimeError while samples are owed."""
    pool = plan.pool(spec)
    early = targets_of(plan, spec) is not None
    samples = read_samples(store, spec, pool.task, pool.train, COUNTED, partial=early)
    found = difficulty_of(plan, spec, samples)
    title = f"{spec.model.name} on {spec.dataset.name}"
    title += f", probe {spec.settings.seed}" if spec.settings.seed else ""
    histogram = failure_histogram(found, spec.settings.samples)
    bars = outcome_bars(_outcomes(plan, store, spec, samples))
    return PoolFigures(title, found.num_rows, histogram, bars, early)


def _outcomes(plan: Plan, store: Store, spec: ProbeSpec, samples: pa.Table) -> dict[str, list[str]]:
    """Outcomes of the probe's samples in the pool, and in each policy's subset (first seed)."""
    found = {"pool": samples["outcome"].to_pylist()}
    for cell in plan.cells:
        subset = read_subset(store, cell) if cell.probe == spec else None
        if subset is not None and cell.policy not in found:
            chosen = pc.is_in(samples["prompt_id"], value_set=subset["prompt_id"].combine_chunks())
            found[cell.policy] = samples.filter(chosen)["outcome"].to_pylist()
    return found
