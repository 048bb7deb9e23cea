"""The memory estimate, compared with the libraries' models and with counted tensors."""

import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from orchestrator.cost.memory import (
    PREFILL_BYTES,
    RECOMPUTED_BYTES,
    SAVED_BYTES,
    SHAPES,
    ModelShape,
    shape_from,
)


def config_of(name: str, shape: ModelShape) -> PretrainedConfig:
    kinds = {"Qwen/Qwen3": "qwen3", "Qwen/Qwen2": "qwen2", "microsoft": "phi3"}
    kinds |= {"meta": "llama", "HuggingFaceTB": "llama"}
    [kind] = [kind for start, kind in kinds.items() if name.startswith(start)]
    size = {} if kind in ("qwen2", "phi3") else {"head_dim": shape.head_dim}
    return AutoConfig.for_model(
        kind,
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        pad_token_id=0,
        **size,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_agree_with_the_library_model(name: str) -> None:
    shape = SHAPES[name]
    config = config_of(name, shape)
    assert shape_from(config.to_dict()) == shape
    few = replace(shape, layers=2)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config_of(name, few))
        assert model.num_parameters() == pytest.approx(few.parameters, rel=1e-3)
        for target in ("all-linear", sorted(shape.projections), ["o_proj", "down_proj"]):
            lora = get_peft_model(
                AutoModelForCausalLM.from_config(config_of(name, few)),
                LoraConfig(r=8, target_modules=target),
            )
            assert lora.num_parameters(only_trainable=True) == few.lora_parameters(8, target)


class PeakBytes(TorchDispatchMode):
    """The peak bytes of tensors that are created inside, except those of `excluded`."""

    def __init__(self, excluded: Any) -> None:
        super().__init__()
        self.sizes = {t.untyped_storage()._cdata: 0 for t in excluded}
        self.current = self.peak = 0

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return out

    def _add(self, storage: Any) -> None:
        if (key := storage._cdata) not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.current += self.sizes[key]
            self.peak = max(self.peak, self.current)
            weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.current -= self.sizes.pop(key, 0)


def peak_bytes(shape: ModelShape, rows: int, tokens: int, *, update: bool, recompute: bool) -> int:
    """Peak bytes of one forward of the layers (and backward), as a GPU would compute them."""
    model: Any = AutoModelForCausalLM.from_config(
        config_of("Qwen/Qwen3", shape), dtype=torch.bfloat16
    )
    lora: Any = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    if recompute:
        lora.gradient_checkpointing_enable({"use_reentrant": False})
        lora.enable_input_require_grads()
    lora.train(update)
    layers = lora.get_base_model().model
    with (
        PeakBytes(lora.parameters()) as counter,
        torch.autocast("cpu", torch.bfloat16),
        torch.set_grad_enabled(update),
    ):
        ids = torch.zeros(rows, tokens, dtype=torch.long)
        out = layers(input_ids=ids, use_cache=not update).last_hidden_state
        if update:
            out.float().mean().backward()
    return counter.peak


@pytest.mark.parametrize(
    ("update", "recompute", "per_width"),
    [(False, False, PREFILL_BYTES), (True, False, SAVED_BYTES), (True, True, RECOMPUTED_BYTES)],
)
def test_bytes_per_token_agree_with_counted_tensors(
    update: bool, recompute: bool, per_width: int
) -> None:
    """The difference of two and three layers is one layer, whatever else is allocated."""
    shape = ModelShape(2, 128, 4, 2, 64, 512, 64, tied=True)
    rows, tokens = 16, 128
    two = peak_bytes(shape, rows, tokens, update=update, recompute=recompute) / rows / tokens
    more = replace(shape, layers=3)
    three = peak_bytes(more, rows, tokens, update=update, recompute=recompute) / rows / tokens
    if update and not recompute:
        assert three - two == pytest.approx(per_width * shape.width, rel=0.25)
        return
    saved = 2 * (shape.hidden if update else 2 * shape.kv_heads * shape.head_dim)  # per layer
    assert three - two == pytest.approx(saved, rel=0.3)
    bytes_ = (two - 2 * saved) / shape.width
    assert 0.5 * per_width <= bytes_ <= per_width * 1.05, "constants are maxima over models"
