"""GGUF files: converted once and whole, verified when read again, identified by their weights."""

import signal
from pathlib import Path

import pytest
from gguf_files import write_gguf
from gguf_models_cases import cached, child

from orchestrator.sampling.gguf_models import converted_model
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "patch",
    ["gguf_models._write_model = dies", "gguf_models.json_bytes = dies", "Path.rename = dies"],
)
def test_a_kill_leaves_nothing_that_could_be_read(tmp_path: Path, patch: str) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    process = child(file, patch)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    [left] = cached(tmp_path)
    assert left.endswith(".tmp")
    assert load_model(ModelSource("m", str(converted_model(file).folder), ""), "cpu")
    [whole] = cached(tmp_path)
    assert converted_model(file).folder.name == whole


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_of_processes_at_once_one_converts(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    processes = [child(file) for _ in range(3)]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len({folder for folder, _ in outputs}) == 1
    assert sum(f"converting {file} once" in messages for _, messages in outputs) == 1
    assert len(cached(tmp_path)) == 1
