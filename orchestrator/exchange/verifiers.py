"""Evaluations of PrimeIntellect's verifiers: results.jsonl (v0) and traces.jsonl (v1)."""

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from orchestrator.exchange.records import (
    CompletionRecord,
    Hints,
    Notes,
    PlacedRow,
    Row,
    SourceQuestion,
    last_message,
    nested,
    objects,
    source_question,
    valid_count,
)
from orchestrator.sampling.base import Completion
from tasks.columns import message_text

TRUNCATED = {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens"}


def read_verifiers(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """One row per rollout, or (traces.jsonl of late v1) one row per episode of several traces.

    v0 as save_utils.py writes it (at 00d8320): prompt, completion, answer, info, reward, error,
    is_truncated, token_usage. v1 as trace.py and episode.py have it (at 00eee6c and 11eb4d6):
    task.data, nodes, calls, rewards, errors, stop_condition. In both the answer is the field
    `answer` of the task; the question is the prompt's last user message, unless the task has one.
    """
    records: list[CompletionRecord] = []
    for place, row in rows:
        read = _read_v1 if "nodes" in row or "traces" in row else _read_v0
        record = read(row, place, notes)
        if record is not None:
            records.append(record)
    if not any(record.source.answer for record in records):
        fields = sorted({name for _, row in rows for name in _task_data(row)})
        notes.add(f"no task has the field answer; tasks have: {', '.join(fields)}")
    return records


def _read_v0(row: Row, place: str, notes: Notes) -> CompletionRecord | None:
    info = row.get("info")
    if isinstance(info, str):
        try:
            info = json.loads(info)
        except ValueError:
            info = None
    info = info if isinstance(info, Mapping) else {}
    prompt = last_message(row.get("prompt"), "user")
    question = info.get("question") or row.get("question") or prompt
    answer = row.get("answer") or info.get("answer")
    source = source_question(info, place, question, answer, notes)
    if source is None:
        return None
    tokens = valid_count(nested(row, "token_usage").get("output_tokens"))
    text = last_message(row.get("completion"), "assistant")
    finish = "error" if row.get("error") else "length" if row.get("is_truncated") else "stop"
    return _record(source, text, tokens, finish, row.get("reward"))


def _read_v1(row: Row, place: str, notes: Notes) -> CompletionRecord | None:
    data = _task_data(row)
    question = data.get("question") or last_message(data.get("prompt"), "user")
    source = source_question(data, place, question, data.get("answer"), notes)
    if source is None:
        return None
    traces = objects(row["traces"]) if "traces" in row else [row]
    if len(traces) > 1:
        notes.count("rows dropped: several agents answer in one episode", place)
        return None
    if not traces:  # the run failed before any model was called
        return _record(source, "", None, "error", None)
    return _read_trace(traces[0], source)


def _read_trace(trace: Row, source: SourceQuestion) -> CompletionRecord:
    # Early v1 has no `sampled`; its only assistant messages are the model's.
    nodes = [
        node
        for node in objects(trace.get("nodes"))
        if node.get("sampled", nested(node, "message").get("role") == "assistant")
    ]
    calls = [call for call in objects(trace.get("calls")) if not call.get("error")]
    reply = trace.get("root_reply")
    if not isinstance(reply, str) or not reply:
        reply = message_text(nested(nodes[-1], "message").get("content")) if nodes else ""
    last = (calls or nodes or [{}])[-1]
    limited = str(trace.get("stop_condition")) in TRUNCATED
    truncated = limited or last.get("finish_reason") == "length"
    failed = bool(trace.get("errors")) and not trace.get("ok")
    counts = [valid_count(nested(call, "usage").get("completion_tokens")) for call in calls]
    tokens = None if None in counts or not counts else sum(c or 0 for c in counts)
    rewards = [reward for reward in nested(trace, "rewards").values() if reward is not None]
    weighted: list[tuple[Any, Any]] = [
        (reward.get("score"), reward.get("weight", 1.0))
        if isinstance(reward, Mapping)
        else (reward, 1)
        for reward in rewards
    ]
    numbers = all(isinstance(number, int | float) for pair in weighted for number in pair)
    reward = sum(map(prod, weighted)) if weighted and numbers else None
    finish = "error" if failed else "length" if truncated else "stop"
    return _record(source, reply, tokens, finish, reward)


def _record(
    source: SourceQuestion, text: str, tokens: int | None, finish: Any, reward: Any
) -> CompletionRecord:
    # Only a plain 0 or 1 states what the source's grader decided; a weighted sum does not.
    correct = bool(reward) if reward in (0, 1) else None
    return CompletionRecord(source, Completion(text, tokens or 0, finish), tokens, None, correct)


def _task_data(row: Row) -> Row:
    task = nested(row, "task")
    return nested(task, "data") or task or row
