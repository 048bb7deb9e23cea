"""Decodes a batch token by token, with a cache that stores a prompt once for all of its rows.

The library's own cache repeats prompts for every row. On a CPU, a small model then spends most of a
step fetching copies of the same numbers, and adding or removing a row also copies its prompt.

Sizes: P distinct prompts in a batch, B rows (a row is one sample), L tokens of the longest prompt,
V tokens in the vocabulary, N columns of sampled tokens, H key and value heads, G query heads per
key head, d numbers per head.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, DynamicCache

from orchestrator.plugins.streams import raw_bits, stream_key
from orchestrator.sampling.base import SamplingSettings
from orchestrator.sampling.token_choice import sample_tokens
from orchestrator.sampling.transformers_internals import attention_function

ATTENTION = "decile_shared_prompts"
SPARE = 32  # columns: buffers grow, with a copy, once per this many tokens
LEAST_SHARED = 32  # tokens: a shorter common beginning costs a pass that it does not save


class SharedLayer:
    """One layer's keys and values: of the prompts [P, H, L, d], and of the rows' own tokens.

    The latter are in buffers [B or more, H, N or more, d], so that new tokens and rows do not move
    data; stale values there are finite and masked.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.prompt = [keys, values]
        self.buffers = [t.new_zeros(0, t.shape[1], 0, t.shape[3]) for t in self.prompt]

    def append(self, columns: int, *new: Tensor) -> list[Tensor]:
        """Store `new` keys and values, [B, H, 1, d] each; returns all `columns` columns."""
        rows = len(new[0])
        self._grow(rows, columns)
        for buffer, token in zip(self.buffers, new, strict=True):
            buffer[:rows, :, columns - 1] = token[:, :, 0]
        return [buffer[:rows, :, :columns] for buffer in self.buffers]

    def keep(self, rows: Tensor, begin: int, end: int) -> None:
        """Move the columns from `begin` to `end` of these rows to the front."""
        self._grow(int(rows[-1]) + 1, end)
        for buffer in self.buffers:
            buffer[: len(rows), :, : end - begin] = buffer[rows, :, begin:end]

    def _grow(self, rows: int, columns: int) -> None:
        height, _, width, _ = self.buffers[0].shape
        if rows > height or columns > width:
            more = (0, 0, 0, SPARE if columns > width else 0, 0, 0, 0, max(0, rows - height))
            self.buffers = [pad(buffer, more) for buffer in self.buffers]


class SharedPrefixCache:
    """Keys and values of a batch: each row attends to its prompt and to its own tokens.

    mask: [P, L], the prompts' attention mask. owner: [B], the prompt of each row. begin: [B], the
    column of each row's first token. Rows are in order of age: `owner` and `begin` never decrease.
    """

    def __init__(self, cache: DynamicCache, mask: Tensor, owner: Tensor) -> None:
        self.layers = [SharedLayer(each.keys, each.values) for each in cache.layers]
        self.mask = mask
        self.owner = owner
        self.columns = 0
        self.begin = torch.zeros_like(owner)
        self.attended = 0
        self._arrange()

    def step_inputs(self, new: Tensor, steps: Tensor) -> dict[str, Any]:
        """Forward arguments that read each row's newest token [B], its `steps`-th [B]."""
        self.columns += 1
        columns = torch.arange(self.columns, device=new.device)
        self.unwritten = _mask_bias(columns < self.begin[:, None], self.dtype)
        at = (self.lengths + steps - 1)[:, None]
        return {"input_ids": new[:, None], "position_ids": at, "use_cache": False, "shared": self}

    def concat(self, others: Sequence[Self]) -> Self:
        """Add rows that have no tokens yet, and their prompts; the originals are freed."""
        for layers in zip(self.layers, *(other.layers for other in others), strict=True):
            pairs = zip(*(layer.prompt for layer in layers), strict=True)
            joined = [_concat_padded(each) for each in pairs]
            for layer in layers:
                layer.prompt = []  # only one layer at a time has two copies in memory
            layers[0].prompt = joined
        counts = [len(each.mask) for each in (self, *others)]
        first = [0, *accumulate(counts)]
        owners = [each.owner + start for each, start in zip((self, *others), first, strict=False)]
        self.owner = torch.cat(owners)
        self.mask = _concat_padded([each.mask[..., None] for each in (self, *others)])[..., 0]
        self.begin = torch.cat([self.begin, *(other.begin + self.columns for other in others)])
        self._arrange()
        return self

    def keep(self, rows: Tensor) -> None:
        """Drop all rows except these, and prompts and columns that none of them needs."""
        prompts, self.owner = self.owner[rows].unique(return_inverse=True)
        self.mask = self.mask[prompts]
        self.begin = self.begin[rows]
        longest = int(self.mask.sum(-1).max())
        first = int(self.begin[0])
        for layer in self.layers:
            layer.keep(rows, first, self.columns)
            layer.prompt = [t[prompts, :, -longest:] for t in layer.prompt]
        self.mask = self.mask[:, -longest:]
        self.begin = self.begin - first
        self.columns = self.columns - first
        self._arrange()

    def _arrange(self) -> None:
        """Place the rows in a grid: one line per prompt, as wide as the largest group of rows."""
        counts = self.owner.bincount()
        rows = torch.arange(len(self.owner), device=self.owner.device)
        self.place = rows - (counts.cumsum(0) - counts)[self.owner]
        self.member = rows.new_zeros(len(counts), int(counts.max()))
        self.member[self.owner, self.place] = rows
        self.lengths = self.mask.sum(-1)[self.owner]
        self.dtype = self.layers[0].prompt[0].dtype
        self.padding = _mask_bias(self.mask == 0, self.dtype)
        # New rows use few columns: split at the place that skips most unfilled columns.
        split = int(((len(rows) - rows) * self.begin).argmax())
        young = (slice(split, None), int(self.begin[split]))
        self.blocks = [(slice(split), 0), young] if split else [young]

    def group_by_prompt(self, rows: Tensor) -> Tensor:
        """[P, H, width * G, n] from rows [B, H, G, n]; empty places hold any row."""
        return rows[self.member].transpose(1, 2).flatten(2, 3)

    def ungroup(self, grid: Tensor) -> Tensor:
        """Rows [B, H, G, n] from [P, H, width * G, n]."""
        return grid.unflatten(2, (self.member.shape[1], -1))[self.owner, :, self.place]


