"""Settings as axes of the grid: from the file over the plan to the report and MLflow."""

import json
from pathlib import Path

from axes_cases import GRID, GRPO, planned
from factories import finished_sweep

from orchestrator.report.analysis import analyse
from orchestrator.tracking.mlflow_internals import experiment_tags
from orchestrator.tracking.views import cell_params, cell_tags, run_name, sweep_tags, sweep_view


def test_axes_are_parameters_and_tags_in_mlflow(tmp_path: Path) -> None:
    axes = {"grpo.beta": [0.0, 0.1], "budget": [8, 12]}
    plan, store = finished_sweep(tmp_path, grid=GRID | axes, grpo=GRPO)
    cell = plan.cells[-1]
    for shown in (cell_params(cell), cell_tags(cell)):
        assert (shown["grpo.beta"], shown["budget"]) == ("0.1", "12")
    assert run_name(cell) == "random/s0 budget=12 grpo.beta=0.1 stub/small"
    tags = sweep_tags("small", plan.experiment)
    assert tags["decile.grid.grpo.beta"] == "0.0, 0.1"
    views = experiment_tags({}, 0, ["budget", "grpo.beta"])
    assert '\\"groupByData\\": \\"grpo.beta\\"' in views["mlflow.sharedViewState.over-seeds"]
    larger = planned(tmp_path, {"grpo.beta": [0.2, 0.1], "budget": [8]}, grpo=GRPO)
    same = sweep_tags("small", larger.experiment)["decile.settings"] == tags["decile.settings"]
    assert same, "the grid may grow"
    view = sweep_view(analyse(plan, store))
    names = [name for name in view.metrics if name.startswith("final/accuracy/")]
    assert "final/accuracy/stub/small/budget_12/grpo.beta_0.1/random" in names
    assert len(names) == len(plan.cells)
    rows = json.loads(view.files["results.json"])
    assert {(row["grpo.beta"], row["budget"]) for row in rows} == {
        *((0.0, 8), (0.0, 12), (0.1, 8), (0.1, 12))
    }
