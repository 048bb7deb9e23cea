"""Second pass of planning: the prompts of the datasets.

Models and data sets of the hub are read at pinned commits; what is missing on this machine is named
with the command that fetches it.
"""

import shlex
from collections.abc import Iterable, Mapping

from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import Experiment
from orchestrator.config.problems import Problem
from orchestrator.planning.checks import (
    check_difficulty_files,
    check_pool,
    check_recordings,
    check_subsets,
)
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.planning.resolve import Resolved
from orchestrator.sampling.model import ModelSource
from tasks import Task, TaskError
from tasks.sources.hub import NotCached, Repository, cached_folder, not_cached, unreachable
from tasks.sources.source import ReadTask


def repositories(
    models: Iterable[ModelSource], tasks: Mapping[str, Task]
) -> dict[Repository, list[str]]:
    """The repositories that models, and tasks by their dataset, are read from.

    Each with the names in the file that need it. What the code of a user's own task downloads is
    not known.
    """
    names: dict[Repository, dict[str, None]] = {}
    for model in models:
        if model.repository:
            names.setdefault(model.repository, {})[model.name] = None
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
        raise loaded.error(Problem("not-downloaded", message, "models", names[0]))


def fetch_advice(loaded: LoadedConfig, experiment: str) -> str:
    """What to do where files are missing and the hub cannot be reached."""
    return f"run {fetch_command(loaded, experiment)} on a machine with internet access"


def fetch_command(loaded: LoadedConfig, experiment: str) -> str:
    """The command that downloads what an experiment reads."""
    return shlex.join(["decile", "fetch", str(loaded.file), "-e", experiment])


def load_pools(
    loaded: LoadedConfig, name: str, experiment: Experiment, resolved: Resolved, *, trains: bool
) -> dict[str, Pool]:
    """The pool of every dataset by name. Raises Problem where one cannot be read or used.

    trains: pools are trained on and tested, too.
    """
    pools: dict[str, Pool] = {}
    for dataset_name, dataset in {**resolved.datasets, **resolved.test_sets}.items():
        try:
            pool = pools[dataset_name] = load_pool(dataset)
        except NotCached as error:
            message = f"{error}; {fetch_advice(loaded, name)}"
            raise Problem("not-downloaded", message, "datasets", dataset_name) from error
        except TaskError as error:
            raise Problem("invalid-dataset", str(error), "datasets", dataset_name) from error
        check_pool(pool, training=dataset_name in resolved.datasets, tested=trains)
        if trains and dataset_name in resolved.datasets:
            check_subsets(name, experiment, resolved, pool)
    check_recordings(experiment, resolved, pools)
    check_difficulty_files(name, experiment, resolved, pools)
    return pools
