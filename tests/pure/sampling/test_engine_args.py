"""Engines by name, and their `engine_args`: which are taken, and which are part of a key."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import small_plan
from remedies import place, refused

from orchestrator.cli.plan_notes import _engine_notes
from orchestrator.config import library_settings
from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import Plan
from orchestrator.sampling.engine_args import ENGINE_ARGS, VLLM_UNSUPPORTED_LORA
from orchestrator.storage.errors import UserError

# As vLLM declares them: the fields of EngineArgs, and the words that some accept.
ARG_UTILS = """
class EngineArgs:
    model: str = ModelConfig.model
    dtype: ModelDType = ModelConfig.dtype
    kv_cache_dtype: CacheDType = CacheConfig.cache_dtype
    quantization: QuantizationMethods | str | None = ModelConfig.quantization
    max_model_len: int = ModelConfig.max_model_len
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    kv_cache_memory_bytes: int | None = None
    enforce_eager: bool = False
    hf_overrides: HfOverrides = get_field(ModelConfig, "hf_overrides")
    cpu_offload_params: set[str] = get_field(UVAOffloadConfig, "cpu_offload_params")
    trust_remote_code: bool = False
    _api_process_count: int = 1
"""
CONFIGS = {
    "cache": 'CacheDType = Literal["auto", "bfloat16", "fp8"]',
    "load": 'SafetensorsLoadStrategy: TypeAlias = Literal["lazy", "eager"]',
    "model": 'ModelDType = Literal["auto", "float32"]',
}
SERVED = {"engine_args": {"base_url": "http://127.0.0.1:9/v1"}}
CACHED = (
    library_settings.declared,
    library_settings.accepted_words,
    library_settings._named_words,
    library_settings._tree,
)
OWN_ENGINE = """
from orchestrator.sampling import Completion, Sampler


class Scaled(Sampler):
    @classmethod
    def load(cls, source, device=None, *, scale, name="x"):
        sampler = cls()
        sampler.scale = scale
        return sampler

    def sample(self, requests, settings):
        return [[Completion(str(self.scale), 1, "stop") for _ in r.samples] for r in requests]

    def count_tokens(self, requests):
        return [1 for _ in requests]


class Plain(Scaled):
    @classmethod
    def load(cls, source, device=None):
        return cls()


def no_class():
    pass


class Open(Scaled):
    adapts = True

    @classmethod
    def load(cls, source, device=None, lora_rank=0, **anything):
        return cls()
