"""The manifest of an experiment in the store: its cells, what its runs used, and its claims."""

import time
from typing import Any

from orchestrator.cost.caps import UsageMeter
from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import CellState, cell_state


def usage_meter(experiment: str, store: Store) -> UsageMeter:
    """A meter that continues from the earlier runs of an experiment."""
    return UsageMeter((store.read_json("sweeps", f"{experiment}.json") or {}).get("spent"))


def save_usage(plan: Plan, store: Store, meter: UsageMeter) -> None:
    """Save what a run of only the probes has used, so that later runs' caps count it."""
    manifest = store.read_json("sweeps", f"{plan.name}.json") or write_manifest(plan, store)
    store.write_json(manifest | {"spent": meter.as_json()}, "sweeps", f"{plan.name}.json")


def write_manifest(plan: Plan, store: Store) -> dict[str, Any]:
    """Write and return the declared cells, and when each claim was first declared.

    Keeps the usage of earlier runs, but not what an earlier cap dropped.
    """
    previous = store.read_json("sweeps", f"{plan.name}.json") or {}
    finished = sum(cell_state(store, cell) is CellState.FINISHED for cell in plan.cells)
    now = {"at": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()), "results": finished}
    claims = previous.get("claims", {})
    manifest = {
        "experiment": plan.name,
        "cells": [{"cell_id": cell.cell_id, **cell.axes_json} for cell in plan.cells],
        "claims": {text: claims.get(text, now) for text in plan.experiment.claims},
    }
    if "spent" in previous:
        manifest["spent"] = previous["spent"]
    store.write_json(manifest, "sweeps", f"{plan.name}.json")
    return manifest
