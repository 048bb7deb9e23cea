"""The difficulty tables of the probes of a plan."""

from pathlib import Path

import pyarrow as pa

from orchestrator.difficulty.table import difficulty_of_codes
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of
from orchestrator.planning.plan import Plan
from orchestrator.probing.outcomes import Outcomes
from orchestrator.storage.proof import canonical_hash


def table_file(plan: Plan, spec: ProbeSpec, page: Path) -> Path:
    """The file beside the page for the difficulty table of a training probe.

    Its name hashes the pool and the marker, too: datasets that share a probe's folder never share a
    table, even if they have the same name in two files of experiments.
    """
    pool = plan.pool(spec).train_hash
    key = canonical_hash([spec.key, spec.dataset.name, spec.marker, pool])[:8]
    return page.with_name(f"{page.stem}-{key}.parquet")


def difficulty_of(plan: Plan, spec: ProbeSpec, outcomes: Outcomes) -> pa.Table:
    """The difficulty table of a training probe, with a row for every prompt of the pool."""
    group = cells_of(plan.cells, spec)[0].batch.group_size
    return CellTables(outcomes).with_group(spec, group)


class CellTables:
    """The difficulty tables of the cells that share a probe's samples, each computed once.

    Cells may differ in K, in how truncated samples count, and in the size of a group.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._tables: dict[tuple[int, str, int], pa.Table] = {}

    def of(self, cell: Cell) -> pa.Table:
        """The table of the cell's own first K samples of each prompt."""
        return self.with_group(cell.probe, cell.batch.group_size)

    def with_group(self, spec: ProbeSpec, group_size: int) -> pa.Table:
        """The table of the first K samples of each prompt, K and the rest as in `spec`."""
        settings = spec.settings
        key = settings.samples, settings.count_truncated, group_size
        if key not in self._tables:
            prompts = self._outcomes.prompts
            self._tables[key] = difficulty_of_codes(
                prompts.ids(prompts.order),
                prompts.column("tier").combine_chunks().take(pa.array(prompts.order)),
                self._outcomes.by_id[:, : settings.samples],
                count_truncated=settings.count_truncated,
                group_size=group_size,
            )
        return self._tables[key]
