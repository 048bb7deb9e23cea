"""The engine that calls a server, against a server on loopback that misbehaves."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import Adapters, Answer, FakeServer, completion, failure, fake_server
from remedies import refused
from sweeps import experiments, plan_of

from orchestrator.embedded import embedded_path
from orchestrator.optional.server import Endpoint, ServerSampler, _window
from orchestrator.plugins.streams import stream_key
from orchestrator.probing.probe import ProbeActor
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.sampling import Request, SamplingSettings, load_sampler
from orchestrator.sampling.base import Completion, Interrupted, SamplingError
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.store import Store

KEY = "sk-Secret0123456789"
FOLDER = embedded_path("tiny")
SOURCE = ModelSource("tiny", str(FOLDER), "folder:0")
SETTINGS = SamplingSettings(temperature=0.7, top_p=0.9, max_completion_length=8, seed=3)


class Words:
    """A tokenizer with one token per word."""

    def apply_chat_template(self, messages: Any, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [len(word) for word in messages[0]["content"].split()]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.002)
    monkeypatch.setenv("SERVER_KEY", KEY)
    with fake_server() as running:
        yield running


def sampler(server: FakeServer, window: int | None = 64, **changes: Any) -> ServerSampler:
    """A sampler of the server's model; `changes` go to the endpoint or to the sampler."""
    names = ("timeout", "max_retries", "api_key_env")
    options = {name: changes.pop(name) for name in names if name in changes}
    endpoint = Endpoint(server.base_url, **{"timeout": 20.0, "max_retries": 3} | options)
    return ServerSampler(endpoint, Words(), "served", window, **changes)


def request(name: str, samples: list[int], words: int = 4) -> Request:
    return Request(name, [{"role": "user", "content": "swap " * words}], samples)


def text_of(name: str, sample: int) -> str:
    return f"seed {stream_key(3, name, sample) >> 65}"


def test_every_sample_is_a_request_with_its_own_seed_and_the_rendered_prompt(
    server: FakeServer,
) -> None:
    requests = [request("a", [0, 2]), request("b", [1], words=2)]
    drawn = sampler(server).sample(requests, SETTINGS)
    assert drawn == [
        [Completion(text_of("a", i), 3, "stop") for i in (0, 2)],
        [Completion(text_of("b", 1), 3, "stop")],
    ]
    body = next(body for body in server.bodies() if body["seed"] == stream_key(3, "a", 2) >> 65)
    assert body == {
        "model": "served",
        "prompt": [4] * 4,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": 8,
        "seed": stream_key(3, "a", 2) >> 65,
    }
    assert {path for path, *_ in server.posts} == {"/v1/completions"}


def test_a_chat_is_rendered_by_the_server(server: FakeServer) -> None:
    chat = sampler(server, api="chat")
    chat.chat_template_kwargs = {"enable_thinking": False}
    settings = SamplingSettings(stop=("Q:",), top_k=5, max_completion_length=8)
    [[drawn]] = chat.sample([request("a", [0])], settings)
    assert drawn.text.startswith("seed ") and drawn.finish == "stop"
    [(path, body, _)] = server.posts
    assert path == "/v1/chat/completions" and "prompt" not in body
    assert body["messages"] == [{"role": "user", "content": "swap " * 4}]
    assert (body["stop"], body["top_k"]) == (["Q:"], 5)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_server_without_extensions_receives_none(server: FakeServer) -> None:
    plain = sampler(server, api="chat", window=None)
    plain.sample([request("a", [0])], SETTINGS)
    assert not {"top_k", "min_p", "repetition_penalty"} & server.bodies()[0].keys()
    with refused("top_k", "vLLM", "SGLang", by=SamplingError):
        plain.sample([request("a", [0])], SamplingSettings(top_k=5))


