"""Rows that share what they have read: a prompt's keys and values are held once for all its rows.

The library's own cache repeats them for every row. On a CPU a small model then spends most of a
step fetching copies of the same numbers, and a row that comes or goes takes its prompt along.

P is the number of prompts, B of rows, L the longest prompt, N the columns of tokens written, H the
key and value heads, G the query heads to each of them, and d a head's size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer

ATTENTION = "decile_shared_prompts"
SPARE = 32  # columns: what the rows wrote is copied once in so many tokens


class Layer:
    """One layer's keys and values: of the prompts [P, H, L, d], and what the rows wrote.

    The latter lie in rooms [B or more, H, N or more, d], where a new token or row moves nothing;
    what is stale there is finite, and masked.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.prompt = [keys, values]
        self.rooms = [t.new_zeros(0, t.shape[1], 0, t.shape[3]) for t in self.prompt]

    def written(self, columns: int, *new: Tensor) -> list[Tensor]:
        """The rows' keys and values in `columns` columns; `new`, [B, H, 1, d] each, is the last."""
        rows = len(new[0])
        self._fit(rows, columns)
        for room, token in zip(self.rooms, new, strict=True):
            room[:rows, :, columns - 1] = token[:, :, 0]
        return [room[:rows, :, :columns] for room in self.rooms]

    def keep(self, rows: Tensor, begin: int, end: int) -> None:
        """Moves the columns from `begin` to `end` of these rows to the front."""
        self._fit(int(rows[-1]) + 1, end)
        for room in self.rooms:
            room[: len(rows), :, : end - begin] = room[rows, :, begin:end]

    def _fit(self, rows: int, columns: int) -> None:
        high, _, wide, _ = self.rooms[0].shape
        if rows > high or columns > wide:
            more = (0, 0, 0, SPARE if columns > wide else 0, 0, 0, 0, max(0, rows - high))
            self.rooms = [pad(room, more) for room in self.rooms]


class SharedPrefixCache:
    """What the rows of a batch attend to: each its prompt, and what it wrote itself.

    `mask` [P, L] is the prompts' attention. Rows are in order of age: `owner` [B], which prompt a
    row continues, never falls, nor does `begin` [B], the column of a row's first own token.
    """

    def __init__(self, cache: DynamicCache, mask: Tensor, owner: Tensor) -> None:
        self.layers = [Layer(kept.keys, kept.values) for kept in cache.layers]  # type: ignore
        self.mask, self.owner, self.columns = mask, owner, 0
        self.begin = torch.zeros_like(owner)
        self.attended = 0
        self._arrange()

    @staticmethod
    def suit(model: Any) -> bool:
        """Whether the model attends with `sdpa` over all it has read, in every layer."""
        config = model.config.get_text_config(decoder=True)
        plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
        hooked = getattr(model, "_supports_attention_backend", False)
        return plain and hooked and config._attn_implementation == "sdpa"

    def reading(self, new: Tensor, steps: Tensor) -> dict[str, Any]:
        """Arguments of the forward that reads each row's newest token [B], its `steps`-th [B]."""
        self.columns += 1
        every = torch.arange(self.columns, device=new.device)
        self.unwritten = _hiding(every < self.begin[:, None], self.dtype)
        at = (self.lengths + steps - 1)[:, None]
        return {"input_ids": new[:, None], "position_ids": at, "use_cache": False, "shared": self}

    def joined(self, other: Self) -> Self:
        """Takes in rows that have not written yet, and their prompts."""
        for layer, its in zip(self.layers, other.layers, strict=True):
            pairs = zip(layer.prompt, its.prompt, strict=True)
            layer.prompt = [_stacked(mine, new) for mine, new in pairs]
        self.owner = torch.cat([self.owner, other.owner + len(self.mask)])
        self.mask = _stacked(self.mask[..., None], other.mask[..., None])[..., 0]
        self.begin = torch.cat([self.begin, other.begin + self.columns])
        self._arrange()
        return self

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these, and the prompts and columns that none of them needs."""
        prompts, self.owner = self.owner[rows].unique(return_inverse=True)
        self.mask, self.begin = self.mask[prompts], self.begin[rows]
        longest, first = int(self.mask.sum(-1).max()), int(self.begin[0])
        for layer in self.layers:
            layer.keep(rows, first, self.columns)
            layer.prompt = [t[prompts, :, -longest:] for t in layer.prompt]
        self.mask = self.mask[:, -longest:]
        self.begin, self.columns = self.begin - first, self.columns - first
        self._arrange()

    def _arrange(self) -> None:
        """Places the rows in a grid: a line for each prompt, as wide as the most rows of one."""
        counts = self.owner.bincount()
        every = torch.arange(len(self.owner), device=self.owner.device)
        self.place = every - (counts.cumsum(0) - counts)[self.owner]
        self.member = every.new_zeros(len(counts), int(counts.max()))
        self.member[self.owner, self.place] = every
        self.lengths = self.mask.sum(-1)[self.owner]
        self.dtype = self.layers[0].prompt[0].dtype
        self.padding = _hiding(self.mask == 0, self.dtype)
        # The young need few columns: cut where that spares most of what the young did not write.
        split = int(((len(every) - every) * self.begin).argmax())
        young = (slice(split, None), int(self.begin[split]))
        self.blocks = [(slice(split), 0), young] if split else [young]

    def to_grid(self, rows: Tensor) -> Tensor:
        """[P, H, width * G, n] of the rows' [B, H, G, n]; a place without a row holds any row."""
        return rows[self.member].transpose(1, 2).flatten(2, 3)

    def to_rows(self, grid: Tensor) -> Tensor:
        """[B, H, G, n] of the grid's [P, H, width * G, n]."""
        return grid.unflatten(2, (self.member.shape[1], -1))[self.owner, :, self.place]


