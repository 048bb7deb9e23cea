"""What the vLLM engine is asked, with a recorded stand-in for its transport: no GPU is here."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from orchestrator.embedded import embedded_path
from orchestrator.models import ModelSource, folder_identity
from orchestrator.samples import draw
from orchestrator.sampling import Request, SamplingSettings, load_sampler
from orchestrator.sampling.loading import load_model
from tasks import get_task

FOLDER = embedded_path("tiny")
SOURCE = ModelSource("tiny", str(FOLDER), folder_identity(FOLDER), revision=None)
SETTINGS = SamplingSettings(temperature=0.7, top_p=0.9, top_k=5, max_completion_length=8, seed=3)
WINDOW = 128


class Recorded:
    """The part of vllm.LLM that is used; answers with what it was asked."""

    made: dict[str, Any]
    asked: list[tuple[dict[str, Any], Any]]

    def __init__(self, **made: Any) -> None:
        Recorded.made, Recorded.asked = made, []
        self.model_config = SimpleNamespace(max_model_len=WINDOW)

    def get_tokenizer(self) -> Any:
        return load_model(SOURCE)[1]

    def generate(self, prompts: Any, parameters: Any, use_tqdm: bool) -> list[Any]:
        Recorded.asked += list(zip(prompts, parameters, strict=True))
        ends = ["stop", "length", "abort"]
        return [
            SimpleNamespace(
                outputs=[SimpleNamespace(text=f"t{i}", token_ids=[1, 2], finish_reason=ends[i % 3])]
            )
            for i in range(len(prompts))
        ]


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("vllm")
    module.LLM = Recorded  # type: ignore[attr-defined]
    module.SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    return load_sampler(SOURCE, "vllm")


def request(name: str, samples: list[int], words: int = 4) -> Request:
    return Request(name, [{"role": "user", "content": "swap " * words}], samples)


def test_the_engine_loads_safetensors_only_and_no_code(sampler: Any) -> None:
    assert Recorded.made["load_format"] == "safetensors"
    assert Recorded.made["trust_remote_code"] is False
    assert Recorded.made["enable_prefix_caching"] is True
    assert Recorded.made["model"] == str(FOLDER)
    assert Recorded.made["tensor_parallel_size"] == max(1, torch.cuda.device_count())


def test_each_sample_is_one_request_with_its_own_fixed_seed(sampler: Any) -> None:
    sampler.sample([request("a", [0, 1, 2]), request("b", [7])], SETTINGS)
    seeds = [parameters.seed for _, parameters in Recorded.asked]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    one = Recorded.asked[0][1]
    assert (one.n, one.temperature, one.top_p, one.top_k, one.max_tokens) == (1, 0.7, 0.9, 5, 8)
    Recorded.asked.clear()
    sampler.sample([request("a", [2])], SETTINGS)
    assert [parameters.seed for _, parameters in Recorded.asked] == [seeds[2]]


def test_completions_come_back_in_the_order_asked(sampler: Any) -> None:
    [[first, second, aborted], [last]] = sampler.sample(
        [request("a", [0, 1, 2]), request("b", [7])], SETTINGS
    )
    assert (first.text, first.tokens, first.finish) == ("t0", 2, "stop")
    assert second.finish == "length"
    assert aborted.finish == "error"
    assert last.text == "t3"


def test_a_prompt_longer_than_the_window_is_an_error_and_not_the_end(sampler: Any) -> None:
    [[long], [short]] = sampler.sample(
        [request("long", [0], words=500), request("short", [0])], SETTINGS
    )
    assert (long.finish, short.finish) == ("error", "stop")
    [[alone]] = sampler.sample([request("long", [0], words=500)], SETTINGS)
    assert alone.finish == "error"


def test_what_was_never_generated_is_marked_as_error(sampler: Any) -> None:
    task = get_task("shuffled_objects", train=1, test=1)
    sampler.window = 10
    samples = draw(sampler, task, [(task.test()[0], [0, 1])], SETTINGS)
    assert samples["outcome"].to_pylist() == ["error", "error"]
    assert samples["rule"].to_pylist() == ["not-generated"] * 2


def test_without_vllm_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ValueError, match="pip install 'decile\\[vllm\\]'"):
        load_sampler(SOURCE, "vllm")
