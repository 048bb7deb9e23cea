"""Prompts in, completions out: the interface of every sampling engine.

The randomness of sample i of a prompt depends only on (seed, prompt_id, i), so a sample does not
depend on batching, order or the number of actors. Engines compute in floating point: a different
batch shape may round differently and occasionally change a token. Results are reproduced from the
store, not by sampling again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from cluster.terminal import PlainError
from orchestrator.plugins.counts import counted
from orchestrator.plugins.streams import stream_key as stream_key  # engines of users take it here
from orchestrator.plugins.user_code import is_own, user_errors
from orchestrator.sampling.model import ModelSource

Finish = Literal["stop", "length", "error"]
FINISHES = get_args(Finish)
FORM = "return one list per request, with one Completion(text, tokens, finish) per sample index"


@dataclass(frozen=True)
class SamplingSettings:
    """How completions are drawn; part of a probe's key. `temperature` 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_completion_length: int = 256
    seed: int = 0
    stop: tuple[str, ...] = ()


class Request(NamedTuple):
    """One prompt and the indices of its samples to draw; recordings look up the bare question.

    ids: token ids of an already rendered prompt; `messages` are then ignored. limit: of its
    completions in tokens, if it differs from the settings.
    """

    prompt_id: str
    messages: list[dict[str, str]]
    samples: Sequence[int]
    question: str = ""
    ids: Sequence[int] | None = None
    limit: int | None = None

    def limit_of(self, settings: SamplingSettings) -> int:
        """The token limit of a completion."""
        return settings.max_completion_length if self.limit is None else self.limit


Message = dict[str, Any]  # of a chat with tools: role, content, tool_calls or name


class Episode(NamedTuple):
    """The turns of a completion, of the model and its environment.

    messages: the whole chat, including the prompt. prompt_ids: token ids of the prompt. mask: an
    entry for each token of the completion, 0 if the environment wrote it. turns: of the model.
    tool_errors: calls answered with an error. reward: of the environment. failure: why the
    environment failed, or "". seconds: time of the environment.
    """

    messages: list[Message]
    turns: int
    tool_calls: int
    tool_errors: int
    tool_tokens: int
    reward: float | None = None
    failure: str = ""
    seconds: float = 0.0
    prompt_ids: Sequence[int] = ()
    mask: Sequence[int] = ()


class Completion(NamedTuple):
    """One sampled answer: its text without special tokens, its length, and why it ended.

    tokens: the number of tokens, with the end token, if any. finish: "length" if the limit cut the
    answer, and "error" if the engine could not answer (a prompt longer than the model's window).
    ids: its token ids, including the end token; optional. With an `episode`, the text is that of
    all turns, and `tokens` counts those of the model.
    """

    text: str
    tokens: int
    finish: Finish
    ids: Sequence[int] = ()
    episode: Episode | None = None


def cut_at_stop(text: str, stop: Sequence[str]) -> str | None:
    """The text before its first stop string; None if it has none."""
    positions = [position for position in map(text.find, stop) if position >= 0]
    return text[: min(positions)] if positions else None


class SamplingError(PlainError, RuntimeError):
    """An engine does not start, or failed; the message has its name and the reason."""


def render(
    tokenizer: Any, messages: list[dict[str, str]], chat_template_kwargs: dict[str, Any]
) -> list[int]:
    """Token ids of a chat up to the start of the answer: the same as in TRL's GRPO.

    Raises SamplingError if the model's chat template cannot render it.
    """
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
    try:
        rendered = tokenizer.apply_chat_template(messages, **options, **chat_template_kwargs)
    except Exception as error:  # a template may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise SamplingError(
            f"the model's chat template cannot render a prompt ({reason}): correct the template, "
            "or chat_template_kwargs"
        ) from error
    return list(rendered["input_ids"])


class Interrupted(SamplingError):
    """Some completions could not be drawn; `drawn` is `sample`'s result, with None for these."""

    def __init__(self, message: str, drawn: "list[list[Completion | None]]") -> None:
        super().__init__(message, drawn)
        self.message, self.drawn = message, drawn

    def __str__(self) -> str:
        return self.message


class Listener:
    """Receives an engine's progress, and completions to store, while it draws.

    on_ended: called with the number of further samples that have ended. on_completion: called with
    the positions of request and sample, and the completion; an engine may call it for some, all or
    no completions.
    """

    def __init__(
        self,
        on_ended: Callable[[int], None],
        on_completion: Callable[[int, int, Completion], None] = lambda *_: None,
    ) -> None:
        self.on_ended = on_ended
        self.on_completion = on_completion


Listeners = Callable[[int], Listener | None]  # the listener for this number of completions


def nobody(completions: int) -> None:
    """No listener."""


