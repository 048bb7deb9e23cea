"""experiments.yaml -> validated settings, with the line of each. Imports no heavy library."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from orchestrator.config import library_settings as settings
from orchestrator.config.corrections import first_problem
from orchestrator.config.experiment import Experiment, path_of
from orchestrator.config.problems import Problem
from orchestrator.config.references import check_references
from orchestrator.config.schema import Config
from orchestrator.config.vllm_rollouts import vllm_warnings
from orchestrator.config.wording import one_of, shown
from orchestrator.config.yaml_lines import YamlPath, line_of, load
from orchestrator.plugins.counts import counted
from orchestrator.storage.addresses import scheme_of
from orchestrator.storage.errors import UserError, shortened
from tasks.sources.named_files import path_below
from tasks.sources.user_files import exists


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

    @contextmanager
    def located(self) -> Iterator[None]:
        """Turn a Problem into a UserError at its file and line."""
        try:
            yield
        except Problem as problem:
            raise self.error(problem) from problem

    def error(self, problem: Problem) -> UserError:
        """A UserError at the file and line of a problem.

        For a setting that is an axis, this is the line of the problem's value on that axis.
        """
        path: YamlPath = problem.path
        if len(path) > 2 and path[0] == "experiments":
            _, name, *setting = path
            swept = self.config.experiments[str(name)].grid.setting_axes
            axis = next((a for a in swept if (*setting,)[: len(path_of(a))] == path_of(a)), None)
            if axis is not None:
                below_axis = setting[len(path_of(axis)) :]
                value = [swept[axis].index(problem.axes[axis])] if axis in problem.axes else []
                path = ("experiments", name, "grid", axis, *value, *(below_axis if value else []))
        return _error_at(self.file, self._lines, path, problem)

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name. Raises UserError, which lists the existing ones."""
        if name not in self.config.experiments:
            known = one_of([*self.config.experiments], name)
            raise UserError(f"{self.file}: no experiment {name!r}: write -e with {known}")
        return self.config.experiments[name]

    def only_experiment(self, name: str | None) -> str:
        """The name, or the only experiment's for None. Raises UserError if there are several."""
        names = [*self.config.experiments]
        if name is None and len(names) != 1:
            known = ", ".join(names)
            raise UserError(f"{self.file} has several experiments: write -e with one of {known}")
        return name or names[0]

    def warnings(self, name: str) -> list[str]:
        """Valid settings that are probably mistakes, each with its line.

        Includes paths that are not relative to the file.
        """
        notes = [
            f"note: {self.error(Problem('path-in-current-folder', text, *path))}"
            for path, text in self._notes.items()
        ]
        for axes, variant in self.experiment(name).variants:
            unusual = [
                Problem("unusual-value", text, "experiments", name, "grpo", setting, axes=axes)
                for setting, value in variant.grpo.items()
                if (text := settings.unusual(setting, value))
            ]
            unusual += [
                Problem("vllm-rollouts", text, "experiments", name, "grpo", setting, axes=axes)
                for setting, text in vllm_warnings(variant.grpo).items()
            ]
            unusual += _missing_packages(name, variant, axes)
            every, updates = variant.evaluate.every, variant.grpo_settings.max_steps
            if every > updates:
                text = (
                    f"every is {every}, but there are {counted(updates, 'update')}: only "
                    "the base model and the last update are evaluated"
                )
                path = ("experiments", name, "evaluate", "every")
                unusual.append(Problem("never-evaluated", text, *path, axes=axes))
            unusual += _misleading_noise(name, variant, axes)
            notes += [f"warning: {self.error(problem)}" for problem in unusual]
        return list(dict.fromkeys(notes))

    def check_packages(self, name: str) -> None:
        """Raise UserError if trials need a package that is not installed here.

        `plan` only warns, so that a file for a cluster can be checked on a different machine.
        """
        for axes, variant in self.experiment(name).variants:
            for problem in _missing_packages(name, variant, axes):
                raise self.error(problem)


def _missing_packages(name: str, variant: Experiment, axes: Mapping[str, Any]) -> list[Problem]:
    """The GRPO settings that need packages which are not installed here."""
    problems = []
    for setting, package in settings.missing_packages(variant.grpo).items():
        text = (
            f"{shown(variant.grpo[setting])} needs a package that is not installed here: "
            f"pip install '{package}', or leave {setting} out"
        )
        path = ("experiments", name, "grpo", setting)
        problems.append(Problem("package-not-installed", text, *path, axes=axes))
    return problems


