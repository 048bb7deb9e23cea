"""A random two-layer model over single characters, and samplers of it, for tests of sampling."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from orchestrator.sampling import Completion, Request
from orchestrator.sampling.base import render
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% endif %}"
)
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.4,
}
ENDS = "aeiou"  # letters that also end an answer in `short_sampler`, so that lengths vary
QUESTIONS = ["Hi", "What is 2 + 3?", "Name a colour.", "Who has the ball after all the swaps?"]


def requests_of(samples: Any) -> list[Request]:
    return [Request(q, [{"role": "user", "content": q}], samples) for q in QUESTIONS]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Qwen3 over single characters: every text has one spelling in tokens."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("model")
    characters = ["\n", *map(chr, range(32, 127))]
    bare = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(characters)}, merges=[]))
    bare.decoder = decoders.Fuse()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        **SIZES,
        head_dim=8,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture
def source(model_folder: Path) -> ModelSource:
    return ModelSource("tiny", str(model_folder), "folder:test", dtype="float32")


@pytest.fixture
def sampler(source: ModelSource) -> TransformersSampler:
    return TransformersSampler.load(source, "cpu")


@pytest.fixture
def short_sampler(source: ModelSource) -> TransformersSampler:
    """Ends after some ten tokens: the vowels are end tokens too, and end tokens are a list."""
    model, tokenizer = load_model(source, "cpu")
    ends = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(list(ENDS))]
    model.generation_config.eos_token_id = ends
    return TransformersSampler(model, tokenizer)


def greedy_completion(sampler: TransformersSampler, request: Request, limit: int) -> Completion:
    """What `generate` gives for one prompt alone, greedily."""
    ids = torch.tensor([render(sampler.tokenizer, request.messages, {})])
    out = sampler.model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=limit,
        pad_token_id=0,
    )[0, ids.shape[1] :].tolist()
    ended = out[-1] in sampler.eos
    text = sampler.tokenizer.decode(out[:-1] if ended else out, skip_special_tokens=True)
    return Completion(text, len(out), "stop" if ended else "length", out)
