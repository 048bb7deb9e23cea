"""CPU time of choosing a token, as a share of a step of a model with that vocabulary.

Compares, in alternating runs of one thread, `orchestrator.sampling.token_choice` and its
predecessor, a float64 sum over the whole vocabulary after the library's own top-k and top-p. A step
reads one token for each of --rows rows, with 64 tokens in the cache. Its logits are random, with a
spread that gives a peaked distribution like a language model's.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

from benchmarks.command_line import SHAPES, add_json, benchmark_parser, write_json
from benchmarks.shapes import random_model
from orchestrator.cost.memory import ModelShape
from orchestrator.sampling.base import SamplingSettings
from orchestrator.sampling.token_choice import sample_tokens

SMOLLM2 = {"smollm2-135m": ModelShape(30, 576, 9, 3, 64, 1536, 49_152, tied=True)}
CUTS = {
    "softmax": SamplingSettings(),
    "top-k 50": SamplingSettings(top_k=50),
    "top-p 0.95": SamplingSettings(top_p=0.95),
    "top-k 50, top-p 0.95": SamplingSettings(top_k=50, top_p=0.95),
    "greedy": SamplingSettings(temperature=0),
}
CACHED = 64  # tokens before the step
SPREAD = 6.0  # standard deviation of the logits


def main() -> None:
    """Measure and print a table."""
    parser = benchmark_parser("token_choice", __doc__)
    shapes = SMOLLM2 | SHAPES
    parser.add_argument("--shape", choices=shapes, default="smollm2-135m")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    add_json(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shape = shapes[arguments.shape]
    step = step_seconds(shape, arguments.rows, arguments.repeats)
    print(f"{arguments.shape}: vocabulary {shape.vocab:,}, {1e3 * step:.0f} ms per step")
    generator = torch.Generator().manual_seed(0)
    logits = SPREAD * torch.randn(arguments.rows, shape.vocab, generator=generator)
    draws = torch.rand(arguments.rows, generator=generator, dtype=torch.float64)
    measured = {}
    ways: dict[str, Callable[..., Any]] = {"whole sums": by_whole_sums, "blocks": sample_tokens}
    for name, cut in CUTS.items():
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(arguments.repeats):
            for way, choose in ways.items():
                seconds[way].append(cpu_seconds(partial(choose, logits, draws, cut)))
        measured[name] = {way: median(values) for way, values in seconds.items()}
        shares = (f"{way} {100 * s / step:.1f} %" for way, s in measured[name].items())
        print(f"{name}: {', '.join(shares)} of a step")
    write_json(arguments, {"step": step, "choices": measured})


def step_seconds(shape: ModelShape, rows: int, repeats: int) -> float:
    """CPU seconds of a decoding step in float32."""
    model = random_model(shape, "cpu").float()
    with torch.no_grad():
        ids = torch.zeros(rows, CACHED, dtype=torch.long)
        cache = model(ids, logits_to_keep=1).past_key_values
        return median(
            cpu_seconds(lambda: model(ids[:, :1], past_key_values=cache)) for _ in range(repeats)
        )


def by_whole_sums(logits: Tensor, draws: Tensor, cut: SamplingSettings) -> Tensor:
    """Inverse transform sampling by a float64 sum over the whole vocabulary."""
    if logits.amax(-1).isnan().any():
        raise FloatingPointError("NaN logits")
    if cut.temperature == 0:
        return logits.argmax(-1)
    processors = LogitsProcessorList()
    if cut.top_k > 0:
        processors.append(TopKLogitsWarper(cut.top_k))
    if cut.top_p < 1:
        processors.append(TopPLogitsWarper(cut.top_p))
    scores = processors(None, logits.float())  # type: ignore[arg-type]
    cumulative = scores.softmax(-1).cumsum(-1, dtype=torch.float64)
    goal = draws[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, goal, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)


def cpu_seconds(call: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    main()
