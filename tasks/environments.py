"""Multi-turn environments, with the interface of TRL's `environment_factory`.

An environment is a class with `reset(**row)`, which may return text for the prompt, with public
methods that the model calls as tools, and optionally with `get_reward()`. It lives in a child
process that can be killed: a call that hangs, or ends its process, fails alone. Other sessions in
that process are replayed up to where they were.
"""

import asyncio
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from types import MethodType
from typing import Any, NamedTuple

from orchestrator.plugins.registry import Registry
from orchestrator.plugins.streams import text_random
from orchestrator.plugins.user_code import is_own
from tasks.base import MarkLimits, Task
from tasks.children import NOT_TRIED, ChildError, Children, Reply
from tasks.errors import TaskError
from tasks.marking.marks import Mark, no_answer_mark, score_mark
from tasks.prompts import Prompt
from tasks.reward_functions import OF_TRAINER, RewardFunction, reward_function, source_version
from tasks.sources.files import Row

ENVIRONMENTS = Registry(
    "environment", "decile.environments", {}, "package.module:Class of an environment", TaskError
)
OBSERVATION = "return None, or text that continues the prompt"
REWARD = "return a number from 0 to 1, such as points / most_points, or None"
_ROUNDING = 1e-6  # a reward computed in 32 bits may be outside 0 to 1 by this much
OVER_LIMIT = "time-limit@episode"  # the failure of a session whose calls took too long together
_OWN = ("reset", "get_reward")  # public methods that are not tools


class Environment(NamedTuple):
    """An environment's class, described without an instance.

    `tools` are the names of its tools, `rewards` is whether it has `get_reward`, and `version` is a
    hash of its source files ("" for a class that ships with Decile).
    """

    reference: str
    tools: tuple[str, ...]
    rewards: bool
    version: str


_described: dict[type[Any], Environment] = {}


def environment_of(cls: type[Any]) -> Environment:
    """The description of an environment's class. Raises TaskError if it is not an environment."""
    if cls not in _described:
        _described[cls] = _description(cls)
    return _described[cls]


def _description(cls: type[Any]) -> Environment:
    title = f"environment {cls.__module__}:{cls.__qualname__}"
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise TaskError(
            f"{title} cannot be imported by other processes: define it at the top level of a module"
        )
    # As TRL lists them: on the class, functions only.
    names = [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if name[0] != "_"]
    if "reset" not in names:
        raise TaskError(f"{title} has no method reset: write def reset(self, **row)")
    tools = tuple(name for name in names if name not in _OWN)
    if not tools:
        raise TaskError(
            f"{title} has no tools: write a public method with a docstring for each tool, or use "
            f"a single-turn task"
        )
    for name in tools:
        if not (getattr(cls, name).__doc__ or "").strip():
            raise TaskError(
                f"{title}: the tool {name} has no docstring: describe it and each of its "
                f"arguments (Args:), or start its name with _ if it is not a tool"
            )
    modules = (each.__module__ for each in cls.__mro__)
    theirs = (m for m in modules if m.partition(".")[0] not in sys.stdlib_module_names)
    version = "" if is_own(cls) else source_version(*theirs)
    return Environment(title.partition(" ")[2], tools, "get_reward" in names, version)


def environment_class(reference: str) -> type[Any]:
    """The class of a `package.module:Class`. Raises TaskError if it is not an environment."""
    cls: type[Any] = ENVIRONMENTS.find(reference)
    if not inspect.isclass(cls):
        raise TaskError(
            f"environment {reference!r} is not a class: write package.module:Class of a class "
            f"with reset(), tools and, optionally, get_reward()"
        )
    environment_of(cls)
    return cls


def tool_schemas(cls: type[Any]) -> list[dict[str, Any]]:
    """The JSON schemas of a class's tools, as TRL passes them to chat templates.

    Raises TaskError for a tool without type hints, or without a description of each argument.
    """
    from transformers.utils.chat_template_utils import get_json_schema

    schemas, environment = [], environment_of(cls)
    for name in environment.tools:
        try:
            schemas.append(get_json_schema(MethodType(getattr(cls, name), cls)))
        except Exception as error:  # the library's own errors, and those of annotations
            raise TaskError(
                f"environment {environment.reference}: the tool {name} cannot be described: {error}"
            ) from error
    return schemas


