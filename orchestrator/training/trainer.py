"""TRL's GRPOTrainer as a cell sees it: its settings, its reward, and what it is asked on the way.

The only room that imports trl and peft.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from peft import LoraConfig
from torch.utils.data import Sampler
from transformers import PrinterCallback, set_seed
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

from orchestrator.evaluation.groups import GroupRecorder, is_live
from orchestrator.planning.cells import Cell
from orchestrator.probing.samples import mark_completions
from orchestrator.sampling.base import Completion, cut_at_stop
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.transformers import eos_ids
from orchestrator.training.record import CellRecord
from tasks import Prompt, Task

log = logging.getLogger(__name__)


def build_trainer(
    cell: Cell,
    folder: Path,
    task: Task,
    subset: Sequence[Prompt],
    record: CellRecord,
    grpo: dict[str, Any] | None = None,
) -> GRPOTrainer:
    """A trainer for one cell; checkpoints go to `folder`, groups to `record`.

    `grpo` stands for the cell's own settings where its micro-batch does not fit the machine.
    """
    set_seed(cell.seed)  # before PEFT draws the adapter's first weights
    model, tokenizer = load_model(cell.probe.model)
    trainer = LiveGroupsTrainer(
        recorder=record.groups if cell.mask_dead_groups else None,
        model=model,
        processing_class=tokenizer,
        args=grpo_config(cell, folder, grpo or cell.grpo),
        reward_funcs=[correctness(cell, task, record, eos_ids(model, tokenizer))],
        train_dataset=training_rows(task, subset),
        peft_config=LoraConfig(task_type="CAUSAL_LM", **cell.lora),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def grpo_config(cell: Cell, folder: Path, grpo: dict[str, Any]) -> GRPOConfig:
    """The GRPO settings, completed by what Decile and the machine decide."""
    cuda = torch.cuda.is_available()
    machine = {"bf16": cuda, "gradient_checkpointing": cuda, "dataloader_pin_memory": cuda}
    ours = {
        "output_dir": str(folder),
        "seed": cell.seed,
        "use_cpu": not cuda,
        "report_to": "none",
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_total_limit": 2,
        "disable_tqdm": True,
        "chat_template_kwargs": cell.probe.model.chat_template_kwargs,
        "ddp_find_unused_parameters": False,
    }
    return GRPOConfig(**machine | grpo | ours)


def training_rows(task: Task, subset: Sequence[Prompt]) -> Dataset:
    """The subset as TRL's conversational rows, with what the reward needs."""
    return Dataset.from_list(
        [
            {
                "prompt": task.messages(p.question),
                "prompt_id": p.prompt_id,
                "answer": p.answer,
                "tier": p.tier,
            }
            for p in subset
        ]
    )


def correctness(
    cell: Cell, task: Task, record: CellRecord, ends: Sequence[int]
) -> Callable[..., list[float | None]]:
    """The reward: 1 for a correct completion, else 0; records every group on the way.

    A completion whose last token is not one of `ends` was cut by the limit.

    Workers see slices of the batch; concatenated in rank order they are the whole generation, each
    prompt's group contiguous, so every worker records the same groups.
    """
    group_size, stop = int(cell.grpo["num_generations"]), cell.probe.settings.stop

    def correctness_reward(
        completions: list[Any],
        completion_ids: list[list[int]],
        prompt_id: list[str],
        answer: list[str],
        tier: list[str],
        trainer_state: Any,
        **_: Any,
    ) -> list[float | None]:
        rows: list[dict[str, Any]] = []
        drawn = [
            finished(message[0]["content"], ids, ends, stop)
            for message, ids in zip(completions, completion_ids, strict=True)
        ]
        marks = mark_completions(task, drawn, answer, cell.probe.dataset.max_marking_errors)
        for (mark, other), made, prompt, level in zip(marks, drawn, prompt_id, tier, strict=True):
            rows.append(
                {
                    "prompt_id": prompt,
                    "tier": level,
                    "tokens": made.tokens,
                    "outcome": mark.outcome,
                    "reward": mark.reward,
                    "other_outcome": other.outcome,
                }
            )
        everyone = gather_object(rows)
        record.groups.add(trainer_state.global_step + 1, everyone, group_size)
        filled = fill_unmarked([row["reward"] for row in everyone], group_size)
        return [*filled[own_rows(len(rows))]]

    return correctness_reward


