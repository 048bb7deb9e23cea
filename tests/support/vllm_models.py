"""Models that vLLM serves on CPUs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from orchestrator.embedded import embedded_path
from orchestrator.sampling import Request, SamplingSettings, load_sampler
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


SETTINGS = SamplingSettings(max_completion_length=24, seed=3)
GREEDY = SamplingSettings(temperature=0, max_completion_length=24)


def save_adapter(source: ModelSource, folder: Path, seed: int) -> None:
    """An adapter of rank RANK with random weights, large enough to change answers."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    base: Any = LlamaForCausalLM.from_pretrained(source.location)
    modules = ["q_proj", "v_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=modules))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    model.save_pretrained(str(folder))


def request(name: str, samples: list[int], words: int = 4) -> Request:
    return Request(name, [{"role": "user", "content": f"{name} swaps " * words}], samples)


REQUESTS = [request(f"ball {i}", list(range(4)), words=1 + i % 5) for i in range(12)]


def check_adapters(
    engine: Any, source: ModelSource, folder: Path, drop: Callable[[], object]
) -> None:
    """Swap two adapters and compare every answer with that of our sampler; then drop them."""
    base = engine.sample(REQUESTS, GREEDY)
    answers = {}
    for seed in (1, 2):
        save_adapter(source, folder / str(seed), seed)
        engine.adapt(folder / str(seed))
        answers[seed] = engine.sample(REQUESTS, GREEDY)
        ours: Any = load_sampler(source, device="cpu", lora_rank=RANK)
        ours.adapt(folder / str(seed))
        expected = comparable(ours.sample(REQUESTS, GREEDY))
        assert without_ids(answers[seed]) == without_ids(expected)
    assert base != answers[1] != answers[2] != base
    drop()
    assert engine.sample(REQUESTS, GREEDY) == base


def check_changed_adapter(engine: Any, source: ModelSource, folder: Path) -> None:
    """Another adapter in the same folder: vLLM caches prompts by an adapter's name."""
    long = [request(f"ball {i}", [0], words=45) for i in range(4)]
    assert min(engine.count_tokens(long)) > 128, "a block of the cache on CPUs"
    answers = []
    for seed in (1, 2):
        save_adapter(source, folder, seed)
        engine.adapt(folder)
        answers.append(without_ids(engine.sample(long, GREEDY)))
        ours: Any = load_sampler(source, device="cpu", lora_rank=RANK)
        ours.adapt(folder)
        assert answers[-1] == without_ids(comparable(ours.sample(long, GREEDY)))
    assert answers[0] != answers[1]
