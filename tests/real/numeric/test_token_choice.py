"""The choice of a token, compared with sums over the whole vocabulary and with `generate`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from token_choice_cases import exact_scores

from orchestrator.sampling.base import SamplingSettings
from orchestrator.sampling.token_choice import BLOCK, sample_tokens

SIZES = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 1_006, 5_000]
CUTS = [(0, 1.0), (1, 1.0), (5, 1.0), (200, 1.0), (0, 0.5), (0, 0.95), (0, 0.0), (40, 0.9)]


def by_whole_sums(scores: torch.Tensor, draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Inverse transform sampling by a float64 sum over the vocabulary, and the sum [B, V]."""
    cumulative = scores.double().softmax(-1).cumsum(-1)
    goal = draws[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, goal, right=True)[:, 0], cumulative


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SIZES),
    st.sampled_from(CUTS),
    st.sampled_from([0.1, 0.7, 1.0, 5.0]),
    st.sampled_from([0.0, 0.5, 3.0, 30.0]),
    st.sampled_from([0.0, 0.5, 0.99]),
    st.integers(0, 2**31),
)
def test_tokens_are_those_of_a_sum_over_the_vocabulary(
    size: int, cut: tuple[int, float], temperature: float, scale: float, masked: float, seed: int
) -> None:
    """Except where a uniform is closer to a token's edge than float32 can tell."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(16, size, generator=generator) * scale
    hidden = torch.rand(16, size, generator=generator) < masked
    hidden[:, torch.randint(size, (1,), generator=generator)] = False
    logits = logits.masked_fill(hidden, -torch.inf)
    draws = torch.rand(16, generator=generator, dtype=torch.float64)
    options = SamplingSettings(temperature=temperature, top_k=cut[0], top_p=cut[1])
    tokens, log_probs = sample_tokens(logits, draws, options)
    scores = exact_scores(logits, options)
    uncut = (logits / temperature).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(log_probs, uncut, rtol=1e-4, atol=1e-5)
    expected, cumulative = by_whole_sums(scores, draws)
    for row in (tokens != expected).nonzero()[:, 0].tolist():
        if scale == 0 and cut[1] < 1:
            continue  # all are equally likely: which of them the nucleus has is arbitrary
        edges = cumulative[row]
        assert (edges - draws[row] * edges[-1]).abs().min() < 1e-5
    assert (logits.gather(1, tokens[:, None]) > -torch.inf).all()


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("draw", [0.0, 0.5, 1 - 2**-53])
def test_a_token_of_probability_0_is_never_drawn(cut: tuple[int, float], draw: float) -> None:
    size = 3 * BLOCK + 5
    for likely in ([0], [size - 1], [BLOCK - 1, BLOCK], [BLOCK, 2 * BLOCK]):
        logits = torch.full((1, size), -torch.inf)
        logits[0, likely] = torch.arange(len(likely), 0, -1).float()
        options = SamplingSettings(top_k=cut[0], top_p=cut[1])
        [token], _ = sample_tokens(logits, torch.tensor([draw], dtype=torch.float64), options)
        assert int(token) in likely


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_takes_the_first_of_the_largest(size: int, dtype: torch.dtype) -> None:
    logits = torch.randint(-5, 2, (64, size)).to(dtype)
    expected = [row.index(max(row)) for row in logits.tolist()]
    draws = torch.zeros(64, dtype=torch.float64)
    tokens, _ = sample_tokens(logits, draws, SamplingSettings(temperature=0))
    assert tokens.tolist() == expected


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("temperature", [0, 1.0, 0.5])
@pytest.mark.parametrize("place", [0, BLOCK, 999])
def test_logits_that_are_no_numbers_are_an_error(
    value: float, temperature: float, place: int
) -> None:
    logits = torch.zeros(3, 1_000)
    logits[1, place] = value
    with pytest.raises(FloatingPointError, match="bfloat16"):
        sample_tokens(logits, torch.zeros(3).double(), SamplingSettings(temperature=temperature))


def test_rows_whose_kept_tokens_are_in_many_blocks_draw_from_all_of_them() -> None:
    """Flat and peaked rows in one batch: each reads as many blocks as it needs."""
    generator = torch.Generator().manual_seed(1)
    scales = torch.tensor([0.01, 1.0, 4.0, 20.0]).repeat(32)[:, None]
    logits = torch.randn(128, 40 * BLOCK + 7, generator=generator) * scales
    draws = torch.rand(128, generator=generator, dtype=torch.float64)
    for cut in ((0, 0.95), (1_000, 1.0), (3, 0.7)):
        options = SamplingSettings(top_k=cut[0], top_p=cut[1])
        expected, cumulative = by_whole_sums(exact_scores(logits, options), draws)
        differs = (sample_tokens(logits, draws, options)[0] != expected).nonzero()[:, 0]
        for row in differs.tolist():
            assert (cumulative[row] - draws[row]).abs().min() < 1e-4
