"""Compares what prompts are ranked by: the sources of difficulty of a sweep's data sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.difficulty.sources import with_ranks_of
from orchestrator.planning.cells import (
    ProbeSpec,
    cells_of,
    cells_ranked_by,
    readers_of,
    source_title,
)
from orchestrator.planning.plan import Plan
from orchestrator.planning.score_file import read_scores
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.stats.rankings import RankPair, compare_rankings
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SourceMatrix:
    """Every pair of sources of difficulty of a pool: each model's pass rates and agreement, files.

    title: the data set, and what else distinguishes its probes. sources: in the order of the plan;
    known: prompts with a value of each. pairs: by the positions of two sources. notes: why a source
    is left out.
    """

    title: str
    sources: tuple[str, ...]
    known: tuple[int, ...]
    pairs: Mapping[tuple[int, int], RankPair]
    notes: tuple[str, ...] = ()


def source_matrices(plan: Plan, store: Store) -> list[SourceMatrix]:
    """A matrix for each data set with several sources: models, or what policies rank by."""
    pools: dict[str, list[ProbeSpec]] = {}
    for spec in plan.training_probes:
        pools.setdefault(plan.data_title(spec), []).append(spec)
    matrices = []
    for title, specs in pools.items():
        # A model that starts from adapters has a probe for each.
        first = {spec.model.name: spec for spec in reversed(specs) if spec.model.start}
        shown = [s for s in specs if not s.model.start or s is first[s.model.name]]
        ranked = any(cell.difficulty for spec in specs for cell in cells_of(plan.cells, spec))
        if ranked or len({spec.model.title for spec in shown}) > 1:
            values, notes = _values(plan, store, shown)
            if len(shown) < len(specs):
                notes.append("of the starts of a model, the first is shown")
            if len(values) > 1:
                matrices.append(_matrix(title, values, notes))
    return matrices


def _matrix(title: str, values: Mapping[str, Floats], notes: list[str]) -> SourceMatrix:
    columns = list(values.values())
    pairs = {
        (i, j): compare_rankings(columns[i], columns[j])
        for i, j in combinations(range(len(columns)), 2)
    }
    known = tuple(int(np.count_nonzero(~np.isnan(column))) for column in columns)
    return SourceMatrix(title, tuple(values), known, pairs, tuple(notes))


def _values(
    plan: Plan, store: Store, specs: list[ProbeSpec]
) -> tuple[dict[str, Floats], list[str]]:
    """Source -> its value for each prompt of a pool, nan where it is not known; and notes."""
    values: dict[str, Floats] = {}
    notes: list[str] = []
    files: dict[str, str] = {}
    for spec in specs:
        for cell in (*cells_of(plan.cells, spec), *cells_ranked_by(plan.cells, spec)):
            if cell.difficulty and cell.difficulty.file:
                files[cell.difficulty.file] = cell.difficulty.title
    table: pa.Table | None = None
    for spec in specs:
        try:
            probe = PlanProbe(plan, store, spec)
            if not probe.outcomes.complete:
                notes.append(f"{spec.model.title}: its probe stopped early, so no rate is known")
                continue
        except UserError as error:
            notes.append(f"{spec.model.title}: {error}")
            continue
        group = readers_of(plan.cells, spec)[0].batch.group_size
        for by in ("gold", "agreement"):
            table = probe.tables.with_ranking(spec, group, by)
            rates = _rates(table)
            if not np.isnan(rates).all():
                values[source_title(by, spec.model.title)] = rates
    for file, name in files.items() if table is not None else ():
        values[name] = _rates(with_ranks_of(table, read_scores(file)))
    return values, notes


def _rates(table: pa.Table) -> Floats:
    return np.asarray(table["pass_rate"].to_numpy(zero_copy_only=False), dtype=float)
