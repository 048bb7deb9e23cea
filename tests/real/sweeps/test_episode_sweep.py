"""Probes of episodes by the command: killed and resumed, selected from, reported and checked."""

import re
from pathlib import Path

import pytest
import sweeps
from environments_cases import MODULE
from episode_sweep_cases import experiments, opened
from scripted_model import Scripted

from orchestrator.cli.main import main
from orchestrator.probing.probe import ProbeActor


def test_plan_starts_each_environment_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = experiments(tmp_path, "BadReset")
    monkeypatch.chdir(tmp_path)
    assert main(["plan", str(file), "-e", sweeps.NAME]) == 1
    assert "dataset game: environment environments_of_users:BadReset: reset() returned 5" in (
        capsys.readouterr().err
    )


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
