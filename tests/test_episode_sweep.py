"""Probes of episodes by the command: killed and resumed, selected from, reported and checked."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import sweeps
from factories import small_plan
from scripted_model import Scripted
from test_environments import MODULE, file_of

from benchmarks.local_cluster import ROOT
from orchestrator.cli.doctor import check_dataset
from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.probing.probe import ProbeActor
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.store import Store

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent


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


def test_plan_starts_each_environment_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = experiments(tmp_path, "BadReset")
    monkeypatch.chdir(tmp_path)
    assert main(["plan", str(file), "-e", sweeps.NAME]) == 1
    assert "dataset game: environment environments_of_users:BadReset: reset() returned 5" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_probe_stops_early_where_tools_hang_and_keeps_what_it_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"seconds": 0.5, "memory": 0.5, "processes": 1}
    file = experiments(tmp_path, "Stuck", mark_limits=limits)
    _, folder = opened(file, monkeypatch)
    monkeypatch.setattr("scripted_model.Engine.sample", Scripted.sample)
    prompts = sorted(folder.prompts, key=lambda p: p.tier == "5")[-32:]
    requests = [(prompt, range(1, 5)) for prompt in prompts]  # sample 1 says "No."
    actor = ProbeActor([folder.spec], str(tmp_path / "runs"), 1)
    rows, failure = actor.draw_part(requests)
    assert re.fullmatch(
        rf"13 of \d+ episodes failed in {MODULE}:Stuck \(13 × time-limit@guess\), .*"
        "max_marking_errors: 0.1 .* mark_limits",
        failure,
    )
    assert len(rows) == 32 and {row["outcome"] for row in rows} == {"wrong"}
    stored = opened(file, monkeypatch)[1].read().outcomes()
    assert stored.drawn == len(rows), "what failed is played again"
    assert actor.draw_part(requests) == ([], failure), "nothing is drawn after it"


def test_a_killed_probe_is_resumed_and_equal_to_an_undisturbed_one(
    local_ray: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("environments_of_users", "scripted_model"):
        shutil.copy(HERE / f"{module}.py", local_ray)
    file, log = experiments(tmp_path), tmp_path / "log"
    _, folder = opened(file, monkeypatch)
    driver = sweeps.start(file, log, verb="probe", PYTHONPATH=f"{ROOT}:{HERE}")
    parts = tmp_path / "runs" / "probes" / folder.spec.key
    sweeps.wait_for(lambda: [*parts.glob("*.parquet")], driver, log)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    _, folder = opened(file, monkeypatch)
    assert 0 < folder.read().outcomes().drawn < 12 * len(folder.prompts)
    arguments = (str(file), "-e", sweeps.NAME)
    out = sweeps.decile_here("probe", *arguments, folder=tmp_path)
    assert out.returncode == 0, out.stdout + out.stderr
    assert "environments_of_users:Guess reset with 8 rows, 2 tools (act, guess)" in out.stderr
    declared = json.loads((tmp_path / "runs" / "sweeps" / "small.json").read_text())
    assert declared["spent"]["seconds"] > 0, "a cap of a later run counts the probe"
    plan, folder = opened(file, monkeypatch)
    samples = folder.samples()

    calm = Store(str(tmp_path / "calm"))
    actor = ProbeActor([folder.spec], calm.uri, 1)
    _, failure = actor.draw_part([(prompt, range(12)) for prompt in folder.prompts])
    assert not failure
    assert samples == ProbeFolder(calm, folder.spec, folder.prompts, folder.task).samples()
    episodes = samples["episode"].to_pylist()
    assert {e["turns"] for e in episodes} == {1, *range(2, 8)} and not any(
        e["failure"] for e in episodes
    )
    text = " ".join(out.stdout.split())
    assert "correct" in text and "% of prompts" in text, "the tables of the probe"
    assert "Turns by pass rate" in text
    again = sweeps.decile_here("plan", *arguments, folder=tmp_path)
    assert "samples to draw" not in again.stdout.split("probe stub/game test")[0]
    chosen = sweeps.decile_here("select", *arguments, "--policy", "middle", folder=tmp_path)
    assert chosen.returncode == 0, chosen.stdout + chosen.stderr
    assert "2 tools (act, guess)" in check_dataset(folder.spec.dataset)
