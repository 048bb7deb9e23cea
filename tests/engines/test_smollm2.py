"""SmolLM2-135M in every engine: trained weights, and a real tokenizer and vocabulary.

Greedy completions are the same but for ties; pass rates agree, prompt by prompt.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from distribution import ALPHA, Drawn, cochran_mantel_haenszel
from vllm_models import comparable
from vllm_server import KEY, vllm_server

from orchestrator.sampling import Request, SamplingSettings, load_sampler
from orchestrator.sampling.base import Completion
from orchestrator.sampling.model import ModelSource
from tasks import get_task

# Logits are about 20, and the engines' differ by some 1e-5 in float32: only these two are a tie.
TIE = 1e-3
MOST_TIES = 2  # of 50 completions
GREEDY = SamplingSettings(temperature=0, max_completion_length=16)
SAMPLES = 20
# The answer is the first word, if the model answers at all.
SETTINGS = SamplingSettings(max_completion_length=2, seed=5)
ANSWERS = {f"Is {n} an even number?": "No" if n % 2 else "Yes" for n in range(2, 10)} | {
    f"Is a {thing} an animal?": answer
    for answer, things in (
        ("Yes", ("dog", "whale", "hen", "frog")),
        ("No", ("table", "song", "car", "brick")),
    )
    for thing in things
}
QUESTIONS = [
    Request(text, [{"role": "user", "content": f"{text} Answer yes or no."}], range(SAMPLES))
    for text in ANSWERS
]


@pytest.fixture(scope="module")
def ours(smollm2: ModelSource) -> Any:
    torch.set_num_threads(1)
    return load_sampler(smollm2, device="cpu")


@pytest.fixture(scope="module", params=["vllm", "server"])
def engine(
    request: pytest.FixtureRequest, smollm2: ModelSource, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    if request.param == "vllm":
        sampler: Any = load_sampler(smollm2, "vllm")
        yield sampler
        sampler.llm.llm_engine.engine_core.shutdown()
        return
    with vllm_server(smollm2.location, tmp_path_factory.mktemp("log") / "serve.log") as base_url:
        os.environ["SMOLLM2_KEY"] = KEY
        settings = {"base_url": base_url, "model": "served", "api_key_env": "SMOLLM2_KEY"}
        yield load_sampler(smollm2, "server", engine_args=settings)


def greedy_requests() -> list[Request]:
    """50 prompts: word problems of up to 150 tokens, and sums in rows."""
    prompts = [(get_task(name), 25) for name in ("arithmetic", "plus_minus")]
    return [
        Request(prompt.prompt_id, task.messages(prompt.question), [0])
        for task, count in prompts
        for prompt in task.train()[:count]
    ]


@pytest.fixture(scope="module")
def greedy(ours: Any) -> Drawn:
    return comparable(ours.sample(greedy_requests(), GREEDY))


@pytest.fixture(scope="module")
def drawn(ours: Any) -> Drawn:
    return ours.sample(QUESTIONS, SETTINGS)


def passes(drawn: Drawn) -> np.ndarray:
    """Whether each completion begins with the answer."""
    pairs = zip(drawn, ANSWERS.values(), strict=True)
    return np.array([[c.text.startswith(answer) for c in row] for row, answer in pairs])


def gap_where_they_part(ours: Any, request: Request, own: Completion, theirs: str) -> float:
    """How far apart the two largest logits are at the first token that is another one.

    Asserts that the other engine's token there is the second one.
    """

    def text(ids: list[int]) -> str:
        return ours.tokenizer.decode(ids, skip_special_tokens=True).rstrip("\ufffd")

    ids, last = [*own.ids], len(own.ids) - 1
    at = next((i for i in range(last) if not theirs.startswith(text(ids[: i + 1]))), last)
    [prompt] = ours.rendered([request])
    with torch.no_grad():
        logits = ours.model(input_ids=torch.tensor([[*prompt, *ids[:at]]])).logits[0, -1]
    (first, second), tokens = (part.tolist() for part in logits.topk(2))
    assert theirs.startswith(text([*ids[:at], next(t for t in tokens if t != ids[at])]))
    return first - second


def test_greedy_completions_are_the_same_but_for_ties(
    engine: Any, ours: Any, greedy: Drawn
) -> None:
    requests = greedy_requests()
    theirs = engine.sample(requests, GREEDY)
    other = [
        (request, own, completion.text)
        for request, [own], [completion] in zip(requests, greedy, theirs, strict=True)
        if completion != own._replace(ids=completion.ids)
    ]
    gaps = [gap_where_they_part(ours, *each) for each in other]
    assert all(gap < TIE for gap in gaps) and len(gaps) <= MOST_TIES, gaps
    assert len({own.text for [own] in greedy}) > 40


def test_pass_rates_agree(engine: Any, drawn: Drawn) -> None:
    theirs = engine.sample(QUESTIONS, SETTINGS)
    assert 0.1 < passes(drawn).mean() < 0.9, "otherwise there is little to compare"
    assert cochran_mantel_haenszel(passes(drawn), passes(theirs)) > ALPHA
