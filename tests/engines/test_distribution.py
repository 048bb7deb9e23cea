"""vLLM draws from the same distribution as our transformers sampler, prompt by prompt.

Seeds are fixed and both engines are deterministic, so the tests give the same result every time. If
a change draws other numbers, each of them fails by chance once in 1 / ALPHA changes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from distribution import ALPHA, Drawn, cochran_mantel_haenszel
from scipy.stats import ks_2samp

from orchestrator.sampling import Request, SamplingSettings

SAMPLES = 64
# A random model's distribution is flat: at this temperature, passes are neither rare nor certain.
SETTINGS = SamplingSettings(temperature=0.3, max_completion_length=12, seed=7)
NAMES = ("Ana", "Ben", "Cara", "Dan", "Eva", "Finn", "Gus", "Hana")
REQUESTS = [
    Request(name, [{"role": "user", "content": f"{name} has the {ball} ball."}], range(SAMPLES))
    for name, ball in zip(NAMES, ["red", "blue", "green", "white"] * 2, strict=True)
]


def passes(drawn: Drawn, likely: Sequence[str]) -> np.ndarray:
    """Whether each completion begins as the greedy answer of its prompt does: its pass."""
    pairs = zip(drawn, likely, strict=True)
    return np.array([[c.text.startswith(start) for c in row] for row, start in pairs])


def lengths(drawn: Drawn) -> list[int]:
    """Characters of all completions."""
    return [len(completion.text) for row in drawn for completion in row]


@pytest.fixture(scope="module")
def ours(reference: Any) -> Drawn:
    return reference.sample(REQUESTS, SETTINGS)


@pytest.fixture(scope="module")
def likely(reference: Any) -> list[str]:
    """The most likely first token of every prompt, as text."""
    greedy = replace(SETTINGS, temperature=0, max_completion_length=1)
    first = [request._replace(samples=[0]) for request in REQUESTS]
    return [completion.text for [completion] in reference.sample(first, greedy)]


@pytest.mark.parametrize("change", [{"temperature": 0.45}, {"top_k": 3}, {"top_p": 0.5}])
def test_other_settings_are_told_apart(
    engine: Any, reference: Any, ours: Drawn, likely: list[str], change: dict[str, float]
) -> None:
    assert 0.2 < passes(ours, likely).mean() < 0.8, "otherwise there is little to compare"
    settings = replace(SETTINGS, **change)
    theirs = engine.sample(REQUESTS, settings)
    assert cochran_mantel_haenszel(passes(ours, likely), passes(theirs, likely)) < ALPHA
    own = reference.sample(REQUESTS, settings)
    assert cochran_mantel_haenszel(passes(own, likely), passes(theirs, likely)) > ALPHA
    assert ks_2samp(lengths(own), lengths(theirs)).pvalue > ALPHA
