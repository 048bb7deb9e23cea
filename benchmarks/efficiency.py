"""The efficiency of a sweep: 8 cells of the quickstart compared with plain TRL scripts.

Each cell also runs as a plain script (`benchmarks/bare_grpo.py`: same model, subset, settings and
seed, no evaluation), as many at once as the sweep has slots. Efficiency is the scripts' total time
divided by (the sweep's wall time × slots). The probe runs before and does not count; Ray's start,
the driver, MLflow, checkpoints and evaluations do. Run it on an otherwise idle machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from benchmarks.command_line import benchmark_parser
from cluster.session import ray_session
from orchestrator.config.catalog import load_config
from orchestrator.pipeline.estimate import finished_results
from orchestrator.pipeline.probes import run_probes
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.sweep import run_experiment
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.selection.stored import read_subset
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri

ROOT = Path(__file__).parents[1]
PHASES = """
import time; t = [time.perf_counter()]
import torch; t.append(time.perf_counter())
import orchestrator.training.trainer; t.append(time.perf_counter())
from pathlib import Path
from orchestrator.embedded import embedded_path
from orchestrator.planning.pools import Dataset, load_pool
load_pool(Dataset("d", "shuffled_objects", {}, "lenient")); t.append(time.perf_counter())
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = embedded_path("tiny")
AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
t.append(time.perf_counter())
names = ("torch", "transformers, TRL, PEFT", "the pool", "the model")
print(", ".join(f"{name} {b - a:.1f} s" for name, a, b in zip(names, t, t[1:])))
"""


def main() -> None:
    """Run the sweep and the scripts, and print a table."""
    parser = benchmark_parser("efficiency", __doc__)
    parser.add_argument(
        "--seeds",
        type=int,
        default=2,
        help="seeds per policy; there are four policies (default 2: 8 cells)",
    )
    parser.add_argument("--slots", type=int, default=2, help="cells that run at once (default 2)")
    parser.add_argument("--updates", type=int, default=50, help="updates per cell (default 50)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(Path(folder), arguments)
        store = Store(str(Path(folder) / "runs"))
        with ray_session() as cluster:
            run_probes(Run.of(plan, store, cluster))
        began = time.monotonic()
        outcome = run_experiment(Run.of(plan, store), default_tracking_uri(store))
        wall = time.monotonic() - began
        assert not outcome.failed, outcome.failed
        files = [write_spec(plan, store, cell, Path(folder)) for cell in plan.cells]
        with ThreadPoolExecutor(arguments.slots) as pool:
            script_seconds = dict(
                zip((c.cell_id for c in plan.cells), pool.map(run_script, files), strict=True)
            )
        print_table(plan, store, script_seconds, wall, arguments.slots)
    phases = subprocess.run(
        [sys.executable, "-c", PHASES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    print(f"fresh process: {phases.stdout.strip()}; the rest is Ray and PEFT")


def planned(folder: Path, arguments: argparse.Namespace) -> Plan:
    """A plan of the quickstart with more seeds, in a storage of its own."""
    content = yaml.safe_load((ROOT / "experiments.yaml").read_text())
    quickstart = content["experiments"]["quickstart"]
    quickstart["grid"]["seed"] = list(range(arguments.seeds))
    quickstart["grpo"]["max_steps"] = arguments.updates
    content |= {"storage": str(folder / "runs"), "experiments": {"quickstart": quickstart}}
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return make_plan(load_config(file), "quickstart")


def write_spec(plan: Plan, store: Store, cell: Cell, folder: Path) -> Path:
    """Write the file that the plain script of a cell reads."""
    pool, subset = plan.pool(cell.probe), read_subset(store, cell)
    assert subset is not None
    selected = set(subset["prompt_id"].to_pylist())
    prompts = [
        {"prompt": pool.task.messages(p.question), "answer": p.answer}
        for p in sorted(pool.train, key=lambda p: p.prompt_id)
        if p.prompt_id in selected
    ]
    file = folder / f"{cell.cell_id}.json"
    model, task = cell.probe.model.location, cell.probe.dataset.task
    content = {"model": model, "task": task, "seed": cell.seed, "prompts": prompts}
    file.write_text(json.dumps(content | {"grpo": cell.grpo, "lora": cell.lora}))
    return file


def run_script(file: Path) -> float:
    """Wall time of a plain script in seconds, process start included."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.bare_grpo", str(file)]
    subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.monotonic() - began


def print_table(
    plan: Plan, store: Store, script_seconds: dict[str, float], wall: float, slots: int
) -> None:
    """Print a row per cell, then the efficiency."""
    print(
        f"{'cell':>12} {'run_script s':>9} {'start s':>8} {'training s':>11} {'evaluation s':>13}"
    )
    results = finished_results(plan, store)
    for cell in plan.cells:
        result = results[cell.cell_id]
        print(
            f"{cell.policy + '/s' + str(cell.seed):>12} {script_seconds[cell.cell_id]:9.1f} "
            f"{result.timing.start_seconds:8.1f} {result.ledger.seconds:11.1f} "
            f"{result.timing.evaluation_seconds:13.1f}"
        )
    total = sum(script_seconds.values())
    print(
        f"scripts {total:.0f} s, sweep {wall:.0f} s × {slots} slots: "
        f"efficiency {total / (wall * slots):.2f}"
    )


if __name__ == "__main__":
    main()
