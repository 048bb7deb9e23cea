"""Tasks: questions and how answers are marked. Start with `get_task`."""

import inspect
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from tasks.base import Answer, MarkLimits, Prompt, Task, TaskError, make_prompt
from tasks.marking.marks import OUTCOMES, Mark
from tasks.options import wrong_option
from tasks.user_code import describe

GROUP = "decile.tasks"
BUILTIN = {
    "aime2025": "tasks.aime2025:Aime2025",
    "arithmetic": "tasks.arithmetic:Arithmetic",
    "file": "tasks.question_file:QuestionFile",
    "gsm8k": "tasks.gsm8k:Gsm8k",
    "math": "tasks.competition_math:CompetitionMath",
    "shuffled_objects": "tasks.shuffled_objects:ShuffledObjects",
}

_REFERENCES: dict[type[Task], str] = {}  # of the classes that `find_task` returned

__all__ = [
    "OUTCOMES",
    "Answer",
    "Mark",
    "MarkLimits",
    "Prompt",
    "Task",
    "TaskError",
    "find_task",
    "get_task",
    "hidden_module",
    "is_reference",
    "is_shipped",
    "make_prompt",
    "reference_of",
    "task_names",
]


def task_names() -> list[str]:
    """The names of all tasks: built in, or installed through the entry point `decile.tasks`."""
    return sorted(BUILTIN.keys() | entry_points(group=GROUP).names)


def find_task(name: str) -> type[Task]:
    """The class of a task's name, or of a user's `package.module:attribute`."""
    target = name if ":" in name else BUILTIN.get(name)
    if target is None:
        installed = list(entry_points(group=GROUP, name=name))
        if not installed:
            known = ", ".join(task_names())
            raise TaskError(
                f"unknown task {name!r:.80}: write one of {known}, or package.module:Class"
            )
        target = installed[0].value
    if not is_reference(target):
        raise TaskError(f"task {name!r:.80} is not a reference: write package.module:Class")
    try:
        task: Any = EntryPoint(name, target, GROUP).load()
    except (Exception, SystemExit) as error:  # a custom module may raise anything
        raise TaskError(
            f"task {name!r} cannot be imported: {describe(error)}"
            f"{hidden_module(target) or '; correct the module, or write another task'}"
        ) from error
    if not (inspect.isclass(task) and issubclass(task, Task)):
        raise TaskError(
            f"task {name!r} is not a subclass of tasks.Task: write package.module:Class"
        )
    _REFERENCES[task] = target
    return task


def is_shipped(task: Task) -> bool:
    """Whether the task ships with Decile; a subclass of one is the user's."""
    return f"{type(task).__module__}:{type(task).__qualname__}" in BUILTIN.values()


def reference_of(task: Task) -> str:
    """The `package.module:attribute` with which any process finds the task's class.

    Raises TaskError for a class that only this process has.
    """
    cls = type(task)
    if cls in _REFERENCES:
        return _REFERENCES[cls]
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise TaskError(
            f"task {cls.__qualname__} is defined in {cls.__module__}, where no other process finds "
            "it: define it at the top level of a module of its own"
        )
    return f"{cls.__module__}:{cls.__qualname__}"


def is_reference(target: str) -> bool:
    """Whether a text has the form package.module:attribute."""
    return all(part.isidentifier() for part in target.replace(":", ".", 1).split("."))


def hidden_module(target: str) -> str:
    """What to rename if another module hides the user's module of this name; else ""."""
    name = target.partition(":")[0].partition(".")[0]
    origin = getattr(sys.modules.get(name), "__file__", None)
    for file in (Path.cwd() / f"{name}.py", Path.cwd() / name / "__init__.py"):
        if origin and file.exists() and not file.samefile(origin):
            own = name in ("orchestrator", "tasks", "policies", "cluster")
            owner = "Decile's own package" if own else f"imported from {origin}"
            return f"; module {name!r} is {owner}: rename {file}"
    return ""


def get_task(name: str, **options: Any) -> Task:
    """The task of that name, built with its options. Raises TaskError on an unknown option."""
    task = find_task(name)
    known = [*inspect.signature(task.__init__).parameters][1:]
    if unknown := sorted(options.keys() - set(known)):
        raise TaskError(f"task {name} has no option {unknown[0]!r}: it takes {', '.join(known)}")
    try:
        built = task(**options)
    except TaskError:
        raise
    except Exception as error:
        if wrong := wrong_option(task.__init__, options):
            raise TaskError(f"task {name}: {wrong}") from error
        if name in BUILTIN:
            raise  # a bug of ours, with its traceback
        raise TaskError(
            f"task {name!r} cannot be built: {describe(error)}; correct its class or its options"
        ) from error
    if wrong := wrong_option(task.__init__, options):
        raise TaskError(f"task {name}: {wrong}")
    return built
