"""Records of cells: saved with each checkpoint, and kept when a process is killed."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from factories import marked_rollout
from record_cases import latest, one_cell

from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.record import CellRecord, finish, model_card, timing


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
