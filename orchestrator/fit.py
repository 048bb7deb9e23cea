"""Whether a cell of each model fits a GPU's memory, and how many at once: an estimate. Pure."""

from collections.abc import Sequence
from typing import Any

from orchestrator.cells import Cell
from orchestrator.memory import load_of, shape_of, training_memory
from orchestrator.plan import Plan
from orchestrator.throughput import CHARACTERS_PER_TOKEN, TEMPLATE_TOKENS, Machine

GIB = 2**30


def memory_of(plan: Plan, gpu: Machine) -> dict[str, dict[str, Any]]:
    """By model: GiB of its largest cell by part and at its peak, and how that fits a GPU.

    per_gpu: cells that fit one GPU by memory; asked: how many `resources.gpus` puts there. Empty
    for trials without a GPU; a model of unknown shape is left out.
    """
    if not plan.experiment.resources.gpus:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for cell in plan.cells:
        shape = shape_of(cell.probe.model)
        if shape is None:
            continue
        memory = training_memory(shape, load_of(cell, _longest_prompt(plan, cell)))
        known = found.get(cell.probe.model.name)
        if known is None or memory.peak / GIB > known["peak_gib"]:
            found[cell.probe.model.name] = {
                "peak_gib": memory.peak / GIB,
                "parts_gib": {name: part / GIB for name, part in memory._asdict().items()},
                "gpu": gpu.name,
                "gpu_gib": gpu.memory / GIB,
                "per_gpu": int(gpu.memory // memory.peak),
                "asked": int(1 / cell.resources.gpus + 1e-9),
            }
    return found


def _longest_prompt(plan: Plan, cell: Cell) -> int:
    """Tokens of the longest prompt that a cell may read, guessed from its characters."""
    pool = plan.pool(cell.probe)
    longest = max(len(prompt.question) for prompt in (*pool.train, *pool.test))
    return round(longest / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS)


def memory_lines(view: dict[str, dict[str, Any]]) -> Sequence[str]:
    """The fit for people."""
    return [_line(model, fit) for model, fit in view.items()]


def _line(model: str, fit: dict[str, Any]) -> str:
    gpu = fit["gpu"]
    needs = f"memory: a cell of {model} takes about {fit['peak_gib']:.0f} GiB (an estimate)"
    if fit["per_gpu"] == 0:
        return f"{needs} and does not fit {gpu}: write a smaller batch or load_in_4bit"
    if fit["per_gpu"] < fit["asked"]:
        many = f"{fit['asked']} at once do not fit {gpu}, {fit['per_gpu']} would"
        return f"{needs}: {many}; write gpus: {1 / fit['per_gpu']:.2g}"
    return f"{needs}: {gpu} holds {fit['per_gpu']} at once"