def finished(text: str, ids: Sequence[int], ends: Sequence[int], stop: Sequence[str]) -> Completion:
    """A rollout as a sampler would give it.

    TRL cannot stop at a string, so the text behind one is cut off here, before it is marked.
    """
    before = cut_at_stop(text, stop)
    if before is not None:
        return Completion(before, len(ids), "stop")
    return Completion(text, len(ids), "stop" if ids[-1] in ends else "length")


def own_rows(rows: int) -> slice:
    """This worker's part of what all workers gathered, `rows` each, in rank order."""
    rank: int = PartialState().process_index
    return slice(rank * rows, (rank + 1) * rows)


def fill_unmarked(rewards: Sequence[float | None], group_size: int) -> list[float]:
    """Rewards for the loss: an unmarked completion gets its group's mean, hence no advantage.

    Counted as 0 it would be "wrong", and null must never be that. Filled from other groups it would
    have an advantage, and make a dead group live.
    """
    filled: list[float] = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        known = [r for r in group if r is not None]
        mean = sum(known) / len(known) if known else 0.0
        filled += [mean if r is None else r for r in group]
    return filled


# Losses that divide by the tokens under the mask; the others divide by rows, masked ones included.
_BY_TOKENS = {"bnpo", "dapo", "cispo", "vespo"}


class EpochOrder(Sampler[int]):
    """TRL's order of prompts, found again when training resumes in a later epoch.

    TRL's sampler draws one permutation per epoch from one generator, which a resumed process begins
    anew: it would go through the first epoch's order again. Here the epoch says which one is due.
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

    Plain GRPO keeps them in: with beta > 0 their KL term moves the weights, and they stand in the
    loss's denominator, so that live groups count for less the more groups are dead. Here the loss
    of an update is that of a batch of its live groups only: exactly so for grpo, dr_grpo, sapo and
    luspo (divided by rows) and dapo, cispo and vespo (divided by the batch's tokens), whatever the
    micro-batches and workers, as long as one generation serves one update; for bnpo, which divides
    by each micro-batch's own tokens, where there is one micro-batch. Without any live group loss
    and gradient are 0; an optimiser with momentum still moves by it.
    """

    def __init__(self, *, recorder: GroupRecorder | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._recorder = recorder
        self._at_once = sys.maxsize  # completions written at once

    def _get_train_sampler(self, dataset: Any = None) -> EpochOrder:
        return EpochOrder(super()._get_train_sampler(dataset))

    def _generate_single_turn(self, prompt_ids: Any, *given: Any, **named: Any) -> Any:
        """TRL's, which writes the whole batch at once; where memory ended, a part at a time.

        Its cache is what takes most memory, and a smaller micro-batch leaves it as it is.
        """
        whole = super()._generate_single_turn
        if self.use_vllm or self.is_fsdp_enabled:  # there all workers must write alike
            return whole(prompt_ids, *given, **named)
        written: list[Any] = []
        while len(written) < len(prompt_ids):
            part = prompt_ids[len(written) :][: self._at_once]
            try:
                written += whole(part, *given, **named)[0]
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                self._at_once = len(part) // 2
                log.warning("out of memory: %d completions at once from here on", self._at_once)
        return written, None

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        before = len(self._recorder.rows) if self._recorder else 0
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        model: Any = self.model
        if self._recorder is None or not model.training:
            return output
        live = [is_live(row["rewards"]) for row in self._recorder.rows[before:]]
        return self.without_dead(output, live)

    def without_dead(self, output: dict[str, Any], live: Sequence[bool]) -> dict[str, Any]:
        """A scored generation with the tokens of dead groups masked out of the loss.

        `live` holds one entry per group of all workers. The mask is TRL's for tokens that a tool
        wrote: the model still reads them, so no log-probability changes.
        """
        written = output["completion_mask"]
        group_size: Any = self.num_generations
        rows = torch.tensor(live, device=written.device).repeat_interleave(group_size)
        mask = rows[own_rows(len(written))].unsqueeze(1) * output.get("tool_mask", written)
        tokens = self.accelerator.gather((written * mask).sum()).sum()
        share = torch.tensor(sum(live) / len(live))
        return output | {"tool_mask": mask, "num_items_in_batch": tokens, "live_share": share}

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        share = float(inputs.get("live_share", 1.0))
        if share in (0.0, 1.0) or self.loss_type in _BY_TOKENS:
            return super()._compute_loss(model, inputs)
        beta, advantages = self.beta, inputs["advantages"]
        # The loss is linear in both; scaling them leaves an entropy bonus alone.
        self.beta = beta / share
        try:
            return super()._compute_loss(model, inputs | {"advantages": advantages / share})
        finally:
            self.beta = beta
