"""What the tests of episodes share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from environments_cases import file_of, task_of
from scripted_model import Scripted, Turns

from orchestrator.probing.episodes import play
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling.base import (
    Sampler,
    SamplingSettings,
)
from tasks import Task

SETTINGS = SamplingSettings(max_completion_length=400)


def game(folder: Path, numbers: Sequence[int] = (2,), name: str = "Guess", **options: Any) -> Task:
    rows: list[dict[str, Any]] = [
        {"prompt": f"Game {i}.", "number": n} for i, n in enumerate(numbers)
    ]
    return task_of(name, train=file_of(folder, rows), **options)


def drawn(sampler: Sampler, task: Task, samples: int = 1, settings: Any = SETTINGS) -> Any:
    requests = [(prompt, range(samples)) for prompt in task.train()]
    return play(sampler, task, requests, settings)


def marked(turns: Turns, task: Task, samples: int = 1) -> pa.Table:
    """Marked samples of the task's prompts."""
    requests = [(prompt, range(samples)) for prompt in task.train()]
    return sample_and_mark(Scripted(turns), task, requests, SETTINGS)
