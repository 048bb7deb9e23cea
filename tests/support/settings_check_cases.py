"""What the tests of settings check share."""

from pathlib import Path

import pytest

from orchestrator.config.catalog import LoadedConfig, load_config
from orchestrator.embedded import embedded_path
from orchestrator.sampling.model import ModelSource

MODEL = ModelSource("tiny", str(embedded_path("tiny")), "tiny")
FILE = """\
models:
  tiny: {embedded: tiny, target_modules: [nope_proj]}
experiments:
  q:
    grid: {model: [tiny], dataset: [shuffled_objects], policy: [hard]}
    grpo:
      max_steps: 4
      optim: sgd
    lora: {r: 8}
"""


@pytest.fixture
def source(tmp_path: Path) -> LoadedConfig:
    (file := tmp_path / "experiments.yaml").write_text(FILE)
    return load_config(file)
