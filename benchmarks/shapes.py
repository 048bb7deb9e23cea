"""Models with random weights in the shape of catalog models: nothing is downloaded.

`python -m benchmarks.shapes NAME FOLDER` saves one, with the tokenizer of the embedded model. Speed
and memory do not depend on the content of completions but on their length: `ends` sets that.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from benchmarks.command_line import SHAPES, benchmark_parser
from orchestrator.cost.memory import ModelShape
from orchestrator.embedded import embedded_path


def main() -> None:
    """Save a model."""
    parser = benchmark_parser("shapes", __doc__)
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    add_ends(parser)
    arguments = parser.parse_args()
    save_random_model(arguments.name, arguments.folder, arguments.ends)


def add_ends(parser: argparse.ArgumentParser) -> None:
    """Add the option --ends."""
    parser.add_argument(
        "--ends",
        type=int,
        default=0,
        metavar="N",
        help="every Nth token of the vocabulary ends a completion (default: none, so that all "
        "completions have the same length)",
    )


def random_model(shape: ModelShape, device: torch.device | str) -> Any:
    """Random weights in bfloat16, as a Qwen3 model of that shape."""
    config = Qwen3Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def save_random_model(name: str, folder: Path, ends: int = 0) -> None:
    """Save a random model of the named shape, and the tokenizer of the embedded one."""
    shape = SHAPES[name]
    model = random_model(shape, "cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(embedded_path("tiny"))
    model.generation_config.eos_token_id = (
        list(range(0, shape.vocab, ends)) if ends else tokenizer.eos_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    del model
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
