"""Decoding a batch token by token: random numbers, sampling a token, and the rows of a batch.

P is the number of distinct prompts in a batch, B of its rows (a row is one sample), L its longest
prompt, and V the vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from orchestrator.sampling.base import SamplingSettings, stream_key
from orchestrator.sampling.sharing import SharedPrefixCache


@contextmanager
def allocation_errors() -> Iterator[None]:
    """Raise torch.OutOfMemoryError, as on a GPU, where memory for a tensor runs out on a CPU."""
    try:
        yield
    except RuntimeError as error:
        if "DefaultCPUAllocator: can't allocate memory" not in str(error):
            raise
        raise torch.OutOfMemoryError(str(error)) from error


def uniforms(seed: int, prompt_id: str, sample: int, length: int) -> np.ndarray:
    """`length` floats in [0, 1) that depend on the triple alone; a longer draw starts with them.

    From raw counter-based bits: NumPy promises that those are stable, but not its floats.
    """
    bits = np.random.Philox(key=stream_key(seed, prompt_id, sample)).random_raw(length)
    return np.asarray((bits >> 11) * 2.0**-53)


def logits_processors(settings: SamplingSettings) -> LogitsProcessorList | None:
    """Temperature, top-k and top-p, in the order of `generate`; None for greedy decoding."""
    if settings.temperature == 0:
        return None
    processors = LogitsProcessorList()
    if settings.temperature != 1:
        processors.append(TemperatureLogitsWarper(float(settings.temperature)))
    if settings.top_k > 0:
        processors.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        processors.append(TopPLogitsWarper(settings.top_p))
    return processors


def sample_tokens(logits: Tensor, draws: Tensor, processors: LogitsProcessorList | None) -> Tensor:
    """Next tokens [B] from logits [B, V] and uniforms [B], by inverse transform sampling.

    One uniform per row whatever V is; sums are float64, so that a token of probability 0 is never
    drawn. Raises FloatingPointError where the logits hold NaN.
    """
    if logits.amax(-1).isnan().any():
        raise FloatingPointError("the model gives NaN logits: write dtype float32 or bfloat16")
    if processors is None:
        return logits.argmax(-1)
    scores = processors(None, logits.float())  # type: ignore[arg-type]
    cumulative = scores.softmax(-1).cumsum(-1, dtype=torch.float64)
    goal = draws[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, goal, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)


class RepeatedPrefixCache:
    """Keys and values of a batch in the library's own cache: correct for layers of every kind.

    All rows start together, because such layers cannot add rows later.
    """

    def __init__(self, cache: DynamicCache, mask: Tensor, owner: Tensor) -> None:
        self.cache, self.mask, self.lengths = cache, mask, mask.sum(-1)
        self.keep(owner)

    def step_inputs(self, new: Tensor, steps: Tensor) -> dict[str, Any]:
        """Forward arguments that read each row's newest token [B], its `steps`-th [B]."""
        self.mask = pad(self.mask, (0, 1), value=1)
        return {
            "input_ids": new[:, None],
            "position_ids": (self.lengths + steps - 1)[:, None],
            "attention_mask": self.mask,
            "past_key_values": self.cache,
        }

    def keep(self, rows: Tensor) -> None:
        """Select or repeat rows; for layers of linear attention `reorder_cache` is the only way."""
        self.cache.reorder_cache(rows)  # type: ignore[arg-type]
        self.mask, self.lengths = self.mask[rows], self.lengths[rows]


@dataclass
class DecodeBatch:
    """The rows of a batch: row i of every tensor is the same sample, T the limit on its tokens.

    `prompts` is the cache they attend to, `slots` [B] their positions in the caller's list, `draws`
    [B, T + 1] their uniforms. `tokens` [B, T + 1] were sampled in `steps` [B] steps; end tokens
    fill the rest. `logits` [B, V] belong to the next token; `ended` [B] rows get no further one.
    """

    prompts: SharedPrefixCache | RepeatedPrefixCache
    logits: Tensor
    slots: Tensor
    draws: Tensor
    tokens: Tensor
    steps: Tensor
    ended: Tensor

    @property
    def parts(self) -> dict[str, Tensor]:
        """The tensors that have one entry per row."""
        return {name: part for name, part in vars(self).items() if name != "prompts"}

    def step(self, processors: LogitsProcessorList | None, eos: Tensor) -> None:
        """Sample each row's next token; rows that have ended stay as they are."""
        at = self.steps[:, None]
        new = sample_tokens(self.logits, self.draws.gather(1, at)[:, 0], processors)
        new = torch.where(self.ended, eos[0], new)
        self.tokens.scatter_(1, at, new[:, None])
        self.steps = self.steps + ~self.ended
        self.ended = self.ended | torch.isin(new, eos) | (self.steps + 1 == self.tokens.shape[1])

    def step_inputs(self) -> dict[str, Any]:
        """Forward arguments that read each row's newest token."""
        newest = self.tokens.gather(1, self.steps[:, None] - 1)[:, 0]
        return self.prompts.step_inputs(newest, self.steps)

    def concat(self, other: "DecodeBatch") -> "DecodeBatch":
        """These rows followed by those of `other`, which have no tokens yet."""
        prompts = self.prompts.concat(other.prompts)  # type: ignore[union-attr, arg-type]
        parts = {name: torch.cat([part, other.parts[name]]) for name, part in self.parts.items()}
        return DecodeBatch(prompts, **parts)

    def running(self) -> "DecodeBatch":
        """The rows that have not ended, at least one."""
        self.prompts.keep(keep := (~self.ended).nonzero()[:, 0])
        return DecodeBatch(self.prompts, **{name: part[keep] for name, part in self.parts.items()})

    def sampled(self) -> Iterator[tuple[list[int], int]]:
        """Each row's tokens, and how many of them were sampled."""
        return zip(self.tokens.tolist(), self.steps.tolist(), strict=True)


def left_padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, both [P, L]; padding is masked, so its id does not matter."""
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, -len(prompt) :] = torch.tensor(prompt)
        mask[i, -len(prompt) :] = 1
    return ids, mask
