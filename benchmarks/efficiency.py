"""How much of a sweep's time is training: 8 cells of the quickstart beside plain TRL scripts.

Each cell also runs as a plain script (`benchmarks/bare_grpo.py`: same model, subset, settings and
seed; it evaluates nothing), as many at once as the sweep has slots. Efficiency is the sum of the
scripts' times over (the sweep's wall time × slots). The probe runs before and is not counted; Ray's
start, the driver, MLflow, checkpoints and every evaluation are. Run it on a machine that does
nothing else.
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

from cluster.session import ray_session
from orchestrator.config.catalog import load_config
from orchestrator.pipeline.probes import run_probes
from orchestrator.pipeline.progress import Progress
from orchestrator.pipeline.sweep import run_experiment
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.selection.subsets import read_subset
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
    """Reads the options, runs both, prints a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.efficiency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=2, help="times four policies (2: 8 cells)")
    parser.add_argument("--slots", type=int, default=2, help="cells at once (default 2)")
    parser.add_argument("--updates", type=int, default=50, help="of a cell (default 50)")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan = planned(Path(folder), wanted)
        store = Store(str(Path(folder) / "runs"))
        with ray_session() as cluster:
            run_probes(plan, store, cluster, Progress.of(plan, 0))
        began = time.monotonic()
        outcome = run_experiment(plan, store, default_tracking_uri(store), Progress.of(plan, 0))
        wall = time.monotonic() - began
        assert not outcome.failed, outcome.failed
        files = [spec(plan, store, cell, Path(folder)) for cell in plan.cells]
        with ThreadPoolExecutor(wanted.slots) as pool:
            bare = dict(zip((c.cell_id for c in plan.cells), pool.map(script, files), strict=True))
        tell(plan, store, bare, wall, wanted.slots)
    phases = subprocess.run(
        [sys.executable, "-c", PHASES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    print(f"a fresh process: {phases.stdout.strip()}; the rest is Ray's and PEFT's")


def planned(folder: Path, wanted: argparse.Namespace) -> Plan:
    """The quickstart with more seeds, into a storage of its own."""
    content = yaml.safe_load((ROOT / "experiments.yaml").read_text())
    quickstart = content["experiments"]["quickstart"]
    quickstart["grid"]["seed"] = list(range(wanted.seeds))
    quickstart["grpo"]["max_steps"] = wanted.updates
    content |= {"storage": str(folder / "runs"), "experiments": {"quickstart": quickstart}}
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return make_plan(load_config(file), "quickstart")


def spec(plan: Plan, store: Store, cell: Cell, folder: Path) -> Path:
    """What the plain script of a cell reads."""
    pool, subset = plan.pool(cell.probe), read_subset(store, cell)
    assert subset is not None
    chosen = set(subset["prompt_id"].to_pylist())
    prompts = [
        {"prompt": pool.task.messages(p.question), "answer": p.answer}
        for p in sorted(pool.train, key=lambda p: p.prompt_id)
        if p.prompt_id in chosen
    ]
    file = folder / f"{cell.cell_id}.json"
    model, task = cell.probe.model.location, cell.probe.dataset.task
    content = {"model": model, "task": task, "seed": cell.seed, "prompts": prompts}
    file.write_text(json.dumps(content | {"grpo": cell.grpo, "lora": cell.lora}))
    return file


def script(file: Path) -> float:
    """Seconds of a plain script, from its process's start to its end."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.bare_grpo", str(file)]
    subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.monotonic() - began


def tell(plan: Plan, store: Store, bare: dict[str, float], wall: float, slots: int) -> None:
    """A row per cell, then the efficiency."""
    print(f"{'cell':>12} {'script s':>9} {'start s':>8} {'training s':>11} {'evaluation s':>13}")
    for cell in plan.cells:
        result = store.read_json("cells", cell.cell_id, "result.json")
        timing, seconds = result["timing"], result["ledger"]["seconds"]
        print(
            f"{cell.policy + '/s' + str(cell.seed):>12} {bare[cell.cell_id]:9.1f} "
            f"{timing['start_seconds']:8.1f} {seconds:11.1f} "
            f"{timing['evaluation_seconds']:13.1f}"
        )
    total = sum(bare.values())
    print(
        f"scripts {total:.0f} s, sweep {wall:.0f} s × {slots} slots: "
        f"efficiency {total / (wall * slots):.2f}"
    )


if __name__ == "__main__":
    main()
