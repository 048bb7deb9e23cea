"""The processes that train one cell together, and how they agree."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.planning.cells import Cell

T = TypeVar("T")


@dataclass(frozen=True)
class Workers:
    """This process's rank among the workers of its cell, and their number."""

    rank: int = 0
    count: int = 1

    @classmethod
    def of(cls, cell: Cell) -> "Workers":
        """The workers of this process's cell; several workers need an initialised process group."""
        if cell.resources.workers == 1:
            return cls()
        import torch.distributed as dist

        return cls(dist.get_rank(), dist.get_world_size())

    def from_first(self, function: Callable[[], T]) -> T:
        """Call `function` on worker 0 only and return its pickled value on all workers.

        If it raises, all workers raise, because the rest would wait for worker 0 in a collective
        until it times out.
        """
        if self.count == 1:
            return function()
        import torch.distributed as dist

        if self.rank == 0:
            try:
                value = function()
            except Exception as error:
                dist.broadcast_object_list([None, f"{type(error).__name__}: {error}"])
                raise
            dist.broadcast_object_list([value, None])
            return value
        message: list[Any] = [None, None]
        dist.broadcast_object_list(message)
        if message[1] is not None:
            raise RuntimeError(f"worker 0 failed: {message[1]}")
        return message[0]

    def wait(self) -> None:
        """Wait until every worker has reached this point."""
        if self.count > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()
