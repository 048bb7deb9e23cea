"""What the tests of discarded share."""

import pytest
from factories import cell_record, small_plan

from orchestrator.evaluation.groups import (
    GroupRecorder,
)
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.training.record import CellRecord


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return small_plan(tmp_path_factory.mktemp("discarded"), policies=["random", "dynamic"])


@pytest.fixture(scope="module")
def cell(plan: Plan) -> Cell:
    return plan.cells[1]


def online_record(plan: Plan, cell: Cell) -> CellRecord:
    """A record in which as many rollouts were discarded as trained on."""
    record = cell_record(plan, cell)
    rows = record.groups.rows
    dead = {"rewards": [0.0] * 4, "outcomes": ["wrong"] * 4}
    lost = [row | dead | {"prompt_id": f"other{i}"} for i, row in enumerate(rows)]
    record.groups = GroupRecorder(rows, lost)
    return record


def group(update: int, prompt: str, outcomes: list[str]) -> dict:
    rewards = [float(outcome == "correct") for outcome in outcomes]
    return {
        **{"update": update, "prompt_id": prompt, "tier": "", "tokens": [3] * len(outcomes)},
        **{"outcomes": outcomes, "other_outcomes": outcomes, "rewards": rewards, "components": []},
    }
