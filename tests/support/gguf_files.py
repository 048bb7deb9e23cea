"""A tiny model as a GGUF file, as llama.cpp writes one.

Skips the tests that import it where the package gguf is absent.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

gguf = pytest.importorskip("gguf", reason="no gguf: pip install 'decile[gguf]'")

HIDDEN, LAYERS, HEADS, INNER, LENGTH = 32, 2, 4, 64, 256
TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>' }}{% endif %}"
)
# <unk>, <s>, </s> and the 256 bytes as GPT-2 spells them.
BYTES = [chr(b) for b in (*range(33, 127), *range(161, 173), *range(174, 256))]
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *(chr(256 + n) for n in range(256 - len(BYTES))), "Ġa"]


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    """Random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tensors_of(model: LlamaForCausalLM) -> dict[str, Any]:
    """The weights by their names in GGUF, in llama.cpp's order of rotary dimensions."""
    weights = {k: v.detach().float().numpy() for k, v in model.state_dict().items()}
    tensors = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    for layer in range(LAYERS):
        for name, short in NAMES.items():
            value = weights[f"model.layers.{layer}.{name}.weight"]
            if short in ("attn_q", "attn_k"):
                pairs = value.reshape(HEADS, 2, HIDDEN // HEADS // 2, HIDDEN)
                value = pairs.swapaxes(1, 2).reshape(HIDDEN, HIDDEN)
            tensors[f"blk.{layer}.{short}.weight"] = value
    return tensors


def write_gguf(
    file: Path,
    tensors: dict[str, Any] | None = None,
    *,
    architecture: str = "llama",
    tokenizer: bool = True,
    kinds: dict[str, Any] | None = None,
    **fields: int,
) -> Path:
    """A GGUF file of the tiny model, or of these tensors.

    kinds: of quantized tensors, by name; fields: further numbers.
    """
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_name("tiny")
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    for name, value in fields.items():
        writer.add_uint32(name.replace("_", "."), value)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(TOKENS)
        writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
        writer.add_token_merges(["Ġ a"])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_chat_template(TEMPLATE)
    for name, value in (tensors_of(tiny_model()) if tensors is None else tensors).items():
        writer.add_tensor(name, value, raw_dtype=(kinds or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
