"""One process of `benchmarks.update`: trains a few updates, and writes their seconds and memory.

It trains a cell of an experiments file, as Decile or as a plain TRL script would.
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from benchmarks.bare_grpo import bare_trainer
from benchmarks.command_line import benchmark_parser
from orchestrator.config.catalog import load_config
from orchestrator.cost.memory import shape_of, training_load, training_memory
from orchestrator.evaluation.groups import GroupRecorder
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.sampling.base import render
from orchestrator.selection.candidates import history_of
from orchestrator.selection.stored import read_subset
from orchestrator.storage.store import Store
from orchestrator.training.record import CellRecord
from orchestrator.training.trainer import CellCallback, build_trainer
from policies import History
from tasks import Prompt

PARTS = ("rollout", "scoring", "forward-backward", "rest")
GIB = 2**30
PATIENCE = 300.0  # seconds to wait for the other processes to load


def main() -> None:
    """Train, and write the measurements."""
    parser = benchmark_parser("training_process", __doc__)
    parser.add_argument("kind", choices=["cell", "bare"])
    parser.add_argument("--file", type=Path, required=True, help="experiments file with one cell")
    parser.add_argument("--warm", type=int, default=2, help="updates that are not counted")
    parser.add_argument(
        "--barrier", type=Path, required=True, help="folder of this run's processes"
    )
    parser.add_argument("--processes", type=int, default=1, help="processes that start together")
    parser.add_argument("--experiment", default="update", help="its name in the file")
    parser.add_argument("--cell", type=int, default=0, help="the number of the cell")
    parser.add_argument("--storage", help="where the subset of the cell is stored")
    parser.add_argument("--updates", type=int, help="instead of the cell's grpo.max_steps")
    parser.add_argument("--live", action="store_true", help="rewards alternate: no group is dead")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU seconds, not wall time")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    arguments.output.write_text(json.dumps(measure(arguments)))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Median seconds by part over the counted updates, and the memory in GiB.

    Memory is None on a CPU; `rss_gib` is the peak of the process. `allocated_gib` and
    `reserved_gib` are PyTorch's peaks of this process, `rollout_gib` and `update_gib` the allocated
    memory at the peaks of the two phases. `device_gib` is the memory of all processes on the GPU at
    the end, including contexts.
    """
    torch.set_num_threads(1)
    plan = make_plan(load_config(arguments.file), arguments.experiment)
    cell = plan.cells[arguments.cell]
    if arguments.updates:
        grpo = cell.grpo | {"max_steps": arguments.updates, "save_steps": 10_000}
        cell = cell.model_copy(update={"grpo": grpo})
    prompts, table = plan.pool(cell.probe).train, None
    if arguments.storage:
        table = read_subset(Store(arguments.storage), cell)
        if table is None:
            raise SystemExit(f"{arguments.storage} has no subset of {cell.name}: run it first")
        table = table.sort_by("prompt_id")
        prompts = prompts.take(prompts.rows_of(table["prompt_id"]))
    history = history_of(cell, table) if table is not None else None
    folder = arguments.barrier / str(os.getpid())
    trainer = make_trainer(arguments.kind, plan, cell, prompts, folder, history)
    if arguments.live:
        device = trainer.accelerator.device
        trainer._calculate_rewards = lambda inputs, *_: torch.tensor(
            [[float(i % 2)] for i in range(len(inputs))], device=device
        )
    clock = Clock(trainer, time.process_time if arguments.cpu_time else synchronized_time)
    trainer.add_callback(clock)
    wait_for_all(arguments.barrier, arguments.processes)
    trainer.train()
    counted = clock.updates[arguments.warm :]
    return {
        "parts": {part: statistics.median(update[part] for update in counted) for part in PARTS},
        "updates": clock.updates,
        "memory": clock.memory(),
        "rss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB,
        "estimate_gib": estimate(plan, cell, trainer.processing_class),
        # Smaller than the batch if a generation ran out of memory; a plain script would fail.
        "max_batch": min(getattr(trainer, "max_batch", 2**31), clock.rows),
    }


