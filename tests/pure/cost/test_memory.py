"""The memory estimate, compared with the libraries' models and with counted tensors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import small_plan
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cost.memory import (
    LOSS_LOGITS,
    NF4_BYTES,
    OVERHEAD_BYTES,
    PREFILL_BYTES,
    RECOMPUTED_BYTES,
    SAVED_BYTES,
    SHAPES,
    Memory,
    ModelShape,
    TrainingLoad,
    shape_from,
    shape_of,
    training_load,
    training_memory,
    weight_bytes,
)
from orchestrator.embedded import embedded_path
from orchestrator.sampling.model import ModelSource

LOAD = TrainingLoad(generated=256, updated=8, prompt=256, completion=512, r=32)


def test_long_prompts_are_read_a_few_at_a_time_unless_trl_generates() -> None:
    shape, short = SHAPES["Qwen/Qwen3-4B"], replace(LOAD, generated=128, prompt=1_024)
    long = replace(short, prompt=20_000)
    assert training_memory(shape, long).reading == training_memory(shape, short).reading
    in_one_batch = training_memory(shape, replace(long, in_one_batch=True))
    assert in_one_batch.reading > 19 * training_memory(shape, short).reading
    alone = training_memory(shape, replace(long, prompt=200_000))
    assert alone.reading > 1.5 * training_memory(shape, long).reading


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-4B", 4.02),
        ("microsoft/phi-4", 14.66),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
    ],
)
def test_sizes_agree_with_the_published_ones(name: str, billions: float) -> None:
    assert SHAPES[name].parameters / 1e9 == pytest.approx(billions, abs=0.01)


@given(
    st.sampled_from(list(SHAPES)),
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 1024),
    st.integers(1, 2048),
    st.booleans(),
)
def test_a_larger_load_never_takes_less_memory(
    name: str, groups: int, updated: int, prompt: int, completion: int, bits: bool
) -> None:
    load = TrainingLoad(8 * groups, updated, prompt, completion, 16, load_in_4bit=bits)
    memory = training_memory(SHAPES[name], load)
    assert all(part >= 0 for part in memory)
    assert max(memory) <= memory.peak <= sum(memory)
    for more in (
        {"generated": load.generated * 2},
        {"updated": load.updated * 2},
        {"prompt": load.prompt * 2},
        {"completion": load.completion * 2},
        {"r": 32},
        {"workers": 2},
        {"recompute": False},
    ):
        assert training_memory(SHAPES[name], replace(load, **more)).peak >= memory.peak, more


def test_the_memory_of_a_small_model_by_hand() -> None:
    """A layer: q 8→16, k and v 8→8, gate and up 8→16, o 16→8, down 16→8."""
    shape = ModelShape(2, 8, heads=4, kv_heads=2, head_dim=4, intermediate=16, vocab=10, tied=True)
    assert shape.layer_parameters == 2 * (128 + 2 * 64 + 2 * 128 + 128 + 128)
    assert shape.embedding_parameters == 80
    assert replace(shape, tied=False).embedding_parameters == 160
    assert shape.parameters == 1536 + 80
    assert shape.width == 8 + (16 + 2 * 8) + 16
    assert shape.lora_parameters(3, "all-linear") == 2 * 3 * (24 + 2 * 16 + 2 * 24 + 24 + 24)
    assert shape.lora_parameters(3, ["q_proj", "k_proj", "lm_head"]) == 2 * 3 * (24 + 16)
    fused = replace(shape, fused=True)  # qkv 8→32, gate_up 8→32
    assert fused.parameters == shape.parameters
    assert fused.lora_parameters(3, "all-linear") == 2 * 3 * (40 + 40 + 24 + 24)
    load = TrainingLoad(generated=5, updated=3, prompt=7, completion=11, r=3)
    kv, saved = 2 * 2 * 2 * 4 * 2, 2 * 8 * 2 + RECOMPUTED_BYTES * 56
    memory = training_memory(shape, load)
    assert memory == Memory(
        weights=2 * 1616,
        adapter=912 * (4 + 4 + 8),
        reading=5 * 7 * (PREFILL_BYTES * 56 + kv),
        kv_cache=5 * (7 + 11) * kv,
        logits=2 * LOSS_LOGITS,
        activations=3 * (7 + 11) * saved,
        overhead=OVERHEAD_BYTES,
    )
    assert memory.peak == sum(memory) - memory.reading - memory.kv_cache
    wide = training_memory(replace(shape, vocab=LOSS_LOGITS), load)
    assert wide.logits == 5 * LOSS_LOGITS * 16
    for change, adapter in (
        ({"workers": 2}, 4 + 4 + 8 + 4),
        ({"optim": "paged_adamw_8bit"}, 4 + 4 + 2),
        ({"load_in_4bit": True}, 2 + 2 + 4),
        ({"load_in_4bit": True, "workers": 2, "optim": "adamw_8bit"}, 2 + 2 + 2 + 2),
    ):
        assert training_memory(shape, replace(load, **change)).adapter == 912 * adapter
    kept = training_memory(shape, replace(load, recompute=False)).activations
    assert kept == 3 * 18 * 2 * SAVED_BYTES * 56
    float32 = training_memory(shape, replace(load, dtype="float32"))
    assert (float32.weights, float32.kv_cache) == (2 * memory.weights, 2 * memory.kv_cache)
    packed = weight_bytes(shape, "bfloat16", load_in_4bit=True)
    assert packed == int(1536 * NF4_BYTES) + (80 + 128) * 2


def test_a_shape_is_read_from_any_form_of_its_config() -> None:
    config: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
    config |= {"intermediate_size": 64, "vocab_size": 99}
    shape = ModelShape(2, 32, 4, 4, 8, 64, 99, tied=False)
    assert shape_from(config) == shape, "as many heads of keys; heads share the hidden size"
    assert shape_from({"text_config": config, "vocab_size": 1}) == shape
    more = {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True}
    phi = shape_from(config | more | {"model_type": "phi3"})
    assert phi == ModelShape(2, 32, 4, 2, 16, 64, 99, tied=True, fused=True)
    for name in config:
        assert shape_from({k: v for k, v in config.items() if k != name}) is None


def test_a_training_load_follows_the_cells_settings(tmp_path: Path) -> None:
    [cell, *_] = small_plan(tmp_path, lora={"r": 4, "target_modules": ["q_proj"]}).cells
    load = training_load(cell, 100)
    assert (load.updated, load.generated) == (8, 128), "rows of the decoder"
    assert (load.r, load.target_modules, load.completion) == (4, ["q_proj"], 256)
    grpo = cell.grpo | {"gradient_accumulation_steps": 32, "max_completion_length": 512}
    load = training_load(cell.model_copy(update={"grpo": grpo}), 100)
    assert (load.generated, load.completion, load.prompt) == (128, 512, 100)
    by_trl = cell.model_copy(update={"grpo": grpo, "rollouts_by": "trl"})
    assert training_load(by_trl, 100).generated == 256, "a generation in one batch"
    steps = by_trl.model_copy(update={"grpo": grpo | {"steps_per_generation": 20}})
    assert training_load(steps, 100).generated == 160


def test_model_shapes_are_read_from_the_table_a_folder_or_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "a" * 40
    assert shape_of(ModelSource("m", "Qwen/Qwen3-4B", "x", commit)) == SHAPES["Qwen/Qwen3-4B"]
    tiny = shape_of(ModelSource("m", str(embedded_path("tiny")), "x"))
    assert tiny and (tiny.layers, tiny.hidden, tiny.head_dim) == (4, 96, 32)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    other = ModelSource("m", "org/other", "x", commit)
    assert shape_of(other) is None
    snapshot = tmp_path / "hub" / "models--org--other" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text((embedded_path("tiny") / "config.json").read_text())
    assert shape_of(other) == tiny
    (snapshot / "config.json").write_text('{"model_type": "rwkv"}')
    assert shape_of(other) is None
