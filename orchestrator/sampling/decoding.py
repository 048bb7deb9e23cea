"""How one token follows another: random streams, the choice of a token, and the growing cache.

P is the number of distinct prompts in a batch, B of its rows (a row is one sample), L its longest
prompt, and V the vocabulary.
"""

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
from transformers.cache_utils import DynamicLayer

from orchestrator.sampling.base import SamplingSettings, stream_key

SHRINK_BELOW = 0.75  # copying the cache to fewer rows pays once a quarter of them has ended


def uniforms(seed: int, prompt_id: str, sample: int, length: int) -> np.ndarray:
    """`length` floats in [0, 1) that the triple alone decides; a longer draw begins with them.

    Raw counter-based bits, because NumPy promises their stability and not that of its floats.
    """
    bits = np.random.Philox(key=stream_key(seed, prompt_id, sample)).random_raw(length)
    return np.asarray((bits >> 11) * 2.0**-53)


def warpers(settings: SamplingSettings) -> LogitsProcessorList | None:
    """Temperature, top-k, top-p, meaning and order as in `generate`; None is greedy."""
    if settings.temperature == 0:
        return None
    wanted = LogitsProcessorList()
    if settings.temperature != 1:
        wanted.append(TemperatureLogitsWarper(float(settings.temperature)))
    if settings.top_k > 0:
        wanted.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        wanted.append(TopPLogitsWarper(settings.top_p))
    return wanted


def choose(logits: Tensor, draws: Tensor, warp: LogitsProcessorList | None) -> Tensor:
    """Next tokens [B] from logits [B, V] and uniforms [B]: the inverse of the distribution.

    One uniform per row whatever V is; sums in float64, so that no token of probability 0 is met.
    Raises FloatingPointError where the logits are no numbers.
    """
    if logits.amax(-1).isnan().any():
        raise FloatingPointError("the model gives NaN logits: write dtype float32 or bfloat16")
    if warp is None:
        return logits.argmax(-1)
    scores = warp(None, logits.float())  # type: ignore[arg-type]
    cumulative = scores.softmax(-1).cumsum(-1, dtype=torch.float64)
    goal = draws[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, goal, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A cache layer with spare room behind its tokens; `keys` and `values` are views of the rooms.

    The library's own layer copies all it holds for every token, which took 59 % of a small
    model's time on a CPU. Each room is [B, heads, tokens + spare, head size].
    """

    spare = 32
    rooms: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Appends [B, heads, new, head size] to both, and returns both whole."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        if self.rooms is None or self.rooms[0].shape[-2] < end:
            more = (0, 0, 0, end + self.spare - begin)
            self.rooms = pad(self.keys, more), pad(self.values, more)  # type: ignore[arg-type]
        for room, new in zip(self.rooms, (key_states, value_states), strict=True):
            room[..., begin:end, :] = new
        self.keys, self.values = (room[..., :end, :] for room in self.rooms)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keeps or repeats rows by index; the rooms hold the old rows, so they go."""
        super().reorder_cache(beam_idx)  # type: ignore[arg-type]
        self.rooms = None


@dataclass
class Running:
    """The rows of a batch that still write; row i of every tensor is the same sample.

    `slots` [B] says which row of the answer it is, `draws` [B, T] holds its uniforms, `mask`
    [B, L + T] its attention, `lengths` [B] its prompt's length, `ended` [B] whether it is done.
    """

    cache: DynamicCache
    slots: Tensor
    draws: Tensor
    mask: Tensor
    lengths: Tensor
    ended: Tensor

    def shrunk(self, new: Tensor, alive: int) -> Tensor:
        """The new tokens [B] of the rows kept: all of them, or the living where they are few.

        `reorder_cache`, as layers of linear attention have no other way to choose rows.
        """
        if alive >= SHRINK_BELOW * len(self.ended):
            return new
        keep = (~self.ended).nonzero()[:, 0]
        self.cache.reorder_cache(keep)  # type: ignore[arg-type]
        for name in ("slots", "draws", "mask", "lengths", "ended"):
            setattr(self, name, getattr(self, name)[keep])
        return new[keep]


def left_padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, both [P, L]; padding is masked, so any id will do there."""
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, -len(prompt) :] = torch.tensor(prompt)
        mask[i, -len(prompt) :] = 1
    return ids, mask
