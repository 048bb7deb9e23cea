"""What reaches vLLM, recorded by a stand-in; `tests/engines` runs vLLM itself."""

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from pydantic import BaseModel, field_validator
from remedies import refused

from orchestrator.embedded import embedded_path
from orchestrator.sampling import Request, SamplingSettings, load_sampler
from orchestrator.sampling.base import SamplingError
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource, stored_dtype
from orchestrator.storage.identity import folder_identity

FOLDER = embedded_path("tiny")
SOURCE = ModelSource("tiny", str(FOLDER), folder_identity(FOLDER), revision=None)
SETTINGS = SamplingSettings(temperature=0.7, top_p=0.9, top_k=5, max_completion_length=8, seed=3)
WINDOW = 128


class Recorded:
    """The part of vllm.LLM that is used; records its calls."""

    options: dict[str, Any]
    requests: list[tuple[dict[str, Any], Any]]
    adapters: list[Any]

    def __init__(self, **options: Any) -> None:
        Recorded.options, Recorded.requests, Recorded.adapters = options, [], []
        self.model_config = SimpleNamespace(max_model_len=WINDOW)

    def get_tokenizer(self) -> Any:
        return load_model(SOURCE)[1]

    def generate(
        self, prompts: Any, parameters: Any, use_tqdm: bool, lora_request: Any
    ) -> list[Any]:
        Recorded.adapters.append(lora_request)
        Recorded.requests += list(zip(prompts, parameters, strict=True))
        ends = ["stop", "length", "abort"]
        return [
            SimpleNamespace(
                outputs=[SimpleNamespace(text=f"t{i}", token_ids=[1, 2], finish_reason=ends[i % 3])]
            )
            for i in range(len(prompts))
        ]


class Refusing:
    """A vllm.LLM whose engine does not start: the reason is in a child's output only."""

    def __init__(self, **options: Any) -> None:
        lines = [
            "WARNING ImportError: no triton",
            "ERROR [core.py:1] Exception: WorkerProc initialization failed. See stack trace.",
            "ERROR [worker.py:9] ValueError: head_dim=24 is not supported",
        ]
        child = f"import sys; print({chr(10).join(lines)!r}, file=sys.stderr)"
        subprocess.run([sys.executable, "-c", child], check=False)
        raise RuntimeError("Engine core initialization failed. See root cause above.")


class LoRARequest(NamedTuple):
    """As vLLM 0.30 declares it, as far as it is used."""

    lora_name: str
    lora_int_id: int
    lora_path: str


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in, on a machine with GPUs."""
    module = ModuleType("vllm")
    module.LLM = Recorded  # type: ignore[attr-defined]
    module.SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    platforms = ModuleType("vllm.platforms")
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: False)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    requests = ModuleType("vllm.lora.request")
    requests.LoRARequest = LoRARequest  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.lora.request", requests)
    return module


@pytest.fixture
def sampler(vllm: None) -> Any:
    return load_sampler(SOURCE, "vllm")


def request(name: str, samples: list[int], words: int = 4) -> Request:
    return Request(name, [{"role": "user", "content": "swap " * words}], samples)


def test_the_engine_loads_safetensors_only_and_no_code(sampler: Any) -> None:
    assert Recorded.options["load_format"] == "safetensors"
    assert Recorded.options["trust_remote_code"] is False
    assert Recorded.options["enable_prefix_caching"] is True
    assert Recorded.options["model"] == str(FOLDER)
    assert Recorded.options["tensor_parallel_size"] == max(1, torch.cuda.device_count())
    assert not {"enable_lora", "max_lora_rank"} & Recorded.options.keys()


def test_the_precision_is_that_of_the_stored_weights_unless_the_model_sets_it(
    vllm: ModuleType, tmp_path: Path
) -> None:
    load_sampler(SOURCE, "vllm")
    assert Recorded.options["dtype"] == "float32", "vLLM's own auto would be bfloat16"
    load_sampler(replace(SOURCE, dtype="bfloat16"), "vllm")
    assert Recorded.options["dtype"] == "bfloat16"
    unsaid = tmp_path / "model"
    shutil.copytree(FOLDER, unsaid)
    config = json.loads((unsaid / "config.json").read_text())
    del config["dtype"]
    (unsaid / "config.json").write_text(json.dumps(config))
    assert stored_dtype(unsaid) == "float32", "read from the weights"


def test_4_bits_are_vllms_own_and_need_its_plugin(
    vllm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_4bit = replace(SOURCE, load_in_4bit=True)
    installed = {"bitsandbytes": True, "vllm_bnb_plugin": None}
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: installed[n] if n in installed else find(n, *a)
    )
    with refused("vllm-bnb-plugin", by=SamplingError):
        load_sampler(in_4bit, "vllm")
    installed["vllm_bnb_plugin"] = True
    load_sampler(in_4bit, "vllm")
    chosen = {"quantization": "bitsandbytes", "load_format": "bitsandbytes", "dtype": "bfloat16"}
    assert chosen.items() <= Recorded.options.items(), "computes as load_model does"


def test_engine_args_override_defaults_but_not_what_decile_sets(vllm: ModuleType) -> None:
    args = {"tensor_parallel_size": 4, "enable_prefix_caching": False, "max_model_len": 64}
    load_sampler(SOURCE, "vllm", engine_args=args)
    assert args.items() <= Recorded.options.items()
    with refused("trust_remote_code", by=ValueError):
        load_sampler(SOURCE, "vllm", engine_args={"trust_remote_code": True})


def test_on_cpus_nothing_is_compiled_and_prompts_are_read_whole(vllm: ModuleType) -> None:
    load_sampler(SOURCE, "vllm")
    assert not {"enforce_eager", "enable_chunked_prefill"} & Recorded.options.keys()
    sys.modules["vllm.platforms"].current_platform.is_cpu = lambda: True
    load_sampler(SOURCE, "vllm")
    assert Recorded.options["enforce_eager"] is True
    assert Recorded.options["enable_chunked_prefill"] is False
    assert Recorded.options["kv_cache_memory_bytes"] == 2**30
    load_sampler(SOURCE, "vllm", engine_args={"enforce_eager": False, "kv_cache_memory_bytes": 9})
    assert Recorded.options["enforce_eager"] is False
    assert Recorded.options["kv_cache_memory_bytes"] == 9


def test_the_reason_why_an_engine_does_not_start_is_named(
    vllm: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    vllm.LLM = Refusing  # type: ignore[attr-defined]
    with pytest.raises(SamplingError, match="vllm .*model tiny: ValueError: head_dim=24"):
        load_sampler(SOURCE, "vllm")
    assert "head_dim=24" in capfd.readouterr().err, "the output passes on"


class Window(BaseModel):
    """Refuses its value, as vLLM's configurations do."""

    length: int

    @field_validator("length")
    @classmethod
    def _fits(cls, length: int) -> int:
        raise ValueError("max_model_len (9) is greater than\nthe derived max_model_len (8)")


