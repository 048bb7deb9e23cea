"""Multi-turn episodes: generate, run the model's tool calls, append their answers, and repeat.

Probes, evaluations and training use the same loop. It follows TRL's `GRPOTrainer._tool_call_loop`:
the same token ids, error texts, and limit, which counts all tokens after the prompt. Each turn of a
sample has its own randomness, which depends only on (seed, prompt_id, sample, turn).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from orchestrator.probing.isolation import NOT_TRIED, TOLERATED_FAILURES
from orchestrator.sampling.base import (
    Completion,
    Episode,
    Finish,
    Interrupted,
    Listener,
    Message,
    Request,
    Sampler,
    SamplingError,
    SamplingSettings,
    TokenSampler,
    drawn,
)
from orchestrator.sampling.tool_calls import ToolChat
from orchestrator.storage.schema import EPISODE, TURNS
from tasks import Prompt, Task
from tasks.environments import Environments, Session, environments_of, row_of, tool_schemas

SampleRequest = tuple[Prompt, Sequence[int]]  # a prompt and the sample indices to draw
AT_ONCE = 256  # episodes in progress, each with a live environment


@dataclass
class _Played:
    """An episode in progress: of one sample, on row `place` of the requests."""

    place: int
    sample: int
    prompt: Prompt
    session: Session
    messages: list[Message]
    prompt_length: int = 0  # messages of the prompt
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)  # of all turns
    mask: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tokens: int = 0  # generated, as the engine counts them
    turns: int = 0
    calls: list[Any] = field(default_factory=list)  # of the last turn
    tool_calls: int = 0
    tool_errors: int = 0
    finish: Finish = "stop"
    playing: bool = True
    before: tuple[int, int, int] = (0, 0, 0)  # ids, texts and messages before the last answers

    def completion(self, reward: float | None) -> Completion:
        """The episode as a completion with the text of all turns."""
        episode = Episode(
            self.messages,
            self.turns,
            self.tool_calls,
            self.tool_errors,
            len(self.mask) - sum(self.mask),
            reward,
            self.session.failure,
            self.session.seconds,
            self.prompt_ids,
            self.mask,
        )
        return Completion("\n".join(self.texts), self.tokens, self.finish, self.ids, episode)


def play(
    sampler: Sampler,
    task: Task,
    requests: Sequence[SampleRequest],
    settings: SamplingSettings,
    stream: str = "",
    max_errors: float = 1.0,
    listener: Listener | None = None,
) -> list[list[Completion]]:
    """One episode per prompt and sample index, as a completion with its `episode`.

    `stream` distinguishes the randomness of episodes of the same samples. If more than the share
    `max_errors` fails, the rest is not played: its failure is NOT_TRIED. Raises TaskError for an
    invalid return value of an environment, SamplingError for a model without tool calls, and
    Interrupted like `Sampler.sample`: unfinished episodes are then None.
    """
    if not isinstance(sampler, TokenSampler) or getattr(sampler, "api", "") == "chat":
        raise SamplingError(
            "multi-turn episodes need an engine that takes token ids: write engine: "
            "transformers, vllm, or server with api: completions"
        )
    assert task.environment is not None
    schemas = tool_schemas(task.environment)
    chat = ToolChat(sampler.tokenizer, schemas, sampler.chat_template_kwargs)
    environments = environments_of(task)
    todo = _episodes(task, requests, f"{stream}{settings.seed}")
    done: dict[tuple[int, int], Completion] = {}
    interrupted: Interrupted | None = None
    tolerated = max(TOLERATED_FAILURES, max_errors * len(todo))
    try:
        for start in range(0, len(todo), AT_ONCE):
            part = todo[start : start + AT_ONCE]
            left = tolerated - _failed(todo)
            interrupted = _play(sampler, task, part, settings, stream, chat, environments, left)
            ended = [each for each in part if not each.playing]
            chats = [each.messages[each.prompt_length :] for each in ended]
            left = max(0.0, left - _failed(part))
            rewards = environments.end([each.session for each in ended], chats, left)
            for each, reward in zip(ended, rewards, strict=True):
                done[each.place, each.sample] = each.completion(reward)
            if listener:
                _tell(listener, requests, ended, done)
            if interrupted or _failed(todo) > tolerated:
                break
    except BaseException:
        environments.close()  # with the episodes in progress
        raise
    if _failed(todo) > tolerated:
        environments.close()
        for each in todo:
            each.session.failure = each.session.failure or NOT_TRIED
            done.setdefault((each.place, each.sample), each.completion(None))
    results: Any = [[done.get((i, s)) for s in ss] for i, (_, ss) in enumerate(requests)]
    if interrupted:
        environments.close()
        raise Interrupted(str(interrupted), results)
    return cast(list[list[Completion]], results)


def _episodes(task: Task, requests: Sequence[SampleRequest], stream: str) -> list[_Played]:
    """The episodes to play, each with its own random stream."""
    todo = []
    for place, (prompt, samples) in enumerate(requests):
        for sample in samples:
            messages: list[Message] = [*task.messages(prompt.question)]
            key = f"{stream}\x1f{prompt.prompt_id}\x1f{sample}"
            session = Session(key, row_of(prompt, messages), prompt.prompt_id)
            todo.append(_Played(place, sample, prompt, session, messages))
    return todo


def _tell(
    listener: Listener,
    requests: Sequence[SampleRequest],
    ended: Sequence[_Played],
    done: Mapping[tuple[int, int], Completion],
) -> None:
    """Report ended episodes; a failed one is not complete, since it is played again."""
    listener.on_ended(len(ended))
    for each in ended:
        if not each.session.failure:
            place = [*requests[each.place][1]].index(each.sample)
            listener.on_completion(each.place, place, done[each.place, each.sample])


def _play(
    sampler: TokenSampler,
    task: Task,
    episodes: Sequence[_Played],
    settings: SamplingSettings,
    stream: str,
    chat: ToolChat,
    environments: Environments,
    tolerated: float,
) -> Interrupted | None:
    """Play until all have ended, more than `tolerated` failed, or the engine is interrupted."""
    texts = environments.reset([each.session for each in episodes], tolerated)
    for each, text in zip(episodes, texts, strict=True):
        if text:
            last = each.messages[-1]
            each.messages[-1] = {**last, "content": last["content"] + text}
        each.prompt_length = len(each.messages)
        each.prompt_ids = chat.prompt(each.messages)
        each.playing = not each.session.failure
    while active := [each for each in episodes if each.playing]:
        if _failed(episodes) > tolerated:
            return None
        try:
            completions = _next_turn(sampler, active, settings, stream)
        except Interrupted as error:
            return error
        for each, completion in zip(active, completions, strict=True):
            _take_turn(each, completion, chat, task.turns)
        calling = [each for each in active if each.calls and each.playing]
        results = environments.step(
            [e.session for e in calling], [e.calls for e in calling], tolerated
        )
        for each, answers in zip(calling, results, strict=True):
            _answer(each, answers, chat, settings.max_completion_length)
    return None


def _failed(episodes: Sequence[_Played]) -> int:
    """The number of failed episodes."""
    return sum(each.session.failure not in ("", NOT_TRIED) for each in episodes)


def _next_turn(
    sampler: TokenSampler, active: Sequence[_Played], settings: SamplingSettings, stream: str
) -> list[Completion]:
    """The model's next turn of each episode; samples with the same chat so far share a request."""
    groups: dict[tuple[Any, ...], list[_Played]] = {}
    for each in active:
        groups.setdefault((each.place, tuple(each.ids), tuple(each.prompt_ids)), []).append(each)
    requests = []
    for group in groups.values():
        first = group[0]
        turn = f"\x1f{first.turns}" if first.turns else ""
        requests.append(
            Request(
                f"{stream}{first.prompt.prompt_id}{turn}",
                [],
                [each.sample for each in group],
                ids=[*first.prompt_ids, *first.ids],
                limit=settings.max_completion_length - len(first.ids),
            )
        )
    results = drawn(sampler, requests, settings)
    by_episode = {
        id(each): completion
        for group, of_group in zip(groups.values(), results, strict=True)
        for each, completion in zip(group, of_group, strict=True)
    }
    return [by_episode[id(each)] for each in active]


