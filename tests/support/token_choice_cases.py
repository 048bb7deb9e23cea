"""What the tests of token choice share."""

from typing import Any

import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from orchestrator.sampling.base import SamplingSettings


def exact_scores(logits: torch.Tensor, cut: SamplingSettings) -> torch.Tensor:
    """The logits as `generate` cuts them: -inf for a token that is left out."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(float(cut.temperature))])
    if cut.top_k:
        processors.append(TopKLogitsWarper(cut.top_k))
    if cut.top_p < 1:
        processors.append(TopPLogitsWarper(cut.top_p))
    scores: Any = processors(None, logits.float())  # type: ignore[arg-type]
    return scores
