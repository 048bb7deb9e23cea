"""Prompts in, completions out: one engine per module, with the interface in `base`.

An engine's libraries are slow to import or not installed, so its module is imported on demand.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from orchestrator.plugins.registry import Registry
from orchestrator.sampling.base import Completion, Request, Sampler, SamplingSettings, engine_errors
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.trained_weights import adapter_rank, check_adapter

ENGINES = {
    "transformers": "orchestrator.sampling.transformers:TransformersSampler",
    "vllm": "orchestrator.sampling.vllm:VllmSampler",
    "server": "orchestrator.optional.server:ServerSampler",
}
REGISTRY = Registry(
    "engine", "decile.samplers", ENGINES, "package.module:Class of a Sampler", ValueError
)
RECORDED = "orchestrator.sampling.recorded:RecordedSampler"

__all__ = [
    "ENGINES",
    "Completion",
    "Request",
    "Sampler",
    "SamplingSettings",
    "find_sampler",
    "load_sampler",
]


def find_sampler(name: str) -> type[Sampler]:
    """The engine of that name: built in, an entry point `decile.samplers`, or package.module:Class.

    Raises ValueError if there is none.
    """
    engine = REGISTRY.find(name)
    if not (inspect.isclass(engine) and issubclass(engine, Sampler)):
        raise ValueError(f"engine {name!r} is not a Sampler: write package.module:Class of one")
    return engine


def load_sampler(
    source: ModelSource,
    engine: str = "transformers",
    device: str | None = None,
    lora_rank: int = 0,
    engine_args: Mapping[str, Any] | None = None,
) -> Sampler:
    """The named engine with the model loaded, and its adapter, if any.

    device: None uses the GPU, if there is one. A recorded model is always replayed. With
    `lora_rank`, adapters can be swapped in. `engine_args` are passed to the engine's `load` as
    keyword arguments. Raises ValueError for an unknown engine, one that cannot swap adapters, or a
    model that cannot be loaded; SamplingError if a user's own engine fails.
    """
    sampler: Any = find_sampler(RECORDED if source.recorded else engine)
    if source.adapter:
        check_adapter(source)
        lora_rank = adapter_rank(Path(source.adapter))
    if lora_rank and not sampler.adapts:
        raise ValueError(f"engine {engine!r} cannot swap adapters")
    rank = [lora_rank] if lora_rank else []
    options = {} if source.recorded else engine_args or {}
    with engine_errors(sampler, "load"):
        loaded = cast(Sampler, sampler.load(source, device, *rank, **options))
    if source.adapter:
        loaded.adapter_label = source.adapter_label
        with engine_errors(sampler, "adapt"):
            loaded.adapt(Path(source.adapter))
    return loaded
