"""Records of cells: saved with each checkpoint, and kept when a process is killed."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from factories import cell_record, marked_rollout, small_plan
from safetensors.torch import save_file
from transformers import TrainerState

from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.storage.verification import local_files
from orchestrator.training.cell_folder import CellFolder, Checkpoint
from orchestrator.training.record import CellRecord, finish, model_card, timing
from orchestrator.training.trial import resumable_checkpoint


def one_cell(folder: Path, **settings: object) -> tuple[Store, Cell, CellRecord]:
    """A store, the only cell of a small plan, and its record."""
    plan = small_plan(folder, policies=["hard"], **settings)
    [cell] = plan.cells
    return Store(str(folder / "runs")), cell, cell_record(plan, cell)


def latest(store: Store, cell: Cell) -> Checkpoint:
    checkpoint = CellFolder(store, cell.cell_id).latest()
    assert checkpoint is not None
    return checkpoint


def test_the_newest_complete_checkpoint_is_loaded_with_its_record(tmp_path: Path) -> None:
    store, cell, record = one_cell(tmp_path)
    assert CellFolder(store, cell.cell_id).latest() is None
    for update in (2, 10):
        record.save(store, cell.cell_id, update)
    assert latest(store, cell).update == 10
    saved = CellRecord.of(latest(store, cell))
    assert saved.tables() == record.tables()
    assert saved.seconds == record.seconds
    assert saved.has_evaluation(4) and not saved.has_evaluation(5)
    saved.groups.add(5, [marked_rollout("correct", 1.0)] * 2, 2)
    assert len(saved.groups.rows) == len(record.groups.rows) + 1


def test_a_copy_of_a_checkpoint_under_a_name_of_the_users_is_not_one(tmp_path: Path) -> None:
    store, cell, record = one_cell(tmp_path)
    record.save(store, cell.cell_id, 2)
    folder = Path(store.path("cells", cell.cell_id))
    for name in ("checkpoint-4.bak", "checkpoint-old"):
        shutil.copytree(folder / "checkpoint-2", folder / name)
    assert latest(store, cell).update == 2


def test_what_a_manifest_does_not_list_is_set_aside_and_its_checkpoint_used(
    tmp_path: Path,
) -> None:
    store, cell, record = one_cell(tmp_path)
    for update in (2, 4):
        record.save(store, cell.cell_id, update)
    folder = Path(store.path("cells", cell.cell_id))
    os.mkfifo(folder / "checkpoint-4" / "scaler.pt")
    (folder / "checkpoint-4" / "adapter_model.bin").symlink_to("../checkpoint-2/log.parquet")
    (folder / "checkpoint-4" / "optimizer.bin").write_text("of another run")
    (folder / "checkpoint-6").symlink_to("checkpoint-2")
    newest = latest(store, cell)
    assert newest.update == 4 and CellRecord.of(newest).tables() == record.tables()
    left = {path.name for path in (folder / "checkpoint-4").iterdir()}
    assert not left & {"scaler.pt", "adapter_model.bin", "optimizer.bin"}
    assert len(list(folder.rglob("*.unsound"))) == 3
    assert (folder / "checkpoint-2" / "log.parquet").is_file()


def test_a_link_in_place_of_a_file_of_a_checkpoint_is_not_followed(tmp_path: Path) -> None:
    store, cell, record = one_cell(tmp_path)
    for update in (2, 4):
        record.save(store, cell.cell_id, update)
    groups = Path(store.path("cells", cell.cell_id, "checkpoint-4", "groups.parquet"))
    groups.rename(tmp_path / "elsewhere")
    groups.symlink_to(tmp_path / "elsewhere")
    assert latest(store, cell).update == 2
    assert (tmp_path / "elsewhere").is_file()


def vouched_checkpoint(store: Store, cell: Cell, record: CellRecord, update: int) -> Path:
    """A checkpoint with files as the trainer writes them; returns its folder."""
    folder = store.local_path("cells", cell.cell_id, f"checkpoint-{update}")
    weights = [torch.nn.Parameter(torch.ones(3))]
    optimizer = torch.optim.AdamW(weights)
    weights[0].sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    torch.save({"last_epoch": update}, folder / "scheduler.pt")
    state = {"numpy": np.random.get_state(), "cpu": torch.get_rng_state(), "python": (3, (1,))}
    for rank in (0, 1):
        torch.save(state, folder / f"rng_state_{rank}.pth")
    save_file({"lora": torch.ones(2)}, folder / "adapter_model.safetensors")
    TrainerState(global_step=update).save_to_json(str(folder / "trainer_state.json"))
    record.save(store, cell.cell_id, update, files=local_files(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("optimizer.pt", b"no pickle"),
        ("optimizer.pt", b""),
        ("scheduler.pt", b"\x80\x02cos\nsystem\n(S'true'\ntR."),
        ("rng_state_1.pth", b"PK\x03\x04 no archive"),
        ("adapter_model.safetensors", b"\xff" * 20),
        ("trainer_state.json", b'{"of_another_version": 1}'),
        ("adapter_config.json", b"{"),
    ],
)
def test_a_checkpoint_whose_files_are_listed_and_cannot_be_loaded_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes
) -> None:
    store, cell, record = one_cell(tmp_path)
    for update in (2, 4):
        folder = vouched_checkpoint(store, cell, record, update)
    folder_of_cell = CellFolder(store, cell.cell_id)
    newest = resumable_checkpoint(folder_of_cell)
    assert newest is not None and newest.update == 4
    (folder / name).write_bytes(content)
    record.save(store, cell.cell_id, 4, files=local_files(folder))
    assert latest(store, cell).update == 4, "its manifest vouches for it"

    newest = resumable_checkpoint(folder_of_cell)
    assert newest is not None and newest.update == 2
    assert f"checkpoint-4/{name} cannot be loaded (" in caplog.text
    assert (folder / f"{name}.unsound").read_bytes() == content
    assert latest(store, cell).update == 2
    (folder.parent / "checkpoint-2" / name).write_bytes(content)
    record.save(store, cell.cell_id, 2, files=local_files(folder.parent / "checkpoint-2"))
    assert resumable_checkpoint(folder_of_cell) is None, "it starts over"


@pytest.mark.slow
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 9 bytes")])
def test_a_lack_of_memory_is_not_the_fault_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store, cell, record = one_cell(tmp_path)
    vouched_checkpoint(store, cell, record, 4)

    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(type(error)):
        resumable_checkpoint(CellFolder(store, cell.cell_id))
    assert latest(store, cell).update == 4


def test_a_finished_cell_has_a_readme_of_its_own(tmp_path: Path) -> None:
    store, cell, record = one_cell(tmp_path)
    finish(store, cell, record, {"torch": "1"})
    readme = store.read_bytes("cells", cell.cell_id, "README.md").decode()
    assert readme.startswith("# stub/small/hard/s0\n")
    assert "`stub`" in readme and "`hard` selected (training seed 0" in readme
    result = store.read_json("cells", cell.cell_id, "result.json")
    assert f"{result['accuracy_base']:.3f} → {result['accuracy_final']:.3f}" in readme
    assert cell.cell_id in readme and "None" not in readme
    assert "| versions | torch 1, rollouts decile |" in readme
    assert f'from_pretrained("{cell.probe.model.location}")' in readme
    on_hub = replace(cell.probe.model, location="org/model", revision="abc")
    probe = cell.probe.model_copy(update={"model": on_hub})
    stored = CellFolder(store, cell.cell_id).result()
    assert stored is not None
    card = model_card(cell.model_copy(update={"probe": probe}), stored)
    assert '"org/model", revision="abc"' in card and "org/model @ abc" in card


def test_finishing_writes_the_result_and_drops_checkpoints_only(tmp_path: Path) -> None:
    store, cell, record = one_cell(tmp_path)
    store.write_json({}, "cells", cell.cell_id, "adapter", "adapter_config.json")
    record.save(store, cell.cell_id, 2)
    finish(store, cell, record, {"torch": "1"})
    result = store.read_json("cells", cell.cell_id, "result.json")
    assert result["gain"] == result["accuracy_final"] - result["accuracy_base"]
    assert result["versions"] == {"torch": "1", "rollouts": "decile"}
    assert (result["cell_id"], result["policy"]) == (cell.cell_id, "hard")
    assert store.folders("cells", cell.cell_id) == ["adapter"]
    for name, table in record.tables().items():
        assert store.read_table(table.schema, "cells", cell.cell_id, f"{name}.parquet") == table
    assert store.read_json("cells", cell.cell_id, "ledger.json") == result["ledger"]
    groups = record.groups.rows
    assert result["ledger"]["rollouts"] == sum(len(g["rewards"]) for g in groups)
    assert result["ledger"]["generated_tokens"] == sum(sum(g["tokens"]) for g in groups)


def test_every_evaluation_of_trained_weights_counts_for_estimates(tmp_path: Path) -> None:
    """One after each of four updates; that of the base model is the probe's."""
    _, cell, record = one_cell(tmp_path, evaluate={"every": 1, "samples": 2})
    record.start_seconds, record.evaluation_seconds, record.peak_gib = 2.5, 7.25, 1.5
    assert timing(record) == {
        "start_seconds": 2.5,
        "evaluation_seconds": 7.25,
        "evaluations": 4,
        "answers": 4 * 12 * 2,
        "answer_tokens": 4 * 12 * 2 * 20,
        "decode_steps": 4 * 20,
        "peak_gib": 1.5,
    }
    record.peaks_gib["update"] = 1.25
    assert timing(record)["peaks_gib"] == {"update": 1.25}
    untrained = record.evaluations.filter(pc.equal(record.evaluations["update"], 0))
    early = timing(CellRecord(evaluations=untrained))
    assert (early["evaluations"], early["answers"], early["answer_tokens"]) == (0, 0, 0)


