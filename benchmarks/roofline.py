"""The share of matrix products in a sampler's time, and how long these take alone.

A model's linear layers need 2 floating point operations per weight and token. The roofline is the
time that the same products take by themselves, at the shapes of the sampled batches: computing with
these weights in this precision cannot be faster.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn.functional import linear
from transformers import AttentionInterface

from orchestrator.sampling import decoding
from orchestrator.sampling.transformers import TransformersSampler

REPEATS = 3  # of the products at each shape; the fastest counts
PARTS = ("linear layers", "attention", "token choice")


class Profile:
    """Seconds by part, and the shapes [rows, columns] of all forward passes with their counts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.seconds: Counter[str] = Counter()
        self.shapes: Counter[tuple[int, int]] = Counter()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function; its seconds count for a part."""

        def call(*arguments: Any, **options: Any) -> Any:
            begin = self.clock()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[part] += self.clock() - begin

        return call

    @contextmanager
    def measuring(self, sampler: TransformersSampler) -> Iterator[None]:
        """Count the sampler's computations inside."""
        attention = AttentionInterface()
        own = {name: attention[name] for name in ("sdpa", decoding.ATTENTION)}
        layers = linear_layers(sampler.model)
        forward = sampler._forward

        def passed(**inputs: Any) -> torch.Tensor:
            self.shapes[tuple(inputs["input_ids"].shape)] += 1
            return forward(**inputs)

        with (
            mock.patch.multiple(
                decoding, sample_tokens=self.timed("token choice", decoding.sample_tokens)
            ),
            mock.patch.object(sampler, "_forward", passed),
        ):
            for layer in layers:
                layer.forward = self.timed("linear layers", layer.forward)
            for name, function in own.items():
                AttentionInterface.register(name, self.timed("attention", function))
            begin = self.clock()
            try:
                yield
            finally:
                self.seconds["all"] += self.clock() - begin
                for layer in layers:
                    del layer.forward
                for name, function in own.items():
                    AttentionInterface.register(name, function)

    def shares(self) -> dict[str, float]:
        """The share of each part of all seconds."""
        shares = {part: self.seconds[part] / self.seconds["all"] for part in PARTS}
        return shares | {"rest": 1 - sum(shares.values())}


def linear_layers(model: Any) -> list[Any]:
    """The linear layers of a model, including the output layer."""
    return [module for module in model.modules() if isinstance(module, torch.nn.Linear)]


def operations(model: Any, shapes: Counter[tuple[int, int]]) -> float:
    """Floating point operations of the linear layers for forward passes of these shapes.

    The output layer only reads the last column.
    """
    head = model.get_output_embeddings()
    weights = sum(each.weight.numel() for each in linear_layers(model) if each is not head)
    return sum(
        2.0 * count * rows * (columns * weights + head.weight.numel())
        for (rows, columns), count in shapes.items()
    )


def roofline(model: Any, shapes: Counter[tuple[int, int]], clock: Callable[[], float]) -> float:
    """Seconds of the products of the linear layers alone, for forward passes of these shapes."""
    return sum(count * _products(model, *shape, clock) for shape, count in shapes.items())


@torch.no_grad()
def _products(model: Any, rows: int, columns: int, clock: Callable[[], float]) -> float:
    """Seconds of one pass with each layer's own weights, read from memory as in a model."""
    head = model.get_output_embeddings()
    layers = linear_layers(model)
    inputs = {
        (n, width): torch.randn(n, width, dtype=model.dtype, device=model.device)
        for width in {layer.in_features for layer in layers}
        for n in {rows, rows * columns}
    }
    seconds = []
    for _ in range(REPEATS):
        begin = clock()
        for layer in layers:
            count = rows if layer is head else rows * columns
            linear(inputs[count, layer.in_features], layer.weight, layer.bias)
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(clock() - begin)
    return min(seconds)
