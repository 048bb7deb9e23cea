"""Models: their keys, how they are loaded, and the errors for missing parts."""

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from remedies import refused
from transformers import AutoTokenizer

from orchestrator.config.catalog import load_config
from orchestrator.embedded import embedded_path
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.sampling.loading import load_model, nf4_config
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.errors import UserError
from orchestrator.storage.proof import canonical_hash

FOLDER = embedded_path("tiny")
SOURCE = ModelSource("tiny", str(FOLDER), "folder:test")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_later_settings_keep_the_keys_of_stored_probes() -> None:
    old = {"identity": "folder:test", "dtype": "auto", "chat_template_kwargs": {}}
    assert SOURCE.key() == old
    assert canonical_hash(SOURCE.key()) == "9ba0255a49a0305b"
    assert replace(SOURCE, target_modules=("q_proj",)).key() == old, "LoRA never probes"


def test_every_setting_that_changes_completions_changes_the_key() -> None:
    changed = [
        replace(SOURCE, load_in_4bit=True),
        replace(SOURCE, attn_implementation="eager"),
        replace(SOURCE, dtype="float16"),
        replace(SOURCE, chat_template_kwargs={"enable_thinking": False}),
    ]
    assert len({canonical_hash(source.key()) for source in [SOURCE, *changed]}) == 5


def plan_of(folder: Path, model: dict[str, Any], **experiment: Any) -> Plan:
    content = {
        "models": {"m": model},
        "experiments": {
            "q": {
                "grid": {"model": ["m"], "dataset": ["shuffled_objects"], "policy": ["hard"]},
                **experiment,
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return make_plan(load_config(file), "q")


def test_lora_adapts_the_layers_of_the_model_family_unless_configured(tmp_path: Path) -> None:
    phi = {"embedded": "tiny", "target_modules": ["qkv_proj", "o_proj"]}
    [family] = plan_of(tmp_path, phi).cells
    assert family.lora["target_modules"] == ["qkv_proj", "o_proj"]
    [configured] = plan_of(tmp_path, phi, lora={"target_modules": "all-linear"}).cells
    [plain] = plan_of(tmp_path, {"embedded": "tiny"}).cells
    assert plain.lora["target_modules"] == "all-linear"
    assert configured.cell_id == plain.cell_id != family.cell_id
    assert configured.probe.key == plain.probe.key == family.probe.key


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:8], COMMIT.upper()])
def test_a_revision_that_is_not_a_commit_is_refused(tmp_path: Path, revision: str) -> None:
    with refused("models.m.revision", revision, "40 hex"):
        plan_of(tmp_path, {"hub": "org/name", "revision": revision})
    [cell] = plan_of(tmp_path, {"hub": "org/name", "revision": COMMIT}).cells
    assert cell.probe.model.identity == f"org/name@{COMMIT}"


def test_a_hub_id_never_means_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FOLDER, tmp_path / "org" / "name")
    with refused("hub: org/name ", tmp_path / "org" / "name", "path:"):
        plan_of(tmp_path, {"hub": "org/name", "revision": COMMIT})
    with pytest.raises(ValueError, match="hub: org/name "):
        load_model(ModelSource("far", "org/name", f"org/name@{COMMIT}", revision=COMMIT))


def test_4bit_models_have_one_quantization(tmp_path: Path) -> None:
    model = {"embedded": "tiny", "load_in_4bit": True}
    assert plan_of(tmp_path, model, probe={"engine": "vllm"}).cells
    fp8 = {"engine": "vllm", "engine_args": {"quantization": "fp8"}}
    with pytest.raises(UserError, match=r"grid\.model\.0: .* remove probe\.engine_args\.quant"):
        plan_of(tmp_path, model, probe=fp8)


def test_loading_errors_say_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(tmp_path / "gone", by=ValueError):
        load_model(ModelSource("gone", str(tmp_path / "gone"), "folder:none"))
    for file in FOLDER.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    model, _ = load_model(SOURCE, "cpu")
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"cannot be loaded .*as safetensors"):
        load_model(ModelSource("bare", str(tmp_path), "folder:none"))
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", _no_network)
    with pytest.raises(ValueError, match=r"org/name cannot be loaded .*HF_TOKEN"):
        load_model(ModelSource("far", "org/name", "org/name@abc", revision=COMMIT))


def _no_network(*_: Any, **__: Any) -> None:
    raise OSError("no network\nand more")


def test_attention_and_precision_follow_the_configuration() -> None:
    for attention in ("eager", "sdpa"):
        model, _ = load_model(replace(SOURCE, attn_implementation=attention), "cpu")
        assert model.config._attn_implementation == attention
    model, _ = load_model(replace(SOURCE, dtype="bfloat16"), "cpu")
    assert next(model.parameters()).dtype == torch.bfloat16


def _without(package: str) -> Callable[[str], Any]:
    find_spec = importlib.util.find_spec
    return lambda name, *rest: None if name == package else find_spec(name, *rest)


def test_missing_flash_attention_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", _without("flash_attn"))
    with pytest.raises(ValueError, match=r"model tiny: .*flash-attn.*sdpa"):
        load_model(replace(SOURCE, attn_implementation="flash_attention_2"), "cpu")


def test_4bit_models_require_bitsandbytes_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(SOURCE, load_in_4bit=True)
    monkeypatch.setattr(importlib.util, "find_spec", _without("bitsandbytes"))
    with refused("model tiny: ", "'decile[4bit]'", by=ValueError):
        load_model(small, "cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: object())
    with refused("load_in_4bit", "resources: {gpus: 1}", by=ValueError):
        load_model(small, "cpu")


def test_4bit_models_use_the_qlora_settings() -> None:
    config = nf4_config("auto")
    assert (config.bnb_4bit_quant_type, config.bnb_4bit_use_double_quant) == ("nf4", True)
    assert config.bnb_4bit_compute_dtype == torch.bfloat16
    assert nf4_config("float16").bnb_4bit_compute_dtype == torch.float16