class Sampler(ABC):
    """An engine that holds one model."""

    chat_template_kwargs: dict[str, Any]
    """Passed to the chat template; may be changed between two calls."""
    adapts: bool = False
    """Whether `load` takes a `lora_rank`, and adapters can be swapped without reloading."""
    adapter_label: str = ""
    """The name of the next adapter on a shared engine; set before `adapt`."""
    listener: "Listener | None" = None
    """If set, `sample` notifies it of ended samples immediately.

    Engines may ignore it: samples are then counted and stored when `sample` returns.
    """

    @classmethod
    def version(cls) -> str:
        """The library that generates and its version, such as vllm 0.30.0; empty if there is none.

        Raises ValueError if it is not installed.
        """
        return ""

    @classmethod
    @abstractmethod
    def load(cls, source: ModelSource, device: str | None = None) -> "Sampler":
        """The engine with the model; `device` None uses the GPU, if there is one.

        Further keyword arguments of an engine are its `engine_args` in experiments.yaml. Raises
        ValueError for a model that cannot be loaded.
        """

    def adapt(self, folder: Path) -> None:
        """Sample with the LoRA adapter in this folder (PEFT's layout) from now on.

        Only if `adapts`, and after `load` with `lora_rank`, the largest rank of all adapters.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot swap adapters")

    def drop_adapter(self) -> None:  # noqa: B027 (most engines replace it at the next `adapt`)
        """Free resources that `adapt` holds outside this process."""

    @abstractmethod
    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, one completion per sample index, in the order of the request.

        Raises Interrupted if some cannot be drawn now but later.
        """


class TokenSampler(Sampler):
    """An engine that takes token ids: prompts are rendered with the model's `tokenizer`."""

    tokenizer: Any

    def count_tokens(self, requests: Sequence[Request]) -> list[int]:
        """Length in tokens of each rendered prompt."""
        return [len(ids) for ids in self.rendered(requests)]

    def rendered(self, requests: Sequence[Request]) -> list[list[int]]:
        """Token ids of each prompt."""
        return [
            render(self.tokenizer, r.messages, self.chat_template_kwargs)
            if r.ids is None
            else [*r.ids]
            for r in requests
        ]


@contextmanager
def listening(sampler: Sampler, listener: Listener | None) -> Iterator[None]:
    """Let the engine notify this listener inside the block."""
    before = getattr(sampler, "listener", None)
    sampler.listener = listener
    try:
        yield
    finally:
        sampler.listener = before


def engine_errors(engine: type, call: str) -> AbstractContextManager[None]:
    """Turn an exception of a user's own engine into a SamplingError with the place.

    Errors of built-in engines do not change.
    """
    return user_errors(f"{title_of(engine)}: {call}()", SamplingError, engine)


def title_of(engine: type) -> str:
    """The name of an engine in messages."""
    return f"engine {engine.__module__}:{engine.__qualname__}"


def drawn(
    sampler: Sampler, requests: Sequence[Request], settings: SamplingSettings
) -> list[list[Completion]]:
    """The completions of each request. Raises SamplingError if a user's own engine fails."""
    engine, interrupted = type(sampler), None
    users = not is_own(engine)
    listener = getattr(sampler, "listener", None)
    results: Any
    try:
        with (
            listening(sampler, _checked(listener, requests) if users and listener else listener),
            engine_errors(engine, "sample"),
        ):
            results = sampler.sample(requests, settings)
    except Interrupted as error:
        results, interrupted = error.drawn, error
    partial = interrupted is not None
    if users and (problem := _check(results, requests, partial)):
        raise SamplingError(f"{title_of(engine)}: sample() returned {problem}: {FORM}")
    if interrupted:
        raise interrupted
    return results


def _check(results: Any, requests: Sequence[Request], partial: bool) -> str:
    """The problem with the completions of an engine, or "".

    If `partial`, None stands for a missing one.
    """
    if not isinstance(results, list | tuple) or len(results) != len(requests):
        return f"{_size(results)} for {counted(len(requests), 'request')}"
    for request, of_prompt in zip(requests, results, strict=True):
        if not isinstance(of_prompt, list | tuple) or len(of_prompt) != len(request.samples):
            return f"{_size(of_prompt)} for {counted(len(request.samples), 'sample')} of a request"
        for completion in of_prompt:
            if partial and completion is None:
                continue
            if problem := _completion_problem(completion):
                return problem
    return ""


def _completion_problem(completion: Any) -> str:
    if not isinstance(completion, Completion):
        return f"{completion!r:.80} as a completion"
    text, tokens, finish, *_ = completion
    if not isinstance(text, str) or type(tokens) is not int or finish not in FINISHES:
        return f"{completion!r:.160}"
    return ""


def _checked(listener: Listener, requests: Sequence[Request]) -> Listener:
    """The same for a user's own engine: notifications are checked like its results."""

    def on_completion(request: int, place: int, completion: Completion) -> None:
        if not (0 <= request < len(requests) and 0 <= place < len(requests[request].samples)):
            raise ValueError(f"on_completion() got {request}, {place}: no such sample: {FORM}")
        if problem := _completion_problem(completion):
            raise ValueError(f"on_completion() got {problem}: {FORM}")
        listener.on_completion(request, place, completion)

    return Listener(listener.on_ended, on_completion)


def _size(value: Any) -> str:
    return (
        f"{counted(len(value), 'value')}"
        if isinstance(value, list | tuple)
        else type(value).__name__
    )
