"""The overhead of a sweep: cells that take no time, through Ray Tune, the store and MLflow.

Everything except training is real: probe, subsets, the driver's queue and ledger, a Tune trial per
cell, files, MLflow runs. Instead of `run_cell`, a function writes a complete result at once. Prints
seconds per cell between the first and the last to finish, and the driver's memory by finished
cells (memory that keeps growing would end a sweep of thousands), then the time of plan, report and
a run with nothing to do.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from benchmarks.command_line import benchmark_parser
from cluster.session import ray_session
from orchestrator.config.catalog import load_config
from orchestrator.evaluation.groups import Marked
from orchestrator.evaluation.metrics import as_evaluation
from orchestrator.pipeline.probes import run_probes
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.sweep import run_experiment
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.pools import load_pool
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import CellRecord, finish
from orchestrator.training.trial import Report

POLICIES = ("hard", "easy", "middle", "random", "learnable")


def stub_cell(cell: Cell, storage: str, report: Report) -> None:
    """Write the result of a cell at once: every group is live, and the model never changes."""
    store, pool = Store(storage), load_pool(cell.probe.dataset)
    record, group = CellRecord(seconds=1.0), cell.batch.group_size
    for update in range(1, cell.updates + 1):
        for prompt in pool.train[: cell.prompts_per_update]:
            wrong = Marked(prompt.prompt_id, prompt.tier, 1, "wrong", "correct", 0.0, {}, 0.0)
            correct = wrong._replace(outcome="correct", score=1.0, reward=1.0)
            rows = [(wrong, correct)[i % 2] for i in range(group)]
            record.groups.add(update, rows, group)
        report({"update": update, "metrics": record.groups.metrics(update), "explanation": ""})
    samples = ProbeFolder(store, cell.baseline, pool.test, pool.task).samples()
    for update in (0, cell.updates):
        record.add_evaluation(as_evaluation(samples, update, pool.tiers("test")))
    CellFolder(store, cell.cell_id).save_settings(cell)
    finish(store, cell, record, {})


class MemorySample(NamedTuple):
    """When a cell finished, and the driver's memory then, in MiB."""

    seconds: float
    memory: float


class MemoryProgress(ProgressDisplay):
    """Records this process's memory whenever a cell finishes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.samples: list[MemorySample] = []

    def finished(self, cell: Cell, text: str) -> None:
        """Record the memory."""
        super().finished(cell, text)
        memory = psutil.Process().memory_info().rss / 2**20
        self.samples.append(MemorySample(time.monotonic(), memory))


def main() -> None:
    """Run the sweep, time the commands on its storage, and print both."""
    parser = benchmark_parser("overhead", __doc__)
    parser.add_argument(
        "--cells",
        type=int,
        nargs="+",
        default=[200],
        help="number of cells, multiples of 5 up to 5,000 (default 200); each grows the sweep",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for cells in arguments.cells:
            plan = planned(Path(folder), cells // len(POLICIES))
            run_stubs(plan, Path(folder))
            time_commands(plan, Path(folder))


def run_stubs(plan: Plan, folder: Path) -> None:
    """Run the unfinished cells of the plan, and print the overhead of each."""
    store = Store(str(folder / "runs"))
    with (folder / "log").open("w") as log:
        with ray_session() as cluster:
            run_probes(Run.of(plan, store, cluster))
        progress = MemoryProgress(total=len(plan.cells), out=log)
        start = time.monotonic()
        run = Run(plan, store, progress)
        outcome = run_experiment(run, default_tracking_uri(store), train=stub_cell)
        duration = time.monotonic() - start
    assert not outcome.failed, outcome.failed
    print_table(progress.samples, start, duration)


def time_commands(plan: Plan, folder: Path) -> None:
    """Time plan, report and a run with nothing to do, as processes of their own."""
    for command in ("plan", "report", "run"):
        start = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "orchestrator", command, "experiments.yaml", "-e", "stubs"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seconds = time.monotonic() - start
        cells = len(plan.cells)
        print(f"decile {command}: {seconds:.1f} s with {cells} finished cells", flush=True)


def planned(folder: Path, seeds: int, policies: Sequence[str] = POLICIES) -> Plan:
    """A plan of the embedded model over a small pool: each policy with `seeds` seeds."""
    content = {
        "storage": str(folder / "runs"),
        "models": {"tiny": {"embedded": "tiny"}},
        "datasets": {"few": {"task": "shuffled_objects", "options": {"train": 64, "test": 16}}},
        "experiments": {
            "stubs": {
                "grid": {
                    "model": ["tiny"],
                    "dataset": ["few"],
                    "policy": list(policies),
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


def print_table(samples: list[MemorySample], start: float, duration: float) -> None:
    """Print seconds per cell, and the driver's memory by finished cells."""
    first, last = samples[0].seconds, samples[-1].seconds
    each = (last - first) / max(1, len(samples) - 1)
    print(
        f"{len(samples)} cells in {duration:.0f} s: {duration / len(samples):.2f} s per cell "
        f"in total; {first - start:.0f} s until the first finished, then {each:.2f} s per cell"
    )
    print(f"{'cells':>6} {'driver MiB':>11} {'s per cell':>11}")
    numbers = [max(1, round(tenth / 10 * len(samples))) for tenth in range(11)]
    for before, number in zip([1, *numbers], numbers, strict=False):
        sample, earlier = samples[number - 1], samples[before - 1]
        each = (sample.seconds - earlier.seconds) / max(1, number - before)
        print(f"{number:>6} {sample.memory:11.0f} {each:11.3f}", flush=True)


if __name__ == "__main__":
    main()