def test_limits_and_errors_are_told_apart(server: FakeServer) -> None:
    def behaviour(path: str, body: dict[str, Any], number: int) -> Answer:
        answer = completion(body)
        ends = {4: "length", 3: "content_filter"}
        answer.content["choices"][0]["finish_reason"] = ends.get(len(body["prompt"]), "stop")
        return answer

    server.behaviour = behaviour
    requests = [request("a", [0]), request("b", [0], words=3), request("c", [0], words=57)]
    drawn = sampler(server).sample(requests, SETTINGS)
    error = Completion("", 0, "error")
    assert drawn == [[Completion(text_of("a", 0), 3, "length")], [error], [error]]
    assert len(server.posts) == 2  # the third prompt and its 8 tokens exceed 64: never sent


def test_a_prompt_that_only_the_server_finds_too_long_is_an_error(server: FakeServer) -> None:
    server.behaviour = lambda path, body, number: failure(
        400, "This model's maximum context length is 64 tokens. However, you requested 70."
    )
    assert sampler(server, window=None).sample([request("a", [0])], SETTINGS) == [
        [Completion("", 0, "error")]
    ]


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_a_busy_server_is_asked_again(server: FakeServer, status: int) -> None:
    server.behaviour = lambda path, body, number: (
        failure(status, Retry_After="0.01") if number < 3 else completion(body)
    )
    assert sampler(server).sample([request("a", [0])], SETTINGS)[0][0].text == text_of("a", 0)
    assert len(server.posts) == 4


def torn(body: dict[str, Any]) -> Answer:
    answer = completion(body)
    answer.promised = 4096
    return answer


@pytest.mark.parametrize(
    "bad",
    [
        torn,
        lambda body: Answer(b'{"choices": [{"text": "ab'),
        lambda body: Answer(b"\xff\xfe\x00"),
        lambda body: Answer(b"<html>Sign in</html>", kind="text/html"),
        lambda body: Answer({"choices": []}),
        lambda body: completion(body, usage=None),
        lambda body: completion(body, choices=[{"text": 7, "finish_reason": "stop"}]),
        lambda body: completion(body, "\ud83d"),
        lambda body: completion(body, usage={"prompt_tokens": 4, "completion_tokens": -1}),
    ],
)
def test_a_torn_reply_is_asked_for_again(server: FakeServer, bad: Any) -> None:
    server.behaviour = lambda path, body, number: bad(body) if number < 2 else completion(body)
    assert sampler(server).sample([request("a", [0])], SETTINGS)[0][0].text == text_of("a", 0)


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        (failure(429, "quota"), ("429 (quota)",)),
        (failure(429, "day", Retry_After="3600"), ("429 (day)", "3600 s")),
        (failure(401, f"bad key {KEY}"), ("(401: bad key ***)", "SERVER_KEY")),
        (failure(400, "no such token"), ("(400: no such token)",)),
        (Answer({"detail": "Not Found"}, 404), ("/v1/completions (404)", "base_url")),
        (failure(400, "x" * 195 + KEY), (f"(400: {'x' * 195}***)",)),
        (failure(400, "x " * 145 + KEY), (f"(400: {'x ' * 145}***)",)),
        (Answer({"a": "x" * 140 + KEY}), ("(choices: ",)),
        (Answer(b"[" * 99_999), ("JSON",)),
        (Answer({"detail": "hm"}, 422), ("(422: hm)",)),
    ],
)
def test_what_stays_broken_is_missing_and_the_rest_is_kept(
    server: FakeServer, answer: Answer, values: tuple[str, ...]
) -> None:
    broken = stream_key(3, "b", 1) >> 65
    server.behaviour = lambda path, body, number: (
        answer if body["seed"] == broken else completion(body)
    )
    requests = [request("a", [0, 1]), request("b", [0, 1])]
    with pytest.raises(Interrupted) as caught:
        sampler(server, api_key_env="SERVER_KEY").sample(requests, SETTINGS)
    assert str(caught.value).startswith(f"server {server.base_url}: ")
    assert all(value in str(caught.value) for value in values), caught.value
    assert KEY[:4] not in str(caught.value)  # nor a part of it, where a long text is cut
    texts = [[each and each.text for each in row] for row in caught.value.drawn]
    assert texts == [[text_of("a", 0), text_of("a", 1)], [text_of("b", 0), None]]


