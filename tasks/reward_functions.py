"""Calls a user's reward functions, with TRL's signature, in child processes.

A function is called once for the completions of one prompt. If that call fails, it is called again
for each completion alone, so that only the cause fails.
"""

import asyncio
import hashlib
import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from math import isfinite
from typing import Any, NamedTuple

from orchestrator.plugins.counts import counted
from orchestrator.plugins.registry import Registry
from tasks.base import MarkLimits, Message
from tasks.children import NOT_TRIED, ChildError, Children, Reply
from tasks.errors import TaskError
from tasks.marking.boxes import last_box
from tasks.marking.digits import REACH
from tasks.marking.marks import Mark, no_answer_mark, score_mark
from tasks.prompts import Answer
from tasks.sources.user_files import MAX_SETTINGS, read_bytes

FUNCTIONS = Registry("reward function", "decile.rewards", {}, "package.module:function", TaskError)
GROUP = 64  # completions of one prompt in one call
CONCURRENT = 8  # prompts whose calls of an async function are awaited together
LIMITS = MarkLimits()
FORM = "return a list with one number or None for each completion"
_ROUNDING = 1e-6  # a score computed in 32 bits may be outside 0 to 1 by this much
_NEVER = "not-finite"  # the rule for nan and infinity

_children: dict[tuple[Any, ...], Children] = {}  # of this process


class RewardValue(NamedTuple):
    """A function's value for one completion: a number, or None if it does not apply.

    `failure` is the reason for a missing value (`ValueError@my_rewards.py:12`, `time-limit`,
    `crashed@…`, `not-finite`, `not-tried`), else "".
    """

    value: float | None
    failure: str = ""


def _log_nothing(*arguments: Any, **options: Any) -> None:
    """Replaces the logging functions that TRL passes to a reward function."""


# Arguments that TRL's trainer passes besides the columns; defaults for calls without a trainer.
OF_TRAINER: Mapping[str, Any] = {
    "trainer_state": None,
    "log_extra": _log_nothing,
    "log_metric": _log_nothing,
}
_OF_ANSWERS = frozenset({"prompts", "completions", "completion_ids"})


@dataclass(frozen=True)
class RewardFunction:
    """A reward function as imported.

    `accepted` are the keywords it takes (None: any), `required` those without a default; `version`
    is a hash of the source files of its module and of the reference's module ("" if there are
    none).
    """

    reference: str
    function: Callable[..., Any]
    accepted: frozenset[str] | None
    required: frozenset[str]
    version: str

    def needed_columns(self, known: Iterable[str] = ()) -> list[str]:
        """The sorted names of required columns, besides the known ones."""
        given = {"question", "answer", *_OF_ANSWERS, *OF_TRAINER}
        return sorted(self.required - given - {*known})

    def check_columns(self, columns: Iterable[str], owner: str) -> None:
        """Raise TaskError if it needs a column that `owner` does not have."""
        columns = [*columns]
        if needed := self.needed_columns(columns):
            known = dict.fromkeys(("question", "answer", *columns))
            raise TaskError(
                f"reward function {self.reference!r} needs {', '.join(needed)}; the columns of "
                f"{owner} are {', '.join(known)}"
            )

    def check_needs_no_tokens(self) -> None:
        """Raise TaskError if it needs the tokens of completions."""
        if "completion_ids" in self.required:
            raise TaskError(
                f"reward function {self.reference!r} needs completion_ids, and only the text of a "
                "completion is stored: use its length in words, or the function in training only"
            )

    @property
    def may_read_golds(self) -> bool:
        """Whether it gets `answer`, or a column of the user's data, which may repeat the answer.

        False if its attribute `reads_golds` is false.
        """
        known = {"question", *_OF_ANSWERS, *OF_TRAINER}
        given = self.accepted is None or not self.accepted <= known
        return given and bool(getattr(self.function, "reads_golds", True))

    @property
    def is_async(self) -> bool:
        """Whether it returns an awaitable."""
        either = (self.function, type(self.function).__call__)
        return any(map(inspect.iscoroutinefunction, either))

    def __call__(self, group: "_Group") -> Any:
        """Call it with the arguments that it accepts; columns that the prompt lacks are None."""
        count = len(group.completions)
        columns = dict.fromkeys(self.required, None) | group.columns
        arguments = {name: [value] * count for name, value in columns.items()} | {
            "prompts": [group.messages] * count,
            "completions": [[{"role": "assistant", "content": c}] for c in group.completions],
            **OF_TRAINER,
        }
        if group.completion_ids is not None:
            arguments["completion_ids"] = group.completion_ids
        return self.function(
            **{k: v for k, v in arguments.items() if self.accepted is None or k in self.accepted}
        )


