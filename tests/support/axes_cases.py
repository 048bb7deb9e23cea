"""What the tests of axes share."""

from pathlib import Path
from typing import Any

from factories import small_plan

from orchestrator.planning.plan import Plan

GRID = {"model": ["stub"], "dataset": ["small"], "policy": ["hard", "random"], "seed": [0]}
GRPO = {"max_steps": 4, "num_generations": 4, "per_device_train_batch_size": 8}


def planned(folder: Path, axes: dict[str, list[Any]], **settings: Any) -> Plan:
    return small_plan(folder, grid=GRID | axes, **settings)
