"""GPU memory by phase: a cell's real training, with PyTorch's counters of a GPU replaced."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpo
import pytest
import sweeps
from grpo import one_thread, trained_cell  # noqa: F401 (a fixture)  # noqa: F401 (a fixture)  # noqa: F401 (a fixture)

from orchestrator.sampling import gpu_peaks
from orchestrator.sampling.gpu_peaks import GIB, GpuPeaks
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.rollouts import Decoder
from orchestrator.training.trl_internals import LiveGroupsTrainer


class Gpu:
    """PyTorch's counters in GiB: weights stay allocated, and what is freed stays reserved."""

    def __init__(self, weights: float = 1.0) -> None:
        self.weights = self.peak = self.reserved = weights

    def allocate(self, gib: float) -> None:
        """Allocate on top of the weights, and free it."""
        self.peak = max(self.peak, self.weights + gib)
        self.reserved = max(self.reserved, self.peak)

    def max_memory_allocated(self) -> float:
        return self.peak * GIB

    def max_memory_reserved(self) -> float:
        return self.reserved * GIB

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.weights


def allocating(gpu: Gpu, gib: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which allocates the last of `gib` on top of the weights."""

    def allocates(*args: Any, **options: Any) -> Any:
        gpu.allocate(gib[-1])
        return function(*args, **options)

    return allocates


@pytest.mark.parametrize("draws", ["decile", "trl"])
def test_each_phase_of_a_cell_has_its_own_peak_also_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draws: str
) -> None:
    """The second trial allocates less in a rollout: the peak of the first one remains."""
    gpu, rollouts, cells = Gpu(), [30.0], sweeps.plan_of(sweeps.experiments(tmp_path)).cells
    sizes = {"max_steps": 4, "per_device_train_batch_size": 8, "max_completion_length": 8}
    changes = {"grpo": cells[1].grpo | sizes, "rollouts_by": draws, "evaluate_every": 2}
    cell = cells[1].model_copy(update=changes)
    assert bool(cell.why_trl_draws) is (draws == "trl")
    monkeypatch.setattr(gpu_peaks, "_gpu", lambda: gpu)
    engine, name = (
        (Decoder, "draw") if draws == "decile" else (LiveGroupsTrainer, "_generate_single_turn")
    )
    loss = LiveGroupsTrainer._compute_loss
    for owner, method, gib in (
        (engine, name, rollouts),
        (LiveGroupsTrainer, "_compute_loss", [10.0]),
        (grpo, "empty_at", [20.0]),  # an evaluation
    ):
        function = allocating(gpu, gib, getattr(owner, method))
        monkeypatch.setattr(owner, method, function)
    assert LiveGroupsTrainer._compute_loss is not loss
    folder, running = CellFolder(Store(str(tmp_path / "runs")), cell.cell_id), []

    def reported(values: dict[str, Any]) -> None:
        if values.get("update") == 3:
            running.append(folder.memory_so_far())
            rollouts.append(5.0)

    trained_cell(tmp_path, cell, (3,), monkeypatch, reported)
    peaks = {"rollout": 31.0, "update": 11.0, "evaluation": 21.0}
    assert running[0] is not None and not running[0].done
    assert (running[0].reserved_gib, running[0].allocated_gib) == (31.0, peaks)
    result = folder.result()
    assert result is not None and result.timing.peak_gib == 31.0
    assert result.timing.as_json()["peaks_gib"] == peaks


def test_nothing_is_measured_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_peaks, "_gpu", lambda: None)
    peaks = GpuPeaks({})
    with peaks.phase("update"):
        peaks.note()
    assert (peaks.phases, peaks.reserved_gib) == ({}, 0.0)


def test_a_phase_inside_another_does_not_count_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    monkeypatch.setattr(gpu_peaks, "_gpu", lambda: gpu)
    gpu.allocate(50.0)  # while the model is loaded
    peaks = GpuPeaks({}, reserved_gib=2.0)
    with peaks.phase("update"):
        gpu.allocate(3.0)
        with peaks.phase("rollout"):
            gpu.allocate(9.0)
        gpu.allocate(1.0)
    assert peaks.phases == {"update": 4.0, "rollout": 10.0}
    assert peaks.reserved_gib == 51.0
