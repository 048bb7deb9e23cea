"""What the tests of function markers share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sampling.base import Completion
from tasks import Prompt, get_task, make_prompt

MODULE = "reward_functions_of_users"
ROWS = [{"question": f"What is {i}?", "answer": str(i)} for i in range(6)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(rows: Sequence[dict[str, Any]], name: str = "mine.jsonl") -> str:
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return name


def task(name: str = "accuracy", rows: Sequence[dict[str, Any]] = ROWS, **options: Any) -> Any:
    marker = f"{MODULE}:{name}" if name not in ("number", "text") else name
    return get_task("file", train=write(rows), marker=marker, **options)


def prompts_and_completions(text: str, count: int) -> tuple[list[Prompt], list[Completion]]:
    prompts = [make_prompt("file", f"q{i // 4}", "4", "") for i in range(count)]
    return prompts, [Completion(text, 1, "stop")] * count
