"""The Python API of Decile: which tenth of your prompts should GRPO train on?

The names load on first use: `import decile` imports neither torch nor Ray.
"""

from importlib import import_module
from typing import Any

from orchestrator import __version__
from orchestrator.plugins.extras import missing_library

# Where each public name is defined.
_MODULES = {
    "Diagnosis": "decile.diagnosis",
    "Evaluation": "decile.evaluation",
    "Experiment": "decile.experiments",
    "ItemComparison": "decile.comparison",
    "MarkerReward": "decile.rewards",
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
    if name not in _SUBMODULES and name not in _MODULES:
        raise AttributeError(f"module 'decile' has no attribute {name!r}")
    module_name = _MODULES.get(name, f"decile.{name}")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = missing_library(error, own_trainer=module_name == "decile.trl")
        if not missing:
            raise
        raise ModuleNotFoundError(missing, name=error.name) from error
    if name in _SUBMODULES:
        return module
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
