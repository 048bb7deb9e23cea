"""Damage to files of a store between two runs of the same command."""

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from damaged_store import DAMAGES

from chaos.cases import Case, differences, finish, sweep

SKIPPED = (".lock", ".unsound", "mlflow.db", "mlflow.db-wal", "mlflow.db-shm")


def damaged_files(
    folder: Path, stores: dict[str, Path], reference: Path, count: int, rng: random.Random
) -> Iterator[Case]:
    """Damage `count` files, each in a fresh copy of one of `stores`, and run the command again.

    `stores` maps a state of the sweep ("finished", "in training") to the folder of its file.
    """
    for number in range(count):
        state = sorted(stores)[number % len(stores)]
        name = [*DAMAGES][number // len(stores) % len(DAMAGES)]
        place = folder / f"damage-{number}"
        shutil.copytree(stores[state], place)
        runs = place / "runs"
        files = [f for f in runs.rglob("*") if f.is_file() and f.name not in SKIPPED]
        file = rng.choice(sorted(f for f in files if f.stat().st_size))  # not the locks
        DAMAGES[name](file, _sibling(file, runs, rng))
        began = time.monotonic()
        case = Case(f"{name}, {state}")
        problems = finish(sweep(place)) + differences(sweep(place), reference)
        case.problems = [f"{file.relative_to(runs)}: {problem}" for problem in problems]
        case.seconds = time.monotonic() - began
        yield case
        shutil.rmtree(place)


def _sibling(file: Path, runs: Path, rng: random.Random) -> Path:
    """A file of the same kind of another cell, checkpoint or subset, or at least of its type."""
    siblings = [f for f in runs.rglob(f"*{file.suffix}") if f != file and f.is_file()]
    same_name = [f for f in siblings if f.name == file.name]
    return rng.choice(sorted(same_name or siblings) or [file])
