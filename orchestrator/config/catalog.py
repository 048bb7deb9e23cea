"""experiments.yaml -> validated settings. Imports neither torch, ray nor mlflow.

Every model forbids unknown keys, and every message says what is wrong and what to write instead;
`load_config` adds file and line.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from orchestrator.config import library_settings as settings
from orchestrator.config.claims import ClaimError, resolved_claim
from orchestrator.config.corrections import correction, one_of
from orchestrator.config.entries import (
    DatasetEntry,
    ModelEntry,
    PolicyEntry,
    Settings,
    build_allocation,
    build_online_policy,
    setting_error,
)
from orchestrator.config.experiment import Experiment, path_of
from orchestrator.config.yaml_lines import YamlPath, line_of, load
from orchestrator.plugins.counts import counted
from orchestrator.storage.errors import UserError, shortened
from policies import (
    Groups,
    PolicyError,
    discards,
    more_of,
    policy_parts,
    times_of,
)
from tasks import TaskError, find_task


def online_problem(name: str, entry: PolicyEntry, experiment: Experiment) -> str | None:
    """Why a policy cannot choose prompts under these settings and what to write; None if it can."""
    online = entry.parts[1]
    if online is None:
        return None
    grpo, workers = experiment.full_grpo(), experiment.resources.workers
    if experiment.batch.updates_per_generation != 1:
        return (
            f"policy {name!r} chooses the prompts of every update, which needs a generation per "
            "update: leave out grpo.steps_per_generation, grpo.generation_batch_size and "
            "grpo.num_iterations"
        )
    if not discards(build_online_policy(online)):
        return None
    if by_trl := settings.why_trl_draws(grpo, experiment.rollouts, experiment.probe.stop):
        return (
            f"policy {name!r} discards rollouts, which needs those of Decile's decoder: "
            f"leave out {by_trl}"
        )
    if grpo["num_generations"] % workers:
        return (
            f"policy {name!r} shares every group among the workers: write a "
            f"grpo.num_generations that is a multiple of resources.workers ({workers})"
        )
    return None


def allocation_problem(name: str, entry: PolicyEntry, experiment: Experiment) -> str | None:
    """Why an update's completions cannot be divided under these settings and what to write instead.

    None if they can. `name` and `entry` are a policy of the grid.
    """
    if (rule := experiment.allocation_entry) is None:
        return None
    grpo, batch, allocation = experiment.full_grpo(), experiment.batch, build_allocation(rule)
    needs = f"allocation {rule.rule!r} needs"
    if batch.workers > 1:
        return f"{needs} one worker: write resources: {{workers: 1}}, or allocation: uniform"
    if by_trl := settings.why_trl_draws(grpo, experiment.rollouts, experiment.probe.stop):
        return f"{needs} rollouts of Decile's decoder: leave out {by_trl}"
    if batch.updates_per_generation != 1:
        return (
            f"{needs} a generation per update: leave out grpo.steps_per_generation, "
            "grpo.generation_batch_size and grpo.num_iterations"
        )
    if grpo.get("multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return f"{needs} grpo.multi_objective_aggregation: sum_then_normalize, or leave it out"
    online = entry.parts[1]
    if online and discards(build_online_policy(online)):
        return (
            f"policy {name!r} discards groups, and allocation {rule.rule!r} divides those of an "
            "update: write one of the two"
        )
    rates = np.resize([np.nan, 0.0, 0.5, 1.0], batch.prompts_per_update)
    none, left = np.zeros(len(rates), np.int64), batch.completions * times_of(allocation)
    groups = Groups(np.nan_to_num(rates, nan=0.5), rates, none, none, left, batch.group_size)
    try:
        more_of(allocation, rule.rule, groups)
    except PolicyError as error:
        return str(error)
    return None


# Names become file names in the storage, and stand in claims, metrics and figures.
_NAME = re.compile(r"(?!.*\.\.)\w[\w.+-]{0,79}")


class Config(Settings):
    """experiments.yaml: a catalogue of named sweeps."""

    storage: str = "./runs"
    """Where results are stored: a folder, or a URI that pyarrow supports (s3://…, gs://…)."""
    models: dict[str, ModelEntry] = Field(min_length=1)
    """Base models by name."""
    datasets: dict[str, DatasetEntry] = Field(default_factory=dict)
    """Tasks with options, by name; a task with default options needs no entry."""
    policies: dict[str, PolicyEntry] = Field(default_factory=dict)
    """Policies with options, by name; a policy with default options needs no entry."""
    experiments: dict[str, Experiment] = Field(min_length=1)
    """Sweeps by name."""

    @field_validator("models", "datasets", "policies", "experiments")
    @classmethod
    def _valid_names(cls, entries: dict[str, Any]) -> dict[str, Any]:
        for name in entries:
            if not _NAME.fullmatch(name):
                raise setting_error(
                    f"{shortened(name)} is not a valid name: write at most 80 characters, letters, "
                    "digits and . _ - +, with no leading sign and no ..",
                    name,
                )
        return entries

    @model_validator(mode="after")
    def _references(self) -> Self:
        for name, experiment in self.experiments.items():
            grid, path = experiment.grid, ("experiments", name)
            for index, model in enumerate(grid.model):
                for _, variant in experiment.variants:
                    self._check_model(model, variant, (*path, "grid", "model", index))
            for index, dataset in enumerate(grid.dataset):
                self._check_dataset(dataset, (*path, "grid", "dataset", index))
            for index, policy in enumerate(grid.policy):
                place = (*path, "grid", "policy", index)
                try:
                    entry = self.policy(policy)
                except PolicyError as error:
                    raise setting_error(str(error), *place) from error
                for _, variant in experiment.variants:
                    if problem := online_problem(policy, entry, variant):
                        raise setting_error(problem, *place)
                for axes, variant in experiment.variants:
                    if problem := allocation_problem(policy, entry, variant):
                        swept = grid.swept.get("allocation")
                        at = (
                            ("grid", "allocation", swept.index(axes["allocation"]))
                            if swept
                            else ("allocation",)
                        )
                        raise setting_error(problem, *path, *at)
            for index, claim in enumerate(experiment.claims):
                try:
                    resolved_claim(claim, experiment)
                except ClaimError as error:
                    raise setting_error(str(error), *path, "claims", index) from error
            for axes, variant in experiment.variants:
                ood: YamlPath = ("evaluate", "ood")
                if swept := grid.swept.get("evaluate.ood"):
                    ood = ("grid", "evaluate.ood", swept.index(axes["evaluate.ood"]))
                for index, dataset in enumerate(variant.evaluate.ood):
                    self._check_dataset(dataset, (*path, *ood, index))
        return self

    def _check_model(self, model: str, experiment: Experiment, path: YamlPath) -> None:
        if model not in self.models:
            raise setting_error(
                f"unknown model {shortened(model)}: write {one_of([*self.models], model)}",
                *path,
            )
        for block in ("probe", "evaluate"):
            engine_args = getattr(experiment, block).engine_args
            if self.models[model].load_in_4bit and "quantization" in engine_args:
                raise setting_error(
                    f"model {model!r} is loaded in 4 bits: remove "
                    f"{block}.engine_args.quantization, or remove load_in_4bit",
                    *path,
                )

    def _check_dataset(self, name: str, path: YamlPath) -> None:
        try:
            self.dataset(name)
        except TaskError as error:
            raise setting_error(str(error), *path) from error

    def policy(self, name: str) -> PolicyEntry:
        """The entry of that name, or the policy of that name with default options.

        Raises PolicyError.
        """
        if name in self.policies:
            return self.policies[name]
        try:
            policy_parts(name, {})
        except PolicyError as error:
            if self.policies:
                raise PolicyError(f"{error} (policies: {', '.join(self.policies)})") from error
            raise
        return PolicyEntry(policy=name)

    def dataset(self, name: str) -> DatasetEntry:
        """The entry of that name, or the task of that name with default options.

        Raises TaskError.
        """
        if name not in self.datasets:
            find_task(name)
            return DatasetEntry(task=name)
        return self.datasets[name]


class LoadedConfig:
    """A validated file: its settings, and the line of each of them."""

    def __init__(
        self,
        file: Path,
        config: Config,
        lines: dict[YamlPath, int],
        notes: Mapping[YamlPath, str] = MappingProxyType({}),
    ) -> None:
        self.file, self.config, self._lines, self._notes = file, config, lines, notes

    def error(
        self, message: str, *path: str | int, axes: Mapping[str, Any] = MappingProxyType({})
    ) -> UserError:
        """A UserError at the file and line of `path`.

        A setting that is an axis is at its axis, and at the value that the cell has in `axes`.
        """
        if len(path) > 2 and path[0] == "experiments":
            _, name, *setting = path
            swept = self.config.experiments[str(name)].grid.swept
            if axis := next((a for a in swept if (*setting,)[: len(path_of(a))] == path_of(a)), ""):
                value = [swept[axis].index(axes[axis])] if axis in axes else []
                path = ("experiments", name, "grid", axis, *value)
        return _error_at(self.file, self._lines, path, message)

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name. Raises UserError, which lists the existing ones."""
        if name not in self.config.experiments:
            known = ", ".join(self.config.experiments)
            raise UserError(f"{self.file}: no experiment {name!r}: write -e with one of {known}")
        return self.config.experiments[name]

    def only_experiment(self, name: str | None) -> str:
        """The name; None: that of the only experiment. Raises UserError where there are others."""
        names = [*self.config.experiments]
        if name is None and len(names) != 1:
            known = ", ".join(names)
            raise UserError(f"{self.file} has several experiments: write -e with one of {known}")
        return name or names[0]

    def warnings(self, name: str) -> list[str]:
        """Valid settings that are probably mistakes, each with its line.

        Those of an experiment, and paths that are not relative to the file.
        """
        notes = [f"note: {self.error(text, *path)}" for path, text in self._notes.items()]
        for axes, variant in self.experiment(name).variants:
            unusual = [
                (f"grpo.{setting}", text)
                for setting, value in variant.grpo.items()
                if (text := settings.unusual(setting, value))
            ]
            every, updates = variant.evaluate.every, variant.full_grpo()["max_steps"]
            if every > updates:
                text = (
                    f"every is {every}, but there are {counted(updates, 'update')}: only "
                    "the base model"
                )
                unusual.append(("evaluate.every", f"{text} and the last update are evaluated"))
            notes += [
                f"warning: {self.error(text, 'experiments', name, *setting.split('.'), axes=axes)}"
                for setting, text in unusual
            ]
        return list(dict.fromkeys(notes))


def load_config(file: str | Path, folder: Path | None = None) -> LoadedConfig:
    """Read and validate a file of experiments. Raises UserError for the first mistake.

    Relative paths in it are relative to `folder`, by default the file's.
    """
    file = Path(file)
    content, lines = load(file)
    notes = _resolve_paths(content, file.parent if folder is None else folder)
    return validated(file, content, lines, notes)


def validated(
    file: Path,
    content: Any,
    lines: dict[YamlPath, int],
    notes: Mapping[YamlPath, str] = MappingProxyType({}),
) -> LoadedConfig:
    """Validate what a file contains; `lines` are empty for one that was not written.

    Raises UserError for the first mistake.
    """
    if not isinstance(content, dict):
        raise UserError(f"{file}:1: not a mapping: write storage, models and experiments")
    try:
        return LoadedConfig(file, Config.model_validate(content), lines, notes)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = (*first["loc"], *first.get("ctx", {}).get("below", ()))
        message = first["msg"]
        if first["type"] != "decile":
            message = correction(json_schema(), path, first["type"], first["input"])
        raise _error_at(file, lines, path, message) from error


# Options of the tasks that ship with Decile which may be paths.
_PATH_OPTIONS = ("path", "train", "test", "math500_path")


def _resolve_paths(content: Any, folder: Path) -> dict[YamlPath, str]:
    """Make relative paths relative to the folder, in place, before anything is validated.

    One that exists in the current folder only is kept, with a note at its place in the file.
    """
    notes: dict[YamlPath, str] = {}
    if not isinstance(content, dict):
        return notes
    visited = set()  # an alias of YAML is the same mapping again

    def visit(block: Any, path: YamlPath, *names: str) -> None:
        for name in names if isinstance(block, dict) else ():
            text = block.get(name)
            if (id(block), name) in visited:
                continue
            visited.add((id(block), name))
            if not isinstance(text, str) or not text or "\0" in text or "://" in text:
                continue
            if text.startswith("~") or Path(text) == folder / text:  # absolute, or the folder is .
                continue
            if os.path.lexists(text) and not os.path.lexists(folder / text):
                notes[(*path, name)] = (
                    f"paths are relative to this file, but {shortened(text)} exists in the current "
                    "folder only, where it is read from: move it, or write its absolute path"
                )
            else:
                block[name] = str(folder / text)

    def entries(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        block = content.get(name)
        for key, entry in block.items() if isinstance(block, dict) else ():
            if isinstance(entry, dict):
                yield key, entry

    content.setdefault("storage", Config.model_fields["storage"].default)
    visit(content, (), "storage")
    for name, model in entries("models"):
        visit(model, ("models", name), "path", "gguf", "recorded")
    for name, dataset in entries("datasets"):
        visit(dataset, ("datasets", name), "without")
        if ":" not in str(dataset.get("task")):
            visit(dataset.get("options"), ("datasets", name, "options"), *_PATH_OPTIONS)
    return notes


def _error_at(file: Path, lines: dict[YamlPath, int], path: YamlPath, message: str) -> UserError:
    place = ".".join(shortened(str(part))[1:-1] for part in path)
    where = f"{file}:{line_of(path, lines)}" if lines else file
    return UserError(f"{where}: {place}: {message}")


def json_schema() -> dict[str, Any]:
    """The JSON schema of the file, with which editors complete and check it (kept in docs/)."""
    return Config.model_json_schema()
