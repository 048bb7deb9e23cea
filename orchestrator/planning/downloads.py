"""The models and data sets that an experiment reads from the hub at pinned commits."""

import shlex
from collections.abc import Iterable, Mapping

from orchestrator.config.catalog import LoadedConfig
from orchestrator.sampling.model import ModelSource
from tasks import Task
from tasks.hub import Repository, cached_folder, not_cached, unreachable
from tasks.sources import ReadTask


def repositories(
    models: Iterable[ModelSource], tasks: Mapping[str, Task]
) -> dict[Repository, list[str]]:
    """The repositories that models, and tasks by their dataset, are read from.

    Each with the names in the file that need it. What the code of a user's own task downloads is
    not known.
    """
    names: dict[Repository, dict[str, None]] = {}
    for model in models:
        if model.revision is not None:
            repository = Repository("model", model.location, model.revision)
            names.setdefault(repository, {})[model.name] = None
    for name, task in tasks.items():
        for repository in task.downloads if isinstance(task, ReadTask) else []:
            names.setdefault(repository, {})[name] = None
    return {repository: list(users) for repository, users in names.items()}


def check_models(loaded: LoadedConfig, experiment: str, models: Iterable[ModelSource]) -> None:
    """Raise UserError at the line of the first model that is neither cached nor reachable."""
    absent = [
        (repository, names)
        for repository, names in repositories(models, {}).items()
        if cached_folder(repository) is None
    ]
    if absent and (reason := unreachable()):
        repository, names = absent[0]
        message = f"{not_cached(repository, reason)}: {fetch_advice(loaded, experiment)}"
        raise loaded.error(message, "models", names[0])


def fetch_advice(loaded: LoadedConfig, experiment: str) -> str:
    """What to do where files are missing and the hub cannot be reached."""
    return f"run {fetch_command(loaded, experiment)} on a machine with internet access"


def fetch_command(loaded: LoadedConfig, experiment: str) -> str:
    """The command that downloads what an experiment reads."""
    return shlex.join(["decile", "fetch", str(loaded.file), "-e", experiment])
