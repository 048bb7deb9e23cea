"""SIGKILL at random moments to the driver, a trial, a sampler, the raylet or the GCS."""

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from sweeps import plan_of, start, store_of

from chaos.cases import HANG, Case, differences, family, finish, survivors, sweep, tracebacks

# The title or program by which a process of the driver's family is known.
TARGETS = {
    "trial": "ImplicitFunc",
    "sampler": "ProbeActor",
    "raylet": "raylet/raylet",
    "GCS": "gcs_server",
}
ENDS_RUN = ("driver", "raylet", "GCS")
PER_SWEEP = 10


def kills(
    folder: Path, reference: Path, seconds: float, count: int, rng: random.Random
) -> Iterator[Case]:
    """`count` kills, several in each sweep; `seconds` is the duration of an undisturbed run."""
    done = 0
    while done < count:
        place = folder / f"kills-{done}"
        place.mkdir()
        cases = _disturbed_sweep(sweep(place), reference, seconds, rng)
        done += len(cases)
        yield from cases


def _disturbed_sweep(file: Path, reference: Path, seconds: float, rng: random.Random) -> list[Case]:
    """Kill processes of one sweep until it has finished or PER_SWEEP were killed; compare it."""
    cases: list[Case] = []
    stamps: dict[str, int] = {}
    lost: list[psutil.Process] = []  # processes of runs that have ended
    while len(cases) < PER_SWEEP:
        log = file.parent / f"driver-{len(cases)}.log"
        driver = start(file, log)
        while driver.poll() is None and len(cases) < PER_SWEEP:
            with suppress(subprocess.TimeoutExpired):
                driver.wait(rng.uniform(0, 0.5 * seconds))
                break
            members = family(driver.pid)
            target, victim = _victim(driver.pid, members, rng)
            began = time.monotonic()
            case = Case(f"kill {target}")
            with suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGKILL)
            if target in ENDS_RUN:
                case.problems += _ended(driver, target, members)
                lost += members
                case.seconds = time.monotonic() - began
                case.problems += tracebacks(log.read_text())
            cases.append(case)
            case.problems += _rerun_cells(file, stamps)
        if driver.poll() == 0:
            break
        if driver.poll() is None and len(cases) >= PER_SWEEP:
            with suppress(subprocess.TimeoutExpired):
                driver.wait(HANG)
            if driver.poll() is None:
                cases[-1].problems.append(f"the run hangs: {log.read_text()[-300:]}")
                cases[-1].problems += survivors(family(driver.pid), 0)
    cases = cases or [Case("no kill", 0)]
    cases[-1].problems += finish(file) + _rerun_cells(file, stamps) + differences(file, reference)
    cases[-1].problems += survivors(lost)
    return cases


def _victim(
    pid: int, members: list[psutil.Process], rng: random.Random
) -> tuple[str, psutil.Process]:
    """A kind of process, drawn among those that run now, and one process of it."""
    kinds = {"driver": [psutil.Process(pid)]} if psutil.pid_exists(pid) else {}
    for process in members:
        with suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            for name, title in TARGETS.items():
                if title in line.split(" --")[0]:
                    kinds.setdefault(name, []).append(process)
    rare = kinds.keys() & {"trial", "sampler"}  # they run for a part of the sweep only
    target = rng.choice(sorted(rare if rare and rng.random() < 0.7 else kinds))
    return target, rng.choice(kinds[target])


def _ended(
    driver: subprocess.Popen[bytes], target: str, members: list[psutil.Process]
) -> list[str]:
    """Wait until a run that has lost a process it needs has ended; returns problems."""
    try:
        code = driver.wait(HANG)
    except subprocess.TimeoutExpired:
        return [f"the run hangs after the {target} died", *survivors(members, 0)]
    wrong = code not in ({-signal.SIGKILL} if target == "driver" else {0, 1})
    return [f"exit code {code} after the {target} died"] * wrong


def _rerun_cells(file: Path, stamps: dict[str, int]) -> list[str]:
    """Problems for cells that were finished before (`stamps`) and were run again."""
    problems = []
    for cell in plan_of(file).cells:
        result = Path(store_of(file).path("cells", cell.cell_id, "result.json"))
        if result.exists():
            stamp = result.stat().st_mtime_ns
            if stamps.setdefault(cell.cell_id, stamp) != stamp:
                problems.append(f"cell {cell.cell_id} was run again")
                stamps[cell.cell_id] = stamp
    return problems
