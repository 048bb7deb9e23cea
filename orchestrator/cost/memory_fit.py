"""The number of a plan's cells that fit a GPU, from measured or estimated peaks of memory. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.cost.memory import (
    CHARACTERS_PER_TOKEN,
    GIB,
    TEMPLATE_TOKENS,
    Gpu,
    shape_of,
    training_load,
    training_memory,
)
from orchestrator.planning.plan import Plan
from orchestrator.planning.result import GpuMemory
from orchestrator.plugins.counts import counted
from orchestrator.sampling.gpu_peaks import Phase

CUDA_CONTEXT_GIB = 0.75  # on top of what a process allocates; a round number, not measured


@dataclass(frozen=True)
class MemoryFit:
    """The peak memory of a model's largest cell, and the number of such cells that fit a GPU.

    requested: cells per GPU by `resources.gpus`. measured, running: numbers of finished and of
    running cells with the same memory load that the peak is from; 0 for an estimate. phases_gib:
    their allocated memory at the peak of each phase. estimated_gib, estimated_phases_gib and
    parts_gib are the estimate in both cases.
    """

    peak_gib: float
    measured: int
    running: int
    phases_gib: Mapping[Phase, float]
    estimated_gib: float
    estimated_phases_gib: Mapping[Phase, float]
    parts_gib: Mapping[str, float]
    gpu: str
    gpu_gib: float
    per_gpu: int
    requested: int

    def lines(self, model: str) -> list[str]:
        """As text: the peak and the fit, then measured phases beside their estimates."""
        cells = {"finished cell": self.measured, "running cell": self.running}
        of_cells = " and ".join(counted(n, kind) for kind, n in cells.items() if n)
        source = "estimated"
        if of_cells:
            source = f"measured: {of_cells}; estimated {self.estimated_gib:.0f} GiB"
        if self.per_gpu == 0:
            fits = f" and does not fit {self.gpu}: use a smaller batch or load_in_4bit"
        elif self.per_gpu < self.requested:
            share = f"gpus: {1 / self.per_gpu:.2g}"
            most = f"{self.gpu}, {self.per_gpu} do"
            fits = f": {self.requested} at a time do not fit {most}; use {share}"
        else:
            fits = f": {self.per_gpu} at a time fit {self.gpu}"
        lines = [f"memory: a cell of {model} takes about {self.peak_gib:.0f} GiB ({source}){fits}"]
        if self.phases_gib:
            phases = (
                f"{phase} {gib:.1f} ({self.estimated_phases_gib[phase]:.1f})"
                for phase, gib in self.phases_gib.items()
            )
            lines.append(f"  GiB allocated by phase, measured (estimated): {', '.join(phases)}")
        return lines


def memory_fit(plan: Plan, gpu: Gpu, measured: Mapping[str, GpuMemory]) -> dict[str, MemoryFit]:
    """By model, the fit of its largest cell on a GPU; `measured` is by cell_id.

    Empty for trials without a GPU; models of unknown shape are left out.
    """
    if not plan.experiment.resources.gpus:
        return {}
    tokens: dict[str, int] = {}  # estimated from the characters of the longest prompt
    for dataset in {cell.probe.dataset.name for cell in plan.cells}:
        pool = plan.pools[dataset]
        longest = max(int(p.question_lengths.max(initial=0)) for p in (pool.train, pool.test))
        tokens[dataset] = round(longest / CHARACTERS_PER_TOKEN + TEMPLATE_TOKENS)
    loads = {c.cell_id: training_load(c, tokens[c.probe.dataset.name]) for c in plan.cells}
    by_load: dict[tuple[str, str], list[GpuMemory]] = {}
    for cell in plan.cells:
        if cell.cell_id in measured:
            key = (cell.probe.model.name, repr(loads[cell.cell_id]))
            by_load.setdefault(key, []).append(measured[cell.cell_id])
    fits: dict[str, MemoryFit] = {}
    for cell in plan.cells:
        model, load = cell.probe.model, loads[cell.cell_id]
        shape = shape_of(model)
        if shape is None:
            continue
        memory, of_load = training_memory(shape, load), by_load.get((model.name, repr(load)), [])
        peak = estimated = memory.peak / GIB
        if of_load:
            peak = max(each.reserved_gib for each in of_load) + CUDA_CONTEXT_GIB
        phases_gib: dict[Phase, float] = {}
        for phase in memory.phases:
            allocated = [m.allocated_gib[phase] for m in of_load if phase in m.allocated_gib]
            if allocated:
                phases_gib[phase] = max(allocated)
        if model.name not in fits or peak > fits[model.name].peak_gib:
            fits[model.name] = MemoryFit(
                peak_gib=peak,
                measured=sum(each.done for each in of_load),
                running=sum(not each.done for each in of_load),
                phases_gib=phases_gib,
                estimated_gib=estimated,
                estimated_phases_gib={k: size / GIB for k, size in memory.phases.items()},
                parts_gib={name: part / GIB for name, part in memory._asdict().items()},
                gpu=gpu.name,
                gpu_gib=gpu.memory / GIB,
                per_gpu=int(gpu.memory // (peak * GIB)),
                requested=int(1 / cell.resources.gpus + 1e-9),
            )
    return fits