@cache
def reward_function(reference: str) -> RewardFunction:
    """The function of a `package.module:function`. Raises TaskError."""
    function = FUNCTIONS.find(reference)
    if not callable(function):
        raise TaskError(f"reward function {reference!r} is not a function: write {FUNCTIONS.form}")
    code = function
    while isinstance(code, partial):
        code = code.func
    named_in = FUNCTIONS.reference(reference).partition(":")[0]
    version = source_version(named_in, getattr(code, "__module__", ""))
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a compiled function
        return RewardFunction(reference, function, None, frozenset(), version)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    any_name = any(p.kind == p.VAR_KEYWORD for p in parameters)
    accepted = None if any_name else frozenset(p.name for p in named)
    required = frozenset(p.name for p in named if p.default is p.empty)
    return RewardFunction(reference, function, accepted, required, version)


def source_version(*modules: str) -> str:
    """A hash of the source files of these modules; "" if none has a file.

    Modules of Python and of installed libraries are included if they are named.
    """
    loaded = {sys.modules.get(name) for name in modules}
    files = sorted(filter(None, {getattr(each, "__file__", None) for each in loaded}))
    digest = hashlib.sha256()
    for file in files:
        digest.update(read_bytes(file, MAX_SETTINGS))
    return digest.hexdigest()[:16] if files else ""


class _Group(NamedTuple):
    """Completions of one prompt, for one call. Sent to a child as JSON."""

    messages: list[Message]
    completions: list[str]
    columns: dict[str, Any]
    completion_ids: list[list[int]] | None


def reward_values(
    reference: str,
    answers: Sequence[Answer],
    chat: Callable[[str, str], list[Message]],
    limits: MarkLimits = LIMITS,
    *,
    answer_name: str = "answer",
    completion_ids: Sequence[Sequence[int]] | None = None,
    tolerated: float | None = None,
) -> list[RewardValue]:
    """The value of each completion; consecutive ones of the same prompt share a call.

    `chat` gives the chat of a question and its info; the gold answer is also passed under
    `answer_name`. Functions that name `completion_ids` (the tokens of each completion) can only be
    called with them. After more than `tolerated` failures, the remaining completions are not tried.
    Raises TaskError if the function cannot be imported or called, or returns anything but one
    number or None for each.
    """
    function = reward_function(reference)
    if completion_ids is None:
        function.check_needs_no_tokens()
    if answers and not any(answer.info for answer in answers):
        function.check_columns([answer_name], "the prompts")
    values: list[RewardValue] = [RewardValue(None, str(NOT_TRIED.failure))] * len(answers)
    groups = _consecutive(answers)
    size = CONCURRENT if function.is_async else 1
    pending = [groups[i : i + size] for i in range(0, len(groups), size)]
    prompts = dict.fromkeys((answer.question, answer.info) for answer in answers)
    chats = {prompt: chat(*prompt) for prompt in prompts}

    def sent(rows: Sequence[int]) -> _Group:
        first = answers[rows[0]]
        ids = None if completion_ids is None else [[*completion_ids[row]] for row in rows]
        texts = [answers[row].completion for row in rows]
        info = json.loads(first.info) if first.info else {}
        columns = {"question": first.question, "answer": first.answer, answer_name: first.answer}
        columns |= info if isinstance(info, dict) else {"info": info}
        return _Group(chats[first.question, first.info], texts, columns, ids)

    failures = 0
    while pending and (tolerated is None or failures <= tolerated):
        calls = [[[sent(rows) for rows in call]] for call in pending]
        weights = [max(map(len, call)) for call in pending]
        left = None if tolerated is None else tolerated - failures
        replies = _replies(function, limits, calls, left, weights)
        split, untried = [], []
        for call, reply in zip(pending, replies, strict=True):
            if reply is NOT_TRIED:
                untried.append(call)
            elif reply.failure is not None and len(call) > 1:
                split += [[group] for group in call]  # a prompt each, then a completion each
            elif reply.failure is not None and len(call[0]) > 1:
                split += [[[row]] for row in call[0]]
            else:
                rows = [row for group in call for row in group]
                for row, value in zip(rows, _read(function, reply, call), strict=True):
                    values[row] = value
                    failures += bool(value.failure)
        pending = split + untried
    return values


