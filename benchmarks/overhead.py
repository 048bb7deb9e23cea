"""What a sweep costs beside its cells: 200 that take no time, through Ray Tune, store and MLflow.

Everything is real but the training: probe, subsets, the driver's queue and ledger, a Tune trial per
cell, files, MLflow runs. In place of `run_cell` a function writes a whole result at once. Prints
seconds per cell, from the first to end until the last, and the driver's memory on the way: rising
memory would end a sweep of thousands.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from cluster.session import ray_session
from orchestrator.config.catalog import load_config
from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.pipeline.probes import run_probes
from orchestrator.pipeline.progress import Progress
from orchestrator.pipeline.sweep import run_experiment
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.pools import load_pool
from orchestrator.probing.sample_store import read_samples
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri
from orchestrator.training.record import CellRecord, finish
from orchestrator.training.trial import Report

POLICIES = ["hard", "easy", "middle", "random"]


def stub_cell(cell: Cell, storage: str, report: Report) -> None:
    """A cell's whole result at once: every group alive, and a model that never changes."""
    store, pool = Store(storage), load_pool(cell.probe.dataset)
    record, group = CellRecord(seconds=1.0), int(cell.grpo["num_generations"])
    row = {"outcome": "correct", "other_outcome": "correct", "tokens": 1}
    for update in range(1, cell.updates + 1):
        for prompt in pool.train[: cell.prompts_per_update]:
            about = row | {"prompt_id": prompt.prompt_id, "tier": prompt.tier}
            rows = [about | {"reward": float(i % 2)} for i in range(group)]
            record.groups.add(update, rows, group)
        report({"update": update, "metrics": record.groups.metrics(update), "explanation": ""})
    samples = read_samples(store, cell.baseline, pool.task, pool.test)
    for update in (0, cell.updates):
        record.add_evaluation(as_evaluation(samples, update, pool.tiers("test")))
    store.write_json(cell.model_dump(mode="json"), "cells", cell.cell_id, "cell.json")
    finish(store, cell, record, {})


class Look(NamedTuple):
    """When a cell ended, and the driver's memory then, in MiB."""

    seconds: float
    memory: float


class Watched(Progress):
    """Looks at this process whenever a cell ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.looks: list[Look] = []

    def finished(self, cell: Cell, text: str) -> None:
        """Look, and say nothing."""
        super().finished(cell, text)
        memory = psutil.Process().memory_info().rss / 2**20
        self.looks.append(Look(time.monotonic(), memory))


def main() -> None:
    """Reads the options, sweeps, prints a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cells", type=int, default=200, help="in fours (default 200)")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(Path(folder), wanted.cells // len(POLICIES))
        store = Store(str(Path(folder) / "runs"))
        with Path(folder, "log").open("w") as log:
            with ray_session() as cluster:
                run_probes(plan, store, cluster, Progress.of(plan, 0))
            progress = Watched(total=len(plan.cells), out=log)
            began = time.monotonic()
            outcome = run_experiment(
                plan, store, default_tracking_uri(store), progress, train=stub_cell
            )
            took = time.monotonic() - began
        assert len(outcome.ran) == len(plan.cells), outcome.failed
    tell(progress.looks, began, took)


def planned(folder: Path, seeds: int) -> Plan:
    """A sweep of the embedded model over a small pool: four policies, so many seeds."""
    content = {
        "storage": str(folder / "runs"),
        "models": {"tiny": {"embedded": "tiny"}},
        "datasets": {"few": {"task": "shuffled_objects", "options": {"train": 64, "test": 16}}},
        "experiments": {
            "stubs": {
                "grid": {
                    "model": ["tiny"],
                    "dataset": ["few"],
                    "policy": POLICIES,
                    "seed": list(range(seeds)),
                },
                "budget": 0.25,
                "probe": {"samples": 4, "max_completion_length": 48},
                "grpo": {"max_steps": 4, "num_generations": 4, "per_device_train_batch_size": 16},
                "evaluate": {"samples": 2},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return make_plan(load_config(file), "stubs")


def tell(looks: list[Look], began: float, took: float) -> None:
    """Seconds per cell, and the driver's memory by cells done."""
    first, last = looks[0].seconds, looks[-1].seconds
    each = (last - first) / max(1, len(looks) - 1)
    print(
        f"{len(looks)} cells in {took:.0f} s: {took / len(looks):.2f} s per cell in all; "
        f"{first - began:.0f} s until the first ended, then {each:.2f} s per cell"
    )
    print(f"{'cells':>6} {'driver MiB':>11}")
    for tenth in range(11):
        number = max(1, round(tenth / 10 * len(looks)))
        print(f"{number:>6} {looks[number - 1].memory:11.0f}")


if __name__ == "__main__":
    main()
