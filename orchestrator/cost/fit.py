"""Whether a cell of each model fits a GPU's memory, and how many at once.

By what finished cells of the plan took, where it has some; else by an estimate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.cost.memory import Load, load_of, shape_of, training_memory
from orchestrator.cost.throughput import CHARACTERS_PER_TOKEN, TEMPLATE_TOKENS, Machine
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import Pool
from orchestrator.storage.store import Store

GIB = 2**30
CONTEXT = (
    0.75  # GiB that CUDA and its libraries take beside what a process knows of; a round number
)


def memory_of(plan: Plan, gpu: Machine, store: Store) -> dict[str, dict[str, Any]]:
    """By model: GiB of its largest cell by part and at its peak, and how that fits a GPU.

    per_gpu: cells that fit one GPU by memory; asked: how many `resources.gpus` puts there;
    measured: finished cells with the same load on memory that the peak is from, 0 for an estimate.
    Empty for trials without a GPU; a model of unknown shape is left out.
    """
    if not plan.experiment.resources.gpus:
        return {}
    loads = _loads(plan)
    measured = _measured(plan, store, loads)
    found: dict[str, dict[str, Any]] = {}
    for cell in plan.cells:
        shape = shape_of(cell.probe.model)
        if shape is None:
            continue
        load = loads[cell.cell_id]
        memory = training_memory(shape, load)
        peaks = measured.get((cell.probe.model.name, repr(load)), [])
        peak = max(peaks) + CONTEXT if peaks else memory.peak / GIB
        known = found.get(cell.probe.model.name)
        if known is None or peak > known["peak_gib"]:
            found[cell.probe.model.name] = {
                "peak_gib": peak,
                "measured": len(peaks),
                "parts_gib": {name: part / GIB for name, part in memory._asdict().items()},
                "gpu": gpu.name,
                "gpu_gib": gpu.memory / GIB,
                "per_gpu": int(gpu.memory // (peak * GIB)),
                "asked": int(1 / cell.resources.gpus + 1e-9),
            }
    return found


def _measured(
    plan: Plan, store: Store, loads: Mapping[str, Load]
) -> dict[tuple[str, str], list[float]]:
    """GiB at the peak of the plan's finished cells that ran on a GPU, by model and load."""
    found: dict[tuple[str, str], list[float]] = {}
    for cell in plan.cells:
        result = store.read_json("cells", cell.cell_id, "result.json") or {}
        if peak := result.get("timing", {}).get("peak_gib"):
            load = repr(loads[cell.cell_id])
            found.setdefault((cell.probe.model.name, load), []).append(peak)
    return found


def _loads(plan: Plan) -> dict[str, Load]:
    """By cell_id what a cell does at once; each pool's longest prompt is looked for once."""
    pools = {cell.probe.dataset.name: plan.pool(cell.probe) for cell in plan.cells}
    longest = {name: _longest_prompt(pool) for name, pool in pools.items()}
    return {c.cell_id: load_of(c, longest[c.probe.dataset.name]) for c in plan.cells}


def _longest_prompt(pool: Pool) -> int:
    """Tokens of the longest prompt that a cell may read, guessed from its characters."""
    longest = max(len(prompt.question) for prompt in (*pool.train, *pool.test))
    return round(longest / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS)


def memory_lines(view: dict[str, dict[str, Any]]) -> Sequence[str]:
    """The fit for people."""
    return [_line(model, fit) for model, fit in view.items()]


def _line(model: str, fit: dict[str, Any]) -> str:
    gpu = fit["gpu"]
    cells = fit["measured"]
    source = f"measured: {cells} finished cell{'s' * (cells > 1)}" if cells else "an estimate"
    needs = f"memory: a cell of {model} takes about {fit['peak_gib']:.0f} GiB ({source})"
    if fit["per_gpu"] == 0:
        return f"{needs} and does not fit {gpu}: write a smaller batch or load_in_4bit"
    if fit["per_gpu"] < fit["asked"]:
        many = f"{fit['asked']} at once do not fit {gpu}, {fit['per_gpu']} would"
        return f"{needs}: {many}; write gpus: {1 / fit['per_gpu']:.2g}"
    return f"{needs}: {gpu} holds {fit['per_gpu']} at once"
