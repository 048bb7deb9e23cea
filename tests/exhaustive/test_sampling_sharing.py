"""Rows that share prompts and join a running batch, compared with unshared rows and `generate`.

Two samplers of one model must give equally distributed completions: pass rates and lengths
of the embedded model are compared with those of the loop that the benchmark takes as its baseline.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import stats

from benchmarks import probe
from orchestrator.embedded import embedded_path
from orchestrator.sampling import Request, SamplingSettings
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import TransformersSampler
from tasks import get_task

FORTY = SamplingSettings(max_completion_length=40)


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
