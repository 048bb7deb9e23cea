"""Tokens per second of Decile's sampler, compared with plain `generate` in the same process.

Baseline: Hugging Face `generate` in static batches of 16 prompts times K samples
(`num_return_sequences=K`), where every batch runs to its longest answer. Compared with it:
`orchestrator.sampling.transformers`. Both sample from the same model at temperature 1, in
alternating runs. Tokens count up to and including each answer's end token; the result is the ratio
of each pair of runs, which depends less on the machine than absolute speeds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.command_line import benchmark_parser
from orchestrator.embedded import embedded_path
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.storage.hashing import folder_identity
from tasks import get_task

STATIC_PROMPTS = 16


def main() -> None:
    """Measure and print a table."""
    arguments = options()
    torch.set_num_threads(arguments.threads)
    folder = arguments.model or embedded_path("tiny")
    source = ModelSource(folder.name, str(folder), folder_identity(folder))
    sampler = TransformersSampler.load(source, arguments.device)
    if arguments.random:
        sampler = TransformersSampler(random_model(sampler.model.device), sampler.tokenizer)
    sampler.rows_per_batch = arguments.rows or sampler.rows_per_batch
    requests = questions(arguments.prompts, arguments.samples)
    describe(sampler, requests, arguments)
    runs: dict[str, Callable[[int], int]] = {
        "generate": lambda repeat: static(sampler, requests, arguments.tokens, repeat),
        "decile": lambda repeat: decile(sampler, requests, arguments.tokens, repeat),
    }
    for run in runs.values():
        run(0)  # warm-up, not counted
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    pairs = range(arguments.repeats)
    print_ratios([{name: rate(run, i, clock) for name, run in runs.items()} for i in pairs])


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("probe", __doc__)
    add: Callable[..., Any] = parser.add_argument
    add("--model", type=Path, metavar="FOLDER", help="a saved model (default: the embedded one)")
    add("--random", action="store_true", help="random weights in the shape of Qwen3-1.7B")
    add("--prompts", type=int, default=64, help="shuffled_objects prompts (default 64)")
    add("--samples", type=int, default=8, help="samples per prompt, K (default 8)")
    add("--tokens", type=int, default=96, help="limit on new tokens per sample (default 96)")
    add("--repeats", type=int, default=5, help="pairs of runs (default 5)")
    add(
        "--rows",
        type=int,
        default=0,
        help="rows per batch of Decile's sampler (default: its own choice)",
    )
    add("--threads", type=int, default=1, help="torch threads (default 1, as in a sampler actor)")
    add(
        "--cpu-time",
        action="store_true",
        help="count CPU seconds instead of wall time, for a shared machine",
    )
    add("--device", help="cpu or cuda (default: cuda if available)")
    return parser.parse_args()


def random_model(device: torch.device, layers: int = 28) -> Any:
    """Random weights in Qwen3-1.7B's shape, bfloat16; every 32nd token ends an answer.

    Speed does not depend on what a model generates, but on when it ends.
    """
    shape: dict[str, Any] = {
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    }
    torch.manual_seed(0)
    with device:
        model: Any = AutoModelForCausalLM.from_config(Qwen3Config(**shape), dtype=torch.bfloat16)
    model.generation_config.eos_token_id = list(range(0, shape["vocab_size"], 32))
    return model.eval()


def questions(prompts: int, samples: int) -> list[Request]:
    """The first questions of the generated pool, each with `samples` samples."""
    task = get_task("shuffled_objects", train=prompts)
    pool = task.train()
    return [Request(p.prompt_id, task.messages(p.question), range(samples)) for p in pool]


def decile(sampler: TransformersSampler, requests: list[Request], tokens: int, seed: int) -> int:
    """Tokens sampled by Decile's sampler."""
    completions = sampler.sample(
        requests, SamplingSettings(max_completion_length=tokens, seed=seed)
    )
    return sum(completion.tokens for row in completions for completion in row)


def static(sampler: TransformersSampler, requests: list[Request], tokens: int, seed: int) -> int:
    """Tokens sampled by `generate` in static batches, including decoding."""
    torch.manual_seed(seed)
    return sum(
        static_batch(sampler, requests[start : start + STATIC_PROMPTS], tokens)
        for start in range(0, len(requests), STATIC_PROMPTS)
    )


def static_batch(sampler: TransformersSampler, requests: list[Request], tokens: int) -> int:
    """Tokens of one call to `generate`, each answer counted up to and with its end token."""
    out = generated(sampler, requests, tokens)
    sampler.tokenizer.batch_decode(out, skip_special_tokens=True)
    ended = torch.isin(out, torch.tensor(sampler.eos, device=out.device)).int().cumsum(-1)
    return int((ended == 0).sum() + (ended[:, -1] > 0).sum())


def generated(sampler: TransformersSampler, requests: list[Request], tokens: int) -> torch.Tensor:
    """New tokens [P * K, T] of one call to `generate`, a prompt's K samples one after the other."""
    tokenizer: Any = sampler.tokenizer
    inputs = tokenizer.apply_chat_template(
        [request.messages for request in requests],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    ).to(sampler.model.device)
    out = sampler.model.generate(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=tokens,
        num_return_sequences=len(requests[0].samples),
        pad_token_id=tokenizer.pad_token_id,
    )
    return out[:, inputs["input_ids"].shape[1] :]  # type: ignore[no-any-return]


def rate(run: Callable[[int], int], repeat: int, clock: Callable[[], float]) -> float:
    """Tokens per second of one run."""
    begin = clock()
    tokens = run(repeat)
    return tokens / (clock() - begin)


def describe(
    sampler: TransformersSampler, requests: list[Request], arguments: argparse.Namespace
) -> None:
    """Print what is measured."""
    lengths, model = sampler.count_tokens(requests), sampler.model
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {model.dtype}, "
        f"{model.device}, {arguments.threads} thread(s), {sampler.rows_per_batch} rows per batch"
    )
    print(
        f"{len(requests)} prompts of {min(lengths)}-{max(lengths)} tokens x {arguments.samples} "
        f"samples of at most {arguments.tokens} tokens"
    )


def print_ratios(pairs: list[dict[str, float]]) -> None:
    """Print a line per pair, then minimum, median and maximum of the ratios."""
    ratios = [pair["decile"] / pair["generate"] for pair in pairs]
    print(f"{'generate tok/s':>15} {'decile tok/s':>13} {'ratio':>7}")
    for pair, ratio in zip(pairs, ratios, strict=True):
        print(f"{pair['generate']:15,.0f} {pair['decile']:13,.0f} {ratio:7.2f}")
    middle = statistics.median(ratios)
    print(f"decile / generate: min {min(ratios):.2f}, median {middle:.2f}, max {max(ratios):.2f}")


if __name__ == "__main__":
    main()
