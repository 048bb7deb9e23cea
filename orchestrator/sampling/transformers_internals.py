"""The only module that uses private parts of transformers: cache layers, and a model's attention.

`tests/real/test_library_internals.py` compares everything used here with the installed version, and
`pyproject.toml` pins transformers to the minor version that was tested.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


def attends_plainly(model: Any) -> bool:
    """Whether every layer attends to all earlier tokens with a replaceable `sdpa` function."""
    config = model.config.get_text_config(decoder=True)
    plain = all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    replaceable = getattr(model, "_supports_attention_backend", False)
    return plain and replaceable and config._attn_implementation == "sdpa"


def has_dropout(model: Any) -> bool:
    """Whether a pass in training mode drops values at random."""
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
