"""The difficulty table of a probe of a plan."""

import pyarrow as pa

from orchestrator.difficulty.table import difficulty_of_codes
from orchestrator.planning.cells import ProbeSpec, cells_of
from orchestrator.planning.plan import Plan
from orchestrator.probing.outcomes import Outcomes


def difficulty_of(plan: Plan, spec: ProbeSpec, outcomes: Outcomes) -> pa.Table:
    """The difficulty table of a training probe, with a row for every prompt of the pool."""
    prompts = outcomes.prompts
    return difficulty_of_codes(
        prompts.ids(prompts.order),
        prompts.column("tier").combine_chunks().take(pa.array(prompts.order)),
        outcomes.by_id,
        count_truncated=spec.settings.count_truncated,
        group_size=int(cells_of(plan.cells, spec)[0].grpo["num_generations"]),
    )
