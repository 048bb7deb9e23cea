"""Completions of one prompt side by side; one that is an episode is shown turn by turn."""

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from orchestrator.plugins.counts import counted
from orchestrator.report.content import COMPLETION_LIMIT, one_line, visible
from orchestrator.report.rows import AnswerText
from orchestrator.report.sample_blocks import Completions, Message
from tasks import Prompt

MESSAGE_LIMIT = 600  # characters of a message, and of its tool calls
MESSAGES = 24  # of an episode
_ERROR = "{'error': "  # how the message of a tool that failed starts
_THOUGHTS = ("reasoning_content", "thinking")


def card(prompt: Prompt, answers: Sequence[tuple[str, AnswerText]], about: str = "") -> Completions:
    """Completions of a prompt, each with its origin; of bounded length.

    The messages that all of its episodes begin with are shown once, in place of the question.
    """
    chats = [json.loads(a.episode["messages"]) if a.episode else None for _, a in answers]
    prompts = [
        [*takewhile(lambda message: message.get("role") != "assistant", chat)]
        for chat in chats
        if chat is not None
    ]
    shared = prompts[0] if prompts and all(each == prompts[0] for each in prompts) else []
    shown = tuple(
        (
            name,
            answer.outcome,
            visible(answer.completion or "")
            if chat is None or answer.episode is None
            else (*_turns(chat[len(shared) :], answer.episode), _end(answer)),
        )
        for (name, answer), chat in zip(answers, chats, strict=True)
    )
    start = tuple(_message(message, COMPLETION_LIMIT) for message in shared)
    about = " ".join(filter(None, [about, origin_text(prompt, "From ", ".")]))
    return Completions(visible(prompt.question), one_line(prompt.answer), shown, start, about)


def origin_text(prompt: Prompt, before: str, after: str = "") -> str:
    """Where a prompt comes from: its row in a file, its source and its kept columns, in short.

    With texts before and after it; empty if nothing is known.
    """
    kept = json.loads(prompt.kept) if prompt.kept else {}
    known = {"source": prompt.source} if prompt.source else {}
    columns = [f"{name} {value}" for name, value in (known | kept).items() if value is not None]
    text = one_line(", ".join(filter(None, [prompt.place, *columns])))
    return f"{before}{text}{after}" if text else ""


def _turns(messages: Sequence[Mapping[str, Any]], episode: Mapping[str, Any]) -> list[Message]:
    """The messages, without the middle ones if there are many."""
    some_failed = episode["tool_errors"] > 0
    if (left_out := len(messages) - MESSAGES) <= 0:
        return [_message(message, MESSAGE_LIMIT, some_failed) for message in messages]
    head = 2 * MESSAGES // 3
    shown = [*messages[:head], *messages[head + left_out :]]
    turns = [_message(message, MESSAGE_LIMIT, some_failed) for message in shown]
    return [*turns[:head], Message("…", f"{counted(left_out, 'message')} left out"), *turns[head:]]


def _message(message: Mapping[str, Any], limit: int, some_failed: bool = False) -> Message:
    """A message with its role, and its tool calls as name(arguments)."""
    role, text = str(message.get("role", "")), _text(message.get("content"))
    thoughts = (_text(message.get(name)) for name in _THOUGHTS)
    calls = "\n".join(map(_call, message.get("tool_calls") or []))
    parts = [visible(part, limit) for part in (*thoughts, text, calls) if part]
    failed = role == "tool" and some_failed and text.startswith(_ERROR)
    speaker = " ".join(
        filter(None, [role, str(message.get("name") or ""), ("error" if failed else "")])
    )
    return Message(one_line(speaker, 60), "\n".join(parts) or "(empty)", failed)


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return json.dumps(content, ensure_ascii=False)


def _call(call: Any) -> str:
    function = (call.get("function") or call) if isinstance(call, Mapping) else {}
    if not isinstance(function, Mapping) or "name" not in function:
        return _text(call)
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        named = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items())
        return f"{function['name']}({', '.join(named)})"
    return f"{function['name']}({_text(arguments)})"


def _end(answer: AnswerText) -> Message:
    """The outcome of an episode, its reward, and what it took."""
    episode = answer.episode or {}
    reward, failure = episode["reward"], episode["failure"]
    texts = (
        f"environment failed: {visible(failure, MESSAGE_LIMIT)}" if failure else "",
        answer.outcome,
        "no reward" if reward is None else f"reward {reward:g}",
        *(
            f"{counted(episode[name], what)}"
            for name, what in (("turns", "turn"), ("tool_calls", "tool call"))
        ),
        f"{episode['tool_errors']:,} answered by an error" if episode["tool_errors"] else "",
    )
    return Message("end", ", ".join(filter(None, texts)), bool(failure))
