"""Rows that share prompts and join a running batch, compared with unshared rows and `generate`.

Two samplers of one model must give equally distributed completions: pass rates and lengths
of the embedded model are compared with those of the loop that the benchmark takes as its baseline.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tiny_sampler import (
    SIZES,
    greedy_completion,
    model_folder,
    requests_of,
    sampler,
    short_sampler,
    source,
)
from transformers import AttentionInterface, MistralConfig, MistralForCausalLM

from benchmarks import probe
from orchestrator.embedded import embedded_path
from orchestrator.sampling import Request, SamplingSettings, transformers
from orchestrator.sampling.decoding import ATTENTION
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler
from tasks import get_task

pytestmark = pytest.mark.slow

__all__ = ["short_sampler", "model_folder", "sampler", "source"]  # fixtures
FORTY = SamplingSettings(max_completion_length=40)


def shapes_of(sampler: TransformersSampler) -> list[tuple[int, ...]]:
    """Fills with rows and tokens of every forward from now on."""
    shapes: list[tuple[int, ...]] = []
    sampler.base.model.embed_tokens.register_forward_hook(
        lambda _, args, __: shapes.append(tuple(args[0].shape))
    )
    return shapes


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """`repeated.undo()` shares prompts again."""
    monkeypatch.setattr(transformers, "attends_plainly", lambda _: False)
    return monkeypatch


def test_waiting_rows_join_a_running_batch(short_sampler: TransformersSampler) -> None:
    short_sampler.limits.rows = 12
    shapes = shapes_of(short_sampler)
    drawn = short_sampler.sample(requests_of(range(6)), FORTY)
    read = [i for i, (_, tokens) in enumerate(shapes) if tokens > 1]
    assert read[0] == 0
    assert shapes[0][0] == 2  # two prompts of six rows
    assert len(read) > 1
    assert max(rows for rows, _ in shapes) <= 12
    assert all(shapes[i - 1][0] < shapes[i + 1][0] for i in read[1:])  # joined: more than before
    longest = max(c.tokens for row in drawn for c in row)
    assert len(shapes) < 2 * longest  # two static batches would take more


@pytest.mark.parametrize("shared", [True, False])
def test_long_prompts_are_read_a_few_at_a_time(
    short_sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    expected = short_sampler.sample(requests_of([0]), FORTY)
    monkeypatch.setattr(transformers, "attends_plainly", lambda _: shared)
    lengths = sorted(short_sampler.count_tokens(requests_of([])), reverse=True)
    for tokens, most in ((1, 1), (2 * lengths[0], 2)):
        short_sampler.limits.tokens = tokens
        shapes = shapes_of(short_sampler)
        assert short_sampler.sample(requests_of([0]), FORTY) == expected
        read = [prompts for prompts, length in shapes if length > 1]
        assert max(read) == most
        assert sum(read) == len(lengths)


@pytest.mark.parametrize("rows", [1, 7, 24])
@pytest.mark.parametrize("stop", [(), ("m", "t,")])
def test_shared_and_repeated_prompts_give_the_same_completions(
    short_sampler: TransformersSampler,
    repeated: pytest.MonkeyPatch,
    rows: int,
    stop: tuple[str, ...],
) -> None:
    requests, settings = requests_of(range(6)), replace(FORTY, stop=stop)
    expected = short_sampler.sample(requests, settings)
    repeated.undo()
    short_sampler.limits.rows = rows
    assert short_sampler.sample(requests, settings) == expected


def test_a_stopped_row_generates_no_more_tokens(short_sampler: TransformersSampler) -> None:
    """Ended rows stay in the batch until there are several, without adding to the completion."""
    stop = ("m", "t", "s")
    drawn = short_sampler.sample(requests_of(range(40)), replace(FORTY, stop=stop))
    free = short_sampler.sample(requests_of(range(40)), FORTY)
    pairs = [p for rows in zip(drawn, free, strict=True) for p in zip(*rows, strict=True)]
    cut = [
        (after, before)
        for after, before in pairs
        if len(after.text) < len(before.text) and before.tokens - len(before.text) <= 1
    ]
    assert len(cut) > 3
    assert all(after.tokens == len(after.text) + 1 for after, _ in cut)


def test_sampling_works_in_half_precision(short_sampler: TransformersSampler) -> None:
    short_sampler.model.bfloat16()
    short_sampler.limits.rows = 7
    drawn = short_sampler.sample(requests_of(range(6)), FORTY)
    assert {c.finish for row in drawn for c in row} <= {"stop", "length"}


def test_sliding_window_layers_use_the_attention_of_the_library(
    short_sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=len(short_sampler.tokenizer),
        **SIZES,
        sliding_window=8,
        eos_token_id=short_sampler.eos,
    )
    windowed = TransformersSampler(
        MistralForCausalLM(config).eval(), short_sampler.tokenizer, rows_per_batch=3
    )
    assert not transformers.attends_plainly(windowed.base)
    completions = windowed.sample(requests_of([0, 1]), replace(FORTY, temperature=0))
    assert completions == [
        [greedy_completion(windowed, request, 40)] * 2 for request in requests_of([0])
    ]


@pytest.fixture
def sdpa_attention() -> Iterator[None]:
    """Replace our attention by one that ignores shared prompts."""
    ours = AttentionInterface()[ATTENTION]
    AttentionInterface.register(ATTENTION, AttentionInterface()["sdpa"])
    yield
    AttentionInterface.register(ATTENTION, ours)


@pytest.mark.usefixtures("sdpa_attention")
def test_attention_without_prefix_sharing_is_refused(short_sampler: TransformersSampler) -> None:
    with pytest.raises(RuntimeError, match="Qwen3ForCausalLM"):
        short_sampler.sample(requests_of(range(2)), FORTY)
    assert short_sampler.base.config._attn_implementation == "sdpa"


def successes(task: Any, texts: list[str], lengths: list[int], prompts: list[Any]) -> np.ndarray:
    """Correct samples of each prompt; a prompt's samples follow one another."""
    count = len(texts) // len(prompts)
    marks = [
        task.mark(text, prompts[i // count].answer, length >= 96).outcome == "correct"
        for i, (text, length) in enumerate(zip(texts, lengths, strict=True))
    ]
    return np.reshape(marks, (len(prompts), count)).sum(-1)


def same_rates(ours: np.ndarray, theirs: np.ndarray, count: int) -> float:
    """p of the Cochran-Mantel-Haenszel test of [P] successes of `count` each, prompt by prompt."""
    both = ours + theirs
    variance = (both * (2 * count - both) / (4 * (2 * count - 1))).sum()
    return float(2 * stats.norm.sf(abs((ours - both / 2).sum()) / np.sqrt(variance)))


def test_pass_rates_agree_with_generate() -> None:
    torch.set_num_threads(1)
    path = embedded_path("tiny")
    sampler = TransformersSampler.load(ModelSource("tiny", str(path), "test"), "cpu")
    sampler.limits.rows = 64  # rows join
    task = get_task("shuffled_objects", train=48)
    pool = task.train()
    requests = [Request(p.prompt_id, task.messages(p.question), range(8)) for p in pool]
    ours = [
        c for row in sampler.sample(requests, replace(FORTY, max_completion_length=96)) for c in row
    ]
    torch.manual_seed(0)
    rows = [
        r
        for i in range(0, 48, 16)
        for r in probe.generated(sampler, requests[i : i + 16], 96).tolist()
    ]
    ends = [next((i for i, t in enumerate(r, 1) if t in sampler.eos), len(r)) for r in rows]
    own = [row[:end] for row, end in zip(rows, ends, strict=True)]
    texts = sampler.tokenizer.batch_decode(own, skip_special_tokens=True)
    lengths = [c.tokens for c in ours]
    counts = [
        successes(task, [c.text for c in ours], lengths, pool),
        successes(task, texts, ends, pool),
    ]
    assert 0.2 < counts[0].mean() / 8 < 0.8
    assert same_rates(*counts, 8) > 0.01
    assert stats.ks_2samp(lengths, ends).pvalue > 0.01
