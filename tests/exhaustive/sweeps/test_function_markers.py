"""A reward function as the marker of `task: file`, and the example of docs/quickstart.md."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from function_markers_cases import (
    folder,  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
)
from paths import ROOT
from sweeps import decile, decile_here

DOCS = ROOT / "docs"
EXPERIMENTS = """
storage: ./runs
models:
  tiny: {embedded: tiny-arithmetic}
datasets:
  ours:
    task: file
    options: {path: word-problems.jsonl, tier: level, marker: "my_rewards:accuracy", threshold: 0.5}
experiments:
  mine:
    grid: {model: [tiny], dataset: [ours], policy: [hard, random]}
    budget: 8
    probe: {samples: 2, max_completion_length: 48}
    grpo: {max_steps: 2, num_generations: 4, per_device_train_batch_size: 8}
"""


@pytest.fixture
def example(folder: Path) -> Path:
    """A folder with the function of docs/quickstart.md, and an experiment that marks with it."""
    text = (DOCS / "quickstart.md").read_text()
    [(name, code)] = re.findall(r"```python\n# (\S+)\n(.*?)```", text, re.DOTALL)
    (folder / name).write_text(code)
    (folder / "experiments.yaml").write_text(EXPERIMENTS)
    shutil.copy(DOCS / "examples" / "word-problems.jsonl", folder)
    return folder


def probe(folder: Path, command: Callable[..., Any]) -> str:
    process = command("probe", "experiments.yaml", "-e", "mine", folder=folder)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


def test_the_example_and_an_edit_of_its_function(local_ray: Path, example: Path) -> None:
    output = probe(example, decile)
    assert "my_rewards:accuracy called for 20 gold answers: 20 correct" in output
    assert "samples to draw" in output
    function = example / "my_rewards.py"
    function.write_text(function.read_text().replace("1.0 if last == gold", "0.0 if last == gold"))
    for name in (function.name, "word-problems.jsonl"):
        shutil.copy(example / name, local_ray)
    output = probe(example, decile_here)
    assert "samples to draw" not in output
    assert "my_rewards:accuracy called for 20 gold answers: 0 correct" in output
