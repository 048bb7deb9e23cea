"""An experiment -> its probes and cells, in three passes: resolve, load, expand. Runs nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from orchestrator.config.axes import path_of, value_text
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.claims import Claim
from orchestrator.config.experiment import Axis, Experiment
from orchestrator.planning.cells import Cell, ProbeSpec, needed_samples
from orchestrator.planning.claims import load_claims
from orchestrator.planning.expand import expand
from orchestrator.planning.load import load_pools
from orchestrator.planning.pools import Pool
from orchestrator.planning.resolve import resolve


@dataclass(frozen=True)
class Plan:
    """The cells that one experiment declares, and the prompts that they need."""

    name: str
    source: LoadedConfig
    experiment: Experiment
    pools: Mapping[str, Pool]
    cells: list[Cell]
    # cell_id -> other combinations of axes with this cell: `full` takes the pool at every budget
    shared: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()

    @property
    def compare_at(self) -> Axis:
        """What the comparison keeps equal; with online policies rollouts, unless it is set."""
        experiment = self.experiment
        if "compare_at" in experiment.model_fields_set or not any(c.online for c in self.cells):
            return experiment.compare_at
        return "rollouts"

    @property
    def probes(self) -> list[ProbeSpec]:
        """Every probe that the cells read from, once.

        K is not in a probe's key: cells that share a probe may need different numbers of samples,
        and the largest is drawn. An adaptive probe is one for each K, because which samples it
        needs depends on K; it draws what is not stored yet.
        """
        largest: dict[tuple[Any, ...], ProbeSpec] = {}
        for spec in self._specs:
            if spec.model.recorded and spec.split == "test":
                continue  # nothing is trained on a recording, so nothing is evaluated
            key: tuple[Any, ...] = (spec.key, spec.dataset.name, spec.split)
            if spec.split == "train" and spec.settings.adaptive:
                key += needed_samples(spec)
            if key not in largest or spec.settings.samples > largest[key].settings.samples:
                largest[key] = spec
        return list(largest.values())

    @cached_property
    def _specs(self) -> list[ProbeSpec]:
        """The probe of every cell and evaluation, each object once."""
        specs = (
            spec
            for cell in self.cells
            for spec in (cell.probe, cell.baseline, *(e.probe for e in cell.extra_evals))
        )
        return list({id(spec): spec for spec in specs}.values())

    def pool(self, spec: ProbeSpec) -> Pool:
        """The loaded dataset of a probe."""
        return self.pools[spec.dataset.name]


def make_plan(loaded: LoadedConfig, name: str) -> Plan:
    """Plan an experiment. Raises UserError at the line of what cannot work."""
    experiment = loaded.experiment(name)
    path = ("experiments", name)
    resolved = resolve(loaded, experiment)
    pools = load_pools(loaded, experiment, resolved, (*path, "budget"))
    cells = expand(experiment, resolved, pools)
    cells, shared = _distinct(loaded, path, cells)
    claims = load_claims(loaded, name, pools, cells)
    return Plan(name, loaded, experiment, pools, cells, shared, claims)


def _distinct(
    loaded: LoadedConfig, path: tuple[str, ...], cells: list[Cell]
) -> tuple[list[Cell], dict[str, list[dict[str, Any]]]]:
    """Every cell once, and by its id the other combinations of axes of which it is the cell, too.

    Raises UserError where two names give the same cell, and where two values of an axis give the
    same cells.
    """
    by_id: dict[str, Cell] = {}
    shared: dict[str, list[dict[str, Any]]] = {}
    ids: dict[tuple[str, str], set[str]] = {}  # by axis and value
    for cell in cells:
        same = by_id.setdefault(cell.cell_id, cell)
        if same.fixed_axes != cell.fixed_axes:
            message = f"{cell.name} and {same.name} are the same cell: remove one of the names"
            raise loaded.error(message, *path, "grid")
        if same is not cell:
            shared.setdefault(cell.cell_id, []).append(cell.swept)
        for axis, value in cell.swept.items():
            ids.setdefault((axis, repr(value)), set()).add(cell.cell_id)
    for axis, values in loaded.experiment(path[-1]).grid.swept.items() if shared else ():
        first: dict[frozenset[str], Any] = {}
        for value in values:
            same_as = first.setdefault(frozenset(ids[axis, repr(value)]), value)
            if same_as != value:
                names = f"{axis} {value_text(value)} and {value_text(same_as)}"
                message = f"{names} give the same cells: remove one of the values, or the axis"
                raise loaded.error(message, *path, *path_of(axis), axes={axis: value})
    return [*by_id.values()], shared
