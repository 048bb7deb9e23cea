"""The choice of a token, compared with sums over the whole vocabulary and with `generate`."""

import pytest
import torch
from scipy import stats
from token_choice_cases import exact_scores

from orchestrator.sampling.base import SamplingSettings
from orchestrator.sampling.token_choice import sample_tokens


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cut", [(0, 1.0), (300, 1.0), (0, 0.9)])
def test_frequencies_are_the_probabilities(dtype: torch.dtype, cut: tuple[int, float]) -> None:
    """A χ² test over a vocabulary of a thousand tokens."""
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(1, 1_006, generator=generator) * 2).to(dtype)
    draws = torch.rand(40_000, generator=generator, dtype=torch.float64)
    options = SamplingSettings(top_k=cut[0], top_p=cut[1])
    tokens = torch.cat(
        [
            sample_tokens(logits.expand(len(part), -1), part, options)[0]
            for part in draws.split(4_000)
        ]
    )
    counts = tokens.bincount(minlength=1_006).double()
    expected = exact_scores(logits, options)[0].double().softmax(-1) * len(draws)
    rare = expected < 20
    observed = [*counts[~rare].tolist(), float(counts[rare].sum())]
    likely = [*expected[~rare].tolist(), float(expected[rare].sum())]
    if likely[-1] == 0:
        assert observed.pop() == likely.pop() == 0
    # Ties at the edge of a nucleus are cut in the same order, so that even 16 bits give one set.
    assert stats.chisquare(observed, likely).pvalue > 1e-3