def dies_writing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make writing the file of that name fail, as a kill just before would."""
    write = Store.write_bytes

    def failing(self: Store, data: bytes, *path: str) -> None:
        if path[-1].endswith(name):
            raise OSError("killed")
        write(self, data, *path)

    monkeypatch.setattr(Store, "write_bytes", failing)


@pytest.mark.parametrize(
    "name", ["groups.parquet", "evaluations.parquet", "log.parquet", "decile.json"]
)
@pytest.mark.parametrize("damage", ["torn", "absent", "foreign"])
def test_a_checkpoint_of_which_a_file_is_damaged_is_skipped_for_the_one_before(
    tmp_path: Path, name: str, damage: str
) -> None:
    store, cell, record = one_cell(tmp_path)
    for update in (2, 4):
        record.save(store, cell.cell_id, update)
    file = Path(store.path("cells", cell.cell_id, "checkpoint-4", name))
    if damage == "torn":
        file.write_bytes(file.read_bytes()[:-20])
    elif damage == "absent":
        file.unlink()
    else:
        other = "log.parquet" if name == "groups.parquet" else "groups.parquet"
        file.write_bytes((file.parent / other).read_bytes())
    assert latest(store, cell).update == 2
    (file.parents[1] / "checkpoint-2" / "decile.json").unlink()
    assert CellFolder(store, cell.cell_id).latest() is None, "it starts over"


@pytest.mark.parametrize("at", ["groups.parquet", "log.parquet", "decile.json"])
def test_a_kill_while_saving_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    store, cell, record = one_cell(tmp_path)
    record.save(store, cell.cell_id, 2)
    dies_writing(monkeypatch, at)
    with pytest.raises(OSError, match="killed"):
        record.save(store, cell.cell_id, 4)
    assert latest(store, cell).update == 2


@pytest.mark.parametrize("at", ["evaluations.parquet", "ledger.json", "result.json"])
def test_a_kill_while_finishing_keeps_the_checkpoint_and_shows_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    store, cell, record = one_cell(tmp_path)
    record.save(store, cell.cell_id, 4)
    dies_writing(monkeypatch, at)
    with pytest.raises(OSError, match="killed"):
        finish(store, cell, record, {})
    assert store.read_json("cells", cell.cell_id, "result.json") is None
    assert CellRecord.of(latest(store, cell)).tables() == record.tables()


def test_a_checkpoint_contains_the_running_ledger(tmp_path: Path) -> None:
    store, cell, record = one_cell(tmp_path)
    record.save(store, cell.cell_id, 2)
    assert store.read_json("cells", cell.cell_id, "checkpoint-2", "ledger.json") is None
    record.save(store, cell.cell_id, 4, record.running_ledger(cell, cell.size))
    usage = store.read_json("cells", cell.cell_id, "checkpoint-4", "ledger.json")
    assert usage == record.ledger(cell, cell.size)
    assert CellRecord.of(latest(store, cell)).running_ledger(cell, cell.size) == usage
    finish(store, cell, record, {})
    assert store.read_json("cells", cell.cell_id, "ledger.json") == usage
