"""Reward functions of a user's own, as they would be written for TRL."""

import asyncio
import os
import sys
import time
from typing import Any

import numpy as np
from misbehaving_task import ACTIONS

Completions = list[list[dict[str, str]]]


def texts(completions: Completions) -> list[str]:
    return [completion[0]["content"] for completion in completions]


def accuracy(completions: Completions, answer: list[str], **kwargs: Any) -> list[float]:
    return [float(a in text) for text, a in zip(texts(completions), answer, strict=True)]


def length(completions: Completions, **kwargs: Any) -> list[float]:
    return [len(text) / 100 for text in texts(completions)]


def calls(completions: Completions) -> list[float]:
    """How many completions a call has."""
    return [float(len(completions))] * len(completions)


def by_name(completions: Completions, **kwargs: Any) -> list[float]:
    """1 if everything that TRL's trainer passes has come, in its form."""
    kwargs["log_extra"]("column", completions)
    kwargs["log_metric"]("metric", 1.0)
    of_trl = {"prompts", "trainer_state", "log_extra", "log_metric"}
    assert {*kwargs} == of_trl | {"question", "answer", "solution"}, kwargs.keys()
    count = len(completions)
    assert kwargs["prompts"] == [[{"role": "user", "content": "Ask: q"}]] * count
    assert kwargs["solution"] == [[1, {"a": None}]] * count
    assert all(m == [{"role": "assistant", "content": m[0]["content"]}] for m in completions)
    return [1.0] * count


def acts(completions: Completions, **kwargs: Any) -> list[float]:
    """Does what a completion says."""
    for text in texts(completions):
        if text in ACTIONS:
            ACTIONS[text]()
    return [0.5] * len(completions)


RETURNED: dict[str, Any] = {
    "numpy": np.array([0.25], dtype=np.float32),
    "true": [True],
    "tuple": (1,),
    "none": [None],
    "nan": [float("nan")],
    "infinity": [float("inf")],
    "a number": 1.0,
    "nothing": None,
    "two": [1.0, 1.0],
    "text": ["1.0"],
    "a text": "1",
    "a mapping": {0: 1.0},
    "nested": [[1.0, 1.0]],
}


def returns(completions: Completions) -> Any:
    """What the name in the completion stands for."""
    (text,) = texts(completions)
    if text == "tensor":
        import torch

        return torch.tensor([0.25])
    return RETURNED[text]


async def judge(completions: Completions, **kwargs: Any) -> list[float]:
    """Waits for each completion as for a server's reply."""

    async def one(text: str) -> float:
        await asyncio.sleep(0.05)
        return 1 / len(text)

    return await asyncio.gather(*map(one, texts(completions)))


async def judge_that_leaves(completions: Completions) -> list[float]:
    if "leave" in texts(completions):
        sys.exit()
    return [1.0] * len(completions)


def slow(completions: Completions) -> list[float]:
    time.sleep(0.2 * len(completions))
    return counted(completions)


def alone(completions: Completions) -> list[float]:
    assert len(completions) == 1
    return [1.0]


def needs(completions: Completions, level: list[int | None]) -> list[float]:
    return [0.0 if each is None else each / 10 for each in level]


def where(completions: Completions) -> list[float]:
    return [float(os.getpid())] * len(completions)


def lengths(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    return [float(len(ids)) for ids in completion_ids]


class Scale:
    """A function with a setting, as those of TRL that have one."""

    def __call__(self, completions: Completions, **kwargs: Any) -> list[float]:
        return [2.0] * len(completions)


scale = Scale()
constant = 3


CALLS = "CALLS_OF_REWARD_FUNCTIONS"  # the environment variable with the file of `counted`


def counted(completions: Completions) -> list[float]:
    """Writes down that it is called, and for how many completions."""
    with open(os.environ[CALLS], "a") as file:
        file.write(f"{len(completions)}\n")
    return [1.0] * len(completions)


def picky(completions: Completions, answer: list[str]) -> list[float]:
    assert "nothing" not in answer
    return [1.0] * len(completions)