"""


def install_vllm(site: Path) -> None:
    """The files of vLLM that declare its settings; nothing of it can be imported."""
    package = site / "vllm"
    (package / "config").mkdir(parents=True)
    (package / "engine").mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "engine" / "arg_utils.py").write_text(ARG_UTILS)
    for _, file in library_settings._WORD_FILES["vllm"]:
        (package / file).write_text(CONFIGS.get(Path(file).stem, ""))


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_vllm(tmp_path / "site")
    for function in CACHED:
        function.cache_clear()
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield
    for function in CACHED:
        function.cache_clear()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engines_of_mine.py").write_text(OWN_ENGINE)
    monkeypatch.syspath_prepend(tmp_path)


def written(folder: Path, block: str, **settings: Any) -> Path:
    content = {
        "models": {"tiny": {"embedded": "tiny"}},
        "experiments": {
            "q": {
                "grid": {"model": ["tiny"], "dataset": ["shuffled_objects"], "policy": ["hard"]},
                block: settings,
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def refusal(folder: Path, engine: str, args: dict[str, Any], block: str = "probe") -> str:
    """The message, after its place, which is the line of the argument."""
    file = written(folder, block, engine=engine, engine_args=args)
    with pytest.raises(UserError) as caught:
        load_config(file)
    place, _, message = str(caught.value).partition(": ")
    lines = [text.strip() for text in file.read_text().splitlines()]
    first = lines.index("engine_args:")
    line = next(n for n, text in enumerate(lines[first:], first + 1) if next(iter(args)) in text)
    assert place == f"{file}:{line}"
    return message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gpu_memory_utilisation", 0.5, "'gpu_memory_utilization'?"),
        ("_api_process_count", 2, "vLLM's EngineArgs"),
        ("model", "gpt2", "remove it (set hub, path"),
        ("trust_remote_code", True, "remove it"),
        ("load_format", "pt", "remove it"),
        ("dtype", "float32", "remove it (set dtype"),
        ("gpu_memory_utilization", 1.5, "0.01 to 1"),
        ("gpu_memory_utilization", float("nan"), "is .nan: "),
        ("max_model_len", "4k", "'4k': "),
        ("max_model_len", 0, "number from 1 to"),
        ("kv_cache_dtype", "fp9", "auto, bfloat16, fp8; did you mean 'fp8'?"),
        ("kv_cache_dtype", ["fp8"], "auto, bfloat16, fp8"),
        ("enforce_eager", "true", "true or false"),
        ("hf_overrides", {"a": [float("inf")]}, "finite"),
    ],
)
def test_what_vllm_does_not_take_is_refused_with_its_line(
    name: str, value: Any, message: str, tmp_path: Path, vllm: None
) -> None:
    for block in ("probe", "evaluate"):
        text = refusal(tmp_path, "vllm", {name: value}, block)
        assert text.startswith(f"experiments.q.{block}.engine_args.{name}: ")
        assert message in text


def test_what_vllm_takes_is_accepted(tmp_path: Path, vllm: None) -> None:
    args = {
        "max_model_len": 4096,
        "gpu_memory_utilization": 1,
        "kv_cache_memory_bytes": 2**40,
        "kv_cache_dtype": "fp8",
        "enforce_eager": True,
        "hf_overrides": {"rope_scaling": {"factor": 2.0}},
        "cpu_offload_params": ["mlp"],
        "quantization": "fp8",
    }
    experiment = load_config(written(tmp_path, "probe", engine="vllm", engine_args=args))
    assert experiment.experiment("q").probe.engine_args == args


def test_names_are_those_of_the_engines_own_environment(tmp_path: Path) -> None:
    install_vllm(tmp_path / ".venv" / "lib" / "python3.11" / "site-packages")
    block = {"engine": "vllm", "engine_python": str(tmp_path / ".venv" / "bin" / "python")}
    load_config(written(tmp_path, "probe", **block, engine_args={"kv_cache_dtype": "fp8"}))
    for args, message in (
        ({"max_model_lenn": 1}, "did you mean 'max_model_len'"),
        ({"kv_cache_dtype": "int"}, "write one of auto, bfloat16, fp8"),
    ):
        with pytest.raises(UserError, match=message):
            load_config(written(tmp_path, "probe", **block, engine_args=args))


@pytest.mark.parametrize("python", ["/", "/tmp", "python3", "~", "/none/bin/python"])
def test_a_path_that_is_no_interpreter_of_an_environment_is_no_error_of_ours(
    tmp_path: Path, python: str
) -> None:
    block = {"engine": "vllm", "engine_python": python, "engine_args": {"max_model_len": 64}}
    load_config(written(tmp_path, "probe", **block))


def test_without_vllm_names_cannot_be_checked_but_known_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "vllm" else find(n, *a)
    )
    file = written(tmp_path, "probe", engine="vllm", engine_args={"no_such_name": 1})
    assert load_config(file).experiment("q").probe.engine_args == {"no_such_name": 1}
    args = {"no_such_name": 1, "max_model_len": 8}
    plan = small_plan(tmp_path, probe={"engine": "vllm", "engine_args": args})
    [note] = _engine_notes(plan)
    assert note.startswith("probe.engine_args: no_such_name ")
    assert "remove it" in refusal(tmp_path, "vllm", {"trust_remote_code": True})
    assert "from 0.01 to 1" in refusal(tmp_path, "vllm", {"gpu_memory_utilization": 2})


def test_engine_args_of_evaluate_need_an_engine(tmp_path: Path) -> None:
    file = written(tmp_path, "evaluate", engine_args={"max_model_len": 1})
    with pytest.raises(UserError, match=r"yaml:\d+: .*\.evaluate\.engine_args: "):
        load_config(file)


@pytest.mark.parametrize(
    ("engine", "args", "message"),
    [
        ("transformers", {"max_model_len": 1}, "remove 'max_model_len', or write engine"),
        ("transformers", {"dtype": 1}, "remove it (set dtype"),
        ("transformers", {"rows": 1}, "remove 'rows'"),
        ("engines_of_mine:Scaled", {"sclae": 3, "scale": 2}, "'scale'?"),
        ("engines_of_mine:Scaled", {"device": "cpu"}, "remove it (set gpus"),
        ("engines_of_mine:Plain", {"scale": 2}, "remove 'scale'"),
        ("engines_of_mine:Open", {"lora_rank": 2}, "remove it (set lora.r)"),
        ("engines_of_mine:Open", {"scale": None}, "scale is null"),
    ],
)
def test_an_engine_takes_the_keywords_of_its_load(
    engine: str, args: dict[str, Any], message: str, tmp_path: Path, own: None, vllm: None
) -> None:
    assert message in refusal(tmp_path, engine, args)


def test_an_argument_without_a_default_is_required(tmp_path: Path, own: None) -> None:
    with pytest.raises(UserError, match=r"needs scale: write engine_args: \{scale: …\}"):
        load_config(written(tmp_path, "probe", engine="engines_of_mine:Scaled"))
    args = {"scale": 2, "name": "y"}
    load_config(written(tmp_path, "probe", engine="engines_of_mine:Scaled", engine_args=args))
    load_config(written(tmp_path, "probe", engine="engines_of_mine:Open", engine_args={"any": 1}))


@pytest.mark.parametrize(
    ("engine", "value"),
    [
        ("vlm", "transformers, vllm, server"),
        ("absent:Sayer", "ModuleNotFoundError"),
        ("engines_of_mine:no_class", "Sampler"),
        ("engines_of_mine:Other", "engines_of_mine:Other"),
    ],
)
def test_an_unknown_engine_is_refused_with_its_line(
    engine: str, value: str, tmp_path: Path, own: None
) -> None:
    for block in ("probe", "evaluate"):
        file = written(tmp_path, block, engine=engine)
        with refused(place(file, "engine: "), value, code="unknown-engine"):
            load_config(file)


def probe_keys(folder: Path, **settings: Any) -> tuple[str, str, str]:
    """The key of the probe and of the baseline, and the cell's id."""
    plan: Plan = small_plan(folder, **settings)
    cell = plan.cells[0]
    return cell.probe.key, cell.baseline.key, cell.cell_id


