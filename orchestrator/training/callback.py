"""Keeps a cell's record while TRL trains."""

import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from orchestrator.training.record import CellRecord

# Called with an update's number: once the record holds it, and once its checkpoint is written.
AfterLog = Callable[[int], tuple[bool, bool]]
AfterSave = Callable[[int], None]


class CellCallback(TrainerCallback):
    """Keeps the record while TRL trains, and says so after each update.

    `after` says whether to write a checkpoint now, and whether to end the training.
    """

    def __init__(self, record: CellRecord, after: AfterLog, save: AfterSave) -> None:
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
        save, stop = self._after(state.global_step)
        control.should_save |= save
        control.should_training_stop |= stop
        self._started += time.monotonic() - now  # evaluating is not training

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer's files are there: add the record, which makes the checkpoint whole."""
        self._save(state.global_step)
