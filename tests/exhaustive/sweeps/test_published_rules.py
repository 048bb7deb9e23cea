"""Published selection rules choose what a few plain lines of each rule choose."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grpo import Killed, learned, rated_pool
from sweeps import plan_of, probed, store_of

from benchmarks.local_cluster import environment
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.planning.cells import Cell
from orchestrator.selection.stored import store_subset
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.trial import run_cell

KILLED_AT = """
import os, signal, sys
from orchestrator.planning.cells import Cell
from orchestrator.training.trial import run_cell

def report(values):
    if values.get("update") == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

run_cell(Cell.model_validate_json(open(sys.argv[1]).read()), sys.argv[2], report)
"""


def kill_after_3(values: dict[str, Any]) -> None:
    if values.get("update") == 3:
        raise Killed


@pytest.mark.parametrize("name", ["adarft", "sec", "greso"])
def test_a_cell_killed_between_checkpoints_ends_as_an_undisturbed_one(
    finished: Path, tmp_path: Path, name: str
) -> None:
    """It ends after update 3 of 4, of which every second is saved; of one rule by SIGKILL."""
    file, runs = tmp_path / "cell.json", []
    for folder in ("calm", "killed"):
        (tmp_path / folder).mkdir()
        experiment = probed(finished, tmp_path / folder)
        store, [first, *_] = store_of(experiment), plan_of(experiment).cells
        sizes = {"max_steps": 4, "per_device_train_batch_size": 8, "save_steps": 2}
        changes = {"online": PolicyEntry(policy=name), "static_policy": PolicyEntry(policy="full")}
        changes |= {"size": 64, "grpo": first.grpo | sizes, "evaluate_every": 2, "extra_evals": []}
        file.write_text(first.model_copy(update=changes).model_dump_json())
        cell = Cell.model_validate_json(file.read_text())  # a copy keeps the id
        store_subset(store, cell, rated_pool(cell))
        if folder == "killed" and name != "greso":
            with pytest.raises(Killed):
                run_cell(cell, store.uri, kill_after_3)
        elif folder == "killed":
            command = [sys.executable, "-c", KILLED_AT, str(file), store.uri, "3"]
            child = subprocess.run(command, env=environment(), capture_output=True, text=True)
            assert child.returncode == -signal.SIGKILL, child.stderr
        if folder == "killed":
            assert CellFolder(store, cell.cell_id).checkpoints() == [2]
        run_cell(cell, store.uri, lambda _: None)
        runs.append(learned(store, cell))
    assert {*runs[0]["groups"]["update"].to_pylist()} == {*range(1, 5)}
    assert {*runs[0]["evaluations"]["update"].to_pylist()} == {0, 2, 4}
    assert runs[0] == runs[1]
