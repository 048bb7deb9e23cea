"""A file's experiment and its storage, as every command and the Python API open them."""

import os
from dataclasses import replace
from pathlib import Path

from cluster.session import in_ray_job
from orchestrator.config.catalog import LoadedConfig, load_config
from orchestrator.pipeline.starts import starts_of
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.storage.addresses import scheme_of
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellState, cell_state
from orchestrator.training.cell_paths import CELLS


def open_plan(
    file: str | Path, experiment: str | None, storage: str | Path | None
) -> tuple[Plan, Store]:
    """The plan of an experiment, and its storage: the file's unless another one is given.

    Without a name, it is the only experiment of the file. Cells that an earlier version of Decile
    stored are kept as they are.

    Raises UserError for every invalid input.
    """
    source = load_config(file)
    name = source.only_experiment(experiment)
    own = source.config.storage
    relative = not scheme_of(own) and not Path(own).expanduser().is_absolute()
    if relative and in_ray_job():  # the job's working directory is deleted when it ends
        own = str(Path.home() / "decile" / os.path.relpath(own, source.file.parent))
    store = Store(storage or own)
    return stored_plan(source, name, store), store


def stored_plan(source: LoadedConfig, name: str, store: Store) -> Plan:
    """The plan of an experiment with what its storage holds: stored cells, and adapters that cells
    start from.
    """
    starts = starts_of(source, name, store, lambda first: stored_plan(source, first, store))
    return with_stored_cells(make_plan(source, name, starts=starts), store)


def with_stored_cells(plan: Plan, store: Store) -> Plan:
    """The plan, in which cells that an earlier version of Decile stored keep their ids.

    These are finished, or were started with the same code, so they can be continued.
    """
    stored = {*store.folders(CELLS)}

    def kept(cell: Cell) -> Cell:
        if cell.cell_id in stored:
            return cell
        for earlier in cell.earlier:
            if earlier.cell_id in stored:
                state = cell_state(store, earlier)
                same_code = earlier.online_version == cell.online_version
                if state == CellState.FINISHED or (same_code and state != CellState.PENDING):
                    return earlier
        return cell

    cells = [kept(cell) for cell in plan.cells]
    ids = {old.cell_id: new.cell_id for old, new in zip(plan.cells, cells, strict=True)}
    shared = {ids[cell_id]: axes for cell_id, axes in plan.shared.items()}
    return replace(plan, cells=cells, shared=shared)


def check_trainable(plan: Plan) -> None:
    """Raise UserError if a model is a recording, or a data set lacks gold answers."""
    for model in {cell.probe.model.name for cell in plan.cells if cell.probe.model.recorded}:
        raise UserError(
            f"model {model} is recorded, so it cannot be trained: "
            "run decile probe instead, or remove it from the grid"
        )
    for title, reason in plan.lacking_golds.items():
        raise UserError(f"dataset {title} can only be probed: {reason}", "missing-gold-answers")
