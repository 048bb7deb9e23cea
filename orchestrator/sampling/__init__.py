"""Prompts in, completions out, one engine per module; `base` says what every engine promises.

An engine's libraries are heavy (or not installed at all), so its module is imported when asked for.
"""

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from orchestrator.sampling.base import Completion, Request, Sampler, SamplingSettings
from orchestrator.sampling.model import ModelSource

GROUP = "decile.samplers"
ENGINES = {
    "transformers": "orchestrator.sampling.transformers:TransformersSampler",
    "vllm": "orchestrator.sampling.vllm:VllmSampler",
}
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

    Raises ValueError where there is none.
    """
    target = name if ":" in name else ENGINES.get(name)
    if target is None:
        installed = list(entry_points(group=GROUP, name=name))
        if not installed:
            known = ", ".join([*ENGINES, *sorted(entry_points(group=GROUP).names)])
            raise ValueError(
                f"unknown engine {name!r}: write one of {known}, or "
                "package.module:Class of a Sampler"
            )
        target = installed[0].value
    try:
        found: Any = EntryPoint(name, target, GROUP).load()
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"engine {name!r} cannot be imported: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, Sampler)):
        raise ValueError(f"engine {name!r} is no Sampler: write package.module:Class of one")
    return found


def load_sampler(
    source: ModelSource,
    engine: str = "transformers",
    device: str | None = None,
    lora_rank: int = 0,
) -> Sampler:
    """The named engine with the model loaded; `device` None takes the GPU where there is one.

    A recorded model is always replayed. `lora_rank` is for an engine that adapters will be swapped
    in. Raises ValueError for an unknown engine, one that cannot do that, and for a model that
    cannot be loaded.
    """
    found: Any = find_sampler(RECORDED if source.recorded else engine)
    if not lora_rank:
        return cast(Sampler, found.load(source, device))
    if not found.adapts:
        raise ValueError(f"engine {engine!r} cannot swap adapters")
    return cast(Sampler, found.load(source, device, lora_rank))
