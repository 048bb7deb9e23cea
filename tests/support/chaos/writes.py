"""Kills after every write of a cell: a rerun finishes it, with the undisturbed results."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from killed_cells import SCENARIOS, KilledCell, Scenario
from s3_server import s3_server
from write_steps import host

from chaos.cases import Case

AT_ONCE = 2


def killed_cells(folder: Path, most: int, rng: random.Random) -> Iterator[Case]:
    """A case for each scenario; of more than `most` writes, some at random.

    Half of the cells are killed a second time, after another write of the rerun.
    """
    seeds = [rng.random() for _ in SCENARIOS]
    with s3_server() as server, ThreadPoolExecutor(AT_ONCE) as pool:

        def case(scenario: Scenario, seed: float) -> Case:
            return _killed(folder, scenario, most, server, random.Random(seed))

        yield from pool.map(case, SCENARIOS, seeds)


def _killed(folder: Path, scenario: Scenario, most: int, server: str, rng: random.Random) -> Case:
    case = Case(f"killed cell: {scenario.name}", count=0)
    place = folder / f"killed-cell-{SCENARIOS.index(scenario)}"
    place.mkdir()
    with host(place) as processes:
        cell = KilledCell(scenario, processes, place / "sweep", server)
        kills = cell.kills()
        for kill in sorted(rng.sample(kills, min(most, len(kills)))):
            again = [rng.choice(kills)] if rng.random() < 0.5 else []
            began = time.monotonic()
            case.problems += cell.problems(kill, *again)
            case.seconds = max(case.seconds, time.monotonic() - began)
            case.count += 1
    return case