def test_keys_change_only_with_what_can_change_a_completion(tmp_path: Path) -> None:
    vllm = {"engine": "vllm"}
    plain = probe_keys(tmp_path, probe=vllm, evaluate=vllm)
    for name, value in (("gpu_memory_utilization", 0.5), ("tensor_parallel_size", 2)):
        harmless = vllm | {"engine_args": {name: value}}
        assert probe_keys(tmp_path, probe=harmless, evaluate=harmless) == plain
    changing = vllm | {"engine_args": {"max_model_len": 4096, "enforce_eager": True}}
    probe, baseline, cell = probe_keys(tmp_path, probe=changing, evaluate=vllm)
    assert probe != plain[0] and baseline == plain[1] and cell != plain[2]
    probe, baseline, cell = probe_keys(tmp_path, probe=vllm, evaluate=changing)
    assert probe == plain[0] and baseline != plain[1] and cell != plain[2]


def test_an_unknown_setting_counts_as_one_that_changes_completions(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, probe={"engine": "vllm", "engine_args": {"new_in_vllm": 1}})
    identity = plan.cells[0].probe.identity
    assert identity["sampling"]["engine_args"] == {"new_in_vllm": 1}
    unset = small_plan(tmp_path, probe={"engine": "vllm"}).cells[0].probe.identity
    assert "engine_args" not in json.dumps(unset)


def test_no_setting_is_both_refused_and_listed_as_harmless() -> None:
    for spec in ENGINE_ARGS.values():
        assert not spec.reserved.keys() & (spec.harmless.keys() | spec.limits.keys())
        assert all(spec.reserved.values()) and all(spec.harmless.values())


@pytest.mark.parametrize("engine", [{"engine": "vllm"}, {"engine": "server", **SERVED}])
def test_an_engine_that_applies_adapters_otherwise_cannot_evaluate(
    tmp_path: Path, engine: dict[str, Any]
) -> None:
    lora = {"r": 4, "bias": "none", "rank_pattern": {}}
    small_plan(tmp_path, lora=lora, evaluate=engine)
    lora |= {"rank_pattern": {"q_proj": 2}}
    small_plan(tmp_path, lora=lora)
    file = tmp_path / "experiments.yaml"
    with pytest.raises(UserError) as caught:
        small_plan(tmp_path, lora=lora, evaluate=engine)
    assert caught.value.code == "engine-without-lora-setting"
    assert str(caught.value).startswith(place(file, "rank_pattern:"))


@pytest.mark.parametrize(
    "engine", [{"engine": "vllm"}, {"engine": "server", **SERVED}, {"engine": "transformers"}]
)
def test_adapters_that_change_the_base_model_are_evaluated_by_the_trainer(
    tmp_path: Path, engine: dict[str, Any]
) -> None:
    """One engine cannot change the base model for each of several checkpoints."""
    lora = {"r": 4, "init_lora_weights": "gaussian"}
    small_plan(tmp_path, lora=lora, evaluate=engine)
    lora["init_lora_weights"] = "pissa_niter_4"
    small_plan(tmp_path, lora=lora)
    with pytest.raises(UserError) as caught:
        small_plan(tmp_path, lora=lora, evaluate=engine)
    assert caught.value.code == "engine-without-lora-setting"
    assert str(caught.value).startswith(place(tmp_path / "experiments.yaml", "init_lora_weights:"))


@pytest.mark.parametrize("engine", [{"engine": "vllm"}, {"engine": "server", **SERVED}])
def test_ranks_above_those_of_vllm_cannot_be_evaluated_with_it(
    tmp_path: Path, engine: dict[str, Any]
) -> None:
    small_plan(tmp_path, lora={"r": 512}, evaluate=engine)
    small_plan(tmp_path, lora={"r": 513})
    with pytest.raises(UserError) as caught:
        small_plan(tmp_path, lora={"r": 513}, evaluate=engine)
    assert caught.value.code == "engine-without-lora-rank"
    assert str(caught.value).startswith(place(tmp_path / "experiments.yaml", "r: 513"))


def test_every_variant_of_lora_is_known_to_be_unsupported_by_vllm() -> None:
    from peft import LoraConfig

    variants = {f.name for f in fields(LoraConfig) if f.metadata.get("is_lora_variant")}
    assert "use_dora" in variants and variants <= {*VLLM_UNSUPPORTED_LORA}