def test_a_setting_that_vllm_refuses_is_one_line(vllm: ModuleType) -> None:
    vllm.LLM = lambda **options: Window(length=9)  # type: ignore[attr-defined]
    message = r"with model tiny: Value error, max_model_len \(9\) is greater than the derived"
    with pytest.raises(SamplingError, match=message):
        load_sampler(SOURCE, "vllm", engine_args={"max_model_len": 9})


def test_an_engine_that_dies_is_one_line(sampler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class EngineDeadError(Exception):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise EngineDeadError("EngineCore encountered an issue.")

    monkeypatch.setattr(Recorded, "generate", die)
    with pytest.raises(SamplingError, match="engine vllm stopped: EngineCore encountered"):
        sampler.sample([request("a", [0])], SETTINGS)


def test_weights_that_are_not_safetensors_are_refused(vllm: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with refused(tmp_path, "safetensors", by=ValueError):
        load_sampler(replace(SOURCE, location=str(tmp_path)), "vllm")


@pytest.mark.parametrize(("rank", "supported"), [(1, 8), (8, 8), (9, 16), (300, 320), (512, 512)])
def test_an_engine_for_checkpoints_supports_the_largest_adapter(
    rank: int, supported: int, vllm: None
) -> None:
    load_sampler(SOURCE, "vllm", lora_rank=rank)
    assert Recorded.options["enable_lora"] is True
    assert (Recorded.options["max_lora_rank"], Recorded.options["max_loras"]) == (supported, 1)


def test_a_lora_rank_that_vllm_does_not_support_is_refused(vllm: None) -> None:
    with pytest.raises(ValueError, match="512, not 513"):
        load_sampler(SOURCE, "vllm", lora_rank=513)


def test_each_adapter_has_its_own_number(vllm: None) -> None:
    sampler = load_sampler(SOURCE, "vllm", lora_rank=8)
    for name in ("a", "b", "a"):
        sampler.adapt(Path("/store") / name)
        sampler.sample([request("q", [0])], SETTINGS)
    assert [each.lora_int_id for each in Recorded.adapters] == [1, 2, 3]
    assert [each.lora_path for each in Recorded.adapters] == ["/store/a", "/store/b", "/store/a"]


def test_each_sample_is_one_request_with_its_own_fixed_seed(sampler: Any) -> None:
    [[first, second, aborted], [last]] = sampler.sample(
        [request("a", [0, 1, 2]), request("b", [7])], SETTINGS
    )
    assert (first.text, first.tokens, first.finish) == ("t0", 2, "stop")
    assert (second.finish, aborted.finish, last.text) == ("length", "error", "t3")
    assert Recorded.adapters == [None]
    seeds = [parameters.seed for _, parameters in Recorded.requests]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    one = Recorded.requests[0][1]
    assert (one.n, one.temperature, one.top_p, one.top_k, one.max_tokens) == (1, 0.7, 0.9, 5, 8)
    Recorded.requests.clear()
    sampler.sample([request("a", [2])], SETTINGS)
    assert [parameters.seed for _, parameters in Recorded.requests] == [seeds[2]]


def test_a_prompt_longer_than_the_window_gives_an_error_completion(sampler: Any) -> None:
    [[long], [short]] = sampler.sample(
        [request("long", [0], words=500), request("short", [0])], SETTINGS
    )
    assert (long.finish, short.finish) == ("error", "stop")
    [[alone]] = sampler.sample([request("long", [0], words=500)], SETTINGS)
    assert alone.finish == "error"


def test_without_vllm_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with refused("'decile[vllm]'", by=ValueError):
        load_sampler(SOURCE, "vllm")
