"""Models that vLLM serves on CPUs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from orchestrator.embedded import embedded_path
from orchestrator.sampling.base import Completion
from orchestrator.sampling.model import ModelSource

WINDOW, RANK = 256, 8


def random_model(folder: Path, head_dim: int = 32) -> ModelSource:
    """A random Llama in float32, with heads that vLLM serves on CPUs and the tokenizer of tiny."""
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("tiny"))
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=4 * head_dim,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=head_dim,
            max_position_embeddings=WINDOW,
            eos_token_id=tokenizer.eos_token_id,
            initializer_range=0.1,  # far apart logits: rounding changes no greedy token
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return ModelSource("random", str(folder), "random")


def comparable(drawn: Sequence[Sequence[Completion]]) -> list[list[Completion]]:
    """Without what is left of a character that the token limit cuts: vLLM leaves it out."""
    return [[each._replace(text=each.text.rstrip("\ufffd")) for each in row] for row in drawn]


def without_ids(drawn: Sequence[Sequence[Completion]]) -> list[list[Completion]]:
    """A server returns texts without their token ids."""
    return [[each._replace(ids=()) for each in row] for row in drawn]
