"""The project's own experiments.yaml: it loads anywhere, and its descriptions match the plans."""

import re
from pathlib import Path

from catalogue_cases import plans  # noqa: F401 (fixtures)
from paths import ROOT

from orchestrator.cli.plan_summary import plan_summary
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.timetable import Site
from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store


def test_documented_cells_and_flops_match_the_plan(plans: dict[str, Plan], tmp_path: Path) -> None:
    site = Site.from_options({"GPU": 8, "CPU": 64}, "h100", None)
    table = (ROOT / "docs" / "notes" / "paper-sweeps.md").read_text()
    for name, plan in plans.items():
        summary = plan_summary(Run.of(plan, Store(str(tmp_path))), site)
        row = re.escape(f"| {len(plan.cells)} | {summary.flops_to_run:.1e} |")
        assert re.search(rf"\| `{name}` \|.*{row}", table), (name, summary.flops_to_run)
        assert f" {len(plan.cells)} cells." in plan.experiment.about, name