def function_mark(value: RewardValue, answer: Answer, reference: str, threshold: float) -> Mark:
    """The mark of an answer from the function's value. Raises TaskError if it is not a score."""
    box = last_box(answer.completion)
    extracted = box if box is not None and len(box) <= REACH else None
    if value.failure:
        return Mark("error", None, value.failure)
    if value.value is None:
        return no_answer_mark(answer.truncated)._replace(rule=reference)
    if not -_ROUNDING <= value.value <= 1 + _ROUNDING:
        raise TaskError(
            f"marker {reference!r} returned {value.value:g} for the completion "
            f"{answer.completion!r:.80}: a marker returns a score from 0 to 1; rewards with other "
            "values belong in reward:"
        )
    return score_mark(min(1.0, max(0.0, value.value)), extracted, reference, threshold)


def _consecutive(answers: Sequence[Answer]) -> list[list[int]]:
    """The rows of consecutive answers to the same prompt, at most GROUP in a list."""

    def prompt(row: int) -> tuple[str, str, str]:
        return answers[row].question, answers[row].answer, answers[row].info

    groups = [[*rows] for _, rows in groupby(range(len(answers)), prompt)]
    return [rows[i : i + GROUP] for rows in groups for i in range(0, len(rows), GROUP)]


def _read(
    function: RewardFunction, reply: Reply, call: Sequence[Sequence[int]]
) -> list[RewardValue]:
    """The values of one call's completions. Raises TaskError for an invalid reply."""
    if reply.failure is not None:
        return [RewardValue(None, reply.reason)]
    values = []
    for returned in reply.value:
        if isinstance(returned, str):
            raise TaskError(f"reward function {function.reference!r} {returned}: {FORM}")
        values += returned
    return [
        RewardValue(value) if value is None or isfinite(value) else RewardValue(None, _NEVER)
        for value in values
    ]


def _replies(
    function: RewardFunction,
    limits: MarkLimits,
    calls: Sequence[Sequence[Any]],
    tolerated: float | None,
    weights: Sequence[int],
) -> list[Reply]:
    """The children's replies; they are started when first needed."""
    key = (function.reference, limits)
    if key not in _children:
        setup = [function.reference, function.version]
        children = Children(
            "tasks.reward_functions:caller",
            limits.processes,
            limits.seconds,
            int(limits.memory * 2**30),
            setup,
        )
        _children.setdefault(key, children)  # another thread may have been first
    try:
        return _children[key].map(calls, tolerated, weights)
    except ChildError as error:
        raise TaskError(
            f"reward function {function.reference!r}: its process {error.reason}"
        ) from error


def caller(
    reference: str, version: str
) -> Callable[[Sequence[Sequence[Any]]], list[list[float | None] | str]]:
    """In a child: import the function and return a function that calls it for some groups.

    For each group, that returns one number or None per completion, or an error text.
    """
    function = reward_function(reference)
    if function.version != version:
        raise TaskError("its source file has changed since this command began: run it again")
    runner = asyncio.Runner()  # one loop for all calls, as in TRL: sessions of a server stay usable

    def call(sent: Sequence[Sequence[Any]]) -> list[list[float | None] | str]:
        nonlocal runner
        groups = [_Group(*group) for group in sent]
        results = [function(group) for group in groups]
        if any(map(inspect.isawaitable, results)):
            try:
                results = runner.run(_awaited(results))
            except (SystemExit, KeyboardInterrupt):  # unfinished tasks would raise it again
                runner = asyncio.Runner()
                raise
        pairs = zip(results, groups, strict=True)
        return [_numbers(result, len(group.completions)) for result, group in pairs]

    return call


async def _awaited(results: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of all; the first error is raised only after the last has ended."""
    ended = await asyncio.gather(*results, return_exceptions=True)
    for result in ended:
        if isinstance(result, BaseException):
            raise result
    return ended


def _numbers(returned: Any, count: int) -> list[float | None] | str:
    """The numbers that a function returned for `count` completions, or an error text."""
    of_count = f"for {counted(count, 'completion')}"
    values: list[float | None] = []
    try:
        for value in [] if isinstance(returned, str | Mapping) else returned:
            if isinstance(value, str):
                raise TypeError
            values.append(None if value is None else float(value))
    except (TypeError, ValueError):  # also of a tensor with several numbers
        return f"returned {returned!r:.80} {of_count}"
    if len(values) != count:
        return f"returned {returned!r:.80} {of_count}, of the length {len(values)}"
    return values
