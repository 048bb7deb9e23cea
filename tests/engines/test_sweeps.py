"""Sweeps that sample with vLLM, in an environment of its own or as a server; kill included."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from processes import wait_gone, wait_until
from sweeps import NAME, evaluations, experiments, plan_of, store_of, workers
from vllm_server import KEY, vllm_server

from benchmarks.local_cluster import ROOT, environment, kill_all
from orchestrator.embedded import embedded_path

Answers = dict[tuple[int, str, int], tuple[str, int, str]]  # text, tokens, finish
MAIN = ROOT / ".venv" / "bin" / "python"

pytestmark = pytest.mark.skipif(not MAIN.exists(), reason=f"there is no {MAIN}: make install")


@pytest.fixture(params=["vllm", "server"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The settings of an engine, for `probe` and `evaluate`."""
    if request.param == "vllm":
        yield {"engine": "vllm", "engine_python": sys.executable}
        return
    with vllm_server(embedded_path("tiny-guess"), tmp_path / "serve.log") as base_url:
        engine_args = {"base_url": base_url, "model": "served", "api_key_env": "SERVER_KEY"}
        yield {"engine": "server", "engine_args": engine_args}


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[Path]:
    """Where Ray keeps its logs; sockets in it need a short path."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def trained(ray_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training, evaluated by the trainer's own model; `random` needs no probe."""
    file = sweep(tmp_path_factory.mktemp("own") / "sweep", probe={"samples": 2}, evaluate={})
    finish(file, ray_folder)
    return file


@pytest.fixture(scope="module")
def without_engine(trained: Path) -> Answers:
    """What that model answers, before and after training."""
    return answers(trained, greedy=True)


def sweep(folder: Path, probe: dict[str, Any], evaluate: dict[str, Any]) -> Path:
    """A file with one cell of episodes, whose probe has several parts; `few` has one turn."""
    folder.mkdir()
    file = experiments(
        folder,
        grid={"model": ["guess"], "dataset": ["game"], "policy": ["random"]},
        probe={"samples": 30, "max_completion_length": 96} | probe,
        grpo={
            "max_steps": 6,
            "num_generations": 4,
            "per_device_train_batch_size": 16,
            "max_completion_length": 96,
            "learning_rate": 3e-3,
            "save_steps": 3,
        },
        evaluate={"every": 3, "samples": 2, "greedy": True, "ood": ["few"]} | evaluate,
    )
    content = yaml.safe_load(file.read_text())
    content["models"]["guess"] = {"embedded": "tiny-guess"}
    game = {"task": "number_guess", "options": {"train": 64, "test": 16}}
    content["datasets"]["game"] = game
    file.write_text(yaml.safe_dump(content))
    return file


def start(
    file: Path, ray_folder: Path, *arguments: str, verb: str = "run"
) -> subprocess.Popen[str]:
    """Start the sweep of a file in the main environment."""
    variables = {"RAY_TMPDIR": str(ray_folder), "SERVER_KEY": KEY}
    return subprocess.Popen(
        [MAIN, "-m", "orchestrator", verb, str(file), "-e", NAME, *arguments],
        cwd=file.parent,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(file: Path, ray_folder: Path, *arguments: str, verb: str = "run") -> str:
    """Run the sweep of a file to its end; returns what it printed."""
    process = start(file, ray_folder, *arguments, verb=verb)
    text = process.communicate(timeout=800)[0]
    assert process.returncode == 0, text
    return " ".join(text.split())


def answers(file: Path, *, greedy: bool) -> Answers:
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


def files_with(text: str, *folders: Path) -> list[Path]:
    """The files in these folders that contain the text."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if text.encode() in file.read_bytes()]


def test_a_sweep_samples_and_evaluates_with_an_engine_and_resumes_after_kill_9(
    engine: dict[str, Any], ray_folder: Path, without_engine: Answers, tmp_path: Path
) -> None:
    file = sweep(tmp_path / "engine", probe=engine, evaluate=engine)
    folder = Path(store_of(file).path("probes")) / plan_of(file).cells[0].probe.key
    driver = start(file, ray_folder)
    parts = wait_until(
        lambda: list(folder.glob("*.parquet")), running=lambda: driver.poll() is None
    )
    below = psutil.Process(driver.pid).children(recursive=True)
    agents, engines = workers(driver.pid, "Agent"), workers(driver.pid, "VLLM")
    driver.kill()
    kill_all(agents)  # these of Ray's would ask its ended GCS for minutes
    killed_output = driver.communicate()[0]
    before = {part: pq.read_table(part) for part in parts if part.exists()}
    assert bool(engines) is (engine["engine"] == "vllm")
    wait_gone(below)

    text = finish(file, ray_folder)
    if engine["engine"] == "vllm":
        assert f"engine of probe: vllm 0.30.0 ({sys.executable})" in text
    assert "evaluations: 2/2 checkpoints" in text
    samples = pa.concat_tables([pq.read_table(part) for part in folder.glob("*.parquet")])
    rows = {(row["prompt_id"], row["sample"]): row for row in samples.to_pylist()}
    assert len(rows) == samples.num_rows == 64 * 30
    for part in before.values():
        for row in part.to_pylist():
            assert rows[row["prompt_id"], row["sample"]] == row
    assert KEY not in killed_output + text
    assert not files_with(KEY, file.parent, ray_folder)

    of_engine = answers(file, greedy=True)
    assert of_engine == without_engine, "the trainer's own model answers the same"
    assert {update for update, _, _ in of_engine} == {0, 3, 6}
    trained = {key[1:]: value for key, value in of_engine.items() if key[0] == 6}
    assert trained != {key[1:]: value for key, value in of_engine.items() if key[0] == 0}
    other = sweep(tmp_path / "other", probe=engine, evaluate={})
    assert plan_of(other).cells[0].probe.key == plan_of(file).cells[0].probe.key


def test_decile_evaluate_draws_an_adapter_with_an_engine_as_the_trainer_s_own_model(
    engine: dict[str, Any],
    ray_folder: Path,
    trained: Path,
    without_engine: Answers,
    tmp_path: Path,
) -> None:
    [cell] = plan_of(trained).cells
    adapter = store_of(trained).path("cells", cell.cell_id, "adapter")
    greedy = {"samples": 1, "temperature": 0.0} | engine
    file = sweep(tmp_path / "engine", probe={"samples": 2}, evaluate=greedy)
    options = ("--adapter", adapter, "--out", str(tmp_path / "after.parquet"))
    assert "16 samples stored" in finish(file, ray_folder, *options, verb="evaluate")
    drawn = {
        (row["prompt_id"], row["sample"]): (row["completion"], row["tokens"], row["finish"])
        for row in pq.read_table(tmp_path / "after.parquet").to_pylist()
    }
    own = {
        update: {key[1:]: answer for key, answer in without_engine.items() if key[0] == update}
        for update in (0, 6)
    }
    assert drawn == own[6] != own[0]
