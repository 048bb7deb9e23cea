"""What an experiment would do, read from the plan and the store; runs nothing."""

from math import comb
from typing import Any

from orchestrator.cost.timetable import Site, time_lines, timetable
from orchestrator.planning.cells import Cell
from orchestrator.planning.overlap import describe
from orchestrator.planning.plan import Plan
from orchestrator.probing.probes import pending_samples
from orchestrator.stats.power import minimum_detectable, resolution
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import CellState, cell_state


def overview(plan: Plan, store: Store, site: Site) -> dict[str, Any]:
    """Cells, probes, owed work, and the timetable of a site."""
    states = {cell.cell_id: cell_state(store, cell) for cell in plan.cells}
    untrained = [cell for cell in plan.cells if states[cell.cell_id].needs_training]
    return {
        "experiment": plan.name,
        "about": plan.experiment.about,
        "storage": store.uri,
        "cells": [_cell(cell, states[cell.cell_id]) for cell in plan.cells],
        "cells_owed": sum(not state.settled for state in states.values()),
        "probes": [_probe(plan, store, spec) for spec in plan.probes],
        "updates_owed": sum(cell.updates for cell in untrained),
        "rollouts_owed": sum(cell.rollouts for cell in untrained),
        **timetable(plan, store, untrained, site),
        "datasets": [_dataset(plan, name) for name in plan.pools],
        "detectable_points": {
            name: round(minimum_detectable(*_asked(plan, name)), 1) for name in plan.pools
        },
    }


def _dataset(plan: Plan, name: str) -> dict[str, Any]:
    """A dataset's size, where it was read, what was left out, and what its test sets share."""
    pool = plan.pools[name]
    trained = {cell.probe.dataset.name for cell in plan.cells}
    others = plan.pools if name in trained else {}
    overlaps = {other: pool.overlap(tested) for other, tested in others.items()}
    return {
        "dataset": name,
        "train": len(pool.train),
        "test": len(pool.test),
        "provenance": pool.task.provenance,
        "notes": list(pool.notes),
        "overlap": {other: [o._asdict() for o in found] for other, found in overlaps.items()},
        "resolution": resolution(name, *_asked(plan, name), _comparisons(plan, name)),
        "overlap_text": [
            describe(found, len(pool.train), f"the test of {other}")
            for other, found in overlaps.items()
            if found or other == name
        ],
    }


def _cell(cell: Cell, state: CellState) -> dict[str, Any]:
    return {
        "cell_id": cell.cell_id,
        **cell.axes,
        "size": cell.size,
        "updates": cell.updates,
        "prompts_per_update": cell.prompts_per_update,
        "rollouts": cell.rollouts,
        "done": state is CellState.FINISHED,
        "stopped": state is CellState.STOPPED,
        "trained": state is CellState.TRAINED,
    }


def _probe(plan: Plan, store: Store, spec: Any) -> dict[str, Any]:
    prompts = plan.pool(spec).prompts(spec.split)
    lacks = pending_samples(plan, store, spec)
    return {
        "probe_key": spec.key,
        "model": spec.model.name,
        "dataset": spec.dataset.name,
        "split": spec.split,
        "prompts": len(prompts),
        "samples": len(prompts) * spec.settings.samples,
        "samples_owed": lacks.samples,
        "samples_owed_at_most": lacks.at_most,
    }


def _asked(plan: Plan, dataset: str) -> tuple[int, int, int]:
    """Questions of a dataset's test, seeds, and samples of each question: what decides power."""
    evaluate = plan.experiment.evaluate
    own = any(cell.probe.dataset.name == dataset for cell in plan.cells)
    samples = evaluate.samples if own else evaluate.ood_samples or evaluate.samples
    return len(plan.pools[dataset].test), len(plan.experiment.grid.seed), samples


def _comparisons(plan: Plan, dataset: str) -> int:
    """Pairs of policies that the report compares; none of them on a set that is only asked."""
    grid = plan.experiment.grid
    if dataset not in grid.dataset:
        return 1
    tables = len(grid.model) * len(grid.dataset) * max(1, len(grid.probe_seed))
    return tables * comb(len(grid.policy), 2)


def overview_text(view: dict[str, Any]) -> str:
    """The overview for people."""
    cells = view["cells"]
    lines = [f"{view['experiment']}: {view['about']}", f"storage: {view['storage']}", ""]
    for cell in cells:
        state = next((name for name in ("done", "stopped", "trained") if cell[name]), "owed")
        name = f"{cell['model']}/{cell['dataset']}/{cell['policy']}/s{cell['seed']}"
        lines.append(
            f"  {cell['cell_id']}  {state}  {name}: {cell['size']} prompts, "
            f"{cell['updates']} updates × {cell['prompts_per_update']} prompts"
        )
    lines += ["", f"{len(cells)} cells, {view['cells_owed']} owed"]
    for probe in view["probes"]:
        lines.append(
            f"{probe['split']} probe {probe['model']}/{probe['dataset']}: "
            f"{'at most ' * probe['samples_owed_at_most']}{probe['samples_owed']:,} of "
            f"{probe['samples']:,} samples owed"
        )
    lines.append(f"{view['updates_owed']:,} updates, {view['rollouts_owed']:,} rollouts owed")
    lines += time_lines(view)
    lines += [line for dataset in view["datasets"] for line in _dataset_lines(dataset)]
    return "\n".join(lines)


def _dataset_lines(dataset: dict[str, Any]) -> list[str]:
    name = dataset["dataset"]
    origin = "; ".join(f"{split}: {o}" for split, o in dataset["provenance"].items())
    head = f"{name}: {dataset['train']:,} training prompts, {dataset['test']:,} test questions"
    lines = [head, origin, *dataset["notes"], *dataset["overlap_text"], dataset["resolution"]]
    return [lines[0], *(f"  {line}" for line in lines[1:] if line)]
