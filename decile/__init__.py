"""The Python API of Decile: which tenth of your prompts should GRPO train on?

The names load on first use: `import decile` imports neither torch nor Ray.
"""

from importlib import import_module
from typing import Any

from orchestrator import __version__

# Where each public name is defined.
_MODULES = {
    "Diagnosis": "decile.diagnosis",
    "Evaluation": "decile.evaluation",
    "Experiment": "decile.experiments",
    "ItemComparison": "decile.comparison",
    "Probe": "decile.probes",
    "PromptSelector": "decile.trl",
    "Replay": "decile.recordings",
    "Results": "decile.results",
    "Subset": "decile.probes",
    "UserError": "decile.errors",
    "compare": "decile.comparison",
    "diagnose": "decile.diagnosis",
    "evaluate": "decile.experiments",
    "load": "decile.experiments",
    "probe": "decile.experiments",
    "replay": "decile.recordings",
}

_SUBMODULES = ("trl",)

__all__ = ["__version__", *_MODULES, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"decile.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'decile' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
