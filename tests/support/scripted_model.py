"""A model whose turns are written by a function, with tools: as a sampler, and as an engine."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.vocabulary import RESPONSE
from orchestrator.sampling.base import (
    Completion,
    Interrupted,
    Request,
    Sampler,
    SamplingSettings,
    TokenSampler,
)

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{% set f = c.function %}"
    '<tool_call>{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def characters() -> Any:
    """A tokenizer of single characters, whose chat template renders tool calls."""
    vocabulary = {c: i for i, c in enumerate(["\n", *map(chr, range(32, 127))])}
    bare = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")  # type: ignore[assignment]
    bare.decoder = decoders.Fuse()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template, tokenizer.response_template = CHAT, RESPONSE
    return tokenizer


Turns = Callable[[str, int], str]  # the chat so far, and the sample -> the model's turn


class Scripted(TokenSampler):
    """A model whose turns a function writes; it ends after `stops_after` calls of `sample`."""

    def __init__(self, turns: Turns, window: int = 10_000, stops_after: int = 10_000) -> None:
        self.turns, self.window, self.left = turns, window, stops_after
        self.tokenizer = characters()
        self.chat_template_kwargs: dict[str, Any] = {}
        self.requests: list[Request] = []

    @classmethod
    def load(cls, source: Any, device: str | None = None) -> Sampler:
        raise NotImplementedError

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        if not self.left:
            raise Interrupted("gone", cast(Any, [[None] * len(r.samples) for r in requests]))
        self.left -= 1
        self.requests += requests
        return [[self.turn(r, sample, settings) for sample in r.samples] for r in requests]

    def turn(self, request: Request, sample: int, settings: SamplingSettings) -> Completion:
        [ids] = self.rendered([request])
        if len(ids) >= self.window:
            return Completion("", 0, "error")
        text = self.turns(self.tokenizer.decode(ids), sample)
        drawn = self.tokenizer(f"{text}<|im_end|>")["input_ids"]
        cut = drawn[: request.limit_of(settings)]
        shown = self.tokenizer.decode(cut, skip_special_tokens=True)
        return Completion(shown, len(cut), "stop" if cut == drawn else "length", cut)


def calls(*made: Mapping[str, Any]) -> str:
    return "".join(f"<tool_call>{json.dumps(each['function'])}</tool_call>" for each in made)


def guess(number: int) -> dict[str, Any]:
    """A call of the tool `guess`."""
    return {"type": "function", "function": {"name": "guess", "arguments": {"number": number}}}


def counting(chat: str, sample: int) -> str:
    """Guesses 0, 1, 2, … until the answer is "correct"."""
    if chat.endswith("correct<|im_end|>\n<|im_start|>assistant\n"):
        return "Done."
    return calls(guess(chat.count("tool_call>") // 2))


class Engine(Scripted):
    """The same as an engine of the user's own, slow enough to be killed at its work."""

    adapts = True

    @classmethod
    def load(cls, source: Any, device: str | None = None, lora_rank: int = 0) -> Self:
        return cls(lambda chat, sample: "No." if sample == 1 else counting(chat, sample))

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        time.sleep(0.2)
        return super().sample(requests, settings)
