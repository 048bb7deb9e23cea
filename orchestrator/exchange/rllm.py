"""A run of `rllm eval`: results.json, and the texts in episodes/ if they were saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.exchange.records import (
    CompletionRecord,
    Notes,
    Row,
    SolveRateRecord,
    SourceQuestion,
    last_message,
    nested,
    objects,
    parse_count,
    source_question,
)
from orchestrator.sampling.base import Completion
from tasks import TaskError
from tasks.columns import message_text
from tasks.files import parse_json

ANSWERS = ("ground_truth", "answer", "final_answer")
TRUNCATED = (
    "max_response_length_exceeded",
    "max_prompt_length_exceeded",
    "max_turns_exceeded",
)


def read_rllm(
    content: Row, file: Path, notes: Notes
) -> list[CompletionRecord] | list[SolveRateRecord]:
    """Completions where episodes/ next to the file has them, else rates by task.

    As rllm/eval/results.py (at 0038684) and episode_store.py (at 198c8e4) write it: items of idx,
    attempt, task_id, is_correct, error, termination_reason; episode_NNNNNN_TASK.json with task
    (instruction, and metadata: its source row) and trajectories, NNNNNN = idx × attempts +
    attempt. The answer is read from metadata: ground_truth, answer or final_answer.
    """
    items = content["items"]
    if not isinstance(items, list) or not all(isinstance(i, dict) and "idx" in i for i in items):
        raise TaskError('invalid items: write a list of {"idx": …, "is_correct": …}')
    # Older runs write NAME.json next to the folder NAME.
    folders = (file.parent / "episodes", file.parent / file.stem / "episodes")
    episodes = next(filter(None, map(_episode_files, folders)), None)
    if episodes:
        return _completions(
            items, parse_count(content.get("attempts"), "results", "attempts") or 1, episodes, notes
        )
    notes.add("no episodes/ next to results.json: prompts are identified by rLLM's task ids only")
    groups: dict[str, list[Row]] = {}
    for item in items:
        name = item.get("task_id") or f"idx {_index(item, 'items')}"
        groups.setdefault(str(name), []).append(item)
    records = []
    for name, group in groups.items():
        scored = [item for item in group if not item.get("error")]
        successes = sum(bool(item.get("is_correct")) for item in scored)
        rate = successes / len(scored) if scored else None
        source = SourceQuestion(f"task {name}", "", "", "", name)
        failed = len(group) - len(scored)
        records.append(SolveRateRecord(source, rate, len(group), successes, failed))
    return records


def _completions(
    items: Sequence[Row], attempts: int, episodes: dict[int, Path], notes: Notes
) -> list[CompletionRecord]:
    records = []
    for number, item in enumerate(items):
        place = f"item {number}"
        attempt = parse_count(item.get("attempt"), place, "attempt") or 0
        index = _index(item, place) * attempts + attempt
        if index not in episodes:
            notes.count("items dropped: no episode was saved", place)
            continue
        episode = _read_episode(episodes[index])
        task = nested(episode, "task")
        row = nested(task, "metadata") or task
        answer = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
        question = row.get("question") or message_text(task.get("instruction"))
        source = source_question(row, place, question, answer, notes)
        if source is None:
            continue
        reason = item.get("termination_reason") or episode.get("termination_reason")
        finish: Any = "error" if item.get("error") else "length" if reason in TRUNCATED else "stop"
        completion = Completion(_reply(episode), 0, finish)
        correct = bool(item.get("is_correct"))
        records.append(CompletionRecord(source, completion, correct=correct))
    return records


def _reply(episode: Row) -> str:
    """The model's last message: from the last step's chat, or the step's or the run's output."""
    trajectory: Row = next(iter(objects(episode.get("trajectories"))), {})
    step: Row = next(reversed(objects(trajectory.get("steps"))), {})
    message = last_message(step.get("chat_completions"), "assistant")
    outputs = (message, step.get("model_response"), step.get("output"), trajectory.get("output"))
    return next((text for text in outputs if isinstance(text, str) and text), "")


def _index(item: Row, place: str) -> int:
    index = parse_count(item["idx"], place, "idx")
    if index is None:
        raise TaskError(f"{place}: idx is null: write the task's number")
    return index


def _episode_files(folder: Path) -> dict[int, Path]:
    """Files by the number in their name."""
    numbered = {}
    for file in sorted(folder.glob("episode_*.json")):
        number = file.name.split("_")[1].removesuffix(".json")
        if number.isdigit():
            numbered[int(number)] = file
    return numbered


def _read_episode(file: Path) -> Row:
    try:
        content = parse_json(file.read_bytes(), str(file))
    except OSError as error:
        raise TaskError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise TaskError(f"{file} is not an episode: write one JSON object")
    return content
