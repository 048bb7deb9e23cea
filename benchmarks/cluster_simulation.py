"""Simulate paper A's grid (with Llama) on 1 to 512 GPUs with failures: time and efficiency.

Nothing is trained. Cells start in the order of `decile plan` and of a running sweep, and the same
function packs them (`orchestrator/cost/schedule.py`). The duration of cells is assumed: `--hours`
on average, in proportion to their FLOPs. Policies differ in the length of their completions, and
machines fail at random: work since a cell's last checkpoint is repeated after a restart.

The bound is a minimum for any schedule that runs the same cells without failures: all work shared
evenly, or the longest cell if that takes longer. Efficiency is bound / wall time. `capped` is the
efficiency of the order seed by seed, which a sweep with a cap uses in order to drop whole seeds.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from benchmarks.command_line import benchmark_parser
from orchestrator.config.catalog import load_config
from orchestrator.config.experiment import Experiment
from orchestrator.config.schema import Config
from orchestrator.cost.memory import SHAPES
from orchestrator.cost.schedule import Capacity, Job, device_seconds, make_blocks, makespan, pack

EXPERIMENTS = ("paper_a", "paper_a_llama")  # of experiments.yaml
ROOT = Path(__file__).parents[1]


def lower_bound(jobs: Sequence[Job], capacity: Capacity) -> float:
    """A lower bound of any packing in seconds: the longest job, or all work spread evenly."""
    even = device_seconds(jobs, capacity) / sum(capacity.devices)
    return max(even, max((job.seconds for job in jobs), default=0.0))


class Task(NamedTuple):
    """Assumed mean lengths of a dataset in tokens, and its number of test questions."""

    prompt: int
    mean: int
    questions: int


TASKS = {"gsm8k": Task(120, 200, 1319), "shuffled-seven": Task(180, 150, 500)}
# Length of a policy's completions relative to the pool's: hard prompts have longer ones.
LONGER = {"hard": 1.25, "easy": 0.75}
PASSES = 4  # of a rollout's tokens through the model: sampling, forward, backward, recomputation


@dataclass(frozen=True)
class Cell:
    """A cell of the grid, with its assumed seconds and its number of checkpoints."""

    axes: dict[str, Any]
    seconds: float
    checkpoints: int


def grid(config: Config, hours: float) -> list[Cell]:
    """The cells of both sweeps, without their data, with this mean number of hours."""
    cells = [
        Cell(
            {"model": m, "dataset": d, "policy": p, "seed": s, "probe_seed": 0},
            flops(experiment, str(config.models[m].hub), TASKS[d], LONGER.get(p, 1.0)),
            experiment.grpo_settings.max_steps // experiment.grpo_settings.save_steps,
        )
        for experiment in (config.experiments[name] for name in EXPERIMENTS)
        for m in experiment.grid.model
        for d in experiment.grid.dataset
        for s in experiment.grid.seed
        for p in experiment.grid.policy
    ]
    cells = [*{str(cell.axes): cell for cell in cells}.values()]  # the sweeps share some cells
    each = 3600 * hours / mean(cell.seconds for cell in cells)
    return [replace(cell, seconds=each * cell.seconds) for cell in cells]


def flops(experiment: Experiment, model: str, task: Task, longer: float) -> float:
    """The computation of one cell, up to a common factor."""
    grpo, evaluate = experiment.grpo_settings, experiment.evaluate
    length = task.prompt + min(longer * task.mean, grpo.max_completion_length)
    rollouts = PASSES * experiment.batch.rollouts * length
    times, answers = grpo.max_steps // evaluate.every, evaluate.samples + evaluate.greedy
    evaluations = times * answers * task.questions * (task.prompt + task.mean)
    return SHAPES[model].parameters * (rollouts + evaluations)


def with_failures(
    cell: Cell, per_hour: float, restart: float, spread: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Seconds that a cell occupies its GPU, and seconds that are lost to failures.

    Failures are random, `per_hour` of them per GPU-hour; each costs the work since the last
    checkpoint and a restart. `spread` is the standard deviation of the log of the ratio between a
    cell's true and expected duration.
    """
    work = cell.seconds * float(np.exp(rng.normal(0.0, spread)))
    interval, done, occupied = work / cell.checkpoints, 0.0, 0.0
    while True:
        until = rng.exponential(3600 / per_hour) if per_hour else np.inf
        if done + until >= work:
            occupied += work - done
            return occupied, occupied - work
        occupied += until + restart
        done = (done + until) // interval * interval


