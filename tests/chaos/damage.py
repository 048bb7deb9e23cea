"""Damage to files of a store between two runs of the same command."""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.cases import Case, differences, finish, sweep

SKIPPED = (".lock", ".unsound", "mlflow.db", "mlflow.db-wal", "mlflow.db-shm")


def truncate(file: Path, folder: Path, rng: random.Random) -> None:
    """Cut the file at a random place."""
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data))])


def flip(file: Path, folder: Path, rng: random.Random) -> None:
    """Change one bit."""
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def empty(file: Path, folder: Path, rng: random.Random) -> None:
    """Leave no byte."""
    file.write_bytes(b"")


def delete(file: Path, folder: Path, rng: random.Random) -> None:
    """Remove the file."""
    file.unlink()


def swap(file: Path, folder: Path, rng: random.Random) -> None:
    """Put the file of the same kind of another cell, checkpoint or subset in its place."""
    siblings = [f for f in folder.rglob(f"*{file.suffix}") if f != file and f.is_file()]
    same_name = [f for f in siblings if f.name == file.name]
    if same_name or siblings:
        shutil.copyfile(rng.choice(same_name or siblings), file)


DAMAGES: tuple[Callable[[Path, Path, random.Random], None], ...]
DAMAGES = (truncate, flip, empty, delete, swap)


def damaged_files(
    folder: Path, stores: dict[str, Path], reference: Path, count: int, rng: random.Random
) -> Iterator[Case]:
    """Damage `count` files, each in a fresh copy of one of `stores`, and run the command again.

    `stores` maps a state of the sweep ("finished", "in training") to the folder of its file.
    """
    for number in range(count):
        state = sorted(stores)[number % len(stores)]
        damage = DAMAGES[number // len(stores) % len(DAMAGES)]
        place = folder / f"damage-{number}"
        shutil.copytree(stores[state], place)
        runs = place / "runs"
        files = [f for f in runs.rglob("*") if f.is_file() and f.name not in SKIPPED]
        file = rng.choice(sorted(f for f in files if f.stat().st_size))  # not the locks
        damage(file, runs, rng)
        began = time.monotonic()
        case = Case(f"{damage.__name__}, {state}")
        problems = finish(sweep(place)) + differences(sweep(place), reference)
        case.problems = [f"{file.relative_to(runs)}: {problem}" for problem in problems]
        case.seconds = time.monotonic() - began
        yield case
        shutil.rmtree(place)
