"""The prompts of an update, chosen by an online policy in TRL's trainer."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from grpo import marks_in_this_process, one_thread, trained_cell  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
from mlflow import MlflowClient
from online_cases import (
    dynamic,  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
)

from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import load_pool
from orchestrator.storage.schema import LOG
from orchestrator.tracking import Tracker
from orchestrator.tracking.views import clean
from orchestrator.training.record import logged_name


def test_mlflow_has_each_metric_of_gates_and_strata_once_per_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live, and from the store; the same where two of the updates are lost, and done again."""
    import sweeps

    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["mine"]}
    options = {
        "within": "tier",
        "gates": [{"rest": {"updates": 1}}, "policies_of_users:Fading"],
    }
    sizes = {"max_steps": 6, "max_completion_length": 24, "per_device_train_batch_size": 8}
    runs = []
    for stops in ((), (3, 5)):
        folder = tmp_path / f"stops{len(stops)}"
        folder.mkdir()
        file = sweeps.experiments(folder, grid=grid, evaluate={"every": 0, "samples": 2})
        content = yaml.safe_load(file.read_text())
        content["policies"] = {"mine": {"policy": "dynamic", "options": options}}
        content["experiments"][sweeps.NAME]["grpo"] |= sizes
        file.write_text(yaml.safe_dump(content))
        plan = sweeps.plan_of(file)
        [cell], uri = plan.cells, f"sqlite:///{folder / 'runs' / 'mlflow.db'}"
        tracker = Tracker(uri, store := sweeps.store_of(file), plan)
        tracker.start(cell)

        def live(values: dict[str, Any], cell: Cell = cell, tracker: Tracker = tracker) -> None:
            tracker.live(cell, values["update"], values.get("metrics", {}))

        trained_cell(folder, cell, stops, monkeypatch, live)
        tracker.close(ok=True)
        shown = choice_points(uri)
        Tracker(uri, store, plan).sync(cell)
        assert choice_points(uri) == shown
        log = store.read_table(LOG, "cells", cell.cell_id, "log.parquet")
        assert log is not None
        stored = [
            (clean(name), row["update"], row["value"])
            for row in log.to_pylist()
            if (name := logged_name(row)).startswith("train/")
        ]
        assert sorted(stored) == shown
        runs.append(shown)
    assert runs[0] == runs[1]
    tiers = {*load_pool(cell.probe.dataset).train.column("tier").to_pylist()}
    names = {"train/gates/open", "train/gates/taken_closed", "train/gate/rest/open"}
    names |= {f"train/gate/policies_of_users_Fading/{name}" for name in ("open", "mean")}
    names |= {f"train/stratum/{tier}/share" for tier in tiers}
    assert Counter(name for name, *_ in shown) == dict.fromkeys(names, 6)
    opened = [value for name, _, value in shown if name == "train/gate/rest/open"]
    assert opened[0] == 1 > opened[1]


def choice_points(uri: str) -> list[tuple[str, int, float]]:
    """Every point that MLflow has of gates and strata, sorted."""
    client = MlflowClient(uri)
    [run] = [
        run
        for experiment in client.search_experiments()
        for run in client.search_runs([experiment.experiment_id])
        if "decile.cell_id" in run.data.tags
    ]
    return sorted(
        (name, point.step, point.value)
        for name in run.data.metrics
        if name.startswith(("train/gate", "train/stratum"))
        for point in client.get_metric_history(run.info.run_id, name)
    )
