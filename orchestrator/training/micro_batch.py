"""Out of memory: the next try takes a smaller micro-batch, and the same effective batch. Pure.

The micro-batch is what a machine can hold, not what a cell is: it is remembered beside the cell,
outside its id. Groups, rollouts and updates stay what they were; only rounding may differ. That
TRL writes a whole batch of completions at once is another matter: see LiveGroupsTrainer.
"""

from typing import Any

from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store

FILE = "micro_batch.json"


def halvings(cell: Cell) -> int:
    """How many times the micro-batch can become smaller."""
    steps, size = 0, int(cell.grpo["per_device_train_batch_size"])
    while size > 1:
        steps, size = steps + 1, _smaller(size)
    return steps


def fitted_grpo(cell: Cell, store: Store) -> dict[str, Any]:
    """The cell's GRPO settings with the micro-batch that fitted this machine's memory so far."""
    found = store.read_json("cells", cell.cell_id, FILE)
    if found is None:
        return cell.grpo
    whole, size = int(cell.grpo["per_device_train_batch_size"]), int(found["micro_batch"])
    more = {
        name: int(cell.grpo[name]) * whole // size
        for name in ("gradient_accumulation_steps", "steps_per_generation")
        if cell.grpo.get(name)
    }
    return cell.grpo | more | {"per_device_train_batch_size": size}


def shrink(cell: Cell, store: Store, size: int) -> str:
    """Store a smaller micro-batch for the next try; the message for the user.

    `size` is what was tried: whichever workers run out of memory, they agree on the next one.
    """
    if size == 1:
        return "out of memory with one completion at a time: write shorter completions or more GPUs"
    store.write_json({"micro_batch": _smaller(size)}, "cells", cell.cell_id, FILE)
    return f"out of memory with a micro-batch of {size}: {_smaller(size)} from here on"


def _smaller(size: int) -> int:
    """The largest proper divisor: half, where that is whole."""
    return next(size // d for d in range(2, size + 1) if size % d == 0)