def _hiding(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to scores [., H, G, n] so that columns `hidden` [., n] are not attended to."""
    bias = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return bias.masked_fill_(hidden, -torch.inf)[:, None, None]


def _stacked(first: Tensor, second: Tensor) -> Tensor:
    """One behind the other; the shorter, on the last axis but one, is padded on its left."""
    rows, length = len(first), max(first.shape[-2], second.shape[-2])
    out = first.new_zeros(rows + len(second), *first.shape[1:-2], length, first.shape[-1])
    out[:rows, ..., length - first.shape[-2] :, :] = first
    out[rows:, ..., length - second.shape[-2] :, :] = second
    return out


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    *,
    shared: SharedPrefixCache,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention [B, 1, H * G, d] of each row's newest token: one softmax over prompt and own."""
    if position_bias is not None:
        raise NotImplementedError("prompts cannot be shared under a position bias: attend eagerly")
    shared.attended += 1
    layer = shared.layers[module.layer_idx]  # type: ignore[index]
    keys, values = layer.written(shared.columns, key, value)
    rows, heads, _one, size = query.shape
    asked = (query * (scaling or size**-0.5)).reshape(rows, key.shape[1], -1, size)
    read = shared.to_rows(shared.to_grid(asked) @ layer.prompt[0].mT + shared.padding)
    of_prompt, of_own = [], []
    for block, first in shared.blocks:
        scores = asked[block] @ keys[block, :, first:].mT + shared.unwritten[block, ..., first:]
        weights = torch.cat((read[block], scores), -1).softmax(-1, torch.float32).to(query.dtype)
        of_prompt.append(weights[..., : read.shape[-1]])
        of_own.append(weights[..., read.shape[-1] :] @ values[block, :, first:])
    out = shared.to_rows(shared.to_grid(torch.cat(of_prompt)) @ layer.prompt[1])
    return (out + torch.cat(of_own)).reshape(rows, 1, heads, -1), None


@contextmanager
def attending(model: Any, given: dict[str, Any]) -> Iterator[None]:
    """Inside, a model whose arguments say that rows share attends through `attend`.

    Raises RuntimeError where a layer of it did not, as its logits then mean nothing.
    """
    shared: SharedPrefixCache | None = given.get("shared")
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    if shared:
        config._attn_implementation, shared.attended = ATTENTION, 0
    try:
        yield
    finally:
        config._attn_implementation = before
    if shared and shared.attended != len(shared.layers):
        raise RuntimeError(f"{type(model).__name__} has attention that prompts cannot be shared in")


AttentionInterface.register(ATTENTION, attend)
