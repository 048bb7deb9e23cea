"""What the tests of evaluate share."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sweeps import experiments, plan_of

from orchestrator.embedded import embedded_path
from orchestrator.planning.plan import Plan

TINY = embedded_path("tiny")


def save_adapter(folder: Path, scale: float = 0.3, **settings: Any) -> Path:
    """A LoRA adapter of the embedded model in PEFT's layout, with random weights."""
    folder.mkdir()
    rng, tensors = np.random.default_rng(0), {}
    for name, weight in load_file(TINY / "model.safetensors").items():
        if name.endswith(("q_proj.weight", "v_proj.weight")):
            layer = f"base_model.model.{name.removesuffix('.weight')}"
            for part, shape in (("A", (4, weight.shape[1])), ("B", (weight.shape[0], 4))):
                values = rng.normal(0, scale, shape).astype(np.float32)
                tensors[f"{layer}.lora_{part}.weight"] = values
    save_file(tensors, folder / "adapter_model.safetensors")
    known = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "task_type": "CAUSAL_LM"}
    known |= {"target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": str(TINY)}
    (folder / "adapter_config.json").write_text(json.dumps(known | settings))
    return folder


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A small sweep, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return plan_of(experiments(tmp_path, storage=str(tmp_path / "runs")))
