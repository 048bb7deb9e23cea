"""What the tests of episode sweep share."""

from pathlib import Path
from typing import Any

import pytest
import sweeps
from environments_cases import MODULE, file_of
from factories import small_plan

from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.store import Store


def experiments(folder: Path, name: str = "Guess", **options: Any) -> Path:
    """A probe of three parts: 120 prompts with 12 samples each."""
    rows = [{"prompt": f"Game {n}.", "number": n % 6, "level": str(n % 6)} for n in range(140)]
    path, engine = file_of(folder, rows), {"engine": "scripted_model:Engine"}
    options = {"path": path, "test_share": 0.1, "tier": "level", "threshold": 0.3} | options
    small_plan(
        folder,
        datasets={"game": {"task": f"{MODULE}:{name}", "options": options}},
        grid={"model": ["stub"], "dataset": ["game"], "policy": ["middle", "random"]},
        probe={"samples": 12, "max_completion_length": 700} | engine,
        evaluate={"samples": 2} | engine,
    )
    return folder / "experiments.yaml"


def opened(file: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, ProbeFolder]:
    monkeypatch.chdir(file.parent)
    plan = make_plan(load_config(file), sweeps.NAME)
    [spec] = [probe for probe in plan.probes if probe.split == "train"]
    pool = plan.pool(spec)
    return plan, ProbeFolder(Store(str(file.parent / "runs")), spec, pool.train, pool.task)
