"""TRL's GRPOTrainer as a cell sees it: its settings, its reward, and what it is asked on the way.

The only room that imports trl and peft.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import LoraConfig
from transformers import PrinterCallback, TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]

from orchestrator.cells import Cell
from orchestrator.record import CellRecord
from orchestrator.samples import judge
from orchestrator.sampling.base import Completion, cut_at_stop
from orchestrator.sampling.transformers import eos_ids, load_model
from tasks import Prompt, Task

# Called after an update with its number, once the record holds that update.
AfterUpdate = Callable[[int], None]


def build_trainer(cell: Cell, folder: Path, task: Task, subset: Sequence[Prompt],
                  record: CellRecord) -> GRPOTrainer:  # fmt: skip
    """A trainer for one cell; checkpoints go to `folder`, groups to `record`."""
    set_seed(cell.seed)  # before PEFT draws the adapter's first weights
    model, tokenizer = load_model(cell.probe.model)
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=grpo_config(cell, folder),
        reward_funcs=[correctness(cell, task, record, eos_ids(model, tokenizer))],
        train_dataset=training_rows(task, subset),
        peft_config=LoraConfig(task_type="CAUSAL_LM", **cell.lora),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def grpo_config(cell: Cell, folder: Path) -> GRPOConfig:
    """The cell's GRPO settings, completed by what Decile and the machine decide."""
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
    return GRPOConfig(**machine | cell.grpo | ours)


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
        marks = judge(task, drawn, answer, cell.probe.dataset.max_marking_errors)
        for (mark, other), made, prompt, level in zip(marks, drawn, prompt_id, tier, strict=True):
            rows.append({"prompt_id": prompt, "tier": level, "tokens": made.tokens,
                         "outcome": mark.outcome, "reward": mark.reward,
                         "other_outcome": other.outcome})  # fmt: skip
        record.groups.add(trainer_state.global_step + 1, gather_object(rows), group_size)
        return [*fill_unmarked([row["reward"] for row in rows])]

    return correctness_reward


def finished(text: str, ids: Sequence[int], ends: Sequence[int], stop: Sequence[str]) -> Completion:
    """A rollout as a sampler would give it.

    TRL cannot stop at a string, so the text behind one is cut off here, before it is marked.
    """
    before = cut_at_stop(text, stop)
    if before is not None:
        return Completion(before, len(ids), "stop")
    return Completion(text, len(ids), "stop" if ids[-1] in ends else "length")


def fill_unmarked(rewards: Sequence[float | None]) -> list[float]:
    """Rewards for the loss: an unmarked completion gets the others' mean, hence no advantage.

    TRL would count it as 0, which is "wrong"; null must never be that.
    """
    known = [r for r in rewards if r is not None]
    mean = sum(known) / len(known) if known else 0.0
    return [mean if r is None else r for r in rewards]


class CellCallback(TrainerCallback):
    """Keeps the record while TRL trains, and says so after each update."""

    def __init__(self, record: CellRecord, after: AfterUpdate, save: AfterUpdate) -> None:
        self._record, self._after, self._save = record, after, save
        self._started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Time counts from here, on top of what earlier executions took."""
        self._started = time.monotonic() - self._record.seconds

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep TRL's own numbers of this update; its last log repeats totals and is left out."""
        logs: dict[str, Any] = kwargs["logs"]
        if "train_runtime" in logs:
            return
        now = time.monotonic()
        self._record.seconds = now - self._started
        self._record.log += [
            {"update": state.global_step, "name": name, "value": float(value)}
            for name, value in logs.items()
            if isinstance(value, int | float)
        ]
        self._after(state.global_step)
        self._started += time.monotonic() - now  # evaluating is not training

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer's files are there: add the record, which makes the checkpoint whole."""
        self._save(state.global_step)
