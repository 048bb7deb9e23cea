"""What every case is checked for."""

import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from mlflow import MlflowClient
from sweeps import NAME, decile, experiments, plan_of, same_results, store_of

from orchestrator.tracking import default_tracking_uri
from orchestrator.tracking.client import failures

HANG = 300  # seconds after which a command counts as hanging


def sweep(folder: Path, storage: str | None = None) -> Path:
    """The file of a sweep of two cells that saves and evaluates often, in seconds."""
    return experiments(
        folder,
        storage=storage,
        probe={"samples": 3, "max_completion_length": 32},
        grpo={
            "max_steps": 8,
            "num_generations": 4,
            "per_device_train_batch_size": 8,
            "max_completion_length": 32,
            "learning_rate": 1e-3,
            "save_steps": 2,
        },
        evaluate={"every": 4, "samples": 1},
    )


def checkpoints(file: Path) -> list[Path]:
    """The checkpoints that a sweep has stored."""
    return list(Path(store_of(file).path("cells")).glob("*/checkpoint-*/decile.json"))


@dataclass
class Case:
    """One disturbance (or several of one sweep) and what went wrong."""

    scenario: str
    count: int = 1
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


def table(cases: Iterable[Case]) -> str:
    """The figures of all cases, a line per scenario."""
    cases = list(cases)
    lines = [f"{'scenario':<34}{'cases':>7}{'problems':>10}{'longest s':>11}"]
    for scenario in dict.fromkeys(case.scenario for case in cases):
        same = [case for case in cases if case.scenario == scenario]
        problems = sum(len(case.problems) for case in same)
        longest = max(case.seconds for case in same)
        lines.append(
            f"{scenario:<34}{sum(case.count for case in same):>7}{problems:>10}{longest:>11.1f}"
        )
    return "\n".join(lines)


def finish(file: Path, *arguments: str, **variables: str) -> list[str]:
    """Run the sweep of a file to its end without disturbing it; returns problems."""
    return ends("run", str(file), "-e", NAME, *arguments, folder=file.parent, **variables)


def ends(*arguments: str, folder: Path, code: int = 0, **variables: str) -> list[str]:
    """Run `decile …`, which must end with this exit code; returns problems."""
    try:
        process = decile(*arguments, folder=folder, **variables)
    except subprocess.TimeoutExpired as error:
        return [f"decile {arguments[0]} hangs: {str(error.stdout)[-500:]}"]
    output = process.stdout + process.stderr
    problems = tracebacks(output)
    if process.returncode != code:
        problems.append(f"decile {arguments[0]} exits with {process.returncode}: {output[-500:]}")
    return problems


def tracebacks(output: str) -> list[str]:
    """A problem for output that holds a traceback."""
    start = output.find("Traceback (most recent call last)")
    return [] if start < 0 else [f"traceback: {output[start:][:1500]}"]


def differences(file: Path, reference: Path, tracking_uri: str | None = None) -> list[str]:
    """How a finished sweep differs from the undisturbed one."""
    store, problems = store_of(file), []
    ids = [cell.cell_id for cell in plan_of(file).cells]
    if missing := [i for i in ids if not store.exists("cells", i, "result.json")]:
        return [f"cells without a result: {', '.join(missing)}"]
    if not same_results(file, reference):
        problems.append("results differ from those of the undisturbed sweep")
    try:
        client = MlflowClient(tracking_uri or default_tracking_uri(store))
        experiments = [e for e in client.search_experiments() if e.name != "Default"]
    except failures() as error:
        return [*problems, f"MLflow cannot be read: {str(error)[:200]}"]
    runs = client.search_runs([e.experiment_id for e in experiments])
    children = [r for r in runs if "mlflow.parentRunId" in r.data.tags]
    cells = [r.data.tags.get("decile.cell_id", r.info.run_name) for r in children]
    if len(set(cells)) != len(cells) or len(runs) - len(children) != 1:
        problems.append(f"MLflow has {len(runs)} runs, of cells {sorted(cells)}")
    problems += [
        f"the MLflow run of {r.info.run_name} is {r.info.status}"
        for r in runs
        if r.info.status != "FINISHED"
    ]
    return problems


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def survivors(processes: Iterable[psutil.Process], seconds: float = 90) -> list[str]:
    """Processes that still run after `seconds`; they are ended.

    Ray's agents try to report the death of their raylet to a dead GCS for up to 60 seconds.
    """
    _, alive = psutil.wait_procs(list(processes), timeout=seconds)
    names = []
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            names.append(f"process left over: {' '.join(process.cmdline())[:120]}")
            process.kill()
    return names
