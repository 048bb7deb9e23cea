"""A recording replayed as a probe, on Ray without a model: adaptive and full replay agree."""

import re
from pathlib import Path

import pytest
from recorded_cases import SAMPLES, experiments, probe, recording

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.difficulty.probe_table import difficulty_of
from orchestrator.pipeline.run import Run
from orchestrator.planning.plan import make_plan
from orchestrator.probing.probe_folder import write_part
from orchestrator.probing.samples import sample_and_mark
from orchestrator.sampling import load_sampler
from orchestrator.selection.stored import read_subset, store_subset
from orchestrator.storage.store import Store


def subsets(file: Path) -> dict[str, list[str]]:
    plan = make_plan(load_config(file), "study")
    store = Store(str(file.parent / "runs"))
    by_policy = {}
    for cell in plan.cells:
        table = read_subset(store, cell)
        assert table is not None
        by_policy[cell.policy] = sorted(table["prompt_id"].to_pylist())
    return by_policy


def test_a_replay_stops_early_with_the_subsets_of_the_full_recording(
    local_ray: Path, tmp_path: Path
) -> None:
    recording(tmp_path)
    file = experiments(tmp_path, ["hard", "easy", "middle", "random"], adaptive=True)
    output = probe(file)
    assert "samples needed" in output
    early = subsets(file)
    again = probe(file)
    assert "nothing to do" in again and "wrote probe-study.html" in again
    (tmp_path / "runs").rename(tmp_path / "early")
    policies = ["hard", "easy", "middle", "random", "learnable"]
    output = probe(experiments(tmp_path, policies, adaptive=True))
    assert re.search(r"720 samples to draw \(.* learnable\)", output)
    assert "120 prompts × 6 samples" in output and "reliability 0." in output
    full = subsets(file)
    assert len(full.pop("learnable")) == 12
    assert full == early


def test_a_stored_probe_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording(tmp_path)
    file = experiments(tmp_path, ["hard", "random"])
    plan, store = make_plan(load_config(file), "study"), Store(str(tmp_path / "runs"))
    (spec,) = plan.probes
    pool, sampler = plan.pool(spec), load_sampler(spec.model)
    requests = [(prompt, range(SAMPLES)) for prompt in pool.train]
    samples = sample_and_mark(sampler, pool.task, requests, spec.settings.sampling())
    write_part(store, spec.key, "train", samples)
    outcomes = Run.of(plan, store).folder(spec).outcomes()
    for cell in plan.cells:
        store_subset(store, cell, difficulty_of(plan, spec, outcomes))
    monkeypatch.chdir(tmp_path)
    pages = []
    for _ in range(2):
        assert main(["probe", str(file), "-e", "study"]) == 0
        output = capsys.readouterr()
        assert "nothing to do" in output.err
        assert "120 prompts × 6 samples" in output.out
        assert "wrote probe-study.html, probe-study-" in output.out
        pages.append((tmp_path / "probe-study.html").read_bytes())
    assert pages[0] == pages[1]
    assert main(["probe", str(file), "-e", "study", "--out", str(tmp_path)]) == 2
