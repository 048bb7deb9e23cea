"""The adapters that the cells of an experiment start from: of finished cells, or of a folder."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import GRID_AXES, Experiment, Start
from orchestrator.config.problems import Problem, below
from orchestrator.config.wording import as_yaml
from orchestrator.planning.cells import Cell
from orchestrator.planning.expand import Starts
from orchestrator.planning.plan import Plan
from orchestrator.planning.resolve import model_source
from orchestrator.sampling.engine_args import changes_base, largest_rank, unsupported_lora
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.trained_weights import adapter_rank, adapter_settings, with_adapter
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import FINAL_ADAPTER, CellFolder, CellState

# Fields of adapter_config.json that say nothing about its function, or have a true default.
UNSET = (
    *("peft_type", "task_type", "base_model_name_or_path", "inference_mode", "revision"),
    *("peft_version", "auto_mapping", "megatron_core", "qalora_group_size"),
    *("bias", "init_lora_weights"),
)


def starts_of(
    source: LoadedConfig, name: str, store: Store, plan_of: Callable[[str], Plan]
) -> Starts:
    """The model with the adapter that each cell starts from; empty without `start`.

    plan_of: the plan of another experiment of the file, with its stored cells. Raises UserError at
    the line of an adapter that is missing, or that cannot be trained further with these settings.
    """
    starts: dict[tuple[Start, str, str, int], ModelSource] = {}
    plans: dict[str, Plan] = {}
    for axes, variant in source.experiment(name).variants:
        start, grid = variant.start, variant.grid
        adapters: dict[tuple[str, str], ModelSource] = {}  # by model and folder
        if start is None:
            continue
        if start.from_ and start.from_ not in plans:
            plans[start.from_] = plan_of(start.from_)
        for model in grid.model:
            with source.located():
                base = model_source(source.config, model)  # hashes its files
            for dataset, seed in product(grid.dataset, grid.seed):
                with source.located(), below("experiments", name, axes=axes):
                    folder, title = Path(start.adapter).expanduser(), start.adapter
                    if start.from_:
                        cell = _first_cell(plans[start.from_], start, model, dataset, seed)
                        folder = _cell_adapter(store, cell, start)
                        title = f"{start.from_}/{start.policy}/s{seed}"
                    if (model, str(folder)) not in adapters:
                        adapters[model, str(folder)] = _adapted(base, folder, variant)
                adapted = adapters[model, str(folder)]
                starts[start, model, dataset, seed] = replace(adapted, start=title)
    return starts


def _adapted(model: ModelSource, folder: Path, experiment: Experiment) -> ModelSource:
    """The model with the adapter of a folder. Raises Problem if the experiment cannot train it."""
    try:
        adapted = with_adapter(model, folder)
    except UserError as error:
        raise Problem("invalid-start", str(error), "start") from error
    _check_lora(folder, experiment.full_lora(model.target_modules))
    _check_uses(folder, experiment)
    return adapted


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
    if folder.final_adapter() is None:
        raise Problem(
            "unsound-start",
            f"the adapter in {folder.place} does not match its hashes: run decile run with -e "
            f"{start.from_} again",
            "start",
            "from",
        )
    return store.local_path(folder.place, FINAL_ADAPTER)


def _check_lora(folder: Path, lora: Mapping[str, Any]) -> None:
    """Raise Problem unless the adapter has the LoRA settings of the experiment.

    Training continues with the adapter's own settings. Names of target modules are compared if both
    list them; otherwise `all-linear` or an expression stands for them.
    """
    own = adapter_settings(folder)
    given = {name: value for name, value in own.items() if value and name not in UNSET}
    for name, value in {**dict.fromkeys(given), **lora}.items():
        stored = own.get(name)
        if name == "target_modules" and not (isinstance(value, list) and isinstance(stored, list)):
            continue
        both = [sorted(map(str, v)) if isinstance(v, list) else v for v in (value, stored)]
        if both[0] != both[1]:
            raise Problem(
                "start-with-other-lora",
                f"{name} is {as_yaml(value)}, but the adapter in {folder} has {as_yaml(stored)}, "
                f"with which it is trained further: write {name}: {as_yaml(stored)}",
                "lora",
                name,
            )


def _check_uses(folder: Path, experiment: Experiment) -> None:
    """Raise Problem if TRL or an engine would use the adapter differently."""
    own = adapter_settings(folder)
    if changes_base(own):
        initial = own["init_lora_weights"]
        message = (
            f"an adapter with init_lora_weights: {initial} changes the weights of the base model"
        )
        raise Problem("start-changes-base", f"{message}: write a start without", "start")
    if own.get("bias", "none") != "none" and experiment.full_grpo()["beta"]:
        message = (
            f"TRL has no reference model for an adapter with bias: {own['bias']}: write beta: 0"
        )
        raise Problem("start-with-bias", message, "grpo", "beta")
    for block, settings in experiment.sampled.items():
        engine = settings.engine or "transformers"
        most, rank = largest_rank(engine), adapter_rank(folder)
        setting = unsupported_lora(engine, own)
        if setting or (most and rank > most):
            what = setting or f"rank {rank}"
            message = f"engine {engine} does not apply {what} of the adapter in {folder}: "
            raise Problem("start-on-engine", f"{message}write transformers", block, "engine")
