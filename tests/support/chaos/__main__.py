"""Print a table of figures: `make chaos`, or with other numbers `python -m chaos --kills 5`."""

import argparse
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from sweeps import run, start, wait_for

from chaos.cases import Case, checkpoints, family, survivors, sweep, table
from chaos.damage import damaged_files
from chaos.entries import entries, nfs
from chaos.faults import clocks, full_disks, object_stores, trackers
from chaos.kills import kills
from chaos.mutated import mutated_files
from chaos.writes import killed_cells


def interrupted_sweep(folder: Path) -> Path:
    """A sweep whose driver was killed in the second epoch of a cell; returns its folder."""
    folder.mkdir()
    file, log = sweep(folder), folder / "driver.log"
    driver = start(file, log)
    wait_for(lambda: [c for c in checkpoints(file) if "checkpoint-6" in str(c)], driver, log)
    members = family(driver.pid)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    survivors(members)
    return folder


def main() -> int:
    """Run every scenario; exit code 1 if any case had a problem."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    for name, default in (
        ("kills", 100),
        ("damages", 60),
        ("disks", 10),
        ("buckets", 3),
        ("mutations", 1000),
        ("writes", 1000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"number of {name}")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="decile-chaos-"))
    (folder / "reference").mkdir()
    reference, began = sweep(folder / "reference"), time.monotonic()
    run(reference)
    seconds = time.monotonic() - began
    interrupted = interrupted_sweep(folder / "interrupted")
    print(f"an undisturbed run takes {seconds:.0f} s", flush=True)
    stores = {"finished": reference.parent, "in training": interrupted}
    cases: list[Case] = []
    scenarios: list[Callable[[], Iterable[Case]]] = [
        partial(kills, folder, reference, seconds, options.kills, rng),
        partial(damaged_files, folder, stores, reference, options.damages, rng),
        partial(full_disks, folder, reference, options.disks, rng),
        partial(trackers, folder, reference),
        partial(object_stores, folder, reference, options.buckets, rng),
        partial(clocks, folder, reference, interrupted),
        partial(entries, folder, stores, reference),
        partial(nfs, folder, reference),
        partial(mutated_files, folder, options.mutations, options.seed),
        partial(killed_cells, folder, options.writes, rng),
    ]
    for scenario in scenarios:
        for case in scenario():
            cases.append(case)
            for problem in case.problems:
                print(f"{case.scenario}: {problem}", flush=True)
        print(table(cases), flush=True)
    problems = sum(len(case.problems) for case in cases)
    if not problems:
        shutil.rmtree(folder)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
