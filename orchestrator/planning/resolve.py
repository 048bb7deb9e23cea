"""First pass of planning: the names in an experiment -> datasets, models and policies."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.entries import DatasetEntry, ModelEntry
from orchestrator.config.experiment import Experiment
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.config.problems import Problem
from orchestrator.config.schema import Config
from orchestrator.config.wording import one_of
from orchestrator.embedded import IN_WHEELS, embedded_path
from orchestrator.planning.flaws import Cleaning
from orchestrator.planning.pools import Dataset
from orchestrator.sampling.gguf_models import converted_model, wheel_model
from orchestrator.sampling.model import ModelSource, check_hub_id
from orchestrator.storage.errors import shortened
from orchestrator.storage.identity import file_identity, folder_identity
from tasks import TaskError, task_names
from tasks.sources.user_files import regular


@dataclass(frozen=True)
class Resolved:
    """The objects that the names in an experiment refer to."""

    datasets: dict[str, Dataset]  # of the grid
    test_sets: dict[str, Dataset]  # used for out-of-distribution evaluation only
    models: Mapping[str, ModelSource]  # of the grid, and models that policies rank by
    policies: Mapping[str, PolicyEntry]


def resolve(config: Config, experiment: Experiment) -> Resolved:
    """Look up every name. Raises Problem if a model cannot be found."""
    grid = experiment.grid
    policies = {name: config.policy(name) for name in grid.policy}
    models = dict.fromkeys(grid.model)
    for _, variant in experiment.variants:
        for policy in policies.values():
            difficulty = variant.difficulty_of(policy)
            if difficulty and difficulty.model:
                models[difficulty.model] = None
    others = [name for name in experiment.ood_sets if name not in grid.dataset]
    return Resolved(
        datasets={name: _dataset(config, experiment, name, training=True) for name in grid.dataset},
        test_sets={name: _dataset(config, experiment, name, training=False) for name in others},
        models={name: model_source(config, name) for name in models},
        policies=policies,
    )


def trained_on(dataset: Dataset, experiment: Experiment) -> Dataset:
    """The data set that an experiment trains on, with its label noise."""
    seed = experiment.label_noise_seed if experiment.label_noise else 0
    return replace(dataset, label_noise=experiment.label_noise, label_noise_seed=seed)


def datasets_of(loaded: LoadedConfig, name: str | None = None) -> dict[str, Dataset]:
    """The datasets in the grids of one experiment or of all, by "experiment/dataset".

    A dataset that several experiments use with the same settings is listed once.
    """
    experiments = {name: loaded.experiment(name)} if name else loaded.config.experiments
    datasets: dict[str, Dataset] = {}
    for experiment_name, experiment in experiments.items():
        for dataset_name in experiment.grid.dataset:
            dataset = _dataset(loaded.config, experiment, dataset_name, training=True)
            if dataset not in datasets.values():
                datasets[f"{experiment_name}/{dataset_name}"] = dataset
    return datasets


def _dataset(config: Config, experiment: Experiment, name: str, *, training: bool) -> Dataset:
    """A dataset; overlap with test sets matters only if its training prompts are used."""
    entry = config.dataset(name)
    drop_overlap = training and entry.drop_overlap
    others = [other for other in experiment.ood_sets if drop_overlap and other != name]
    cleaning = Cleaning()
    if training or entry.clean_test:
        limit = entry.max_prompt_tokens
        # A limit in tokens applies to each model of the grid.
        models = experiment.grid.model if limit else []
        sources = tuple(model_source(config, model) for model in models)
        cleaning = Cleaning(limit, entry.duplicates, entry.conflicts, sources, entry.clean_test)
    return Dataset(
        name,
        entry.task,
        _options(config, name, entry),
        experiment.marking,
        entry.prompt,
        experiment.max_marking_errors,
        drop_overlap,
        tuple(_dataset(config, experiment, other, training=False) for other in others),
        without=entry.without if training else "",
        cleaning=cleaning,
        corrections=entry.corrections,
        labels=tuple(entry.labels),
        benchmarks=tuple(entry.benchmarks) if training else (),
    )


def _options(config: Config, name: str, entry: DatasetEntry) -> dict[str, Any]:
    """The options of a task; for a mix, with the data sets that its parts name."""
    parts = entry.options.get("parts")
    if entry.task != "mix" or not isinstance(parts, Mapping | list):
        return entry.options
    amounts = parts if isinstance(parts, Mapping) else dict.fromkeys(map(str, parts))
    place = ("datasets", name, "options", "parts")
    if len(amounts) < len(parts):
        message = f"a data set is named twice in {parts!r:.80}: write it once"
        raise Problem("repeated-part", message, *place)
    specs: dict[str, Any] = {}
    for index, (part, amount) in enumerate(amounts.items()):
        try:
            own = config.dataset(part)
        except TaskError as error:
            message = f"{part!r:.80}: {error}"
            if ":" not in part:  # not a user's class that cannot be imported
                known = [*config.datasets, *task_names()]
                known.remove(name)
                message = f"unknown data set {shortened(part)}: write {one_of(known, part)}"
            at = part if isinstance(parts, Mapping) else index
            raise Problem("unknown-part", message, *place, at) from error
        for setting, value in own.model_dump(exclude_defaults=True).items():
            if setting not in ("task", "options", "prompt"):
                message = f"{value} is ignored in the mix {name}: write {setting} there"
                raise Problem("setting-of-a-part", message, "datasets", part, setting)
        specs[part] = {"task": own.task, "options": own.options, "prompt": own.prompt}
        specs[part]["amount"] = amount
    return {**entry.options, "parts": specs}


def model_source(config: Config, name: str) -> ModelSource:
    """A model of the file. Raises Problem if it cannot be found."""
    try:
        return source_of(name, config.models[name])
    except (OSError, ValueError) as error:
        raise Problem("model-not-found", str(error), "models", name) from error


def source_of(name: str, entry: ModelEntry) -> ModelSource:
    """The model of an entry. Raises OSError or ValueError if it cannot be found."""
    location, identity = _locate(entry)
    return ModelSource(
        name,
        location,
        identity,
        entry.revision,
        entry.dtype,
        entry.chat_template_kwargs,
        entry.recorded is not None,
        entry.attn_implementation,
        entry.load_in_4bit,
        entry.target_modules,
    )


def _locate(entry: ModelEntry) -> tuple[str, str]:
    """A model's location, and the identity of its content."""
    if entry.recorded:
        file = Path(entry.recorded).expanduser().resolve()
        if not file.exists():
            raise ValueError(f"recorded {file} does not exist: write a .parquet or .jsonl file")
        return regular(file), file_identity(file)
    if entry.hub:
        check_hub_id(entry.hub)
        return entry.hub, f"{entry.hub}@{entry.revision}"
    if entry.gguf or entry.embedded in IN_WHEELS:
        if entry.gguf:
            model = converted_model(Path(entry.gguf).expanduser().resolve())
        else:
            model = wheel_model(str(entry.embedded))
        return str(model.folder), model.identity
    folder = Path(str(entry.path)).expanduser()
    if entry.embedded:
        folder = embedded_path(entry.embedded)
    if not (folder / "config.json").is_file():
        raise ValueError(f"path {folder} has no config.json: write a folder in the Hub's layout")
    return str(folder.resolve()), folder_identity(folder)
