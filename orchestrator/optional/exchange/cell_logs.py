"""The log of a cell of a storage, in training or finished."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from orchestrator.evaluation.run_log import RunLog
from orchestrator.optional.exchange.run_logs import Rollout, completions_of, metrics_of, unrated
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder


def _log(folder: CellFolder) -> RunLog | None:
    """The groups and metrics of a cell, finished or in training; None before its first one."""
    finished, cell = folder.finished(), folder.settings()
    checkpoint = None if finished else folder.checkpoint(folder.last_update())
    tables = finished.tables if finished else checkpoint.tables if checkpoint else None
    if tables is None:
        return None
    rollouts = []
    for index, row in enumerate(tables["groups"].to_pylist()):
        for outcome, reward, tokens in zip(
            row["outcomes"], row["rewards"], row["tokens"], strict=True
        ):
            rollouts.append(
                Rollout(
                    row["update"],
                    row["prompt_id"],
                    {},
                    reward=reward,
                    correct=None if outcome == "error" else outcome == "correct",
                    group=str(index),
                    tokens=tokens,
                    truncated=outcome == "truncated",
                )
            )
    history = defaultdict[int, dict[str, Any]](dict)
    for update, name, value in zip(*tables["log"].to_pydict().values(), strict=True):
        history[update] |= {"step": update, name.removeprefix("live_rows/"): value}
    name = f"{cell.name} ({folder.cell_id})" if cell else folder.cell_id
    return RunLog(
        name=name,
        layout="Decile",
        completions=completions_of(rollouts),
        metrics=metrics_of(history.values()),
        planned=cell.updates if cell else None,
        most_tokens=cell.grpo_settings.max_completion_length if cell else None,
        lora=True,
        running=folder.is_training(),
        by_correct="outcomes",
        rows=RowCounts(len(rollouts), {"without a reward": unrated(rollouts)}),
    )


def cell_log(folder: Path) -> RunLog | None:
    """The log of a cell by its folder; None before its first checkpoint."""
    cell = CellFolder.at(folder)
    return None if cell is None else _log(cell)


def storage_logs(path: str) -> list[RunLog]:
    """The logs of all cells of a storage that have one. Raises UserError if none has."""
    logs = [log for cell in CellFolder.all(Store(path)) if (log := _log(cell))]
    if not logs:
        raise UserError(f"{path} is a storage without a trained cell: run a sweep first")
    return logs
