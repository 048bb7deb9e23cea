"""What the tests of environments share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks import Task, get_task
from tasks.environments import Environments, Session

MODULE = "environments_of_users"


def task_of(name: str = "Guess", **options: Any) -> Task:
    limits = {"seconds": 2.0, "memory": 0.5, "processes": 1}
    return get_task(f"{MODULE}:{name}", **{"mark_limits": limits, **options})


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def started(task: Task, rows: Sequence[dict[str, Any]]) -> tuple[Environments, list[Session]]:
    environments = Environments(task)
    sessions = [Session(f"session {i}", each) for i, each in enumerate(rows)]
    environments.reset(sessions)
    return environments, sessions


def file_of(folder: Path, rows: Sequence[dict[str, Any]]) -> str:
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    return str(folder / "rows.jsonl")