def test_nothing_new_is_sent_after_a_failure(server: FakeServer) -> None:
    server.behaviour = lambda path, body, number: failure(401)
    with pytest.raises(Interrupted, match="rejects the key"):
        sampler(server, max_concurrency=4).sample([request("a", [*range(50)])], SETTINGS)
    assert len(server.posts) <= 8


def test_a_server_that_hangs_ends_the_run(server: FakeServer) -> None:
    server.behaviour = lambda path, body, number: None if body["seed"] % 2 else completion(body)
    with pytest.raises(Interrupted, match=server.base_url):
        sampler(server, timeout=0.3, max_retries=50).sample([request("a", [*range(12)])], SETTINGS)


def test_a_request_that_is_lost_once_is_sent_again(server: FakeServer) -> None:
    server.behaviour = lambda path, body, number: None if number == 0 else completion(body)
    [[drawn]] = sampler(server, timeout=1.0).sample([request("a", [0])], SETTINGS)
    assert drawn.text == text_of("a", 0) and len(server.posts) == 2


def test_no_more_than_max_concurrency_are_sent_at_once(server: FakeServer) -> None:
    def behaviour(path: str, body: dict[str, Any], number: int) -> Answer:
        time.sleep(0.02)
        return completion(body)

    server.behaviour = behaviour
    drawn = sampler(server, max_concurrency=3).sample([request("a", [*range(30)])], SETTINGS)
    assert [each.text for each in drawn[0]] == [text_of("a", i) for i in range(30)]
    assert server.most_at_once == 3


@pytest.mark.parametrize(
    ("prompt", "drawn", "values"),
    [(9, 3, ("9 tokens", "of 4,", "{api: chat}")), (4, 9, ("of 9 tokens", "max_tokens is 8"))],
)
def test_a_server_that_reads_other_tokens_or_ignores_the_limit_is_refused(
    server: FakeServer, prompt: int, drawn: int, values: tuple[str, ...]
) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": drawn}
    server.behaviour = lambda path, body, number: completion(body, usage=usage)
    with refused(*values, by=Interrupted):
        sampler(server).sample([request("a", [0])], SETTINGS)
    usage = {"prompt_tokens": 4, "completion_tokens": 8}
    assert sampler(server).sample([request("a", [0])], SETTINGS)[0][0].tokens == 8


def test_a_window_without_space_for_an_answer_is_refused_before_anything_is_sent(
    server: FakeServer,
) -> None:
    with pytest.raises(SamplingError, match="max_model_len 64"):
        sampler(server).sample([request("a", [0])], SamplingSettings(max_completion_length=64))
    assert not server.posts


def load(server: FakeServer, source: ModelSource = SOURCE, **engine_args: Any) -> ServerSampler:
    options = {"base_url": server.base_url, "model": "served"} | engine_args
    return ServerSampler.load(source, **options)


def test_the_prompt_is_rendered_with_the_tokenizer_of_the_model(server: FakeServer) -> None:
    loaded = load(server)
    local: Any = load_sampler(SOURCE)
    loaded.sample([request("a", [0])], SETTINGS)
    assert server.bodies()[0]["prompt"] == local.rendered([request("a", [0])])[0]
    assert loaded.count_tokens([request("a", [0])]) == local.count_tokens([request("a", [0])])
    assert loaded.window == 64


@pytest.mark.parametrize(
    ("models", "values"),
    [
        (Answer({"data": [{"id": "other"}]}), ("served", "other")),
        (Answer({"data": []}), ("served", "no model")),
        (Answer(b"<html>", kind="text/html"), ("GET /models", "base_url")),
        (Answer(b"<html>", 404), ("/v1/models (404)", "base_url")),
        (failure(401), ("engine_args: {api_key_env: …}",)),
        (failure(503, "loading"), ("503 (loading)",)),
    ],
)
def test_another_model_is_refused_before_anything_is_drawn(
    server: FakeServer, models: Answer, values: tuple[str, ...]
) -> None:
    server.models = models
    with pytest.raises(SamplingError) as caught:
        load(server)
    assert all(value in str(caught.value) for value in values), caught.value
    assert not server.posts


