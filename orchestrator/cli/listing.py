"""What can be named in YAML, each with the first line of its docstring."""

import inspect
from pathlib import Path

from orchestrator.config.catalog import load_config
from orchestrator.config.entries import ModelEntry
from policies import policy_line, policy_names
from tasks import find_task, task_names

Listing = list[tuple[str, str]]


def listing(what: str, file: Path) -> Listing:
    """Names and descriptions; `models` and `experiments` are read from the file."""
    if what == "tasks":
        return [(name, first_line(find_task(name))) for name in task_names()]
    if what == "policies":
        return [(name, policy_line(name)) for name in policy_names()]
    config = load_config(file).config
    if what == "models":
        return [(name, _where(entry)) for name, entry in config.models.items()]
    return [(name, experiment.about) for name, experiment in config.experiments.items()]


def _where(entry: ModelEntry) -> str:
    """Where a model comes from, and what it is held in."""
    if entry.hub:
        bits = ", in 4 bits" if entry.load_in_4bit else ""
        return f"hub {entry.hub}@{entry.revision}{bits}"
    if entry.embedded:
        return f"embedded {entry.embedded}"
    return f"recorded {entry.recorded}" if entry.recorded else f"path {entry.path}"


def first_line(documented: object) -> str:
    """The first line of a docstring, or nothing."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]
