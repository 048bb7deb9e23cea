"""What the tests of caps share."""

from collections.abc import Sequence
from pathlib import Path

from factories import small_plan

from orchestrator.cost.caps import CellQueue, UsageMeter, make_queue
from orchestrator.cost.schedule import Capacity
from orchestrator.cost.work import Estimates, ProbeWork, Speed, Work
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan

HOUR = Work(3600.0, 0.0)
SPEEDS = {"stub": Speed(0.0, 1.0)}  # a token takes a second


class Clock:
    """A clock that tests set, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def planned(folder: Path, **caps: object) -> Plan:
    """Two policies and three seeds, a GPU for each cell."""
    return small_plan(folder, seeds=[0, 1, 2], resources={"gpus": 1}, **caps)


def make(
    plan: Plan,
    cells: Sequence[Cell] | None = None,
    gpus: int = 2,
    meter: UsageMeter | None = None,
    probes: float = 0.0,
) -> CellQueue:
    cells = plan.cells if cells is None else cells
    works = {cell.cell_id: HOUR for cell in cells}
    estimates = Estimates(works, {"p": ProbeWork("stub", 1, probes)}, SPEEDS)
    capacity = Capacity((1.0,) * gpus, gpus)
    meter = meter or UsageMeter(clock=Clock())
    queue = make_queue(plan.experiment, cells, estimates, capacity, meter)
    queue.forecast.clock = Clock()
    return queue