def _take_turn(each: _Played, completion: Completion, chat: ToolChat, turns: int) -> None:
    """Append the model's turn; the episode ends here unless it calls tools."""
    each.calls, each.finish = [], completion.finish
    if completion.finish == "error":  # the chat so far is longer than the model's window
        each.playing = False
        if each.turns:
            each.finish = "length"
            ids_end, texts_end, messages_end = each.before
            del each.ids[ids_end:], each.mask[ids_end:]
            del each.texts[texts_end:], each.messages[messages_end:]
        return
    ids = [*completion.ids]
    if not ids:  # an engine that returns only texts
        ids = chat.tokenizer(completion.text, add_special_tokens=False)["input_ids"]
        ids = [*ids, *([chat.tokenizer.eos_token_id] if completion.finish == "stop" else [])]
    message = chat.parse(ids, [*each.prompt_ids, *each.ids])
    each.ids += ids
    each.mask += [1] * len(ids)
    each.texts.append(completion.text)
    each.tokens += completion.tokens
    each.messages.append(message)
    each.turns += 1
    each.calls = message.get("tool_calls") or []
    if each.calls and each.turns == turns:
        each.finish = "length"
    each.playing = bool(each.calls) and each.turns < turns


def _answer(each: _Played, results: Sequence[Any], chat: ToolChat, limit: int) -> None:
    """Append the tools' answers; those that pass the limit are dropped, and end the episode."""
    if each.session.failure:
        each.playing = False
        return
    each.tool_calls += len(results)
    each.tool_errors += sum(result.failed for result in results)
    answers = [{"role": "tool", "name": r.name, "content": r.content} for r in results]
    suffix = chat.suffix(answers)
    if (left := limit - len(each.ids) - len(suffix)) <= 0:
        each.finish, each.playing = "length", False
        if left < 0:
            return
    each.before = len(each.ids), len(each.texts), len(each.messages)
    each.messages += answers
    contents = [result.content for result in results]
    each.texts += [c if isinstance(c, str) else json.dumps(c, ensure_ascii=False) for c in contents]
    each.ids += suffix
    each.mask += [0] * len(suffix)


def episode_row(episode: Episode) -> dict[str, Any]:
    """An episode as it is stored (schema EPISODE)."""
    row = {name: getattr(episode, name) for name in STORED}
    return row | {"messages": json.dumps(episode.messages, ensure_ascii=False)}


STORED = [field.name for field in EPISODE if field.name != "messages"]


def group_row(episode: Episode) -> dict[str, Any]:
    """The stored part of an episode of a group (schema GROUPS)."""
    return {name: getattr(episode, name) for name in (*TURNS, "seconds")}


def stored_episode(row: Mapping[str, Any] | None) -> Episode | None:
    """The episode of a stored row."""
    if row is None:
        return None
    return Episode(json.loads(row["messages"]), **{name: row[name] for name in STORED})
