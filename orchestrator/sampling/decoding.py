"""How one token follows another: random streams, the choice of a token, and the growing cache.

P is the number of distinct prompts in a batch, B of its rows (a row is one sample), L its longest
prompt, and V the vocabulary.
"""

from collections.abc import Iterator
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
from orchestrator.sampling.sharing import SharedPrefixCache

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


class PreallocatedLayer(DynamicLayer):
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


class RepeatedPrefixCache:
    """What the rows of a batch attend to, held by the library: right for layers of every kind.

    All rows begin together, as such layers have no way to take others in.
    """

    def __init__(self, cache: DynamicCache, mask: Tensor, owner: Tensor) -> None:
        self.cache, self.mask, self.lengths = cache, mask, mask.sum(-1)
        self.keep(owner)

    def reading(self, new: Tensor, steps: Tensor) -> dict[str, Any]:
        """Arguments of the forward that reads each row's newest token [B], its `steps`-th [B]."""
        self.mask = pad(self.mask, (0, 1), value=1)
        given = {"input_ids": new[:, None], "position_ids": (self.lengths + steps - 1)[:, None]}
        return {**given, "attention_mask": self.mask, "past_key_values": self.cache}

    def keep(self, rows: Tensor) -> None:
        """Drops or repeats rows; layers of linear attention know no way but `reorder_cache`."""
        self.cache.reorder_cache(rows)  # type: ignore[arg-type]
        self.mask, self.lengths = self.mask[rows], self.lengths[rows]


@dataclass
class DecodeBatch:
    """The rows of a batch; row i of every tensor is the same sample, T the limit on its tokens.

    `prompts` holds what they attend to, `slots` [B] says whose rows they are, `draws` [B, T + 1]
    their uniforms. `tokens` [B, T + 1] were chosen in `steps` [B] steps; end tokens fill the rest.
    `logits` [B, V] are those of the next token, `ended` [B] says whether there will be none.
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
        """All that there is of each row, but for what it attends to."""
        return {name: part for name, part in vars(self).items() if name != "prompts"}

    def write(self, warp: LogitsProcessorList | None, eos: Tensor) -> None:
        """Chooses each row's next token; a row that has ended stays as it is."""
        at = self.steps[:, None]
        new = choose(self.logits, self.draws.gather(1, at)[:, 0], warp)
        new = torch.where(self.ended, eos[0], new)
        self.tokens.scatter_(1, at, new[:, None])
        self.steps = self.steps + ~self.ended
        self.ended = self.ended | torch.isin(new, eos) | (self.steps + 1 == self.tokens.shape[1])

    def reading(self) -> dict[str, Any]:
        """Arguments of the forward that reads each row's newest token."""
        newest = self.tokens.gather(1, self.steps[:, None] - 1)[:, 0]
        return self.prompts.reading(newest, self.steps)

    def joined(self, other: "DecodeBatch") -> "DecodeBatch":
        """These rows and those of `other`, which have written nothing yet."""
        prompts = self.prompts.joined(other.prompts)  # type: ignore[union-attr, arg-type]
        parts = {name: torch.cat([part, other.parts[name]]) for name, part in self.parts.items()}
        return DecodeBatch(prompts, **parts)

    def writing(self) -> "DecodeBatch":
        """The rows that have not ended, of which there must be one."""
        self.prompts.keep(keep := (~self.ended).nonzero()[:, 0])
        return DecodeBatch(self.prompts, **{name: part[keep] for name, part in self.parts.items()})

    def written(self) -> Iterator[tuple[list[int], int]]:
        """Each row's tokens, and how many of them it wrote."""
        return zip(self.tokens.tolist(), self.steps.tolist(), strict=True)


def left_padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, both [P, L]; padding is masked, so any id will do there."""
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, -len(prompt) :] = torch.tensor(prompt)
        mask[i, -len(prompt) :] = 1
    return ids, mask
