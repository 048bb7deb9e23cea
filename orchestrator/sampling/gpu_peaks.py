"""The peaks of this process's GPU memory by phase, from PyTorch's allocator."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal

Phase = Literal["rollout", "update", "evaluation"]
GIB = 2**30


class GpuPeaks:
    """Records the allocated GiB at the peak of each phase in `phases`; nothing without a GPU.

    reserved_gib: the maximum that the allocator has reserved in any phase, since it keeps memory
    that a phase frees.
    """

    def __init__(self, phases: MutableMapping[Phase, float], reserved_gib: float = 0.0) -> None:
        self.phases, self.reserved_gib = phases, reserved_gib
        self._phase: Phase | None = None  # None: loading

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Allocations inside belong to this phase, not to an enclosing one."""
        self.note()
        outer, self._phase = self._phase, name
        try:
            yield
        finally:
            self.note()
            self._phase = outer

    def note(self) -> None:
        """Assign the peak since the last call to the current phase."""
        gpu = _gpu()
        if gpu is None:
            return
        self.reserved_gib = max(self.reserved_gib, gpu.max_memory_reserved() / GIB)
        if self._phase is not None:
            peak = gpu.max_memory_allocated() / GIB
            self.phases[self._phase] = max(self.phases.get(self._phase, 0.0), peak)
        gpu.reset_peak_memory_stats()


def _gpu() -> Any:
    """PyTorch's interface to this process's GPU; None without one."""
    import torch

    return torch.cuda if torch.cuda.is_available() else None
