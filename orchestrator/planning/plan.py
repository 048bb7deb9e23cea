"""An experiment -> its probes and cells, in three passes: resolve, load, expand. Runs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.config.axes import path_of
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import Experiment
from orchestrator.planning.cells import Cell, ProbeSpec, needed_samples
from orchestrator.planning.expand import expand
from orchestrator.planning.load import load_pools
from orchestrator.planning.pools import Pool
from orchestrator.planning.resolve import resolve
from orchestrator.storage.errors import UserError


@dataclass(frozen=True)
class Plan:
    """The cells that one experiment declares, and the prompts that they need."""

    name: str
    source: LoadedConfig
    experiment: Experiment
    pools: Mapping[str, Pool]
    cells: list[Cell]

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
    by_id: dict[str, Cell] = {}
    for cell in cells:
        same = by_id.setdefault(cell.cell_id, cell)
        if same is not cell:
            raise _same_cell(loaded, path, cell, same)
    return Plan(name, loaded, experiment, pools, cells)


def _same_cell(loaded: LoadedConfig, path: tuple[str, ...], cell: Cell, same: Cell) -> UserError:
    """The error where two cells of a grid are the same, at the axis that does not change them."""
    names = f"{cell.name} and {same.name} are the same cell"
    differing = [axis for axis, value in cell.axes.items() if value != same.axes[axis]]
    if axis := next((axis for axis in differing if axis in cell.swept), None):
        message = (
            f"{names}, because {axis} does not change {cell.policy}: remove {axis} from the grid, "
            f"or {cell.policy} (it can stand in an experiment of its own)"
        )
        return loaded.error(message, *path, *path_of(axis), axes=cell.swept)
    return loaded.error(f"{names}: remove one of the names", *path, "grid")
