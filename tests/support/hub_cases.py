"""What the tests of hub share."""

import io
import logging
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hub_server import Hub, hub_server
from huggingface_hub import constants
from sweeps import command

from benchmarks.local_cluster import environment
from orchestrator.cli.main import main
from orchestrator.embedded import embedded_path

MODEL, DATA = "org/tiny", "openai/gsm8k"
FOREIGN = ("HF_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE")
CARD = b"""---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train-*}
  - {split: test, path: main/test-*}
---
"""
UNREAD = dict.fromkeys(
    ("pytorch_model.bin", "model.gguf", "modeling.py", "README.md", "logo.png"), b"unread"
) | {"onnx/model.onnx": b"unread", "original/tokenizer.model": b"unread"}


def parquet(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def sums(start: int, count: int) -> bytes:
    """Rows of a data set in the form of GSM8K."""
    return parquet(
        [
            {"question": f"What is {i} + {i}?", "answer": f"{i} + {i}\n#### {2 * i}"}
            for i in range(start, start + count)
        ]
    )


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with one model and one data set."""
    with hub_server() as hub:
        hub.add_folder("model", MODEL, embedded_path("tiny-arithmetic"), **UNREAD)
        files = {"README.md": CARD, "script.py": b"raise SystemExit"}
        files |= {"main/train-00000-of-00002.parquet": sums(0, 20)}
        files |= {"main/train-00001-of-00002.parquet": sums(20, 20)}
        hub.add("dataset", DATA, files | {"main/test-00000-of-00001.parquet": sums(100, 8)})
        yield hub


def commit_of(hub: Hub, kind: str, name: str) -> str:
    return next(iter(hub.repositories[kind, name]))


def experiments(folder: Path, hub: Hub, model: Mapping[str, str] | None = None) -> Path:
    """A file with one small experiment on the hub's model and data set."""
    options = {"revision": commit_of(hub, "dataset", DATA), "partial": True}
    entry = {"hub": MODEL, "revision": commit_of(hub, "model", MODEL)} | dict(model or {})
    sizes = {"num_generations": 2, "per_device_train_batch_size": 4, "max_completion_length": 8}
    content = {
        "storage": "./runs",
        "models": {"far": entry},
        "datasets": {"sums": {"task": "gsm8k", "options": options}},
        "experiments": {
            "small": {
                "grid": {"model": ["far"], "dataset": ["sums"], "policy": ["hard"]},
                "budget": 0.5,
                "probe": {"samples": 2, "max_completion_length": 8},
                "grpo": {"max_steps": 2, "save_steps": 1, **sizes},
                "lora": {"r": 4},
                "evaluate": {"every": 2, "samples": 1},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def client(file: Path, hub: Hub) -> dict[str, str]:
    """The environment of a process that uses this hub, and a cache beside the file."""
    own = environment(HF_ENDPOINT=hub.url, HF_HOME=str(file.parent / "home"))
    return {name: value for name, value in own.items() if name not in FOREIGN}


def start(file: Path, hub: Hub) -> subprocess.Popen[bytes]:
    """`decile fetch` in the background."""
    return subprocess.Popen(
        command("fetch", file.name, "-e", "small"),
        cwd=file.parent,
        env=client(file, hub),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def file(tmp_path: Path, hub: Hub) -> Path:
    """The file of that experiment, which commands read."""
    return experiments(tmp_path, hub)


Decile = Callable[..., Any]


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def decile(
    file: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., Done]:
    """`decile NAME experiments.yaml -e small …` in this process, whose hub's client is redirected.

    The client reads its settings when it is imported.
    """
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("HF_HOME", str(file.parent / "home"))
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    # Its handler writes to the standard error that an earlier test has closed.
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [])

    def run(name: str, *arguments: str, offline: bool = False, token: str = "") -> Done:
        monkeypatch.setenv("HF_TOKEN", token)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        capsys.readouterr()
        code = main([name, "experiments.yaml", "-e", "small", *arguments])
        return Done(code, *capsys.readouterr())

    return run


def large(hub: Hub, megabytes: int = 2) -> bytes:
    """Make the model's weights this large; returns them."""
    ((revision, files),) = hub.repositories["model", MODEL].items()
    weights = bytes(range(256)) * (4096 * megabytes)
    hub.repositories["model", MODEL][revision] = {**files, "model.safetensors": weights}
    return weights
