"""Prompts in, completions out, one engine per module; `base` says what every engine promises.

An engine's libraries are heavy (or not installed at all), so its module is imported when asked for.
"""

from importlib import import_module

from orchestrator.models import ModelSource
from orchestrator.sampling.base import Completion, Request, Sampler, SamplingSettings

ENGINES = {
    "recorded": "orchestrator.sampling.recorded:RecordedSampler",
    "transformers": "orchestrator.sampling.transformers:TransformersSampler",
    "vllm": "orchestrator.sampling.vllm:VllmSampler",
}

__all__ = ["ENGINES", "Completion", "Request", "Sampler", "SamplingSettings", "load_sampler"]


def load_sampler(
    source: ModelSource, engine: str = "transformers", device: str | None = None
) -> Sampler:
    """The named engine with the model loaded; `device` None takes the GPU where there is one.

    A recorded model is always replayed. Raises ValueError for an unknown engine, and for a model
    that cannot be loaded.
    """
    engine = "recorded" if source.recorded else engine
    if engine not in ENGINES:
        raise ValueError(f"unknown sampling engine {engine!r}: write one of {', '.join(ENGINES)}")
    module, _, name = ENGINES[engine].partition(":")
    sampler: Sampler = getattr(import_module(module), name).load(source, device)
    return sampler