def row_of(prompt: Prompt, messages: Sequence[Mapping[str, Any]]) -> Row:
    """The arguments of `reset` for a prompt: the columns of its row, and the chat as `prompt`."""
    info = json.loads(prompt.info) if prompt.info else {}
    row = {"question": prompt.question, "answer": prompt.answer}
    return row | (info if isinstance(info, dict) else {"info": info}) | {"prompt": [*messages]}


def scores_itself(task: Task) -> bool:
    """Whether a task has environments that give the score of an episode, instead of a marker."""
    if task.environment is None:
        return False
    return environment_of(task.environment).rewards or bool(task.environment_reward)


def reward_mark(task: Task, reward: float | None, truncated: bool) -> Mark:
    """The mark of an episode from the result of `get_reward`.

    An episode that a limit ended and that is not correct is `truncated`. Raises TaskError for a
    reward that is not a score.
    """
    if reward is None:
        return no_answer_mark(truncated)._replace(rule="get_reward")
    if not isfinite(reward):
        return Mark("error", None, "not-finite")
    if not -_ROUNDING <= reward <= 1 + _ROUNDING:
        assert task.environment is not None
        reference = environment_of(task.environment).reference
        title = task.environment_reward or f"get_reward() of {reference}"
        raise TaskError(f"{title} returned {reward:g}: {REWARD}")
    score = min(1.0, max(0.0, reward))
    mark = score_mark(score, None, "get_reward", task.threshold)
    return mark._replace(outcome="truncated") if truncated and mark.outcome == "wrong" else mark


class ToolResult(NamedTuple):
    """The answer to one tool call: the content of its message, and whether it is an error."""

    name: str
    content: Any
    failed: bool


@dataclass
class Session:
    """One environment in play: the row it was reset with, and every call so far.

    Python's and NumPy's generators are seeded: with `start` before the reset, so that all sessions
    of a row draw the same numbers, and with `key` before each turn. After a `failure` it cannot be
    called any more. `seconds` is the time of its calls, without replayed ones.
    """

    key: str
    row: Row
    start: str = ""
    history: list[tuple[list[Any], list[Any]]] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0


