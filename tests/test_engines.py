"""Engines by name: built in, installed or custom; an invalid one is refused with its line."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from sweeps import decile_here

from orchestrator.config.catalog import load_config
from orchestrator.storage.errors import UserError

pytestmark = pytest.mark.slow

ENGINE = '''
from orchestrator.sampling import Completion, Sampler


class Sayer(Sampler):
    """Says its sample's number to everything, without a model."""

    @classmethod
    def load(cls, source, device=None):
        return cls()

    def sample(self, requests, settings):
        return [[Completion(f"\\\\boxed{{{i}}}", 3, "stop") for i in r.samples] for r in requests]

    def count_tokens(self, requests):
        return [len(r.question) for r in requests]


def no_class():
    """Not a Sampler."""
'''


def experiments(folder: Path, engine: str) -> Path:
    """A probe of twelve sums whose engine always answers 0 to 2."""
    content = {
        "models": {"none": {"embedded": "tiny"}},
        "datasets": {"sums": {"task": "arithmetic", "options": {"train": 12, "test": 4}}},
        "experiments": {
            "own": {
                "grid": {"model": ["none"], "dataset": ["sums"], "policy": ["hard"]},
                "budget": 8,
                "probe": {"samples": 3, "engine": engine},
                "grpo": {"num_generations": 4, "per_device_train_batch_size": 8},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_a_probe_can_use_a_custom_engine(local_ray: Path, tmp_path: Path) -> None:
    (local_ray / "sayer.py").write_text(ENGINE)
    file = experiments(tmp_path, "sayer:Sayer")
    process = decile_here("probe", str(file), "-e", "own", folder=tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    [part] = [
        f
        for f in (tmp_path / "runs" / "probes").glob("*/*.parquet")
        if pq.read_metadata(f).num_rows == 36
    ]
    assert set(pq.read_table(part)["completion"].to_pylist()) == {
        rf"\boxed{{{i}}}" for i in range(3)
    }
    assert "sayer:Sayer" in (part.parent / "key.json").read_text()
    declared = json.loads((tmp_path / "runs" / "sweeps" / "own.json").read_text())
    assert declared["spent"]["seconds"] > 0, "a cap of a later run counts the probe"


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("vlm", "'vlm': write one of transformers, vllm, server, or package."),
        ("absent:Sayer", "'absent:Sayer' .*: ModuleNotFoundError: "),
        ("engine_of_mine:no_class", "not a Sampler"),
        ("engine_of_mine:Other", "cannot be imported"),
    ],
)
def test_an_invalid_engine_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, message: str
) -> None:
    (tmp_path / "engine_of_mine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    file = experiments(tmp_path, engine)
    with pytest.raises(UserError, match=message) as caught:
        load_config(file)
    line = next(n for n, t in enumerate(file.read_text().splitlines(), 1) if "engine" in t)
    assert f"experiments.yaml:{line}" in str(caught.value)
