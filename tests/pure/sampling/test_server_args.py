"""The engine_args of `engine: server`: what is refused and hashed, and that no key is shown."""

from pathlib import Path
from typing import Any

import pytest
from factories import small_plan
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from orchestrator.sampling.engine_args import check_server_arg

URL = "http://127.0.0.1:8000/v1"


def probe(**engine_args: Any) -> dict[str, Any]:
    return {"engine": "server", "engine_args": {"base_url": URL} | engine_args}


@pytest.mark.parametrize(
    ("engine_args", "message"),
    [
        ({"base_url": "127.0.0.1:8000"}, "http://HOST:PORT/v1"),
        ({"base_url": "http://"}, "http://HOST:PORT/v1"),
        ({"base_url": "http://h:99999/v1"}, "http://HOST:PORT/v1"),
        ({"base_url": "http://h:0/v1"}, "http://HOST:PORT/v1"),
        ({"base_url": "http://h/v1\n"}, "http://HOST:PORT/v1"),
        ({"base_url": "http://sk-hidden@h/v1"}, "api_key_env: NAME"),
        ({"base_url": "http://h/v1?api_key=sk-hidden"}, "api_key_env: NAME"),
        ({"base_url": "http://h/v1#sk-hidden"}, "api_key_env: NAME"),
        ({"base_url": None}, "base_url is null"),
        ({"api_key_env": "sk-hidden"}, "api_key_env is not"),
        ({"api_key": "sk-hidden"}, "api_key_env"),
        ({"headers": {"Authorization": "sk-hidden"}}, "headers is not"),
        ({"api": "responses"}, "'responses'"),
        ({"model": ""}, "model is empty"),
        ({"timeout": None}, "timeout is "),
        ({"timeout": 0}, "timeout is 0:"),
        ({"max_concurrency": 1.5}, "max_concurrency is 1.5:"),
        ({"max_concurency": 4}, "did you mean 'max_concurrency'?"),
        ({"gpu_memory_utilization": 0.5}, "engine: vllm"),
    ],
)
def test_what_is_wrong_is_refused_without_the_key(
    tmp_path: Path, engine_args: dict[str, Any], message: str
) -> None:
    with refused(tmp_path, message) as caught:
        small_plan(tmp_path, probe=probe(**engine_args))
    assert "hidden" not in str(caught.value)


def test_the_address_is_required(tmp_path: Path) -> None:
    with refused("base_url"):
        small_plan(tmp_path, probe={"engine": "server"})


def test_one_served_name_cannot_stand_for_two_models(tmp_path: Path) -> None:
    grid = {"model": ["stub", "other"], "dataset": ["small"], "policy": ["hard"]}
    with refused("'served'", "the grid has 2"):
        small_plan(tmp_path, grid=grid, probe=probe(model="served"))


def test_the_key_changes_only_with_the_served_model_and_the_interface(tmp_path: Path) -> None:
    def key(**engine_args: Any) -> str:
        return str(small_plan(tmp_path, probe=probe(**engine_args)).cells[0].probe.key)

    plain = key(model="a")
    harmless = {"base_url": "https://other/v1", "api_key_env": "K", "max_concurrency": 4}
    assert key(model="a", timeout=5.0, max_retries=1, **harmless) == plain
    assert len({plain, key(model="b"), key(model="a", api="chat"), key()}) == 4


@given(st.text())
def test_no_text_makes_the_check_of_an_address_fail(text: str) -> None:
    for name in ("base_url", "api_key_env", "api", "model"):
        problem = check_server_arg(name, text)
        assert problem is None or name in problem
