"""Measurements of a cell's guards on this machine, faults that they must notice, and their cost.

Trains the small cell of `decile doctor --gpu`: undisturbed, killed and resumed, and with each of
the faults below planted into the code that draws its rollouts. Prints the line that ends the cell,
and the update after which the cell ends. The cost is the share of update time that is spent in the
guards' own functions.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from peft.tuners.lora import LoraLayer

from benchmarks.command_line import add_json, benchmark_parser, write_json
from orchestrator.cli import gpu_checks
from orchestrator.config.experiment import MAX_LOGP_DIFFERENCE
from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.training import guards
from orchestrator.training.rollouts import Decoder
from orchestrator.training.trial import run_cell
from orchestrator.training.trl_internals import LiveGroupsTrainer

Fault = Callable[[Any], AbstractContextManager[None]]


@contextmanager
def forgotten_adapter(model: Any) -> Iterator[None]:
    """The decoder draws from the base model."""
    with model.disable_adapter():
        yield


@contextmanager
def adapter_twice(model: Any) -> Iterator[None]:
    """The decoder applies the adapter twice (ms-swift issue 8233)."""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer.scaling["default"] *= 2
    yield
    for layer in layers:
        layer.scaling["default"] /= 2


@contextmanager
def old_weights(model: Any) -> Iterator[None]:
    """The decoder has the adapter of the update before (TRL issue 5312)."""
    own = [p for p in model.parameters() if p.requires_grad]
    now = [p.detach().clone() for p in own]
    for weight, value in zip(own, getattr(model, "old_weights", now), strict=True):
        weight.data.copy_(value)
    yield
    for weight, value in zip(own, now, strict=True):
        weight.data.copy_(value)
    model.old_weights = now


@contextmanager
def merged_and_unmerged(model: Any) -> Iterator[None]:
    """The adapter is merged into the base weights for the rollouts (TRL issue 6688)."""
    model.merge_adapter()
    yield
    model.unmerge_adapter()


@contextmanager
def in_bfloat16(model: Any) -> Iterator[None]:
    """The decoder computes in a different type than the loss."""
    with torch.autocast(next(model.parameters()).device.type, torch.bfloat16):
        yield


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (forgotten_adapter, adapter_twice, old_weights, merged_and_unmerged)
}


def planted(fault: Fault) -> AbstractContextManager[Any]:
    """Every rollout inside is drawn within `fault`, which is called with the model."""
    draw = Decoder.draw

    def faulty(self: Decoder, *arguments: Any) -> Any:
        with fault(self.sampler.model):
            return draw(self, *arguments)

    return patch.object(Decoder, "draw", faulty)


def main() -> None:
    """Run every check and every fault, and print a line for each."""
    parser = benchmark_parser("guards", __doc__)
    add_json(parser)
    arguments = parser.parse_args()
    gpus = 1 if torch.cuda.is_available() else 0
    measured: dict[str, Any] = {"verdicts": {}, "faults": {}}
    with tempfile.TemporaryDirectory(prefix="decile-guards-") as name:
        folder = Path(name)
        first = folder / "first"
        for check, verdict in {
            "sweep": partial(gpu_checks.small_sweep, first, gpus),
            "rollouts": partial(gpu_checks.rollouts_verdict, first),
            "base weights": partial(gpu_checks.weights_verdict, first),
            "resume": partial(gpu_checks.resume_verdict, first, folder),
        }.items():
            try:
                text = verdict()
            except RuntimeError as error:
                text = f"FAIL: {error}"
            measured["verdicts"][check] = text
            print(f"{check}: {text}", flush=True)
        plan, trained = gpu_checks.cell_of(first)
        cell = plan.cells[0].changed(max_logp_difference=MAX_LOGP_DIFFERENCE)
        for fault in ("none", *FAULTS):
            result = with_fault(fault, cell, trained.store, folder / fault)
            measured["faults"][fault] = result
            print(f"{fault}: update {result['update']}: {result['line']}", flush=True)
        measured["cost"] = cost(cell, trained.store, folder / "timed")
        print(f"cost: {100 * measured['cost']:.2f} % of the time of updates")
    write_json(arguments, measured)


def with_fault(name: str, cell: Cell, source: Store, folder: Path) -> dict[str, Any]:
    """Train the cell with a fault: the last update, the seconds, and the line that ended it."""
    store, updates, started = copied(source, folder), [0], time.monotonic()
    line = "finished"
    with planted(FAULTS[name]) if name in FAULTS else nullcontext():
        try:
            run_cell(cell, store.uri, lambda report: updates.append(report.get("update", 0)))
        except guards.UnsoundTraining as error:
            line = str(error)
    return {"update": max(updates), "line": line, "seconds": time.monotonic() - started}


def cost(cell: Cell, source: Store, folder: Path) -> float:
    """The share of update time that is spent in the functions of the guards."""
    spent = {"guards": 0.0, "updates": 0.0}

    def timed(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                spent[kind] += time.perf_counter() - started

        return run

    functions = [
        (LiveGroupsTrainer, "_differences", "guards"),
        (LiveGroupsTrainer, "_by_adapter", "guards"),
        (guards.Guards, "check_rollouts", "guards"),
        (guards.Guards, "check_weights", "guards"),
        (LiveGroupsTrainer, "training_step", "updates"),
    ]
    store = copied(source, folder)
    for owner, name, kind in functions:
        patch.object(owner, name, timed(kind, getattr(owner, name))).start()
    try:
        run_cell(cell, store.uri, lambda _: None)
    finally:
        patch.stopall()
    return spent["guards"] / spent["updates"]


def copied(source: Store, folder: Path) -> Store:
    """A storage with the probes and subsets of another one, without cells."""
    for kind in ("probes", "subsets"):
        shutil.copytree(source.local_path(kind), folder / kind)
    return Store(str(folder))


if __name__ == "__main__":
    main()
