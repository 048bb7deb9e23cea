"""The adapters that the cells of an experiment start from: of finished cells, or of a folder."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import GRID_AXES, Start
from orchestrator.config.problems import Problem, below
from orchestrator.config.wording import as_yaml
from orchestrator.planning.cells import Cell
from orchestrator.planning.expand import Starts
from orchestrator.planning.plan import Plan
from orchestrator.planning.resolve import model_source
from orchestrator.sampling.trained_weights import adapter_settings, with_adapter
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import FINAL_ADAPTER, CellFolder, CellState


def starts_of(
    source: LoadedConfig, name: str, store: Store, plan_of: Callable[[str], Plan]
) -> Starts:
    """The model with the adapter that each cell starts from; empty without `start`.

    plan_of: the plan of another experiment of the file, with its stored cells. Raises UserError at
    the line of an adapter that is missing, or has other LoRA settings than the experiment.
    """
    starts: dict[tuple[Start, str, str, int], Any] = {}
    plans: dict[str, Plan] = {}
    for axes, variant in source.experiment(name).variants:
        start, grid = variant.start, variant.grid
        if start is None:
            continue
        if start.from_ and start.from_ not in plans:
            plans[start.from_] = plan_of(start.from_)
        with source.located(), below("experiments", name, axes=axes):
            for model_name in grid.model:
                model = model_source(source.config, model_name)
                lora = variant.full_lora(model.target_modules)
                for dataset, seed in product(grid.dataset, grid.seed):
                    if start.from_:
                        cell = _first_cell(plans[start.from_], start, model_name, dataset, seed)
                        folder = _cell_adapter(store, cell, start)
                        title = f"{start.from_}/{start.policy}/s{seed}"
                    else:
                        folder, title = Path(start.adapter).expanduser(), start.adapter
                    try:
                        adapted = with_adapter(model, folder)
                    except UserError as error:
                        raise Problem("invalid-start", str(error), "start") from error
                    _check_lora(folder, lora)
                    starts[start, model_name, dataset, seed] = replace(adapted, start=title)
    return starts


def _first_cell(plan: Plan, start: Start, model: str, dataset: str, seed: int) -> Cell:
    """The cell of the experiment `start.from` whose adapter a cell starts from."""
    axes = dict(zip(GRID_AXES, (model, dataset, start.policy, seed), strict=True))
    return next(cell for cell in plan.cells if axes.items() <= cell.axes.items())


def _cell_adapter(store: Store, cell: Cell, start: Start) -> Path:
    """The verified adapter of a finished cell. Raises Problem."""
    if not store.local:
        raise Problem(
            "start-in-bucket",
            f"cells of {store.uri} cannot be trained further there: copy the adapter to a folder "
            "that all nodes share, and write {adapter: FOLDER}",
            "start",
            "from",
        )
    folder = CellFolder(store, cell.cell_id)
    if folder.state(cell) is not CellState.FINISHED:
        raise Problem(
            "start-not-finished",
            f"cell {cell.name} of {start.from_} is not finished in {store.uri}: run decile run "
            f"with -e {start.from_} first",
            "start",
            "from",
        )
    for checked in folder.check():
        if checked.problem and f"/{FINAL_ADAPTER}/" in checked.path:
            raise Problem(
                "unsound-start",
                f"{checked.path} {checked.problem}: run decile run with -e {start.from_} again",
                "start",
                "from",
            )
    return store.local_path(folder.place, FINAL_ADAPTER)


def _check_lora(folder: Path, lora: Mapping[str, Any]) -> None:
    """Raise Problem unless the adapter has the LoRA settings of the experiment.

    Training continues with the adapter's own. Names of target modules are compared if both list
    them; otherwise `all-linear` or an expression stands for them.
    """
    own = adapter_settings(folder)
    for name, value in lora.items():
        stored = own.get(name)
        if name == "target_modules":
            if not (isinstance(value, list) and isinstance(stored, list)):
                continue
            value, stored = sorted(value), sorted(stored)
        if stored != value:
            raise Problem(
                "start-with-other-lora",
                f"{name} is {as_yaml(value)}, but the adapter in {folder} has {as_yaml(stored)}, "
                f"with which it is trained further: write {name}: {as_yaml(stored)}",
                "lora",
                name,
            )
