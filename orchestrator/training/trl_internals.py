"""The only module that overrides private methods of TRL's GRPOTrainer.

TRL offers no hook for the order of prompts, for the size of a generation, or for the mask of the
loss. `tests/test_library_internals.py` compares everything used here with the installed version,
and `pyproject.toml` pins TRL to the minor version that was tested.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from accelerate import PartialState
from torch.utils.data import Sampler
from trl import GRPOTrainer  # type: ignore[attr-defined]

from orchestrator.evaluation.groups import GroupRecorder, is_live

log = logging.getLogger(__name__)

# Losses that divide by the tokens under the mask; the others divide by rows, masked ones included.
BY_TOKENS = {"bnpo", "dapo", "cispo", "vespo"}


class EpochOrder(Sampler[int]):
    """TRL's order of prompts, restored when training resumes in a later epoch.

    TRL's RepeatSampler draws one permutation per epoch from one generator, which a resumed process
    seeds anew: it would repeat the first epoch's order. Here the epoch decides the permutation.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.epoch = inner, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before it iterates; epochs count from 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.inner.generator.manual_seed(self.inner.seed)
        for _ in range(self.epoch):
            torch.randperm(self.inner.num_samples, generator=self.inner.generator)
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


class LiveGroupsTrainer(GRPOTrainer):
    """GRPO that, given a recorder, leaves dead groups out of the loss (TRL issue 5588, PR 6368).

    Plain GRPO keeps them in: with beta > 0 their KL term moves the weights, and they count in the
    loss's denominator, so that live groups weigh less the more groups are dead. Here the loss of an
    update is that of a batch of its live groups only: exactly so for grpo, dr_grpo, sapo and luspo
    (divided by rows) and dapo, cispo and vespo (divided by the batch's tokens), whatever the
    micro-batches and workers, as long as one generation serves one update; for bnpo, which divides
    by each micro-batch's own tokens, where there is one micro-batch. Without any live group, loss
    and gradient are 0; an optimizer with momentum still moves the weights.
    """

    def __init__(self, *, recorder: GroupRecorder | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.recorder = recorder
        self.max_batch = sys.maxsize  # completions generated at once

    def create_model_card(  # type: ignore[override]  # TRL's differs from that of transformers
        self,
        model_name: str | None = None,
        dataset_name: str | None = None,
        tags: str | list[str] | None = None,
    ) -> None:
        """Nothing: a finished cell gets its own README.md (`training.model_card`)."""

    def _get_train_sampler(self, dataset: Any = None) -> EpochOrder:
        return EpochOrder(super()._get_train_sampler(dataset))

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: Any,
        has_tool_images: bool = False,
    ) -> Any:
        """As in TRL, which generates the whole batch at once; in parts when memory runs out.

        The generation's cache takes most of the memory, and a smaller micro-batch does not shrink
        it.
        """
        rest = (images, multimodal_fields, num_generations, has_tool_images)
        if self.use_vllm or self.is_fsdp_enabled:  # all workers must generate batches of one size
            return super()._generate_single_turn(prompt_ids, *rest)
        completion_ids: list[Any] = []
        while len(completion_ids) < len(prompt_ids):
            batch = prompt_ids[len(completion_ids) :][: self.max_batch]
            try:
                completion_ids += super()._generate_single_turn(batch, *rest)[0]
            except torch.OutOfMemoryError:
                if len(batch) == 1:
                    raise
                self.max_batch = len(batch) // 2
                log.warning("out of memory: generating %d completions at a time", self.max_batch)
        return completion_ids, None

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        recorded = len(self.recorder.rows) if self.recorder else 0
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        model: Any = self.model
        if self.recorder is None or not model.training:
            return output
        live = [is_live(row["rewards"]) for row in self.recorder.rows[recorded:]]
        return self.without_dead(output, live)

    def without_dead(self, output: dict[str, Any], live: Sequence[bool]) -> dict[str, Any]:
        """A scored generation with the tokens of dead groups masked out of the loss.

        `live` holds one entry per group of all workers. The mask is TRL's for tokens that a tool
        wrote: the model still reads them, so no log-probability changes.
        """
        completion_mask = output["completion_mask"]
        group_size: Any = self.num_generations
        rows = torch.tensor(live, device=completion_mask.device).repeat_interleave(group_size)
        own = rows[own_rows(len(completion_mask))]
        mask = own.unsqueeze(1) * output.get("tool_mask", completion_mask)
        tokens = self.accelerator.gather((completion_mask * mask).sum()).sum()
        share = torch.tensor(sum(live) / len(live))
        return output | {"tool_mask": mask, "num_items_in_batch": tokens, "live_share": share}

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        share = float(inputs.get("live_share", 1.0))
        if share in (0.0, 1.0) or self.loss_type in BY_TOKENS:
            return super()._compute_loss(model, inputs)
        beta, advantages = self.beta, inputs["advantages"]
        # The loss is linear in both; scaling them leaves an entropy bonus alone.
        self.beta = beta / share
        try:
            return super()._compute_loss(model, inputs | {"advantages": advantages / share})
        finally:
            self.beta = beta


def own_rows(rows: int) -> slice:
    """This worker's part of what all workers gathered, `rows` each, in rank order."""
    rank: int = PartialState().process_index
    return slice(rank * rows, (rank + 1) * rows)
