"""Cells through Ray Tune with an instant training function: order, caps, failures."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from benchmarks.overhead import planned, stub_cell
from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.pipeline.run import Run
from orchestrator.pipeline.sweep import SweepOutcome, run_experiment
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.storage.store import Store
from orchestrator.tracking import default_tracking_uri
from orchestrator.training.trial import Report
from orchestrator.training.tune_runner import Train


@pytest.fixture(scope="module")
def probed(finished: Path, empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies and two seeds, with the samples of the finished sweep."""
    folder = tmp_path_factory.mktemp("capped")
    planned(folder, seeds=2, policies=["hard", "easy"])
    (folder / "runs").mkdir()
    shutil.copyfile(empty_database, folder / "runs" / "mlflow.db")
    shutil.copytree(finished.parent / "runs" / "probes", folder / "runs" / "probes")
    return folder


def with_settings(folder: Path, **settings: object) -> Plan:
    """The plan with changed settings of the experiment."""
    file = folder / "experiments.yaml"
    content = yaml.safe_load(file.read_text())
    content["experiments"]["stubs"] |= settings
    file.write_text(yaml.safe_dump(content))
    return make_plan(load_config(file), "stubs")


def run(plan: Plan, folder: Path, train: Train) -> SweepOutcome:
    store = Store(str(folder / "runs"))
    return run_experiment(Run.of(plan, store), default_tracking_uri(store), train)


def failing() -> Train:
    """Fails for one policy of one seed. A closure, so that workers need not import this file."""

    def train(cell: Cell, storage: str, report: Report) -> None:
        with (Path(storage) / "started.txt").open("a") as log:
            log.write(f"{cell.seed} {cell.policy}\n")
        if (cell.policy, cell.seed) == ("easy", 1):
            raise RuntimeError("deliberate")
        stub_cell(cell, storage, report)

    return train


def test_a_cap_ends_a_sweep_between_seeds_and_a_larger_one_continues(
    probed: Path, local_ray: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(str(probed / "runs"))
    plan = with_settings(probed, max_hours=1.0)
    seed_0 = [cell.cell_id for cell in plan.cells if cell.seed == 0]
    usage = {"seconds": 7200.0, "gpu_seconds": 0.0, "begun": seed_0[:1]}
    store.write_json({"spent": usage}, "sweeps", "stubs.json")

    outcome = run(plan, probed, failing())
    assert sorted(outcome.finished) == sorted(seed_0), "only the block that had started"
    assert "leaves out seed 1 of tiny/few: 2 of 4 cells" in outcome.dropped
    manifest = json.loads((probed / "runs" / "sweeps" / "stubs.json").read_text())
    assert len(manifest["dropped"]["cells"]) == 2
    assert manifest["spent"]["seconds"] > 7200

    file = str(probed / "experiments.yaml")
    assert main(["run", file, "-e", "stubs"]) == 3
    text = capsys.readouterr().out
    assert "capped:   max_hours 1 (" in text
    assert "raise the cap" in text

    outcome = run(with_settings(probed, max_hours=9.0), probed, failing())
    assert len(outcome.finished) == 1
    [reason] = outcome.failed.values()
    assert reason.startswith("RuntimeError: deliberate (node ")
    assert outcome.dropped == ""
    assert "dropped" not in json.loads((probed / "runs" / "sweeps" / "stubs.json").read_text())
    log = (probed / "runs" / "started.txt").read_text().splitlines()
    started = [line.split()[0] for line in log]
    firsts = [started.index(seed) for seed in "01"]
    assert firsts == sorted(firsts) and started.count("0") == 2, "seed by seed"
