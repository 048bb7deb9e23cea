"""The trainer callback that keeps a cell's record."""

import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from orchestrator.training.record import CellRecord

# Called with an update's number: once it is recorded, and once its checkpoint is written.
AfterLog = Callable[[int], tuple[bool, bool]]
AfterSave = Callable[[int], None]


class CellCallback(TrainerCallback):
    """Records every update, then calls `after`, and `save` after every checkpoint.

    `after` returns whether to write a checkpoint now, and whether to stop training.
    """

    def __init__(self, record: CellRecord, after: AfterLog, save: AfterSave) -> None:
        self._record, self._after, self._save = record, after, save
        self._started = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Time counts from here, in addition to that of earlier executions."""
        self._started = time.monotonic() - self._record.seconds

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the numbers that TRL logs for this update; its final log of totals is left out."""
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
        """The trainer's files are written: complete the checkpoint with the record."""
        self._save(state.global_step)
