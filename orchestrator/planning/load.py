"""Second pass of planning: the prompts of the datasets.

Models and data sets of the Hub are read at pinned commits. Errors about missing files contain the
command that downloads them.
"""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.config.experiment import Experiment
from orchestrator.config.problems import Problem
from orchestrator.planning.pools import Dataset, Pool, load_pool, with_label_noise
from orchestrator.planning.resolve import trained_on
from orchestrator.sampling.model import ModelSource
from tasks import Task, TaskError
from tasks.mix import PartError
from tasks.sources.hub import NotCached, Repository, cached_folder, not_cached, unreachable
from tasks.sources.source import ReadTask


def repositories(
    models: Iterable[ModelSource], tasks: Mapping[str, Task]
) -> dict[Repository, list[str]]:
    """The repositories that models, and tasks by their dataset, are read from.

    Each with the names in the file that need it. Downloads by a user's own task are unknown.
    """
    names: dict[Repository, dict[str, None]] = {}
    for model in models:
        if model.repository:
            names.setdefault(model.repository, {})[model.name] = None
    for name, task in tasks.items():
        for repository in task.downloads if isinstance(task, ReadTask) else []:
            names.setdefault(repository, {})[name] = None
    return {repository: list(users) for repository, users in names.items()}


def check_models(models: Iterable[ModelSource], fetch: str) -> None:
    """Raise Problem for the first model that is neither cached nor reachable.

    fetch: the command that downloads it.
    """
    absent = [
        (repository, names)
        for repository, names in repositories(models, {}).items()
        if cached_folder(repository) is None
    ]
    if absent and (reason := unreachable()):
        repository, names = absent[0]
        message = f"{not_cached(repository, reason)}: {fetch_advice(fetch)}"
        raise Problem("not-downloaded", message, "models", names[0])


def fetch_advice(fetch: str) -> str:
    """What to do if files are missing and the Hub cannot be reached."""
    return f"run {fetch} on a machine with internet access"


def fetch_command(file: Path, experiment: str) -> str:
    """The command that downloads what an experiment reads."""
    return shlex.join(["decile", "fetch", str(file), "-e", experiment])


def load_pools(datasets: Mapping[str, Dataset], fetch: str) -> dict[str, Pool]:
    """The pool of every data set by name. Raises Problem if one cannot be read.

    fetch: the command that downloads data sets of the Hub.
    """
    pools: dict[str, Pool] = {}
    for name, dataset in datasets.items():
        try:
            pools[name] = load_pool(dataset)
        except NotCached as error:
            message = f"{error}; {fetch_advice(fetch)}"
            raise Problem("not-downloaded", message, "datasets", name) from error
        except PartError as error:  # a data set of the file, or a task with default options
            raise Problem("invalid-dataset", str(error), "datasets", error.part) from error
        except TaskError as error:
            raise Problem("invalid-dataset", str(error), "datasets", name) from error
    return pools


def noisy_pools(experiment: Experiment, pools: Mapping[str, Pool]) -> dict[str, Pool]:
    """The pools with label noise that an experiment trains on, by `variant_key`."""
    noisy: dict[str, Pool] = {}
    for axes, variant in experiment.variants:
        for name in variant.grid.dataset:
            key = trained_on(pools[name].dataset, variant).variant_key
            if key in pools or key in noisy:
                continue
            try:
                noisy[key] = with_label_noise(
                    pools[name], variant.label_noise, variant.label_noise_seed
                )
            except TaskError as error:
                message = f"{error} (dataset {name})"
                raise Problem("no-label-noise", message, "label_noise", axes=axes) from error
    return noisy
