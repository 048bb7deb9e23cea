"""Probes of episodes by the command: killed and resumed, selected from, reported and checked."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import sweeps
from episode_sweep_cases import experiments, opened
from paths import ROOT, SUPPORT

from orchestrator.cli.doctor import check_dataset
from orchestrator.probing.probe import ProbeActor
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.store import Store


def test_a_killed_probe_is_resumed_and_equal_to_an_undisturbed_one(
    local_ray: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("environments_of_users", "scripted_model"):
        shutil.copy(SUPPORT / f"{module}.py", local_ray)
    file, log = experiments(tmp_path), tmp_path / "log"
    _, folder = opened(file, monkeypatch)
    driver = sweeps.start(file, log, verb="probe", PYTHONPATH=f"{ROOT}:{SUPPORT}")
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
