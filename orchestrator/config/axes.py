"""The settings of an experiment as axes of its grid: names, combinations, texts. Pure.

    grid: {model: [tiny], …, budget: [0.05, 0.1], probe.samples: [1, 5, 10], grpo.beta: [0, 0.1]}

An axis is named like the setting, with the block before a dot. Every combination of values is an
experiment of its own, validated like one that is written out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from orchestrator.config.corrections import suggest
from orchestrator.config.library_settings import check_name
from orchestrator.config.library_sources import declared
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.storage.errors import shortened

PLAIN = ("budget", "mask_dead_groups", "rollouts", "match_sizes")  # settings outside of a block
BLOCKS = ("probe", "grpo", "lora", "evaluate")
_OF_THE_SWEEP = "it holds for all cells of an experiment: set it on the experiment"
# Settings that cannot be axes; the text says what to do instead.
_REFUSED = {
    "about": "it is a description",
    "grid": "name the setting itself, such as grpo.beta",
    "claims": _OF_THE_SWEEP,
    "compare_at": _OF_THE_SWEEP,
    "stop_hopeless": _OF_THE_SWEEP,
    "max_gpu_hours": _OF_THE_SWEEP,
    "max_hours": _OF_THE_SWEEP,
    "max_marking_errors": _OF_THE_SWEEP,
    "marking": "it is a property of the data: write an experiment for each",
    "resources": _OF_THE_SWEEP,
    "probe.seed": "write probe_seed",
    "probe.gpus": "it does not change a result: set it on the experiment",
    "probe.engine_python": "it does not change a result: set it on the experiment",
    "evaluate.engine_python": "it does not change a result: set it on the experiment",
    "probe.adaptive": "an adaptive probe selects the same subsets: set it on the experiment",
}
_TEXT_LIMIT = 60  # characters of a value in a name


def check_axis(name: str) -> str | None:
    """Why no axis can have this name and what to write instead; None if one can."""
    block, dot, setting = name.partition(".")
    if reason := _REFUSED.get(name) or _REFUSED.get(block):
        return f"{shortened(name)} cannot be an axis: remove it ({reason})"
    if not dot and block in BLOCKS:
        return f"{block} is a block: write an axis for each setting, such as {_example(block)}"
    if name in PLAIN:
        return None
    if dot and block in ("grpo", "lora"):
        return check_name(block, setting)
    if name in _known():
        return None
    known = [
        *("model", "dataset", "policy", "seed", "probe_seed", *_known()),
        *(f"{library}.{each}" for library in ("grpo", "lora") for each in declared(library)),
    ]
    near = next((k for k in known if k.rpartition(".")[2] == name), "")
    hint = f"; did you mean {near!r}?" if near else suggest(name, known)
    return (
        f"unknown axis {shortened(name)}: write one of model, dataset, policy, seed, probe_seed, "
        f"or a setting such as budget, probe.samples or grpo.beta{hint}"
    )


def _example(block: str) -> str:
    return {"probe": "probe.samples", "evaluate": "evaluate.samples", "lora": "lora.r"}.get(
        block, "grpo.beta"
    )


def _known() -> list[str]:
    """The axes that are Decile's own settings."""
    blocks: dict[str, type[Probe] | type[Evaluate]] = {"probe": Probe, "evaluate": Evaluate}
    dotted = [
        f"{name}.{setting}" for name, block in blocks.items() for setting in block.model_fields
    ]
    return [*PLAIN, *(name for name in dotted if name not in _REFUSED)]


def combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the axes' values, the last axis varying fastest."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def path_of(name: str) -> tuple[str, ...]:
    """The path of a setting below its experiment."""
    return tuple(name.split(".", 1))


def with_values(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's content with the settings of one combination in place of its own."""
    changed = dict(content)
    for name, value in values.items():
        block, *setting = path_of(name)
        if not setting:
            changed[block] = value
        elif isinstance(settings := changed.get(block, {}), dict):  # otherwise refused as it is
            changed[block] = settings | {setting[0]: value}
    return changed


def value_text(value: Any) -> str:
    """An axis' value in a name: as in the file, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"


def axes_text(values: Mapping[str, Any]) -> str:
    """`budget 0.1, grpo.beta 0`; empty without an axis."""
    return ", ".join(f"{name} {value_text(value)}" for name, value in values.items())
