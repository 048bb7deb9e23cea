"""Prompts in, completions out: what every sampling engine promises.

Sample (prompt, i) draws its randomness from (seed, prompt_id, i) alone, so which samples exist
never depends on batching, order or the number of actors. Engines compute in floating point, and a
different batch shape may round differently and now and then turn a token: the promise is replay
from the store, not regeneration bit for bit.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from orchestrator.sampling.model import ModelSource


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
    """One prompt and the sample indices wanted of it; the bare question is for recordings."""

    prompt_id: str
    messages: list[dict[str, str]]
    samples: Sequence[int]
    question: str = ""


class Completion(NamedTuple):
    """One sampled answer: its text without special tokens, its length, and why it ended.

    `tokens` counts the end token where there is one. `finish` is "length" when the limit cut it,
    and "error" where the engine could not answer (a prompt longer than the model's window).
    """

    text: str
    tokens: int
    finish: Literal["stop", "length", "error"]


def cut_at_stop(text: str, stop: Sequence[str]) -> str | None:
    """The text before the first stop string in it, or None where there is none."""
    found = [place for place in map(text.find, stop) if place >= 0]
    return text[: min(found)] if found else None


def stream_key(seed: int, prompt_id: str, sample: int) -> int:
    """128 bits that the triple alone decides: where a sample's randomness begins."""
    digest = hashlib.sha256(f"{seed}\x1f{prompt_id}\x1f{sample}".encode()).digest()
    return int.from_bytes(digest[:16], "little")


def render(
    tokenizer: Any,
    messages: list[dict[str, str]],
    chat_template_kwargs: dict[str, Any],
) -> list[int]:
    """Token ids of a chat up to where the answer begins: the ids that TRL's GRPO trains on."""
    wanted = {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
    rendered = tokenizer.apply_chat_template(messages, **wanted, **chat_template_kwargs)
    return list(rendered["input_ids"])


class Sampler(ABC):
    """An engine that holds one model."""

    chat_template_kwargs: dict[str, Any]
    """Handed to the chat template; may be set anew between two calls."""
    adapts: bool = False
    """Whether `load` takes a `lora_rank`, and adapters can be swapped while the engine is warm."""

    @classmethod
    @abstractmethod
    def load(cls, source: ModelSource, device: str | None = None) -> "Sampler":
        """The engine with the model; `device` None takes the GPU where there is one.

        Raises ValueError for a model that cannot be loaded.
        """

    def adapt(self, folder: Path) -> None:
        """Answer with the LoRA adapter in this folder (PEFT's layout) from now on.

        Only where `adapts`, and after a `load` with `lora_rank`, the largest rank to come.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot swap adapters")

    @abstractmethod
    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, one completion per wanted sample index, in the order asked."""

    @abstractmethod
    def count_tokens(self, requests: Sequence[Request]) -> list[int]:
        """Length in tokens of each rendered prompt."""
