"""A sweep of the main environment whose probe and evaluations run in vLLM's own, kill included."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from processes import wait_until
from sweeps import NAME, evaluations, experiments, plan_of, store_of

from benchmarks.local_cluster import ROOT, environment
from orchestrator.sampling.model import ModelSource

MAIN = ROOT / ".venv" / "bin" / "python"
ENGINE = {"engine": "vllm", "engine_python": sys.executable}
EVALUATE = {"every": 3, "samples": 2, "greedy": True}

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not MAIN.exists(), reason=f"there is no {MAIN}: make install"),
]


def sweep(folder: Path, model: ModelSource, **evaluate: Any) -> Path:
    """A file with one cell; the probe has several parts."""
    folder.mkdir(exist_ok=True)
    file = experiments(
        folder,
        grid={"model": ["tiny"], "dataset": ["few"], "policy": ["random"]},
        probe={"samples": 30, "max_completion_length": 24} | ENGINE,
        grpo={
            "max_steps": 6,
            "num_generations": 4,
            "per_device_train_batch_size": 16,
            "max_completion_length": 24,
            "learning_rate": 1e-2,
            "save_steps": 3,
        },
        evaluate=EVALUATE | evaluate,
    )
    content = yaml.safe_load(file.read_text())
    content["models"] = {"tiny": {"path": model.location}}
    file.write_text(yaml.safe_dump(content))
    return file


def start(file: Path, **variables: str) -> subprocess.Popen[str]:
    """Start the sweep of a file in the main environment."""
    return subprocess.Popen(
        [MAIN, "-m", "orchestrator", "run", str(file), "-e", NAME],
        cwd=file.parent,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(file: Path) -> str:
    """Run the sweep of a file to its end; returns what it printed."""
    process = start(file)
    text = process.communicate(timeout=800)[0]
    assert process.returncode == 0, text
    return " ".join(text.split())


def started_with(name: str, value: str) -> list[psutil.Process]:
    """The processes with this variable in their environment."""
    matching = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value and process.pid != os.getpid():
                matching.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return matching


def answers(file: Path, *, greedy: bool) -> dict[tuple[int, str, int], tuple[str, int, str]]:
    """The completions of a sweep's only cell, by update, prompt and sample."""
    table = evaluations(store_of(file), plan_of(file).cells[0].cell_id)
    return {
        (row["update"], row["prompt_id"], row["sample"]): (
            row["completion"],
            row["tokens"],
            row["finish"],
        )
        for row in table.to_pylist()
        if row["greedy"] is greedy
    }


def test_a_sweep_samples_and_evaluates_with_vllm_and_resumes_after_kill_9(
    source: ModelSource, tmp_path: Path
) -> None:
    file = sweep(tmp_path / "vllm", source, **ENGINE)
    folder = Path(store_of(file).path("probes")) / plan_of(file).cells[0].probe.key
    driver = start(file, DECILE_TEST=str(tmp_path))
    parts = wait_until(
        lambda: list(folder.glob("*.parquet")), running=lambda: driver.poll() is None
    )
    driver.kill()
    driver.wait()
    before = {part: pq.read_table(part) for part in parts if part.exists()}
    wait_until(lambda: not started_with("DECILE_TEST", str(tmp_path)))

    text = finish(file)
    assert f"engine of probe: vllm 0.29.0 ({sys.executable})" in text
    assert "engine of evaluate: vllm 0.29.0" in text
    assert "evaluations: 2/2 checkpoints" in text
    samples = pa.concat_tables([pq.read_table(part) for part in folder.glob("*.parquet")])
    rows = {(row["prompt_id"], row["sample"]): row for row in samples.to_pylist()}
    assert len(rows) == samples.num_rows == 64 * 30
    for part in before.values():
        for row in part.to_pylist():
            assert rows[row["prompt_id"], row["sample"]] == row

    own = sweep(tmp_path / "own", source)
    (own.parent / "runs").symlink_to(file.parent / "runs")
    assert "0 to draw" in finish(own), "the probe is the same"
    theirs = answers(file, greedy=True)
    assert theirs == answers(own, greedy=True), "the trainer's own model gives the same answers"
    assert {update for update, _, _ in theirs} == {0, 6}
    trained = {key[1:]: value for key, value in theirs.items() if key[0] == 6}
    assert trained != {key[1:]: value for key, value in theirs.items() if key[0] == 0}
