"""Tasks: questions and how answers are marked. Start with `get_task`.

The names load on first use, so a module that reads files or compares answers does not import a
task.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.base import MarkLimits as MarkLimits
    from tasks.base import Task as Task
    from tasks.errors import TaskError as TaskError
    from tasks.lookup import find_task as find_task
    from tasks.lookup import get_task as get_task
    from tasks.lookup import is_shipped as is_shipped
    from tasks.lookup import reference_of as reference_of
    from tasks.lookup import task_errors as task_errors
    from tasks.lookup import task_names as task_names
    from tasks.lookup import title_of as title_of
    from tasks.marking.marks import OUTCOMES as OUTCOMES
    from tasks.marking.marks import Mark as Mark
    from tasks.marking.marks import score_mark as score_mark
    from tasks.prompts import Answer as Answer
    from tasks.prompts import Prompt as Prompt
    from tasks.prompts import make_prompt as make_prompt

# Where each public name is defined.
_MODULES = {
    "OUTCOMES": "tasks.marking.marks",
    "Answer": "tasks.prompts",
    "Mark": "tasks.marking.marks",
    "MarkLimits": "tasks.base",
    "Prompt": "tasks.prompts",
    "Task": "tasks.base",
    "TaskError": "tasks.errors",
    "find_task": "tasks.lookup",
    "get_task": "tasks.lookup",
    "is_shipped": "tasks.lookup",
    "make_prompt": "tasks.prompts",
    "reference_of": "tasks.lookup",
    "score_mark": "tasks.marking.marks",
    "task_errors": "tasks.lookup",
    "task_names": "tasks.lookup",
    "title_of": "tasks.lookup",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tasks' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