def _misleading_noise(name: str, variant: Experiment, axes: Mapping[str, Any]) -> list[Problem]:
    """Verifier error rates with which correct completions are rewarded no more than wrong ones."""
    rates = variant.false_positive_rate, variant.false_negative_rate
    if sum(rates) < 1:
        return []
    text = (
        "with false_positive_rate {:g} and false_negative_rate {:g}, correct completions are "
        "rewarded no more often than wrong ones: write rates with a sum below 1"
    )
    path = ("experiments", name, "false_positive_rate")
    return [Problem("misleading-noise", text.format(*rates), *path, axes=axes)]


def load_config(file: str | Path, folder: Path | None = None) -> LoadedConfig:
    """Read and validate a file of experiments. Raises UserError for the first mistake.

    Relative paths in it are relative to `folder`, by default the file's.
    """
    file = Path(file)
    content, lines = load(file)
    notes = resolve_paths(content, file.parent if folder is None else folder)
    return validated(file, content, lines, notes)


def validated(
    file: Path,
    content: Any,
    lines: dict[YamlPath, int],
    notes: Mapping[YamlPath, str] = MappingProxyType({}),
) -> LoadedConfig:
    """Validate the content of a file; `lines` is empty for content without a file.

    Raises UserError for the first mistake.
    """
    if not isinstance(content, dict):
        raise UserError(f"{file}:1: not a mapping: write storage, models and experiments")
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        problem = first_problem(error, Config)
        raise _error_at(file, lines, problem.path, problem) from error
    loaded = LoadedConfig(file, config, lines, notes)
    with loaded.located():
        check_references(config)
    return loaded


# Options of Decile's own tasks that may be paths.
PATH_OPTIONS = ("path", "train", "test", "math500_path")


def resolve_paths(content: Any, folder: Path) -> dict[YamlPath, str]:
    """Make relative paths relative to the folder, in place, before anything is validated.

    A path that exists only in the current folder is kept; the result has a note at its place.
    """
    notes: dict[YamlPath, str] = {}
    if not isinstance(content, dict):
        return notes

    def visit(block: Any, path: YamlPath, *names: str) -> None:
        for name in names if isinstance(block, dict) else ():
            value = block.get(name)
            if isinstance(value, list):
                block[name] = [resolved(text, (*path, name, i)) for i, text in enumerate(value)]
            elif isinstance(value, str):
                block[name] = resolved(value, (*path, name))

    def resolved(text: Any, path: YamlPath) -> Any:
        if not isinstance(text, str) or not text or "\0" in text or scheme_of(text):
            return text
        if text.startswith("~") or Path(text) == folder / text:  # absolute, or the folder is .
            return text
        own = path_below(folder, text) if path[0] == "datasets" else str(folder / text)
        if exists(text) and not exists(own):
            notes[path] = (
                f"paths are relative to this file, but {shortened(text)} exists in the current "
                "folder only, where it is read from: move it, or write its absolute path"
            )
            return text
        return own

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
        visit(dataset, ("datasets", name), "without", "corrections", "labels", "benchmarks")
        if ":" not in str(dataset.get("task")):
            visit(dataset.get("options"), ("datasets", name, "options"), *PATH_OPTIONS)
    for block in ("policies", "experiments"):
        for name, entry in entries(block):
            visit(entry.get("difficulty"), (block, name, "difficulty"), "file")
            visit(entry.get("start"), (block, name, "start"), "adapter")
            grid = entry.get("grid") if block == "experiments" else None
            values = grid.get("difficulty") if isinstance(grid, dict) else None
            for i, value in enumerate(values if isinstance(values, list) else ()):
                visit(value, (block, name, "grid", "difficulty", i), "file")
    return notes


def _error_at(
    file: Path, lines: dict[YamlPath, int], path: YamlPath, problem: Problem
) -> UserError:
    where = f"{file}:{line_of(path, lines)}" if lines else str(file)
    path = path if lines else path[2:]  # without the blocks that nobody wrote, and their names
    place = ".".join(shortened(str(part))[1:-1] for part in path)
    return UserError(": ".join(filter(None, [where, place, str(problem)])), problem.code)
