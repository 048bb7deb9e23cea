"""The only module that uses private parts of transformers: cache layers, and a model's attention.

`tests/test_library_internals.py` compares everything used here with the installed version, and
`pyproject.toml` pins transformers to the minor version that was tested.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class PreallocatedLayer(DynamicLayer):
    """A cache layer with capacity for more tokens; `keys` and `values` are views of its buffers.

    The library's own layer copies everything it holds for every token, which took 59 % of a small
    model's time on a CPU. Each buffer is [B, heads, tokens + spare, head size].
    """

    spare = 32
    buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Append [B, heads, new, head size] to keys and values; returns both whole."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        if self.buffers is None or self.buffers[0].shape[-2] < end:
            more = (0, 0, 0, end + self.spare - begin)
            self.buffers = pad(self.keys, more), pad(self.values, more)  # type: ignore[arg-type]
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[..., begin:end, :] = new
        self.keys, self.values = (buffer[..., :end, :] for buffer in self.buffers)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select or repeat rows by index; the buffers hold the old rows, so they are dropped."""
        super().reorder_cache(beam_idx)  # type: ignore[arg-type]
        self.buffers = None


def preallocated_cache(model: Any) -> DynamicCache:
    """An empty cache for a model; only plain layers are replaced.

    Sliding and linear layers keep the library's own bookkeeping.
    """
    cache = DynamicCache(config=model.config)
    for i, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[i] = PreallocatedLayer()
    return cache


def attends_plainly(model: Any) -> bool:
    """Whether every layer attends to all earlier tokens with a replaceable `sdpa` function."""
    config = model.config.get_text_config(decoder=True)
    plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    replaceable = getattr(model, "_supports_attention_backend", False)
    return plain and replaceable and config._attn_implementation == "sdpa"


def has_dropout(model: Any) -> bool:
    """Whether a pass in training mode drops something at random."""
    config = model.config.get_text_config(decoder=True)
    dropped = [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)]
    return any(dropped) or bool(getattr(config, "attention_dropout", 0.0))


def scales_with_length(model: Any) -> bool:
    """Whether the frequencies of rotary embeddings change with the length of the batch."""
    rope = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    kinds = [rope, *(each for each in rope.values() if isinstance(each, dict))]  # or one per layer
    return any(each.get("rope_type") in ("dynamic", "longrope") for each in kinds)


@contextmanager
def attention_function(model: Any, name: str) -> Iterator[None]:
    """Let the model attend with the function registered under `name` inside the block."""
    config = model.config.get_text_config(decoder=True)
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before