def _mask_bias(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias for scores [., H, G, n] that hides columns `hidden` [., n] from attention."""
    bias = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return bias.masked_fill_(hidden, -torch.inf)[:, None, None]


def _concat_padded(parts: Sequence[Tensor]) -> Tensor:
    """Concatenated on axis 0; parts shorter on the second last axis are padded on the left."""
    length = max(part.shape[-2] for part in parts)
    rows = sum(map(len, parts))
    out = parts[0].new_zeros(rows, *parts[0].shape[1:-2], length, parts[0].shape[-1])
    for part, place in zip(parts, out.split([*map(len, parts)]), strict=True):
        place[..., length - part.shape[-2] :, :] = part
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
    """Attention [B, 1, H * G, d] of each row's newest token to its prompt and its own tokens."""
    if position_bias is not None:
        raise NotImplementedError(
            "prompts cannot be shared by models with a position bias: "
            "write attn_implementation: eager"
        )
    shared.attended += 1
    layer = shared.layers[module.layer_idx]  # type: ignore[index]
    keys, values = layer.append(shared.columns, key, value)
    rows, heads, _one, size = query.shape
    grouped = (query * (scaling or size**-0.5)).reshape(rows, key.shape[1], -1, size)
    prompt_scores = shared.group_by_prompt(grouped) @ layer.prompt[0].mT + shared.padding
    read = shared.ungroup(prompt_scores)
    prompt_weights, own_values = [], []
    for block, first in shared.blocks:
        scores = grouped[block] @ keys[block, :, first:].mT + shared.unwritten[block, ..., first:]
        weights = torch.cat((read[block], scores), -1).softmax(-1, torch.float32).to(query.dtype)
        prompt_weights.append(weights[..., : read.shape[-1]])
        own_values.append(weights[..., read.shape[-1] :] @ values[block, :, first:])
    out = shared.ungroup(shared.group_by_prompt(torch.cat(prompt_weights)) @ layer.prompt[1])
    return (out + torch.cat(own_values)).reshape(rows, 1, heads, -1), None


@contextmanager
def shared_attention(model: Any, inputs: dict[str, Any]) -> Iterator[None]:
    """Let the model attend with `attend` if its forward arguments have a shared cache.

    Raises RuntimeError if a layer did not, because the logits are then wrong.
    """
    shared: SharedPrefixCache | None = inputs.get("shared")
    if shared is None:
        yield
        return
    shared.attended = 0
    with attention_function(model, ATTENTION):
        yield
    if shared.attended != len(shared.layers):
        raise RuntimeError(
            f"{type(model).__name__} has layers that do not support shared prompts: "
            "write attn_implementation: eager"
        )


AttentionInterface.register(ATTENTION, attend)


@contextmanager
def allocation_errors() -> Iterator[None]:
    """Raise torch.OutOfMemoryError, as on a GPU, if memory for a tensor runs out on a CPU."""
    try:
        yield
    except RuntimeError as error:
        if "DefaultCPUAllocator: can't allocate memory" not in str(error):
            raise
        raise torch.OutOfMemoryError(str(error)) from error


def uniforms(seed: int, prompt_id: str, sample: int, length: int) -> np.ndarray:
    """`length` floats in [0, 1) that depend only on the triple; a longer draw starts with them."""
    bits = raw_bits(stream_key(seed, prompt_id, sample), length)
    return np.asarray((bits >> 11) * 2.0**-53)


class RepeatedPrefixCache:
    """Keys and values of a batch in the library's own cache: correct for all kinds of layers.

    All rows start together, because such layers cannot add rows later.
    """

    def __init__(self, cache: DynamicCache, mask: Tensor, owner: Tensor) -> None:
        self.cache = cache
        self.mask = mask
        self.lengths = mask.sum(-1)
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
        """Select or repeat rows; layers of linear attention only support `reorder_cache`."""
        self.cache.reorder_cache(rows)
        self.mask = self.mask[rows]
        self.lengths = self.lengths[rows]


@dataclass
class DecodeBatch:
    """The rows of a batch: row i of every tensor is the same sample; T is the limit on its tokens.

    prompts: the cache that the rows attend to. slots: [B], their positions in the caller's list.
    draws: [B, T + 1], their uniforms. tokens, log_probs: [B, T + 1], sampled in `steps` [B] steps
    of at most `limits` [B]; end tokens fill the rest. logits: [B, V], of the next token. ended:
    [B], rows without further tokens.
    """

    prompts: SharedPrefixCache | RepeatedPrefixCache
    logits: Tensor
    slots: Tensor
    draws: Tensor
    tokens: Tensor
    log_probs: Tensor
    steps: Tensor
    limits: Tensor
    ended: Tensor

    @property
    def parts(self) -> dict[str, Tensor]:
        """The tensors that have one entry per row."""
        return {name: part for name, part in vars(self).items() if name != "prompts"}

    def step(self, settings: SamplingSettings, eos: Tensor) -> None:
        """Sample each row's next token; rows that have ended do not change."""
        at = self.steps[:, None]
        new, log_probs = sample_tokens(self.logits, self.draws.gather(1, at)[:, 0], settings)
        new = torch.where(self.ended, eos[0], new)
        self.tokens.scatter_(1, at, new[:, None])
        self.log_probs.scatter_(1, at, log_probs[:, None])
        self.steps = self.steps + ~self.ended
        self.ended = self.ended | torch.isin(new, eos) | (self.steps >= self.limits)

    def step_inputs(self) -> dict[str, Any]:
        """Forward arguments that read each row's newest token."""
        newest = self.tokens.gather(1, self.steps[:, None] - 1)[:, 0]
        return self.prompts.step_inputs(newest, self.steps)

    def concat(self, others: "Sequence[DecodeBatch]") -> "DecodeBatch":
        """These rows, followed by the rows of `others`, which have no tokens yet."""
        if not others:
            return self
        prompts: Any = self.prompts
        prompts = prompts.concat([other.prompts for other in others])
        more = [other.parts for other in others]
        parts = {n: torch.cat([part, *(p[n] for p in more)]) for n, part in self.parts.items()}
        return DecodeBatch(prompts, **parts)

    def running(self) -> "DecodeBatch":
        """The rows that have not ended, at least one."""
        self.prompts.keep(keep := (~self.ended).nonzero()[:, 0])
        return DecodeBatch(self.prompts, **{name: part[keep] for name, part in self.parts.items()})

    def sampled(self) -> Iterator[tuple[list[int], int]]:
        """Each row's tokens, and the number of sampled ones."""
        return zip(self.tokens.tolist(), self.steps.tolist(), strict=True)


def common_beginning(prompts: Sequence[list[int]]) -> int:
    """The number of tokens that all of several prompts begin with, less than any prompt has.

    0 if the prompts are equal, or share fewer than LEAST_SHARED tokens.
    """
    first, last = min(prompts), max(prompts)  # in the order of their ids
    if first == last:
        return 0
    pairs = zip(first, last, strict=False)
    common = next((i for i, (a, b) in enumerate(pairs) if a != b), len(first))
    common = min(common, min(map(len, prompts)) - 1)
    return common if common >= LEAST_SHARED else 0


def repeated(cache: DynamicCache, rows: int) -> DynamicCache:
    """A copy of a cache that has one row or is empty, with that row `rows` times."""
    copy = deepcopy(cache)
    copy.batch_repeat_interleave(rows)
    return copy


def padding_first(cache: DynamicCache, mask: Tensor) -> Tensor:
    """The mask [P, L] with all padding at the left; the columns of the cache move with it."""
    order = mask.argsort(dim=-1, stable=True)
    for layer in cache.layers:
        for name in ("keys", "values"):
            tensor = getattr(layer, name)
            setattr(layer, name, tensor.gather(2, order[:, None, :, None].expand_as(tensor)))
    return mask.gather(1, order)


def left_padded(prompts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, both [P, L]; padding is masked, so its id does not matter."""
    ids = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, -len(prompt) :] = torch.tensor(prompt)
        mask[i, -len(prompt) :] = 1
    return ids, mask
