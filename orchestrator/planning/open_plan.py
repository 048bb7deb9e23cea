"""A file's experiment and its storage, as every command and the Python API open them."""

import os
from pathlib import Path

from cluster.session import in_ray_job
from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store


def open_plan(
    file: str | Path, experiment: str | None, storage: str | Path | None
) -> tuple[Plan, Store]:
    """The plan of an experiment, and its storage: the file's unless another one is given.

    Without a name, it is the only experiment of the file.

    Raises UserError for every invalid input.
    """
    source = load_config(file)
    plan = make_plan(source, source.only_experiment(experiment))
    own = source.config.storage
    relative = "://" not in own and not Path(own).expanduser().is_absolute()
    if relative and in_ray_job():  # the job's working directory is deleted when it ends
        own = str(Path.home() / "decile" / os.path.relpath(own, source.file.parent))
    return plan, Store(storage or own)


def check_trainable(plan: Plan) -> None:
    """Raise UserError where a model is a recording, or a data set lacks gold answers."""
    for model in {cell.probe.model.name for cell in plan.cells if cell.probe.model.recorded}:
        raise UserError(
            f"model {model} is recorded, so it cannot be trained: "
            "run decile probe instead, or remove it from the grid"
        )
    for title, reason in plan.lacking_golds.items():
        raise UserError(f"dataset {title} can only be probed: {reason}", "missing-gold-answers")
