"""The GRPO trainer of a cell: its settings, its training rows and its reward."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import LoraConfig
from transformers import PrinterCallback, set_seed
from trl import GRPOConfig  # type: ignore[attr-defined]

from orchestrator.planning.cells import Cell
from orchestrator.probing.samples import mark_completions
from orchestrator.sampling.base import Completion, cut_at_stop
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.transformers import eos_ids
from orchestrator.training.record import CellRecord
from orchestrator.training.rollouts import Decoder
from orchestrator.training.trl_internals import LiveGroupsTrainer, own_rows
from tasks import Prompt, Task


def build_trainer(
    cell: Cell,
    folder: Path,
    task: Task,
    subset: Sequence[Prompt],
    record: CellRecord,
    grpo: dict[str, Any] | None = None,
) -> LiveGroupsTrainer:
    """A trainer for one cell; checkpoints go to `folder`, groups to `record`.

    `grpo` replaces the cell's own settings where its micro-batch does not fit the machine.
    """
    set_seed(cell.seed)  # before PEFT draws the adapter's first weights
    model, tokenizer = load_model(cell.probe.model)
    trainer = LiveGroupsTrainer(
        recorder=record.groups if cell.mask_dead_groups else None,
        model=model,
        processing_class=tokenizer,
        args=grpo_config(cell.probe.model, cell.seed, folder, grpo or cell.grpo),
        reward_funcs=[correctness(cell, task, record, eos_ids(model, tokenizer))],
        train_dataset=training_rows(task, subset),
        peft_config=LoraConfig(task_type="CAUSAL_LM", **cell.lora),
    )
    trainer.remove_callback(PrinterCallback)
    if cell.why_trl_draws and cell.rollouts_by != "trl":
        trainer.notes.append(f"rollouts are drawn by TRL: {cell.why_trl_draws}")
    elif not cell.why_trl_draws:
        trainer.decoder = Decoder(trainer.model, tokenizer, trainer.eos_token_ids, cell)
    return trainer


def grpo_config(model: ModelSource, seed: int, folder: Path, grpo: dict[str, Any]) -> GRPOConfig:
    """The GRPO settings, completed by those that Decile and the machine determine."""
    cuda = torch.cuda.is_available()
    machine = {"bf16": cuda, "gradient_checkpointing": cuda, "dataloader_pin_memory": cuda}
    ours = {
        "output_dir": str(folder),
        "seed": seed,
        "use_cpu": not cuda,
        "report_to": "none",
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_total_limit": 2,
        "disable_tqdm": True,
        "chat_template_kwargs": model.chat_template_kwargs,
        "ddp_find_unused_parameters": False,
    }
    return GRPOConfig(**machine | grpo | ours)


def training_rows(task: Task, subset: Sequence[Prompt]) -> Dataset:
    """The subset as TRL's conversational rows, with the columns that the reward needs."""
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
    """The reward: 1 for a correct completion, else 0; it also records every group.

    A completion whose last token is not one of `ends` was cut by the limit.

    Workers see slices of the batch. In rank order they are the whole generation, with each prompt's
    group contiguous, so every worker records the same groups.
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
        sampled = [
            as_completion(message[0]["content"], ids, ends, stop)
            for message, ids in zip(completions, completion_ids, strict=True)
        ]
        marks = mark_completions(task, sampled, answer, cell.probe.dataset.max_marking_errors)
        rows = [
            {
                "prompt_id": prompt,
                "tier": level,
                "tokens": completion.tokens,
                "outcome": mark.outcome,
                "reward": mark.reward,
                "other_outcome": other.outcome,
            }
            for (mark, other), completion, prompt, level in zip(
                marks, sampled, prompt_id, tier, strict=True
            )
        ]
        gathered = gather_object(rows)
        record.groups.add(trainer_state.global_step + 1, gathered, group_size)
        filled = fill_unmarked([row["reward"] for row in gathered], group_size)
        return [*filled[own_rows(len(rows))]]

    return correctness_reward


def as_completion(
    text: str, ids: Sequence[int], ends: Sequence[int], stop: Sequence[str]
) -> Completion:
    """A rollout as a sampler would return it.

    TRL cannot stop at a string: where it draws, the text after one is cut off before marking.
    """
    before = cut_at_stop(text, stop)
    if before is not None:
        return Completion(before, len(ids), "stop")
    return Completion(text, len(ids), "stop" if ids[-1] in ends else "length")


def fill_unmarked(rewards: Sequence[float | None], group_size: int) -> list[float]:
    """Rewards for the loss: an unmarked completion gets its group's mean, hence no advantage.

    As 0 it would count as wrong, which a marking error never is. With a value from other groups it
    would have an advantage, and make a dead group live.
    """
    filled: list[float] = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        known = [r for r in group if r is not None]
        mean = sum(known) / len(known) if known else 0.0
        filled += [mean if r is None else r for r in group]
    return filled
