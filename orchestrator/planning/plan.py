"""An experiment -> its probes and cells, in three passes: resolve, load, expand. Runs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import Experiment
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.expand import expand
from orchestrator.planning.load import load_pools
from orchestrator.planning.pools import Pool, Split
from orchestrator.planning.resolve import resolve


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
        and the largest is drawn.
        """
        largest: dict[tuple[str, str, Split], ProbeSpec] = {}
        for cell in self.cells:
            for spec in (cell.probe, cell.baseline, *(e.probe for e in cell.extra_evals)):
                if spec.model.recorded and spec.split == "test":
                    continue  # nothing is trained on a recording, so nothing is evaluated
                key = (spec.key, spec.dataset.name, spec.split)
                if key not in largest or spec.settings.samples > largest[key].settings.samples:
                    largest[key] = spec
        return list(largest.values())

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
            message = f"{cell.name} and {same.name} are the same cell: remove one of the names"
            raise loaded.error(message, *path, "grid")
    return Plan(name, loaded, experiment, pools, cells)
