"""The project's own experiments.yaml: it loads anywhere, and its descriptions match the plans."""

from pathlib import Path

from catalogue_cases import plans  # noqa: F401 (fixtures)

from orchestrator.cli.plan_summary import plan_summary
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store


def test_documented_hours_match_the_plan(plans: dict[str, Plan], tmp_path: Path) -> None:
    site = Site.from_options({"GPU": 8, "CPU": 64}, "h100", None)
    for name, plan in plans.items():
        hours = plan_summary(Run.of(plan, Store(str(tmp_path))), site).gpu_hours
        assert f" {float(f'{hours:.2g}'):.0f} GPU-hours." in plan.experiment.about, name