def make_trainer(
    kind: str,
    plan: Plan,
    cell: Cell,
    prompts: Sequence[Prompt],
    folder: Path,
    history: History | None,
) -> Any:
    """The trainer of the cell, or of a plain script with the same settings.

    `history`: the known data of the prompts, for a cell that chooses them or divides its rollouts.
    """
    pool = plan.pool(cell.probe)
    if kind == "cell":
        record = CellRecord(GroupRecorder(discarded=[] if cell.discards else None))
        used = history if cell.online or cell.allocation else None
        trainer: Any = build_trainer(cell, folder, pool.task, prompts, record, history=used)
        trainer.add_callback(CellCallback(record, lambda _: False, lambda _: None))
        return trainer
    rows = [{"prompt": pool.task.messages(p.question), "answer": p.answer} for p in prompts]
    model, task = cell.probe.model.location, cell.probe.dataset.task
    spec = {"model": model, "task": task, "seed": cell.seed, "prompts": rows}
    return bare_trainer(spec | {"grpo": cell.grpo, "lora": cell.lora}, str(folder))


def wait_for_all(folder: Path, processes: int) -> None:
    """Start training when all processes have loaded, so that all updates share the device."""
    (folder / f"ready-{os.getpid()}").touch()
    start = time.monotonic()
    while len(list(folder.glob("ready-*"))) < processes:
        if time.monotonic() - start > PATIENCE:
            raise SystemExit(f"not all of {processes} processes have loaded in {PATIENCE:.0f} s")
        time.sleep(0.05)


def estimate(plan: Plan, cell: Cell, tokenizer: Any) -> dict[str, float]:
    """Decile's estimate of the cell's memory in GiB, by part, by phase and at the peak."""
    shape = shape_of(cell.probe.model)
    assert shape is not None
    pool = plan.pool(cell.probe)
    longest = max(len(render(tokenizer, pool.task.messages(p.question), {})) for p in pool.train)
    memory = training_memory(shape, training_load(cell, longest))
    sizes = memory._asdict() | memory.phases | {"peak": memory.peak}
    return {name: size / GIB for name, size in sizes.items()}


class Clock(TrainerCallback):
    """Seconds of each update by part, around TRL's own methods, and the peaks of memory."""

    def __init__(self, trainer: Any, now: Callable[[], float]) -> None:
        self.now = now
        self.updates: list[dict[str, float]] = []
        self.seconds: dict[str, float] = {}
        self.peaks = {"rollout_gib": 0.0, "update_gib": 0.0}
        self.reserved_gib = 0.0
        self.rows = 0
        self._generate = trainer._generate_single_turn
        trainer._generate_single_turn = self._rollout
        for name in ("_prepare_inputs", "training_step"):
            setattr(trainer, name, self._timed(name, getattr(trainer, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self.now()
            result = method(*args, **kwargs)
            self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - start
            return result

        return timed

    def _rollout(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        self.rows = max(self.rows, len(prompt_ids))
        self._note_peak("update_gib")
        result = self._timed("rollout", self._generate)(prompt_ids, *args, **kwargs)
        self._note_peak("rollout_gib")
        return result

    def _note_peak(self, phase: str) -> None:
        """The peak since the last call belongs to `phase`."""
        if torch.cuda.is_available():
            self.peaks[phase] = max(self.peaks[phase], torch.cuda.max_memory_allocated() / GIB)
            self.reserved_gib = max(self.reserved_gib, torch.cuda.max_memory_reserved() / GIB)
            torch.cuda.reset_peak_memory_stats()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start an update."""
        self.seconds, self.start = {}, self.now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record an update after the optimizer's step."""
        rollout, inputs, step = (
            self.seconds.get(name, 0.0) for name in ("rollout", "_prepare_inputs", "training_step")
        )
        whole = self.now() - self.start
        parts = (rollout, inputs - rollout, step - inputs, whole - step)
        self.updates.append(dict(zip(PARTS, parts, strict=True)))
        self._note_peak("update_gib")

    def memory(self) -> dict[str, float] | None:
        """GiB at the peaks; None on a CPU."""
        if not torch.cuda.is_available():
            return None
        free, total = torch.cuda.mem_get_info()
        return self.peaks | {
            "allocated_gib": max(self.peaks.values()),
            "reserved_gib": self.reserved_gib,
            "device_gib": (total - free) / GIB,
        }


def synchronized_time() -> float:
    """Seconds, after the device has finished all queued work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
