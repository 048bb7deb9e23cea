"""Rollouts of a GRPO update by Decile's own decoder, in place of TRL's call of `generate`.

The decoder reads a prompt once for its whole group and stops computing a row that has ended; see
`sampling.transformers`. A rollout's randomness depends on (seed, update, prompt_id, its number in
the group) alone: a resumed cell draws what an undisturbed one draws, and neither the number of
workers nor the memory at hand changes a rollout by more than rounding.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from orchestrator.planning.cells import Cell
from orchestrator.sampling.base import Request, SamplingSettings
from orchestrator.sampling.transformers import TransformersSampler


class Decoder:
    """Draws the rollouts of a trainer's model while it trains."""

    def __init__(self, model: Any, tokenizer: Any, ends: Sequence[int | None], cell: Cell) -> None:
        self.sampler = TransformersSampler(model, tokenizer)
        self.sampler.eos = [end for end in ends if end is not None]
        self.settings = SamplingSettings(
            **{name: cell.grpo[name] for name in ("temperature", "top_p", "max_completion_length")},
            top_k=cell.grpo["top_k"] or 0,
            seed=cell.seed,
            stop=cell.probe.settings.stop,
        )

    def draw(
        self, update: int, drawn: Sequence[tuple[str, int]], prompts: Sequence[list[int]]
    ) -> list[list[int]]:
        """Token ids of one rollout per prompt, which ends with an end token unless it was cut.

        `drawn` holds each rollout's prompt_id and its number in the group, and `prompts` its
        prompt's token ids; rollouts of a prompt are contiguous.
        """
        requests, rendered, begin = [], [], 0
        for prompt_id, group in groupby(drawn, key=lambda each: each[0]):
            numbers = [number for _, number in group]
            requests.append(Request(f"{update}\x1f{prompt_id}", [], numbers))
            rendered.append(prompts[begin])
            begin += len(numbers)
        rows = self.sampler.sample_ids(requests, rendered, self.settings)
        return [ids for part in rows for ids in part]
