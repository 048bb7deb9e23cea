"""experiments.yaml -> validated settings. Imports neither torch, ray nor mlflow.

Every model forbids unknown keys, and every message says what is wrong and what to write instead;
`load_config` adds file and line.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from orchestrator.config import library_settings as settings
from orchestrator.config.claims import ClaimError, parse_claim
from orchestrator.config.entries import DatasetEntry, ModelEntry, PolicyEntry, Settings, problem
from orchestrator.config.experiment import Experiment
from orchestrator.config.yaml_lines import Path_, line_of, load
from orchestrator.storage.errors import UserError
from policies import PolicyError, get_policy
from tasks import TaskError, find_task


class Config(Settings):
    """experiments.yaml: a catalogue of named sweeps."""

    storage: str = "./runs"
    """Where results are kept: a folder, or a URI that pyarrow knows."""
    models: dict[str, ModelEntry] = Field(min_length=1)
    """Base models by name."""
    datasets: dict[str, DatasetEntry] = Field(default_factory=dict)
    """Tasks with options, by name; a task's own name needs no entry."""
    policies: dict[str, PolicyEntry] = Field(default_factory=dict)
    """Policies with options, by name; a policy's own name needs no entry."""
    experiments: dict[str, Experiment] = Field(min_length=1)
    """Sweeps by name."""

    @model_validator(mode="after")
    def _grids_name_known_things(self) -> Self:
        for name, experiment in self.experiments.items():
            self._check_models(name, experiment)
            self._check(name, "dataset", experiment.grid.dataset, self.dataset)
            self._check(name, "policy", experiment.grid.policy, self.policy)
            self._check_claims(name, experiment)
            for index, dataset in enumerate(experiment.evaluate.ood):
                try:
                    self.dataset(dataset)
                except TaskError as error:
                    place = ("experiments", name, "evaluate", "ood", index)
                    raise problem(str(error), *place) from error
        return self

    def _check_models(self, name: str, experiment: Experiment) -> None:
        for index, model in enumerate(experiment.grid.model):
            place = ("experiments", name, "grid", "model", index)
            if model not in self.models:
                raise problem(
                    f"unknown model {model!r}{settings.suggest(model, self.models)} "
                    f"(models: {', '.join(self.models)})",
                    *place,
                )
            engines = {"probe": experiment.probe.engine, "evaluate": experiment.evaluate.engine}
            where = [block for block, engine in engines.items() if engine == "vllm"]
            if self.models[model].load_in_4bit and where:
                raise problem(
                    f"model {model!r} is in 4 bits, which transformers alone samples: "
                    f"write {where[0]}: {{engine: transformers}}, or leave load_in_4bit out",
                    *place,
                )

    def _check(
        self, experiment: str, axis: str, names: list[str], find: Callable[[str], object]
    ) -> None:
        for index, name in enumerate(names):
            try:
                find(name)
            except (TaskError, PolicyError) as error:
                place = ("experiments", experiment, "grid", axis, index)
                raise problem(str(error), *place) from error

    def _check_claims(self, name: str, experiment: Experiment) -> None:
        grid = experiment.grid
        for index, claim in enumerate(experiment.claims):
            try:
                parse_claim(claim, grid.policy, grid.dataset, grid.model)
            except ClaimError as error:
                place = ("experiments", name, "claims", index)
                raise problem(str(error), *place) from error

    def policy(self, name: str) -> PolicyEntry:
        """The policy of that name; one that is not in `policies` has no options."""
        if name in self.policies:
            return self.policies[name]
        try:
            get_policy(name)
        except PolicyError as error:
            if self.policies:
                raise PolicyError(f"{error} (policies: {', '.join(self.policies)})") from error
            raise
        return PolicyEntry(policy=name)

    def dataset(self, name: str) -> DatasetEntry:
        """The dataset of that name; a task's name means the task with its default options."""
        if name not in self.datasets:
            find_task(name)
            return DatasetEntry(task=name)
        return self.datasets[name]


class LoadedConfig:
    """A validated file: its settings, and where everything stands in it."""

    def __init__(self, file: Path, config: Config, lines: dict[Path_, int]) -> None:
        self.file, self.config, self._lines = file, config, lines

    def error(self, message: str, *path: str | int) -> UserError:
        """A UserError that names the line of `path`."""
        where = f"{self.file}:{line_of(path, self._lines)}"
        return UserError(f"{where}: {'.'.join(map(str, path))}: {message}")

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name, or a UserError that lists those there are."""
        if name not in self.config.experiments:
            known = ", ".join(self.config.experiments)
            raise UserError(f"{self.file}: no experiment {name!r}: write -e with one of {known}")
        return self.config.experiments[name]


def load_config(file: Path) -> LoadedConfig:
    """Read and validate a file of experiments; the first problem is raised as UserError."""
    content, lines = load(file)
    if not isinstance(content, dict):
        raise UserError(f"{file}:1: is not a mapping: write storage, models and experiments")
    try:
        return LoadedConfig(file, Config.model_validate(content), lines)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        context = first.get("ctx", {})
        path = (*first["loc"], *context.get("below", ()))
        where = f"{file}:{line_of(path, lines)}"
        message = f"{where}: {'.'.join(map(str, path))}: {_words(first['msg'], first['input'])}"
        raise UserError(message) from error


def _words(message: str, value: Any) -> str:
    """Pydantic's message, with what was written where that is short."""
    shown = "" if isinstance(value, dict | list) or repr(value) in message else f" (not {value!r})"
    plain = message[:1].lower() + message[1:]
    return plain if plain.startswith(("unknown", "budget")) else plain + shown


def json_schema() -> dict[str, Any]:
    """The JSON schema of the file, by which editors complete and check it (kept in docs/)."""
    return Config.model_json_schema()