class Environments:
    """The child processes in which a task's environments live; a session stays in its process."""

    def __init__(self, task: Task) -> None:
        assert task.environment is not None
        self.environment = environment_of(task.environment)
        self.limits = limits = MarkLimits(*task.mark_limits)
        described = [self.environment.reference, self.environment.version]
        setup = [*described, task.environment_reward, limits.episode_seconds]
        self.children = [
            Children(
                "tasks.environments:player", 1, limits.seconds, int(limits.memory * 2**30), setup
            )
            for _ in range(limits.processes)
        ]

    def reset(
        self, sessions: Sequence[Session], tolerated: float | None = None
    ) -> list[str | None]:
        """Start each environment; the text that continues its prompt, or None.

        After more than `tolerated` failures in a process, the remaining ones fail as "not-tried".
        """
        replies = self._map("reset", sessions, [None] * len(sessions), tolerated)
        return [reply["value"] if reply else None for reply in replies]

    def step(
        self,
        sessions: Sequence[Session],
        calls: Sequence[Sequence[Mapping[str, Any]]],
        tolerated: float | None = None,
    ) -> list[list[ToolResult]]:
        """Make each session's tool calls of one turn; if the session fails, none are made."""
        results = []
        replies = self._map("step", sessions, calls, tolerated)
        for session, own, reply in zip(sessions, calls, replies, strict=True):
            answers = [ToolResult(*each) for each in reply["value"]] if reply else []
            session.history.append(([*own], [each.content for each in answers]))
            results.append(answers)
        return results

    def end(
        self,
        sessions: Sequence[Session],
        chats: Sequence[Sequence[Mapping[str, Any]]],
        tolerated: float | None = None,
    ) -> list[float | None]:
        """The reward of each session; its environment may then serve another session.

        `chats` are the messages of each session after its prompt, which a reward function may read.
        """
        replies = self._map("end", sessions, chats, tolerated)
        return [reply["value"] if reply else None for reply in replies]

    def close(self) -> None:
        """Kill the processes, with all sessions in play."""
        for child in self.children:
            child.close()

    def _map(
        self,
        operation: str,
        sessions: Sequence[Session],
        calls: Sequence[Any],
        tolerated: float | None,
    ) -> list[Any]:
        """The reply to one operation of each session; None if its environment fails.

        Raises TaskError for an invalid return value, and if no process can start.
        """
        replies: list[Any] = [None] * len(sessions)
        count = len(self.children)
        places: list[list[int]] = [[] for _ in range(count)]
        for place, session in enumerate(sessions):
            if not session.failure:
                places[hash_of(session.key) % count].append(place)

        def of_child(number: int) -> None:
            pending: list[tuple[int, list[Any] | None]] = [(p, None) for p in places[number]]
            left = tolerated
            while pending:
                sent, weights = [], []
                for place, past in pending:
                    session, own = sessions[place], calls[place]
                    keys = [session.key, session.start]
                    row = session.row if operation != "step" or past is not None else None
                    sent.append([operation, keys, session.seconds, row, past, own])
                    new_calls = len(own) if operation == "step" else 0
                    weights.append(max(1, len(past or ()) + new_calls))
                given = self.children[number].map(sent, left, weights)
                if left is not None:
                    left -= sum(reply.failure is not None for reply in given)
                lost: list[tuple[int, list[Any] | None]] = []
                for (place, _), reply in zip(pending, given, strict=True):
                    if reply.failure is None and reply.value == "lost":
                        if left is not None and left < 0:
                            sessions[place].failure = str(NOT_TRIED.failure)
                            continue
                        lost.append((place, [*sessions[place].history]))
                    else:
                        called = calls[place] if operation == "step" else ()
                        replies[place] = self._read(sessions[place], operation, called, reply)
                pending = lost

        try:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(of_child, range(count)))
        except ChildError as error:
            raise TaskError(
                f"environment {self.environment.reference}: its process {error.reason}"
            ) from error
        return replies

    def _read(self, session: Session, operation: str, called: Sequence[Any], reply: Reply) -> Any:
        """The value of a reply, or None if the session has now failed."""
        if reply.failure is not None:
            names = [(call.get("function") or {}).get("name") for call in called]
            tools = "+".join(name for name in self.environment.tools if name in names)
            place = os.path.basename(reply.detail) or tools or operation
            failure = reply.failure if reply is NOT_TRIED else f"{reply.failure}@{place}"
            session.failure = failure
            return None
        if wrong := reply.value.get("wrong"):
            raise TaskError(f"environment {self.environment.reference}: {wrong}")
        session.seconds += reply.value["seconds"]
        if session.seconds > self.limits.episode_seconds:
            session.failure = OVER_LIMIT
            return None
        return reply.value


def hash_of(key: str) -> int:
    """A number that depends only on the text: Python's own hash differs between processes."""
    return text_random(key).getrandbits(32)


_started: dict[tuple[Any, ...], Environments] = {}  # of this process


def environments_of(task: Task) -> Environments:
    """The processes of a task's environments; they start when first used."""
    assert task.environment is not None
    described = environment_of(task.environment), task.environment_reward
    key = (os.getpid(), *described, MarkLimits(*task.mark_limits))
    return _started.setdefault(key, Environments(task)) if key not in _started else _started[key]


def player(reference: str, version: str, reward: str, episode_seconds: float) -> Callable[..., Any]:
    """In a child: import the class and return a function that plays many instances at a time."""
    cls = environment_class(reference)
    if environment_of(cls).version != version:
        raise TaskError("its source file has changed since this command began: run it again")
    return _Player(cls, reward_function(reward) if reward else None, episode_seconds)