def test_another_hub_model_under_the_same_name_is_refused(server: FakeServer) -> None:
    card = {"id": "served", "root": "Qwen/Qwen3-4B-Base"}
    server.models = Answer({"data": [card]})
    endpoint = Endpoint(server.base_url)
    source = ModelSource("q", "Qwen/Qwen3-4B", "Qwen/Qwen3-4B@1", revision="1")
    with pytest.raises(SamplingError, match=r"its model served is Qwen/Qwen3-4B-Base, not Qwen"):
        asyncio.run(_window(endpoint, "served", source))
    card["root"] = "/models/qwen"
    assert asyncio.run(_window(endpoint, "served", source)) is None


def test_a_server_that_is_down_is_named(server: FakeServer) -> None:
    with pytest.raises(SamplingError, match=r"server http://127\.0\.0\.1:9/v1: it cannot be reach"):
        load(server, base_url="http://127.0.0.1:9/v1")


def test_the_key_is_sent_and_shown_nowhere(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    loaded = load(server, api_key_env="SERVER_KEY")
    loaded.sample([request("a", [0])], SETTINGS)
    assert server.posts[0][2]["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(vars(loaded)) + str(loaded.endpoint) + caplog.text
    # The library's own variables are not read: they are meant for another server.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")
    load(server).sample([request("a", [0])], SETTINGS)
    assert "sk-" not in json.dumps(server.posts[1][2])


@pytest.mark.parametrize("value", [None, " \n", "sk-a\nb", "sk-ä"])
def test_a_key_that_is_none_is_refused(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("SERVER_KEY")
    if value is not None:
        monkeypatch.setenv("SERVER_KEY", value)
    with refused("SERVER_KEY", by=SamplingError) as caught:
        load(server, api_key_env="SERVER_KEY")
    assert "sk-" not in str(caught.value)


def adapter(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(content)
    return folder


def test_adapters_are_swapped(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour = adapters = Adapters(server)
    first, second = adapter(tmp_path / "1", b"1"), adapter(tmp_path / "2", b"2")
    loaded = load(server, lora_rank=4)
    for folder in (first, second):
        loaded.adapt(folder)
        loaded.sample([request("a", [0])], SETTINGS)
        assert [*adapters.loaded.values()] == [str(folder)]  # one at a time
    loaded.drop_adapter()
    loaded.sample([request("a", [0])], SETTINGS)
    assert not adapters.loaded
    assert len({*adapters.sampled}) == 3 and adapters.sampled[-1] == "served"


def test_equal_adapters_of_two_users_are_loaded_and_unloaded_apart(
    server: FakeServer, tmp_path: Path
) -> None:
    server.behaviour = adapters = Adapters(server)
    folder = adapter(tmp_path / "1", b"1")
    first, second = load(server, lora_rank=4), load(server, lora_rank=4)
    for each in (first, second):
        each.adapter_label = "run-cell-6"
        each.adapt(folder)
    assert len(adapters.loaded) == 2
    first.drop_adapter()
    [[drawn]] = second.sample([request("a", [0])], SETTINGS)
    assert drawn.finish == "stop" and [*adapters.loaded] == [second.adapter]
    assert second.adapter.startswith("decile-run-cell-6-")


def test_an_adapter_has_another_name_whenever_it_is_loaded(
    server: FakeServer, tmp_path: Path
) -> None:
    """vLLM caches prompts by the name, also after an unload."""
    server.behaviour = adapters = Adapters(server)
    folder, loaded = adapter(tmp_path / "1", b"1"), load(server, lora_rank=4)
    for content in (b"1", b"2"):
        (folder / "adapter_model.safetensors").write_bytes(content)
        loaded.adapt(folder)
        loaded.sample([request("a", [0])], SETTINGS)
    first, second = adapters.sampled
    assert first.split("-")[1] != second.split("-")[1], "the content is part of the name"
    assert first.split("-")[2] != second.split("-")[2]


def test_what_a_dead_run_left_is_unloaded_by_its_label_alone(
    server: FakeServer, tmp_path: Path
) -> None:
    server.behaviour = adapters = Adapters(server)
    folder = adapter(tmp_path / "1", b"1")
    for label in ("dead-a-6", "dead-b-12", "dead2-a-6", ""):
        left = load(server, lora_rank=4)
        left.adapter_label = label
        left.adapt(folder)
    adapters.loaded["decile-by-hand"] = str(folder)
    ServerSampler.unload("dead", base_url=server.base_url, model="served", api="chat")
    assert len(adapters.loaded) == 3
    assert not [name for name in adapters.loaded if name.startswith("decile-dead-")]
    ServerSampler.unload("dead", base_url=server.base_url)


def test_a_server_that_was_restarted_has_nothing_to_unload(
    server: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.behaviour = adapters = Adapters(server)
    loaded = load(server, lora_rank=4)
    loaded.adapt(adapter(tmp_path / "1", b"1"))
    adapters.loaded.clear()
    adapters.list_models()
    loaded.drop_adapter()
    assert not caplog.records


def test_a_load_whose_reply_was_lost_is_repeated(server: FakeServer, tmp_path: Path) -> None:
    adapters = Adapters(server)

    def behaviour(path: str, body: dict[str, Any], number: int) -> Answer | None:
        answer = adapters(path, body, number)
        first = path.endswith("/load_lora_adapter") and len(server.posts) == 2
        return failure(503, "the reply is lost") if first else answer

    server.behaviour = behaviour
    loaded = load(server, lora_rank=4)
    loaded.adapt(adapter(tmp_path / "1", b"1"))
    assert [*adapters.loaded] == [loaded.adapter]
    assert [path for path, *_ in server.posts] == 3 * ["/v1/load_lora_adapter"]


def test_an_adapter_as_the_served_model_cannot_be_swapped(server: FakeServer) -> None:
    server.models.content = {"data": [{"id": "served", "parent": "base", "max_model_len": 64}]}
    with refused("served", "{model: base}", by=SamplingError):
        load(server, lora_rank=4)
    load(server)


def test_a_server_that_loads_no_adapters_is_told_how(server: FakeServer) -> None:
    server.behaviour = lambda path, body, number: Answer({"detail": "Not Found"}, 404)
    with refused("--max-lora-rank 32", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", by=SamplingError):
        load(server, lora_rank=20)


def test_an_adapter_that_the_server_cannot_read_is_named(
    server: FakeServer, tmp_path: Path
) -> None:
    server.behaviour = Adapters(server)
    loaded = load(server, lora_rank=4)
    folder = adapter(tmp_path / "1", b"1")
    server.behaviour = lambda path, body, number: failure(404, "No adapter found for …")
    with pytest.raises(SamplingError, match=str(folder)):
        loaded.adapt(folder)


def test_a_probe_keeps_what_was_drawn_before_the_server_failed(
    server: FakeServer, tmp_path: Path
) -> None:
    settings = {"base_url": server.base_url, "model": "served", "max_retries": 1}
    settings |= {"api": "chat", "api_key_env": "SERVER_KEY", "max_concurrency": 1}
    probe = {"samples": 2, "engine": "server", "engine_args": settings, "max_completion_length": 8}
    plan = plan_of(experiments(tmp_path, probe=probe))
    spec, store = plan.cells[0].probe, Store(str(tmp_path / "runs"))
    pool = plan.pool(spec)
    folder = ProbeFolder(store, spec, pool.train[:3], pool.task)
    server.behaviour = lambda path, body, number: (
        completion(body) if number < 4 else failure(503, f"{KEY} is busy")
    )
    work = folder.missing()
    rows, reason = ProbeActor([spec], store.uri, 1).draw_part(work)
    assert len(rows) == 4 and "it still answers 503 (*** is busy); rerun to draw" in reason
    server.behaviour = lambda path, body, number: completion(body)
    missing = folder.missing()
    assert [[*indices] for _, indices in missing] == [[0, 1]]  # only what was not drawn
    rows, reason = ProbeActor([spec], store.uri, 1).draw_part(missing)
    assert len(rows) == 2 and not reason and not folder.missing()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) >= 3 and not any(KEY.encode() in file.read_bytes() for file in files)
