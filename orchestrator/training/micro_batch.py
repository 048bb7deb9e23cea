"""Out of memory: the next attempt uses a smaller micro-batch and the same effective batch.

The micro-batch depends on the machine, not on the cell: it is stored next to the cell and is not
part of its id. Groups, rollouts and updates stay the same; only rounding may differ. Rollouts are
drawn in separate parts: see LiveGroupsTrainer.
"""

from typing import Any

from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder


class SmallerBatch(RuntimeError):
    """Out of memory: the next attempt uses a smaller micro-batch."""


def fitted_grpo(cell: Cell, store: Store) -> dict[str, Any]:
    """The cell's GRPO settings with the micro-batch that fitted this machine's memory so far."""
    whole = cell.batch.micro
    size = CellFolder(store, cell.cell_id).micro_batch() or whole
    if size >= whole or whole % size:
        return cell.grpo
    more = {
        name: int(cell.grpo[name]) * whole // size
        for name in ("gradient_accumulation_steps", "steps_per_generation")
        if cell.grpo.get(name)
    }
    return cell.grpo | more | {"per_device_train_batch_size": size}


def shrink(cell: Cell, store: Store, size: int) -> RuntimeError:
    """Store a smaller micro-batch for the next attempt; returns the error to raise.

    size: the tried one, so that all workers that run out of memory agree on the next one.
    """
    if size == 1:
        return RuntimeError(
            "out of memory with a micro-batch of 1: lower grpo.max_completion_length, or raise "
            "resources.gpus"
        )
    # The largest proper divisor: half for an even size.
    smaller = next(size // d for d in range(2, size + 1) if size % d == 0)
    CellFolder(store, cell.cell_id).save_micro_batch(smaller)
    return SmallerBatch(f"out of memory with a micro-batch of {size}: {smaller} from here on")
