"""Rows that share prompts and join a running batch, beside the library's own way and `generate`."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AttentionInterface, MistralConfig, MistralForCausalLM

from benchmarks.probe import STATIC_PROMPTS, generated, random_model
from orchestrator.embedded import embedded_path
from orchestrator.models import ModelSource
from orchestrator.sampling import Completion, Request, SamplingSettings
from orchestrator.sampling.decoding import RepeatedPrompts
from orchestrator.sampling.sharing import ATTENTION, SharedPrompts
from orchestrator.sampling.transformers import TransformersSampler
from tasks import get_task
from tests.test_sampling import chatty, folder, requests_of, sampler, source  # noqa: F401
from tests.test_sampling import generated as alone

LIMIT = 96


def shapes_of(chatty: TransformersSampler) -> list[tuple[int, ...]]:  # noqa: F811
    """Filled with [rows, tokens] of every forward from now on."""
    shapes: list[tuple[int, ...]] = []
    chatty.base.model.embed_tokens.register_forward_hook(
        lambda _, args, __: shapes.append(tuple(args[0].shape))
    )
    return shapes
