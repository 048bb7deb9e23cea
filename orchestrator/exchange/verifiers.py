"""Evaluations of PrimeIntellect's verifiers: results.jsonl (v0) and traces.jsonl (v1)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.exchange.entries import (
    CompletionRecord,
    Hints,
    Notes,
    Row,
    SourceQuestion,
    asked,
    inner,
    last_of,
    text_of,
)
from orchestrator.sampling.base import Completion
from tasks import TaskError

CUT = {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens"}


def read_verifiers(rows: Sequence[Row], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """One row a rollout, or (traces.jsonl of late v1) one row an episode of several traces.

    v0 as save_utils.py writes it (at 00d8320): prompt, completion, answer, info, reward, error,
    is_truncated, token_usage. v1 as trace.py and episode.py have it (at 00eee6c and 11eb4d6):
    task.data, nodes, calls, rewards, errors, stop_condition. In both the answer is the field
    `answer` of the task; the question is the prompt's last user message, unless the task has one.
    """
    found: list[CompletionRecord] = []
    for number, row in enumerate(rows, 1):
        place = f"row {number}"
        if "nodes" in row or "traces" in row:
            found += _of_v1(row, place, notes)
        else:
            found += _of_v0(row, place, notes)
    if rows and not found:
        fields = sorted({name for row in rows for name in _data(row)})
        raise TaskError(
            f"no rollout has both a question and an answer; tasks have: "
            f"{', '.join(fields)}: add the field answer"
        )
    return found


def _of_v0(row: Row, place: str, notes: Notes) -> Iterator[CompletionRecord]:
    info = _info(row)
    question = info.get("question") or row.get("question") or last_of(row.get("prompt"), "user")
    who = asked(info, place, question, row.get("answer") or info.get("answer"), notes)
    if who is None:
        return
    tokens = _count(inner(row, "token_usage").get("output_tokens"))
    text = last_of(row.get("completion"), "assistant")
    finish = "error" if row.get("error") else "length" if row.get("is_truncated") else "stop"
    yield _drawn(who, text, tokens, finish, row.get("reward"))


def _of_v1(row: Row, place: str, notes: Notes) -> Iterator[CompletionRecord]:
    data = _data(row)
    question = data.get("question") or last_of(data.get("prompt"), "user")
    who = asked(data, place, question, data.get("answer"), notes)
    if who is None:
        return
    traces = row.get("traces", [row])
    if not traces:  # the run broke before any model was asked
        yield _drawn(who, "", None, "error", None)
    elif len(traces) > 1:
        notes.case("rows dropped: several agents answer in one episode", place)
    else:
        yield _of_trace(traces[0], who)


def _of_trace(trace: Row, who: SourceQuestion) -> CompletionRecord:
    nodes = [node for node in trace.get("nodes") or [] if _by_model(node)]
    calls = [call for call in trace.get("calls") or [] if not call.get("error")]
    reply = trace.get("root_reply") or (
        text_of(nodes[-1]["message"].get("content")) if nodes else ""
    )
    last = (calls or nodes or [{}])[-1]
    cut = trace.get("stop_condition") in CUT or last.get("finish_reason") == "length"
    failed = bool(trace.get("errors")) and not trace.get("ok")
    counts = [_count(inner(call, "usage").get("completion_tokens")) for call in calls]
    tokens = None if None in counts or not counts else sum(c or 0 for c in counts)
    finish = "error" if failed else "length" if cut else "stop"
    return _drawn(who, reply, tokens, finish, _reward(trace))


def _by_model(node: Row) -> bool:
    """A message that the model made; early v1 did not say so, and had no assistant's otherwise."""
    return bool(node.get("sampled", inner(node, "message").get("role") == "assistant"))


def _reward(trace: Row) -> float | None:
    given = [reward for reward in inner(trace, "rewards").values() if reward is not None]
    scores = [
        reward["score"] * reward.get("weight", 1.0) if isinstance(reward, Mapping) else reward
        for reward in given
    ]
    return float(sum(scores)) if scores else None


def _drawn(
    who: SourceQuestion, text: str, tokens: int | None, finish: Any, reward: Any
) -> CompletionRecord:
    # Only a plain 0 or 1 says what the source's judge thought; a weighted sum does not.
    correct = bool(reward) if reward in (0, 1) else None
    return CompletionRecord(who, Completion(text, tokens or 0, finish), tokens, None, correct)


def _data(row: Row) -> Row:
    task = inner(row, "task")
    return inner(task, "data") or task or row


def _info(row: Row) -> Row:
    value = row.get("info")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
