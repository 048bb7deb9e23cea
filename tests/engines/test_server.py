"""A real vLLM server behind `ServerSampler`: seeds, greedy tokens, chats, long prompts, LoRA."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from vllm_models import (
    GREEDY,
    RANK,
    REQUESTS,
    SETTINGS,
    check_adapters,
    check_changed_adapter,
    comparable,
    request,
    save_adapter,
    without_ids,
)
from vllm_server import KEY, vllm_server

from orchestrator.optional.server import ServerSampler
from orchestrator.sampling import load_sampler
from orchestrator.sampling.base import Interrupted, SamplingError
from orchestrator.sampling.model import ModelSource


@pytest.fixture(scope="module")
def base_url(source: ModelSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the model; the key is required."""
    log = tmp_path_factory.mktemp("log") / "serve.log"
    with vllm_server(source.location, log) as address:
        yield address


@pytest.fixture
def engine(source: ModelSource, base_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SERVER_KEY", KEY)
    return connect(source, base_url)


def connect(source: ModelSource, base_url: str, **changes: Any) -> Any:
    settings = {"base_url": base_url, "model": "served", "api_key_env": "SERVER_KEY"}
    return load_sampler(source, "server", lora_rank=RANK, engine_args=settings | changes)


def test_a_sample_depends_on_its_seed_prompt_and_index_alone(engine: Any) -> None:
    drawn = engine.sample(REQUESTS, SETTINGS)
    assert len({completion.text for each in drawn for completion in each}) > 40
    some = [each._replace(samples=[3, 1]) for each in reversed(REQUESTS[::3])]
    assert engine.sample(some, SETTINGS) == [[each[3], each[1]] for each in reversed(drawn[::3])]


def test_greedy_answers_are_those_of_our_sampler(engine: Any, source: ModelSource) -> None:
    ours: Any = load_sampler(source, device="cpu")
    expected = without_ids(comparable(ours.sample(REQUESTS, GREEDY)))
    assert engine.sample(REQUESTS, GREEDY) == expected


def test_the_server_renders_a_chat_of_this_template_in_the_same_way(
    engine: Any, source: ModelSource, base_url: str
) -> None:
    chat = connect(source, base_url, api="chat")
    assert chat.sample(REQUESTS, GREEDY) == engine.sample(REQUESTS, GREEDY)


def test_a_prompt_that_leaves_no_space_is_an_error_with_either_interface(
    engine: Any, source: ModelSource, base_url: str
) -> None:
    for sampler in (engine, connect(source, base_url, api="chat")):
        requests = [request("long", [0], 300), request("short", [0])]
        [[long], [short]] = sampler.sample(requests, SETTINGS)
        assert long.finish == "error" and short.finish in ("stop", "length")


def test_adapters_are_swapped_and_answer_as_in_our_sampler(
    engine: Any, source: ModelSource, tmp_path: Path
) -> None:
    check_adapters(engine, source, tmp_path, engine.drop_adapter)


def test_an_adapter_that_changes_in_its_folder_is_not_answered_from_the_cache(
    engine: Any, source: ModelSource, tmp_path: Path
) -> None:
    check_changed_adapter(engine, source, tmp_path)
    engine.drop_adapter()


def test_equal_adapters_of_two_users_are_unloaded_apart_and_what_a_kill_left_by_its_label(
    engine: Any, source: ModelSource, base_url: str, tmp_path: Path
) -> None:
    """The first one's is unloaded while the second draws, as after it was killed."""

    def names() -> set[str]:
        return {model.id for model in asyncio.run(engine.endpoint.models()) if model.parent}

    before, other = names(), connect(source, base_url)
    save_adapter(source, tmp_path, 1)
    engine.adapter_label, other.adapter_label = "dead-cell-6", "alive-cell-6"
    engine.adapt(tmp_path)
    other.adapt(tmp_path)
    assert names() == before | {engine.adapter, other.adapter}
    expected = engine.sample(REQUESTS, GREEDY)
    with ThreadPoolExecutor(1) as thread:
        drawn = thread.submit(other.sample, REQUESTS, GREEDY)
        ServerSampler.unload("dead", base_url=base_url, api_key_env="SERVER_KEY")
        assert drawn.result() == expected
    assert names() == before | {other.adapter}
    with pytest.raises(Interrupted, match=engine.adapter):
        engine.sample(REQUESTS, GREEDY)
    for each in (other, engine):  # the server does not know the second one's any more
        each.drop_adapter()
    assert names() == before


def test_what_the_server_refuses_is_one_sentence(
    engine: Any, source: ModelSource, base_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SamplingError, match="served, not other"):
        connect(source, base_url, model="other")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SamplingError, match=str(tmp_path / "empty")):
        engine.adapt(tmp_path / "empty")
    monkeypatch.setenv("SERVER_KEY", "sk-Wrong0123456789")
    with pytest.raises(SamplingError, match=r"\(401: .*SERVER_KEY") as caught:
        connect(source, base_url)
    assert "sk-" not in str(caught.value)
