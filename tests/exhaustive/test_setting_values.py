"""No value of a GRPO setting breaks a plan: it is refused, or planned with."""

from dataclasses import fields
from pathlib import Path

import pytest
from factories import small_plan
from remedies import problems

from orchestrator.cli.plan_summary import plan_summary
from orchestrator.config.grpo import GrpoSettings
from orchestrator.cost.memory import SHAPES, training_load, training_memory
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store


@pytest.mark.parametrize("setting", [each.name for each in fields(GrpoSettings)])
def test_no_value_of_a_setting_breaks_a_plan(tmp_path: Path, setting: str) -> None:
    """It is refused, or planned with, on a CPU and on GPUs."""
    refusals = []
    for number, value in enumerate((None, True, "x", [], {}, -1, 0, 1, 2.5)):
        try:
            plan = small_plan(tmp_path / str(number), grpo={setting: value})
        except UserError as error:
            refusals.append(error)
            continue
        run = Run.of(plan, Store(str(tmp_path / "runs")))
        for cluster in ({"CPU": 1.0}, {"CPU": 16.0, "GPU": 1.0}):
            assert plan_summary(run, Site(cluster)).text()
        load = training_load(plan.cells[0], 100)
        assert training_memory(SHAPES["Qwen/Qwen3-4B"], load).peak > 0
    assert all(error.code and problems(str(error)) == [] for error in refusals)