def simulate(
    cells: list[Cell], gpus: int, options: argparse.Namespace, rng: np.random.Generator
) -> dict[str, float]:
    """One sweep: cells start in the order of their expected durations and take their true ones."""
    true = {
        str(cell.axes): with_failures(cell, options.failures, options.restart, options.spread, rng)
        for cell in cells
    }
    capacity = Capacity((1.0,) * gpus, gpus)

    def jobs_in_order(by_seed: bool) -> list[Job]:
        blocks = make_blocks(cells, lambda cell: cell.seconds, by_seed=by_seed)
        names = [str(cell.axes) for block in blocks for cell in block]
        return [Job(name, true[name][0]) for name in names]

    jobs = jobs_in_order(by_seed=False)
    bound = lower_bound([Job(name, total - lost) for name, (total, lost) in true.items()], capacity)
    wall, capped = (makespan(pack(j, capacity)) for j in (jobs, jobs_in_order(by_seed=True)))
    return {
        "wall": wall / 3600,
        "bound": bound / 3600,
        "efficiency": bound / wall,
        "idle": 1 - device_seconds(jobs, capacity) / (gpus * wall),
        "lost": sum(lost for _, lost in true.values()) / device_seconds(jobs, capacity),
        "capped": bound / capped,
    }


def main() -> None:
    """Simulate and print a table."""
    parser = benchmark_parser("cluster_simulation", __doc__)
    parser.add_argument(
        "--gpus", type=int, nargs="+", default=[1, 8, 64, 512], help="sizes of the cluster"
    )
    parser.add_argument(
        "--hours", type=float, default=14, help="mean hours of a cell on one GPU (default 14)"
    )
    parser.add_argument(
        "--failures", type=float, default=0.01, help="failures per GPU-hour (default 0.01)"
    )
    parser.add_argument(
        "--restart", type=float, default=300, help="seconds per restart (default 300)"
    )
    parser.add_argument(
        "--spread", type=float, default=0.2, help="log-scale spread of durations (default 0.2)"
    )
    parser.add_argument("--repeats", type=int, default=20, help="runs per size (default 20)")
    options = parser.parse_args()
    cells = grid(load_config(ROOT / "experiments.yaml").config, options.hours)
    each = [cell.seconds / 3600 for cell in cells]
    print(
        f"{len(cells)} cells of {min(each):.1f} to {max(each):.1f} hours, {sum(each):,.0f} "
        f"GPU-hours; {options.failures:g} failures per GPU-hour, "
        f"{options.restart:g} s each and the work since the last of {cells[0].checkpoints} "
        f"checkpoints; means of {options.repeats} runs"
    )
    print(
        f"{'GPUs':>5} {'wall h':>8} {'bound h':>8} {'efficiency':>11} {'idle':>6} {'lost':>6} "
        f"{'capped':>7}"
    )
    for gpus in options.gpus:
        runs = [
            simulate(cells, gpus, options, np.random.default_rng([gpus, i]))
            for i in range(options.repeats)
        ]
        means = {name: mean(run[name] for run in runs) for name in runs[0]}
        print(
            f"{gpus:>5} {means['wall']:8.1f} {means['bound']:8.1f} {means['efficiency']:11.1%} "
            f"{means['idle']:6.1%} {means['lost']:6.1%} {means['capped']:7.1%}"
        )


if __name__ == "__main__":
    main()
