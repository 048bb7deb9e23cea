"""Finds the class of a task by its name, and builds tasks."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from orchestrator.plugins.registry import Registry
from orchestrator.plugins.user_code import describe, user_errors
from tasks.base import Task
from tasks.errors import TaskError

BUILTIN = {
    "aime2025": "tasks.aime2025:Aime2025",
    "arithmetic": "tasks.arithmetic:Arithmetic",
    "code": "orchestrator.optional.code.task:Code",
    "environment": "tasks.environment_task:EnvironmentTask",
    "file": "tasks.question_file:QuestionFile",
    "gsm8k": "tasks.gsm8k:Gsm8k",
    "math": "tasks.competition_math:CompetitionMath",
    "mix": "tasks.mix:Mix",
    "number_guess": "tasks.number_guess:NumberGuessTask",
    "plus_minus": "tasks.plus_minus:PlusMinus",
    "reasoning_gym": "orchestrator.optional.reasoning_gym.task:ReasoningGym",
    "shuffled_objects": "tasks.shuffled_objects:ShuffledObjects",
}
TASKS = Registry("task", "decile.tasks", BUILTIN, "package.module:Class", TaskError)
_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
_REFERENCES: dict[type[Task], str] = {}  # of the classes that `find_task` returned


def task_names() -> list[str]:
    """The names of all tasks: built in, or installed through the entry point `decile.tasks`."""
    return TASKS.names()


def find_task(name: str) -> type[Task]:
    """The class of a task's name, or of a user's `package.module:attribute`.

    For an environment, it is the class of task `environment`.
    """
    task = TASKS.find(name)
    if is_environment(task):
        return find_task("environment")
    if not (inspect.isclass(task) and issubclass(task, Task)):
        raise TaskError(
            f"task {name!r} is not a subclass of tasks.Task, nor an environment with reset(): "
            "write package.module:Class"
        )
    _REFERENCES[task] = TASKS.reference(name)
    return task


def is_environment(attribute: Any) -> bool:
    """Whether it is a class with the interface of TRL's `environment_factory`, and not a task."""
    if not inspect.isclass(attribute) or issubclass(attribute, Task):
        return False
    return callable(getattr(attribute, "reset", None))


def is_shipped(task: Task) -> bool:
    """Whether the task ships with Decile; a subclass of such a task is custom."""
    own = f"{type(task).__module__}:{type(task).__qualname__}" in BUILTIN.values()
    return own and all(map(is_shipped, task.mixed_tasks))


def reference_of(task: Task) -> str:
    """The `package.module:attribute` from which any process can import the task's class.

    Raises TaskError for a class that other processes cannot import.
    """
    cls = type(task)
    if cls in _REFERENCES:
        return _REFERENCES[cls]
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise TaskError(
            f"task {cls.__qualname__} is defined in {cls.__module__}, which other processes "
            f"cannot import: define it at the top level of a module of its own"
        )
    return f"{cls.__module__}:{cls.__qualname__}"


def title_of(task: Task) -> str:
    """The name of a custom task in messages."""
    return f"task {type(task).__module__}:{type(task).__qualname__}"


def task_errors(task: Task, calls: str) -> AbstractContextManager[None]:
    """Turn exceptions of these `calls` of a task into a TaskError with calls and place."""
    return user_errors(f"{title_of(task)}: {calls}", TaskError)


def get_task(name: str, **options: Any) -> Task:
    """The task of that name, built with its options. Raises TaskError on an unknown option.

    An environment's name is short for the task `environment`; so is a file with an environment.
    """
    if name == "file" and "environment" in options:
        return get_task("environment", **options)
    if ":" in name and is_environment(TASKS.find(name)):
        return get_task("environment", **{"environment": name, **options})
    task = find_task(name)
    known = [*inspect.signature(task.__init__).parameters][1:]
    if unknown := sorted(options.keys() - set(known)):
        raise TaskError(f"task {name} has no option {unknown[0]!r}: it takes {', '.join(known)}")
    try:
        built = task(**options)
    except TaskError:
        raise
    except Exception as error:
        if wrong := _wrong_option(task.__init__, options):
            raise TaskError(f"task {name}: {wrong}") from error
        if name in BUILTIN:
            raise  # a bug in Decile keeps its traceback
        raise TaskError(
            f"task {name!r} cannot be built: {describe(error)}; correct its class or its options"
        ) from error
    if wrong := _wrong_option(task.__init__, options):
        raise TaskError(f"task {name}: {wrong}")
    return built


def _wrong_option(constructor: Callable[..., Any], options: Mapping[str, Any]) -> str | None:
    """The message for the first option with a value of the wrong type; None if all fit."""
    try:
        kinds = get_type_hints(constructor)
    except (NameError, TypeError):  # unresolvable annotations of a custom task
        return None
    for name, value in options.items():
        kind = kinds.get(name, Any)
        if not _fits(value, kind) and (expected := described(kind)):
            return f"invalid {name} {value!r:.80}: write {expected}"
    return None


def _fits(value: Any, kind: Any) -> bool:
    """Whether a YAML value has the annotated type; True for types that YAML does not have."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in inner)
    if origin in (Sequence, list, tuple):
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        return listed and all(_fits(item, inner[0] if inner else Any) for item in value)
    if origin in (Mapping, dict):
        return isinstance(value, Mapping)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind if kind in (int, bool, str, type(None)) else True


def described(kind: Any) -> str:
    """The annotated type in words, as YAML has it; empty for any other."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(filter(None, map(described, inner)))
    if origin is Literal:
        words = ", ".join(map(str, inner))
        return f"one of {words}" if len(inner) > 1 else words
    if origin in (Sequence, list, tuple):
        items = {int: "integers", float: "numbers", str: "strings"}
        return f"a list of {items.get(inner[0], 'values') if inner else 'values'}"
    return "a mapping" if origin in (Mapping, dict) else _NAMES.get(kind, "")
