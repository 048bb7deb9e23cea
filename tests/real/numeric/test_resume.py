"""A cell that is killed goes on as an undisturbed one: the whole state of training is equal, bit
for bit, at a later checkpoint.
"""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from safetensors.torch import load_file as load_torch
from sweeps import NAME, experiments
from transformers.trainer_pt_utils import safe_globals
from write_steps import Host

from orchestrator.config.catalog import load_config
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import make_plan
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.trial import run_cell

LAST = 6  # updates of the cell, of which the last is never complete
TIMES = ("step_time", "train_runtime")
CELL = __name__


def cell_of(folder: Path, workers: int) -> Cell:
    """A cell whose learning rate changes with every update, and whose gradients are random."""
    grpo = {
        "max_steps": LAST,
        "num_generations": 4,
        "per_device_train_batch_size": 8 // workers,
        "max_completion_length": 12,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "cosine",
        "weight_decay": 0.1,
        "save_steps": 1,
        "scale_rewards": "group",
    }
    blocks = {
        "budget": 16,
        "grpo": grpo,
        "reward": "random",  # a reward of most groups differs
        "lora": {"r": 4, "lora_dropout": 0.2},
        "evaluate": {"every": LAST, "samples": 1, "max_completion_length": 8},
        "resources": {"cpus": 1, "workers": workers},
    }
    folder.mkdir(exist_ok=True)
    return make_plan(load_config(experiments(folder, **blocks)), NAME).cells[0]


def train(cell_json: str, storage: str, update: str) -> None:
    """Train until this update is reported, before its checkpoint, and die as of `kill -9`."""

    def report(values: dict[str, Any]) -> None:
        if values.get("update") == int(update):
            os.kill(os.getpid(), signal.SIGKILL)

    run_cell(Cell.model_validate_json(cell_json), storage, report)


def state(store: Store, cell: Cell, update: int) -> dict[str, Any]:
    """All that a checkpoint holds but seconds, in a form in which two of them can be compared."""
    folder = Path(store.path("cells", cell.cell_id, f"checkpoint-{update}"))
    content: dict[str, Any] = {}
    with safe_globals():
        for file in sorted([*folder.glob("*.pt"), *folder.glob("*.pth")]):
            content[file.name] = torch.load(file, weights_only=True)
    content["weights"] = load_torch(folder / "adapter_model.safetensors")
    content["trainer"] = json.loads((folder / "trainer_state.json").read_text())
    for line in content["trainer"]["log_history"]:
        for name in TIMES:
            line.pop(name, None)
    checkpoint = CellFolder(store, cell.cell_id).checkpoint(update)
    assert checkpoint is not None
    rows = checkpoint.tables["log"].to_pylist()
    content["log"] = [row for row in rows if row["name"] not in TIMES]
    content["tables"] = {k: v for k, v in checkpoint.tables.items() if k != "log"}
    return content


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two nested values differ, bit for bit."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [d for key in one for d in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}/{i}")]
    if isinstance(one, torch.Tensor):
        distance = 0 if torch.equal(one, other) else (one.double() - other.double()).abs().max()
        return [f"{where} differs by up to {distance:.2g}"] if distance else []
    equal = np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
    return [] if equal else [f"{where}: {one} instead of {other}"[:120]]


@pytest.mark.parametrize("workers", some([1, 2], 1))
def test_a_killed_cell_goes_on_with_the_state_of_an_undisturbed_one(
    processes: Host, tmp_path: Path, workers: int
) -> None:
    cell = cell_of(tmp_path / "file", workers)
    prepared = tmp_path / "prepared"
    processes.run("killed_cells:prepare", cell.model_dump_json(), str(prepared), root=prepared)

    def run(storage: Path, update: int) -> None:
        arguments = (cell.model_dump_json(), str(storage), str(update))
        ended = processes.run(f"{CELL}:train", *arguments, root=storage, workers=workers)
        assert ended.codes[0] == -signal.SIGKILL, ended.output

    states = []
    for kills in ([LAST], [3, LAST]):
        storage = tmp_path / f"runs-{len(kills)}"
        shutil.copytree(prepared, storage)
        for update in kills:
            run(storage, update)
        states.append(state(Store(str(storage)), cell, LAST - 1))
    undisturbed, resumed = states
    assert differences(resumed, undisturbed) == []

    names = {"optimizer.pt", "scheduler.pt", "weights", "trainer", "log", "tables"}
    names |= {f"rng_state_{n}.pth" for n in range(workers)} if workers > 1 else {"rng_state.pth"}
    assert undisturbed.keys() == names
    moments = undisturbed["optimizer.pt"]["state"]
    assert moments and all(each["step"] == LAST - 1 for each in moments.values())
    assert all(each["exp_avg_sq"].abs().sum() > 0 for each in moments.values())
    rates = {row["value"] for row in undisturbed["log"] if row["name"] == "learning_rate"}
    assert len(rates) == LAST - 1
    weights = undisturbed["weights"].items()
    assert min(value.abs().max() for name, value in weights if "lora_B" in name) > 0


def test_with_another_number_of_workers_a_cell_is_another_one(tmp_path: Path) -> None:
    """No checkpoint is read that lacks the generator of a worker; the limit of waits changes none.

    Transformers would only log that it is missing.
    """
    one, two = (cell_of(tmp_path / str(workers), workers) for workers in (1, 2))
    assert one.batch.completions == two.batch.completions, "the same rollouts per update"
    same = {"cell_id", "resources", "grpo"}
    fields = one.model_dump(exclude=same)
    assert fields == two.model_dump(exclude=same)
    alone = two.changed(resources=one.resources)
    assert alone.grpo == two.grpo and alone.cell_id != two.cell_id
    patient = two.resources.model_copy(update={"timeout": 1800})
    assert two.changed(resources=patient).cell_id == two.cell_id
