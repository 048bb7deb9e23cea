"""Rows that share prompts and join a running batch, compared with unshared rows and `generate`.

Two samplers of one model must give equally distributed completions: pass rates and lengths
of the embedded model are compared with those of the loop that the benchmark takes as its baseline.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
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

from orchestrator.sampling import Request, SamplingSettings, decoding, transformers
from orchestrator.sampling.decoding import ATTENTION
from orchestrator.sampling.transformers import TransformersSampler

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


@pytest.mark.parametrize("rows", [1, 7, 24])
def test_what_all_prompts_begin_with_is_read_once(
    short_sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """With prompts of different lengths, one of which is the beginning and one token more."""
    examples = [*short_sampler.rendered(requests_of([0]))[3], *range(1, 60)]
    endings = [[5], [7, 8, 9], [5, 6], [*range(20, 40)]]
    requests = [Request(f"{n}", [], [0, 1], ids=[*examples, *e]) for n, e in enumerate(endings)]
    alone = [short_sampler.sample([request], FORTY)[0] for request in requests]
    short_sampler.limits.rows = rows
    shapes = shapes_of(short_sampler)
    assert short_sampler.sample(requests, FORTY) == alone
    assert shapes[0] == (1, len(examples))
    assert max(length for _, length in shapes[1:]) == max(map(len, endings))
    monkeypatch.setattr(decoding, "LEAST_SHARED", len(examples) + 1)
    shapes.clear()
    assert short_sampler.sample(requests, FORTY) == alone
    assert max(length for _, length in shapes) == len(examples) + max(map(len, endings))


def test_a_beginning_of_all_prompts_leaves_each_a_token() -> None:
    many = [*range(40)]
    assert decoding.common_beginning([[*many, 1], [*many, 2, 3]]) == 40
    assert decoding.common_beginning([many, [*many, 2, 3]]) == 39
    assert decoding.common_beginning([many, many]) == 0  # read once in any case
    assert decoding.common_beginning([many]) == 0
    assert decoding.common_beginning([[*many[:31], 1], [*many[:31], 2]]) == 0


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
