"""The embedded models: their training texts, tokenizers and pass rates."""

import json
import random
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from embedded_cases import drawn, folder, name, tokenizer  # noqa: F401 (fixtures)

from benchmarks.embedded.lessons import LESSONS
from benchmarks.embedded.pretrain import batches, make_model, update
from benchmarks.embedded.recipe import make, parse
from benchmarks.embedded.vocabulary import make_tokenizer


def test_a_few_steps_of_each_kind_of_stage_lower_the_loss(name: str, tokenizer: Any) -> None:
    torch.set_num_threads(1)
    lesson = LESSONS[name]
    model = make_model(tokenizer, 0, lesson.offsets)
    optimizer = torch.optim.AdamW(model.parameters())
    for stage in (lesson.stages[0], lesson.stages[-1]):
        stream = batches(lesson, stage, tokenizer, random.Random(0))
        losses = [update(model, optimizer, batch, 3e-3) for batch in islice(stream, 4)]
        assert losses[-1] < losses[0]


def test_the_recipe_takes_each_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["recipe"])
    assert parse().model == "tiny"
    monkeypatch.setattr(sys, "argv", ["recipe", "--model", name])
    assert parse().model == name


def test_the_recipe_writes_the_same_files_every_time(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    first, second = tmp_path / "first", tmp_path / "second"
    for out in (first, second):
        make(LESSONS[name], out, seed=0, scale=0.0005)
    names = {file.name for file in first.iterdir()}
    assert names == {file.name for file in folder(name).iterdir()}
    assert all((first / n).read_bytes() == (second / n).read_bytes() for n in names)


def test_the_recipe_reproduces_the_stored_tokenizer(name: str) -> None:
    tokenizer = make_tokenizer(LESSONS[name], 0)
    stored = json.loads((folder(name) / "tokenizer.json").read_text(encoding="utf-8"))
    assert json.loads(tokenizer.backend_tokenizer.to_str()) == stored


@pytest.mark.parametrize(
    ("model", "size", "samples"), [("tiny", 120, 8), ("tiny-arithmetic", 60, 4)]
)
def test_pass_rates_are_spread_and_careful_traces_are_more_accurate(
    model: str, size: int, samples: int
) -> None:
    """Prompts of every difficulty, and a style of completion that training can shift to."""
    marks = drawn(model, LESSONS[model].task.train()[:size], samples)
    rates = [sum(right for _, right in row) / samples for row in marks]
    assert max(rates.count(0), rates.count(1)) / size <= 0.45
    assert 0.3 <= sum(rates) / size <= 0.7
    flat = [pair for row in marks for pair in row]
    bare = [right for text, right in flat if text.startswith("\\boxed{")]
    steps = [right for text, right in flat if text.find("\\boxed{") > 0]
    assert min(len(steps), len(bare)) > 50
    assert sum(steps) / len(steps) > sum(bare) / len(bare) + 0.3