class _Player:
    """The instances in one child: those in play by the key of their session, and idle ones."""

    def __init__(self, cls: type[Any], reward: RewardFunction | None, limit: float) -> None:
        self.cls = cls
        self.environment = environment_of(cls)
        self.reward = reward
        self.limit = limit  # of seconds for all calls of a session
        self.playing: dict[str, Any] = {}
        self.turns: dict[str, int] = {}  # turns with tool calls, by the key of a session
        self.idle: list[Any] = []  # like TRL, instances are made once and reset often
        parameters = inspect.signature(cls.reset).parameters.values()
        self.accepts = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
        self.accepts_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.runner = asyncio.Runner()

    def __call__(
        self,
        operation: str,
        keys: tuple[str, str],
        spent: float,
        row: Row | None,
        history: list[Any] | None,
        calls: Any,
    ) -> Any:
        started, (key, start) = time.monotonic(), keys
        try:
            if operation == "reset":
                value = self.reset(key, start, row or {})
                if not isinstance(value, str | None):
                    return {"wrong": f"reset() returned {value!r:.80}: {OBSERVATION}"}
            elif key not in self.playing and history is None:
                return "lost"
            else:
                if key not in self.playing:
                    self.replay(key, start, row or {}, history or [])
                    started = time.monotonic()
                ends = operation == "end"
                value = self.end(key, row or {}, calls) if ends else self.step(key, calls)
        except BaseException:
            self.playing.pop(key, None)
            raise
        if operation == "end" and isinstance(value, str):
            return {"wrong": value}
        seconds = time.monotonic() - started
        if spent + seconds > self.limit:  # it is not called again
            self.playing.pop(key, None)
        return {"value": value, "seconds": seconds}

    def reset(self, key: str, start: str, row: Row) -> Any:
        """Start an environment, with the columns of the row that it accepts."""
        self.seed(start, "reset")
        instance = self.idle.pop() if self.idle else self.cls()
        given = {k: v for k, v in row.items() if self.accepts_any or k in self.accepts}
        text = self.awaited(instance.reset(**given))
        self.playing[key] = instance
        self.turns[key] = 0
        return text.encode(errors="replace").decode() if isinstance(text, str) else text

    def replay(self, key: str, start: str, row: Row, history: list[Any]) -> None:
        """Replay a lost instance in a new one. Raises RuntimeError if its replies differ."""
        self.reset(key, start, row)
        for calls, contents in history:
            if [content for _, content, _ in self.step(key, calls)] != contents:
                raise RuntimeError("the environment was lost, and differs when replayed")

    def step(self, key: str, calls: list[Any]) -> list[tuple[str, Any, bool]]:
        """The results of a turn's calls; an error is a result, in TRL's words."""
        self.turns[key] += 1
        self.seed(key, str(self.turns[key]))
        results = []
        for call in calls:
            function = call.get("function") or {}
            name = function.get("name") or call.get("name", "unknown")
            failed = False
            try:
                if call.get("type") != "function":
                    raise ValueError(f"Unsupported tool call type: {call.get('type')}")
                if name not in self.environment.tools:
                    raise ValueError(f"Tool {name} not found.")
                tool = getattr(self.playing[key], name)
                content: Any = self.awaited(tool(**function["arguments"]))
            except Exception as error:  # noqa: BLE001 any error is the model's to read
                content, failed = {"error": str(error)}, True
            if not isinstance(content, list):
                content = str(content).encode(errors="replace").decode()
            results.append((str(name), content, failed))
        return results

    def end(self, key: str, row: Row, chat: list[Any]) -> Any:
        """The reward of an environment, as a number or None; a text describes its error."""
        self.seed(key, "end")
        reward, title = None, "get_reward()"
        if self.reward is not None:
            title = f"reward function {self.reward.reference}"
            given = {"environments": self.playing[key], "completions": chat, **row}
            given |= {"prompts": given.pop("prompt", None)}
            columns = {name: [value] for name, value in given.items()} | {**OF_TRAINER}
            accepted = self.reward.accepted
            named = {k: v for k, v in columns.items() if accepted is None or k in accepted}
            rewards = self.awaited(self.reward.function(**named))
            if not isinstance(rewards, Sequence) or len(rewards) != 1:
                return f"{title} returned {rewards!r:.80} for 1 completion: return a list with one"
            [reward] = rewards
        elif self.environment.rewards:
            reward = self.awaited(self.playing[key].get_reward())
        if reward is not None:
            if hasattr(reward, "item") and not isinstance(reward, Real):
                reward = reward.item()  # of an array or tensor with one number
            if not isinstance(reward, Real):
                return f"{title} returned {reward!r:.80}: {REWARD}"
        self.idle.append(self.playing.pop(key))
        self.turns.pop(key)
        return None if reward is None else float(reward)

    def awaited(self, value: Any) -> Any:
        """The result of an async method."""
        return self.runner.run(value) if inspect.iscoroutine(value) else value

    def seed(self, *parts: str) -> None:
        """Seed the global generators, so that no other session's calls change what is drawn."""
        seed = hash_of("\x1f".join(parts))
        random.seed(seed)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(seed)
