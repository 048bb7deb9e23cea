"""The GRPO trainer of a cell: its settings, its training rows, and the callback that records it."""

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from transformers import PrinterCallback, TrainerCallback, set_seed
from trl import GRPOConfig

from orchestrator.planning.cells import Cell
from orchestrator.sampling.loading import load_model
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.trained_weights import check_adapter
from orchestrator.sampling.transformers import eos_ids
from orchestrator.training.online import COPY, Chooser, TrainingRow
from orchestrator.training.record import CellRecord
from orchestrator.training.rollouts import Decoder, Player, marker, reward_function, with_rewards
from orchestrator.training.trl_internals import LiveGroupsTrainer
from orchestrator.training.workers import Workers
from policies import History
from tasks import Prompt, Task
from tasks.prompt_table import PromptTable

# Called with an update's number when it is recorded, and when its checkpoint is written.
AfterLog = Callable[[int], bool]
AfterSave = Callable[[int], None]
# Called with an update's number before its prompts are chosen; returns the processed tokens.
Before = Callable[[int], int]


class CellCallback(TrainerCallback):  # type: ignore[misc]
    """Records every update, then calls `after`, and `save` after every checkpoint.

    `after` returns whether to write a checkpoint now. `before` is called before every update,
    `active` after every micro-batch.
    """

    def __init__(
        self,
        record: CellRecord,
        after: AfterLog,
        save: AfterSave,
        before: Before | None = None,
        active: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._record = record
        self._after = after
        self._save = save
        self._before = before
        self._active, self._micro_batches = active, 0
        self._started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Time counts from here, in addition to the time of earlier executions."""
        self._started = time.monotonic() - self._record.seconds

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The weights of the last update are final, and the next one has not drawn anything."""
        self._micro_batches = 0
        if self._before:
            state.num_input_tokens_seen += self._before(state.global_step + 1)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The gradients of a micro-batch are added."""
        self._micro_batches += 1
        if self._active:
            self._active("micro-batches", self._micro_batches, args.gradient_accumulation_steps)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the numbers that TRL logs for this update, except its final log of totals."""
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
        control.should_save |= self._after(state.global_step)
        self._started += time.monotonic() - now  # evaluating is not training

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer's files are written: complete the checkpoint with the record."""
        self._save(state.global_step)


def build_trainer(
    cell: Cell,
    folder: Path,
    task: Task,
    subset: Sequence[Prompt],
    record: CellRecord,
    grpo: dict[str, Any] | None = None,
    history: History | None = None,
) -> LiveGroupsTrainer:
    """A trainer for one cell; checkpoints go to `folder`, groups to `record`.

    grpo: replaces the cell's own settings if its micro-batch does not fit the machine. history: of
    the prompts of `subset`, in their order, for an online policy or an allocation.
    """
    set_seed(cell.seed)  # before PEFT draws the adapter's first weights
    model, tokenizer = load_model(cell.probe.model)
    mark = marker(cell, task, eos_ids(model, tokenizer))
    plain = copy.copy(tokenizer)
    if task.environment is not None:  # TRL would parse all turns of an episode as one
        plain.response_template = None
    # With an online policy, TRL's loader only counts updates, and must not copy a large pool.
    loaded = subset[: cell.prompts_per_update] if cell.online else subset
    copies = cell.batch.copies(len(loaded))
    rows = [training_row(task, p) | {COPY: n} for n in range(copies) for p in loaded]
    adapter = {"peft_config": LoraConfig(task_type="CAUSAL_LM", **cell.lora)}
    if start := cell.probe.model.adapter:
        check_adapter(cell.probe.model)
        model, adapter = PeftModel.from_pretrained(model, start, is_trainable=True), {}
    trainer = LiveGroupsTrainer(
        recorder=record.groups if cell.mask_dead_groups else None,
        model=model,
        processing_class=plain,
        args=grpo_config(cell.probe.model, cell.seed, folder, grpo or cell.grpo),
        reward_funcs=[reward_function(cell, mark, record.groups)],
        train_dataset=Dataset.from_list(rows),
        **adapter,
    )
    trainer.remove_callback(PrinterCallback)
    if cell.why_trl_draws and cell.rollouts_by != "trl":
        trainer.notes.append(f"rollouts are drawn by TRL: {cell.why_trl_draws}")
    elif not cell.why_trl_draws:
        trainer.decoder = Decoder(trainer.model, tokenizer, trainer.eos_token_ids, cell)
        if task.environment is not None:
            max_errors = cell.probe.dataset.max_marking_errors
            trainer.rollout_func = Player(trainer.decoder, task, subset, max_errors)
    if history is not None:
        trainer.chooser = Chooser(
            online=cell.online,
            history=history,
            prompts=PromptTable.of(subset),
            groups=record.groups,
            row=partial(training_row, task),
            mark=mark,
            reward=partial(with_rewards, cell),
            workers=Workers.of(cell),
            allocation=cell.allocation,
        )
    return trainer


def grpo_config(model: ModelSource, seed: int, folder: Path, grpo: dict[str, Any]) -> GRPOConfig:
    """The GRPO settings, with those that Decile and the machine determine."""
    cuda = torch.cuda.is_available()
    machine = {"bf16": cuda, "gradient_checkpointing": cuda, "dataloader_pin_memory": cuda}
    ours = {
        "output_dir": str(folder),
        "seed": seed,
        "use_cpu": not cuda,
        "report_to": "none",
        "logging_steps": 1,
        "save_strategy": "steps",
        "disable_tqdm": True,
        "chat_template_kwargs": model.chat_template_kwargs,
        "ddp_find_unused_parameters": False,
    }
    return GRPOConfig(**machine | grpo | ours)


def training_row(task: Task, prompt: Prompt) -> TrainingRow:
    """A prompt as TRL's conversational row, with the columns that the reward needs."""
    columns = {name: getattr(prompt, name) for name in Prompt.__slots__}
    return {"prompt": task.messages_of(prompt.question, prompt.info), **columns}
