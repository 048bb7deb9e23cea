"""Rollouts of training with vLLM: what is refused when experiments.yaml is read, with its line.

What PEFT and TRL do to the weights is checked with their own code in `test_library_internals`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from remedies import problems

from orchestrator.config import library_settings
from orchestrator.config.catalog import LoadedConfig, load_config
from orchestrator.config.experiment import Experiment
from orchestrator.storage.errors import UserError

GRPO = {"num_generations": 8, "per_device_train_batch_size": 16, "use_vllm": True}
ONE_CELL = {"model": ["tiny"], "dataset": ["shuffled_objects"], "policy": ["hard"]}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_settings, "missing_packages", lambda _: {})


def loaded(folder: Path, grpo: dict[str, Any], **blocks: Any) -> LoadedConfig:
    """An experiment whose settings are at one line each."""
    model = {"embedded": "tiny"} | blocks.pop("model", {})
    experiment = {"grid": ONE_CELL, "budget": 0.1, "resources": {"gpus": 1}, "lora": {"r": 8}}
    experiment |= blocks | {"grpo": GRPO | grpo}
    content = {"storage": "runs", "models": {"tiny": model}, "experiments": {"q": experiment}}
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_config(file)


def refused_at(folder: Path, code: str, setting: str, grpo: dict[str, Any], **blocks: Any) -> None:
    """The code is this, and the line that of the setting, the last part of its dotted name."""
    with pytest.raises(UserError) as caught:
        loaded(folder, grpo, **blocks)
    assert caught.value.code == code
    text = str(caught.value)
    _, found, rest = text.partition("experiments.yaml:")
    line, _, place = rest.partition(": ")
    written = (folder / "experiments.yaml").read_text().split("\n")[int(line) - 1]
    assert found and place.startswith(f"experiments.q.{setting}: ")
    assert written.strip().partition(":")[0] == setting.split(".")[-1]
    assert problems(text) == []


SERVER = {"vllm_mode": "server"}
TRUNCATED = {"vllm_importance_sampling_mode": "token_truncate"}


@pytest.mark.parametrize(
    ("code", "setting", "grpo", "blocks"),
    [
        ("vllm-without-gpu", "grpo.use_vllm", {}, {"resources": {"gpus": 0}}),
        ("vllm-without-gpu", "grpo.use_vllm", SERVER, {"resources": {"gpus": 0}}),
        ("vllm-on-part-of-a-gpu", "resources.gpus", {}, {"resources": {"gpus": 0.5}}),
        (
            "vllm-tensor-parallel",
            "grpo.vllm_tensor_parallel_size",
            {"vllm_tensor_parallel_size": 2},
            {},
        ),
        (
            "vllm-server-for-several-cells",
            "grpo.vllm_mode",
            SERVER,
            {"grid": ONE_CELL | {"seed": [0, 1]}},
        ),
        ("vllm-with-fsdp", "grpo.fsdp", {"fsdp": "full_shard"}, {}),
        ("vllm-importance-ratio", "grpo.top_p", {"top_p": 0.95}, {}),
        ("vllm-importance-ratio", "grpo.top_k", {"top_k": 50} | SERVER, {}),
        ("vllm-importance-ratio", "grpo.min_p", {"min_p": 0.1}, {}),
        ("vllm-importance-ratio", "grpo.repetition_penalty", {"repetition_penalty": 1.1}, {}),
        (
            "vllm-importance-ratio",
            "grpo.vllm_structured_outputs_regex",
            {"vllm_structured_outputs_regex": "[0-9]+"},
            {},
        ),
        (
            "vllm-generation-kwargs",
            "grpo.generation_kwargs",
            {"generation_kwargs": {"seed": 0}},
            {},
        ),
        ("vllm-with-vespo", "grpo.loss_type", {"loss_type": "vespo"}, {}),
        (
            "vllm-window",
            "grpo.vllm_max_model_length",
            {"vllm_max_model_length": 256, "max_completion_length": 256},
            {},
        ),
        ("vllm-with-4bit", "grpo.use_vllm", {}, {"model": {"load_in_4bit": True}}),
    ],
)
def test_rollouts_with_vllm_that_cannot_be_drawn_are_refused(
    tmp_path: Path, code: str, setting: str, grpo: dict[str, Any], blocks: dict[str, Any]
) -> None:
    refused_at(tmp_path, code, setting, grpo, **blocks)


@pytest.mark.parametrize(
    "lora",
    [
        {"layer_replication": [[0, 2], [1, 2]]},
        {"trainable_token_indices": [1, 2]},
        {"modules_to_save": ["lm_head"]},
        {"lora_bias": True},
        {"alora_invocation_tokens": [1]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ".*lm_head"},
        {"target_modules": ".*(q_proj|head)"},
        {"target_modules": ".*"},
    ],
)
def test_adapters_that_vllm_would_not_draw_with_are_refused(
    tmp_path: Path, lora: dict[str, Any]
) -> None:
    refused_at(tmp_path, "vllm-without-lora-setting", f"lora.{next(iter(lora))}", {}, lora=lora)
    assert loaded(tmp_path, {"use_vllm": False}, lora=lora)


def test_target_modules_of_a_model_count_too(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        loaded(tmp_path, {}, model={"target_modules": ["embed_tokens"]})
    assert caught.value.code == "vllm-without-lora-setting"


@pytest.mark.parametrize(
    ("grpo", "blocks"),
    [
        ({}, {}),
        ({}, {"lora": {"r": 1024, "use_dora": True, "rank_pattern": {"q_proj": 4}}}),
        (SERVER, {"resources": {"gpus": 0.5}}),
        ({"vllm_tensor_parallel_size": 2}, {"resources": {"gpus": 1, "workers": 2}}),
        ({"top_p": 0.95, "vllm_importance_sampling_correction": False}, {}),
        ({"min_p": 0.0, "top_k": 0, "repetition_penalty": 1}, {}),
        ({"loss_type": "vespo"} | TRUNCATED, {}),
        ({"vllm_max_model_length": 257, "max_completion_length": 256}, {}),
        ({"vllm_enable_sleep_mode": True, "vllm_model_impl": "transformers"}, {}),
    ],
)
def test_rollouts_with_vllm_that_can_be_drawn_are_accepted(
    tmp_path: Path, grpo: dict[str, Any], blocks: dict[str, Any]
) -> None:
    assert isinstance(loaded(tmp_path, grpo, **blocks).experiment("q"), Experiment)


def test_an_axis_counts_as_cells_of_the_server(tmp_path: Path) -> None:
    grid = ONE_CELL | {"grpo.beta": [0.0, 0.1]}
    refused_at(tmp_path, "vllm-server-for-several-cells", "grpo.vllm_mode", SERVER, grid=grid)


@pytest.mark.parametrize(
    ("grpo", "warned"),
    [
        ({}, ["grpo.use_vllm"]),
        ({"use_vllm": False}, []),
        (
            {"vllm_importance_sampling_correction": False},
            ["grpo.use_vllm", "grpo.vllm_importance_sampling_correction"],
        ),
    ],
)
def test_rollouts_that_may_be_of_another_policy_are_warned_of(
    tmp_path: Path, grpo: dict[str, Any], warned: list[str]
) -> None:
    notes = loaded(tmp_path, grpo).warnings("q")
    assert [note.split(": ")[2].removeprefix("experiments.q.") for note in notes] == warned


def _without_vllm(grpo: Mapping[str, Any]) -> dict[str, str]:
    return {"use_vllm": "decile[vllm]"} if grpo.get("use_vllm") else {}


def test_a_file_for_a_cluster_can_be_checked_without_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_settings, "missing_packages", _without_vllm)
    refused_at(tmp_path, "vllm-without-gpu", "grpo.use_vllm", {}, resources={"gpus": 0})
    config = loaded(tmp_path, {})
    assert any("vllm' " in note or "decile[vllm]" in note for note in config.warnings("q"))
    with pytest.raises(UserError) as caught:
        config.check_packages("q")
    assert caught.value.code == "package-not-installed"
    assert "experiments.q.grpo.use_vllm" in str(caught.value)
    loaded(tmp_path, {"use_vllm": False}).check_packages("q")
