"""The difficulty table of a probe of a plan."""

import pyarrow as pa

from orchestrator.difficulty.table import difficulty
from orchestrator.planning.cells import ProbeSpec, cells_of
from orchestrator.planning.plan import Plan


def difficulty_of(plan: Plan, spec: ProbeSpec, samples: pa.Table) -> pa.Table:
    """The difficulty table of a training probe, with a row for every prompt of the pool."""
    return difficulty(
        samples,
        plan.pool(spec).tiers("train"),
        count_truncated=spec.settings.count_truncated,
        group_size=int(cells_of(plan.cells, spec)[0].grpo["num_generations"]),
        samples_per_prompt=spec.settings.samples,
    )
