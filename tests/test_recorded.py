"""A recording replayed as a probe, on Ray without a model: adaptive and full replay agree."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from sweeps import decile_here

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
from tasks import get_task

SAMPLES = 6


def recording(folder: Path, prompts: int = 120) -> Path:
    """Responses to a task's training questions with pass rates from Beta(.3, .3)."""
    rng = np.random.default_rng(0)
    rows = []
    for prompt in get_task("arithmetic", train=prompts, test=5).train():
        right = rng.random(SAMPLES) < rng.beta(0.3, 0.3)
        texts = [rf"\boxed{{{prompt.answer}}}" if r else r"\boxed{-1}" for r in right]
        rows.append({"question": prompt.question, "responses": texts})
    file = folder / "recorded.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def experiments(folder: Path, policies: list[str], **probe: object) -> Path:
    content = {
        "storage": str(folder / "runs"),
        "models": {"past": {"recorded": str(folder / "recorded.parquet")}},
        "datasets": {"sums": {"task": "arithmetic", "options": {"train": 120, "test": 5}}},
        "experiments": {
            "study": {
                "grid": {"model": ["past"], "dataset": ["sums"], "policy": policies},
                "budget": 12,
                "probe": {"samples": SAMPLES, **probe},
                "grpo": {"num_generations": 4, "per_device_train_batch_size": 8},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def probe(file: Path) -> str:
    process = decile_here("probe", str(file), "-e", "study", folder=file.parent)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


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
    assert "samples were needed" in output
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples": 7}, "probe: {samples: 6}"),
        ({}, "20 of the 120"),
    ],
)
def test_an_incomplete_recording_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict, words: str
) -> None:
    recording(tmp_path, 120 if change else 100)
    file = experiments(tmp_path, ["hard"], **change)
    assert main(["plan", str(file), "-e", "study"]) == 2
    assert words in capsys.readouterr().err


def test_a_recording_cannot_be_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path)
    assert main(["run", str(experiments(tmp_path, ["hard"])), "-e", "study"]) == 2
    assert "decile probe" in capsys.readouterr().err
