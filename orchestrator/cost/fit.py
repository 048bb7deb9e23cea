"""Whether a cell of each model fits a GPU's memory, and how many cells at once. Pure.

Uses the peak memory of the plan's finished cells if there are any, else an estimate.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.cost.memory import TrainingLoad, shape_of, training_load, training_memory
from orchestrator.cost.throughput import CHARACTERS_PER_TOKEN, TEMPLATE_TOKENS, Device
from orchestrator.planning.plan import Plan

GIB = 2**30
CUDA_CONTEXT_GIB = 0.75  # on top of what a process allocates; a round number, not measured


def memory_fit(
    plan: Plan, gpu: Device, results: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """By model: the peak GiB of its largest cell, in parts, and how that fits a GPU.

    per_gpu: cells that fit one GPU by memory; asked: cells per GPU by `resources.gpus`; measured:
    number of finished cells with the same memory load that give the peak, 0 for an estimate.
    `results` are result.json by cell_id. Empty for trials without a GPU; models of unknown shape
    are left out.
    """
    if not plan.experiment.resources.gpus:
        return {}
    loads = _training_loads(plan)
    measured: dict[tuple[str, str], list[float]] = {}
    for cell in plan.cells:
        if peak := results.get(cell.cell_id, {}).get("timing", {}).get("peak_gib"):
            key = (cell.probe.model.name, repr(loads[cell.cell_id]))
            measured.setdefault(key, []).append(peak)
    fits: dict[str, dict[str, Any]] = {}
    for cell in plan.cells:
        model, load = cell.probe.model, loads[cell.cell_id]
        shape = shape_of(model)
        if shape is None:
            continue
        memory = training_memory(shape, load)
        peaks = measured.get((model.name, repr(load)), [])
        peak = max(peaks) + CUDA_CONTEXT_GIB if peaks else memory.peak / GIB
        if model.name not in fits or peak > fits[model.name]["peak_gib"]:
            fits[model.name] = {
                "peak_gib": peak,
                "measured": len(peaks),
                "parts_gib": {name: part / GIB for name, part in memory._asdict().items()},
                "gpu": gpu.name,
                "gpu_gib": gpu.memory / GIB,
                "per_gpu": int(gpu.memory // (peak * GIB)),
                "asked": int(1 / cell.resources.gpus + 1e-9),
            }
    return fits


def _training_loads(plan: Plan) -> dict[str, TrainingLoad]:
    """Memory loads by cell_id; prompt tokens are estimated from the characters of the longest."""
    tokens: dict[str, int] = {}
    for dataset in {cell.probe.dataset.name for cell in plan.cells}:
        pool = plan.pools[dataset]
        longest = max(int(p.question_lengths.max(initial=0)) for p in (pool.train, pool.test))
        tokens[dataset] = round(longest / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS)
    return {
        cell.cell_id: training_load(cell, tokens[cell.probe.dataset.name]) for cell in plan.cells
    }


def memory_lines(fits: Mapping[str, dict[str, Any]]) -> list[str]:
    """One line per model of `memory_fit`."""
    return [_line(model, fit) for model, fit in fits.items()]


def _line(model: str, fit: dict[str, Any]) -> str:
    gpu, cells = fit["gpu"], fit["measured"]
    source = f"measured: {cells} finished cell{'s' * (cells > 1)}" if cells else "estimated"
    peak = f"memory: a cell of {model} takes about {fit['peak_gib']:.0f} GiB ({source})"
    if fit["per_gpu"] == 0:
        return f"{peak} and does not fit {gpu}: use a smaller batch or load_in_4bit"
    if fit["per_gpu"] < fit["asked"]:
        share = f"gpus: {1 / fit['per_gpu']:.2g}"
        return (
            f"{peak}: {fit['asked']} at a time do not fit {gpu}, {fit['per_gpu']} do; use {share}"
        )
    return f"{peak}: {fit['per_gpu']} at a time fit {gpu}"
