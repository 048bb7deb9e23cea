"""A short run on this machine, so that a plan has times before any cell has finished."""

import gc
import io
import time
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout

import numpy as np

from orchestrator.cost.work import Speed
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.storage.errors import UserError
from orchestrator.storage.locks import scratch_folder
from orchestrator.training.record import CellRecord

SOURCE = "measured in one update on this machine"


def run_pilot(plan: Plan) -> Mapping[str, Speed]:
    """Train each model of a plan for one update; returns their speeds, by name. Stores nothing.

    Raises UserError if a model is not on this machine, or cannot train here.
    """
    cells: dict[str, Cell] = {}
    for cell in plan.cells:
        if cell.probe.dataset.variant_key not in plan.lacking_golds:
            cells.setdefault(cell.probe.model.name, cell)
    plan.check_models(cell.probe.model for cell in cells.values())
    # Output and warnings of libraries are not part of the plan.
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return {name: _speed(plan, cell) for name, cell in cells.items()}


def _speed(plan: Plan, cell: Cell) -> Speed:
    """The speed of one update of a cell, with evenly spaced prompts of its pool."""
    began = time.monotonic()
    import torch

    from orchestrator.training.trainer import CellCallback, build_trainer

    resources, name = cell.resources, cell.probe.model.name
    if resources.gpus and not torch.cuda.is_available():
        raise UserError(
            "--pilot trains on this machine, which has no GPU, and a trial needs one: run it on a "
            "machine with a GPU, or leave it out"
        )
    one = cell.changed(
        grpo=cell.grpo | {"max_steps": 1},
        resources=resources.model_copy(update={"workers": 1}),
        online=None,
        allocation=None,
        refresh=None,
    )
    torch.set_num_threads(max(1, int(resources.cpus)))
    pool, record = plan.pool(cell.probe), CellRecord()
    rows = np.flatnonzero(pool.labelled)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), one.prompts_per_update)).astype(int)]
    with scratch_folder("decile-pilot-") as folder:
        prompts = pool.train.take(rows)
        trainer = build_trainer(one, folder, pool.task, prompts, record)
        trainer.add_callback(CellCallback(record, lambda _: False, lambda _: None))
        start = time.monotonic() - began
        try:
            trainer.train()
        except torch.OutOfMemoryError as error:
            message = f"--pilot: an update of {name} does not fit the memory of this GPU"
            raise UserError(f"{message}: write a smaller per_device_train_batch_size") from error
    ledger = record.running_ledger(one, len(rows))
    tokens = ledger["prompt_tokens"] + ledger["generated_tokens"]
    del trainer
    gc.collect()
    torch.cuda.empty_cache()  # for the next model
    return Speed(start, ledger["seconds"] / tokens / resources.workers, SOURCE)
