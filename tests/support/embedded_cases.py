"""What the tests of embedded share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.embedded.lessons import LESSONS
from benchmarks.embedded.vocabulary import make_tokenizer
from orchestrator.embedded import EMBEDDED, embedded_path
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler
from tasks.prompts import Prompt

LIMIT = 96  # new tokens of the quickstart's probe


def folder(name: str) -> Path:
    path = embedded_path(name)
    if not (path / "model.safetensors").is_file():
        pytest.skip(f"no weights yet: run python -m benchmarks.embedded.recipe --model {name}")
    return path


@pytest.fixture(scope="module", params=EMBEDDED)
def name(request: Any) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(name: str) -> Any:
    return make_tokenizer(LESSONS[name], 0, size=1000)


def drawn(model: str, questions: Sequence[Prompt], samples: int) -> list[list[tuple[str, bool]]]:
    """(completion, whether it is correct) of each sample of each question."""
    torch.set_num_threads(1)
    task = LESSONS[model].task
    sampler = TransformersSampler.load(ModelSource(model, str(folder(model)), "test"))
    requests = [Request(p.prompt_id, task.messages(p.question), range(samples)) for p in questions]
    completions = sampler.sample(requests, SamplingSettings(max_completion_length=LIMIT))
    return [
        [(c.text, bool(task.mark(c.text, p.answer, c.finish == "length").reward)) for c in row]
        for p, row in zip(questions, completions, strict=True)
    ]
