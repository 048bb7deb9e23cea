"""A run of `rllm eval`: results.json, and the texts in episodes/ where they were saved."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.exchange.entries import (
    CompletionRecord,
    Notes,
    Row,
    SolveRateRecord,
    SourceQuestion,
    asked,
    inner,
    last_of,
    text_of,
    whole,
)
from orchestrator.sampling.base import Completion
from tasks import TaskError

ANSWERS = ("ground_truth", "answer", "final_answer")
CUT = ("max_response_length_exceeded", "max_prompt_length_exceeded", "max_turns_exceeded")


def read_rllm(
    content: Row, file: Path, notes: Notes
) -> list[CompletionRecord] | list[SolveRateRecord]:
    """Completions where episodes/ beside the file holds them, else rates by task.

    As rllm/eval/results.py (at 0038684) and episode_store.py (at 198c8e4) write it: items of idx,
    attempt, task_id, is_correct, error, termination_reason; episode_NNNNNN_TASK.json with task
    (instruction, metadata: the row it was made of) and trajectories, NNNNNN = idx × attempts +
    attempt. The answer is read from metadata: ground_truth, answer or final_answer.
    """
    items = content["items"]
    if not isinstance(items, list) or not all(isinstance(i, dict) and "idx" in i for i in items):
        raise TaskError('items is of another form: write a list of {"idx": …, "is_correct": …}')
    # Older runs write NAME.json beside the folder NAME.
    folders = (file.parent / "episodes", file.parent / file.stem / "episodes")
    episodes = next(filter(None, map(_episodes, folders)), None)
    if episodes:
        return _completions(items, int(content.get("attempts") or 1), episodes, notes)
    notes.say("no episodes/ beside results.json: prompts are known by rLLM's task ids only")
    return _rates(items)


def _completions(
    items: Sequence[Row], attempts: int, episodes: dict[int, Path], notes: Notes
) -> list[CompletionRecord]:
    found = []
    for number, item in enumerate(items):
        place = f"item {number}"
        index = _index(item, place) * attempts + (whole(item.get("attempt"), place, "attempt") or 0)
        if index not in episodes:
            notes.case("items dropped: no episode was saved", place)
            continue
        episode = _json(episodes[index])
        who = _asked(episode, place, notes)
        if who is not None:
            found.append(_drawn(who, item, episode))
    return found


def _drawn(who: SourceQuestion, item: Row, episode: Row) -> CompletionRecord:
    cut = (item.get("termination_reason") or episode.get("termination_reason")) in CUT
    finish: Any = "error" if item.get("error") else "length" if cut else "stop"
    return CompletionRecord(
        who, Completion(_reply(episode), 0, finish), None, None, bool(item.get("is_correct"))
    )


def _asked(episode: Row, place: str, notes: Notes) -> SourceQuestion | None:
    task = inner(episode, "task")
    row = inner(task, "metadata") or task
    answer = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
    question = row.get("question") or text_of(task.get("instruction"))
    return asked(row, place, question, answer, notes)


def _reply(episode: Row) -> str:
    """What the model said last: in the last step's chat, or as the step's or the run's output."""
    trajectory: Row = next(iter(episode.get("trajectories") or []), {})
    step: Row = next(reversed(trajectory.get("steps") or []), {})
    said = last_of(step.get("chat_completions"), "assistant")
    outputs = (said, step.get("model_response"), step.get("output"), trajectory.get("output"))
    return next((text for text in outputs if isinstance(text, str) and text), "")


def _rates(items: Sequence[Row]) -> list[SolveRateRecord]:
    tasks: dict[str, list[Row]] = {}
    for item in items:
        name = item.get("task_id") or f"idx {_index(item, 'items')}"
        tasks.setdefault(str(name), []).append(item)
    return [_rated(name, group) for name, group in tasks.items()]


def _index(item: Row, place: str) -> int:
    index = whole(item["idx"], place, "idx")
    if index is None:
        raise TaskError(f"{place}: idx is null: write the task's number")
    return index


def _rated(name: str, group: Sequence[Row]) -> SolveRateRecord:
    judged = [item for item in group if not item.get("error")]
    right = sum(bool(item.get("is_correct")) for item in judged)
    rate = right / len(judged) if judged else None
    who = SourceQuestion(f"task {name}", "", "", "", name)
    return SolveRateRecord(who, rate, len(group), right, len(group) - len(judged))


def _episodes(folder: Path) -> dict[int, Path]:
    """Files by the number in their name."""
    numbered = {}
    for file in sorted(folder.glob("episode_*.json")):
        number = file.name.split("_")[1].removesuffix(".json")
        if number.isdigit():
            numbered[int(number)] = file
    return numbered


def _json(file: Path) -> Row:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise TaskError(f"{file} is no episode: write one JSON object")
    return content
