"""Adapters and checkpoints of a user: what would be completed with random numbers is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from orchestrator.embedded import embedded_path
from orchestrator.sampling.loading import ModelError, load_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.trained_weights import with_adapter, with_checkpoint
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.storage.errors import UserError


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of rank 2 for all linear layers, as PEFT saves it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(embedded_path("tiny"))
    model = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear"))
    folder = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(str(folder))
    return folder


@pytest.fixture
def source() -> ModelSource:
    return ModelSource("tiny", str(embedded_path("tiny")), "embedded:tiny")


def changed(folder: Path, adapter: Path, **settings: Any) -> Path:
    shutil.copytree(adapter, folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return folder


def without(folder: Path, lacks: Callable[[str], bool]) -> None:
    file = folder / "adapter_model.safetensors"
    tensors = {name: value for name, value in load_file(file).items() if not lacks(name)}
    save_file(tensors, file)


def test_an_intact_adapter_is_accepted(adapter: Path, source: ModelSource) -> None:
    assert with_adapter(source, adapter).adapter == str(adapter.resolve())


@pytest.mark.parametrize(
    "lacks",
    [
        lambda name: "layers.2" in name and "lora_A" in name,
        lambda name: "layers.2" in name and "lora_B" in name,
        lambda name: "layers.2" in name,
        lambda name: "layers.2.self_attn.q_proj" in name,
    ],
)
def test_an_adapter_that_lacks_tensors_is_refused(
    lacks: Callable[[str], bool], adapter: Path, source: ModelSource, tmp_path: Path
) -> None:
    folder = changed(tmp_path / "adapter", adapter)
    without(folder, lacks)
    with pytest.raises(UserError, match="2."):
        with_adapter(source, folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"rank_pattern": {"([a-z.0-9_]+)+!": 2}},
        {"alpha_pattern": {"(a|a)*!": 2}},
        {"target_modules": "([a-z.0-9_]+)+!"},
        {"target_modules": ".*a.*b.*c.*d.*e.*!"},
        {"rank_pattern": {"(((": 2}},
        {"rank_pattern": [1]},
        {"rank_pattern": {"q_proj": "2"}},
        {"alpha_pattern": {"q_proj": [1]}},
        {"r": "2"},
        {"r": True},
        {"lora_alpha": [1]},
        {"lora_alpha": 1e308},
        {"lora_alpha": -1},
    ],
)
def test_settings_that_peft_cannot_use_are_refused_at_once(
    settings: dict[str, Any], adapter: Path, source: ModelSource, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"adapter_config\.json"):
        with_adapter(source, changed(tmp_path / "adapter", adapter, **settings))


@pytest.mark.parametrize("layers", [2, 6])
def test_a_configuration_with_other_layers_than_the_weights_is_refused(
    layers: int, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedded_path("tiny"), folder)
    file = folder / "config.json"
    settings = json.loads(file.read_text()) | {"num_hidden_layers": layers}
    settings.pop("layer_types", None)
    file.write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"layers\.\d"):
        load_model(ModelSource("mine", str(folder), "folder:0"), "cpu")


@pytest.mark.parametrize(
    "settings", [{"hidden_act": "__import__"}, {"num_attention_heads": 0}, {"hidden_size": -128}]
)
def test_a_configuration_that_the_library_cannot_use_is_named(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedded_path("tiny"), folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(ModelSource("mine", str(folder), "folder:0"), "cpu")


def test_an_index_that_names_no_files_is_refused(source: ModelSource, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(embedded_path("tiny"), folder)
    index = folder / "model.safetensors.index.json"
    for content in ({"weight_map": {"a": 5}}, {"weight_map": 3}):
        index.write_text(json.dumps(content))
        with pytest.raises(UserError, match="does not name files"):
            with_checkpoint(source, folder)


def test_each_adapter_replaces_the_one_before(adapter: Path, source: ModelSource) -> None:
    sampler = TransformersSampler.load(source, "cpu")
    for number in range(3):
        sampler.adapt(adapter)
        assert [*sampler.model.peft_config] == [str(number)]
        assert sampler.model is not sampler.base
