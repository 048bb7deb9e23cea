"""`decile doctor --storage` names what fails, and reports go on without it."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from damaged_store import example
from factories import cell_record, finished_cell, finished_sweep, small_plan

from orchestrator.cli.main import main
from orchestrator.pipeline.audit import audit, repair_plan
from orchestrator.pipeline.estimate import finished_results
from orchestrator.report.compare import policy_key, read_spreads
from orchestrator.report.rows import read_rows
from orchestrator.storage.errors import StoreError
from orchestrator.storage.locks import exclusive
from orchestrator.storage.store import Store
from orchestrator.tracking.views import read_view
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state
from orchestrator.training.record import tidy_finished


def test_files_without_a_proof_are_unsound(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path)
    files = [Path(store.path(name)) for name in store.sizes() if not name.startswith("probes/")]
    for file in files:
        if file.suffix == ".json":
            value = json.loads(file.read_text())
            value.pop("proof")
            file.write_text(json.dumps(value))
        elif file.suffix == ".parquet":
            pq.write_table(pq.read_table(file), file)
        else:
            file.write_text(file.read_text().partition("\n<!-- decile")[0])
    notes = f"cells/{plan.cells[0].cell_id}/notes"
    Path(store.path(notes)).write_text("mine")
    result = audit(store, lambda *_: None)
    assert {each.path for each in result.unsound} == {str(f.relative_to(store.root)) for f in files}
    assert result.unverified == [notes]
    assert [cell_state(store, c) for c in plan.cells] == [CellState.RUNNING] * 2


def test_what_a_kill_before_a_manifest_leaves_is_not_damaged(tmp_path: Path) -> None:
    """Whatever manifest was about to be written: of a cell, a checkpoint, an adapter."""
    store = example(tmp_path).store
    manifests = [name for name in store.sizes() if name.endswith(("/result.json", "/decile.json"))]
    assert len({Path(name).parts[2] for name in manifests}) >= 3
    for name in manifests:
        content = Path(store.path(name)).read_bytes()
        store.delete(name)
        assert audit(store, lambda *_: None).unsound == [], name
        Path(store.path(name)).write_bytes(content)


def test_doctor_names_unsound_files_and_sets_them_aside_without_deleting_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, store = finished_sweep(tmp_path)
    path = f"cells/{plan.cells[0].cell_id}/groups.parquet"
    torn = Path(store.path(path))
    torn.write_bytes(torn.read_bytes()[:-9])
    (torn.parent / ".log.parquet.0.tmp").write_text("")
    contents = sorted(file.read_bytes() for file in Path(store.root).rglob("*") if file.is_file())

    assert main(["doctor", "--storage", store.uri]) == 1
    text = capsys.readouterr().out
    assert f"FAIL  {path} has " in text
    assert "note  temporary files" in text and ".log.parquet.0.tmp" in text
    assert f"decile doctor --storage {store.uri} --repair" in text
    assert torn.exists(), "nothing is changed without --repair"
    assert main(["doctor", "--storage", store.uri, "--repair"]) == 1
    assert f"FAIL  {path} has " in capsys.readouterr().out
    assert main(["doctor", "--storage", store.uri]) == 0
    assert "note  set aside: 2" in capsys.readouterr().out
    left = sorted(file.read_bytes() for file in Path(store.root).rglob("*") if file.is_file())
    assert left == contents
    assert [cell_state(store, c) for c in plan.cells] == [CellState.RUNNING, CellState.FINISHED]


def test_a_cell_in_training_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, store = finished_sweep(tmp_path)
    folder = Path(store.path("cells", plan.cells[0].cell_id))
    (folder / "groups.parquet").unlink()
    with exclusive(folder):
        assert repair_plan(plan, store) == []
        assert main(["doctor", "--storage", store.uri]) == 0
    assert f"in training: cells/{folder.name}" in capsys.readouterr().out
    assert len(repair_plan(plan, store)) == 1


def test_doctor_refuses_a_folder_that_is_no_storage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--storage", str(tmp_path)]) == 2
    assert "holds no results" in capsys.readouterr().err
    assert main(["doctor", "--repair"]) == 2
    assert "--repair needs --storage" in capsys.readouterr().err


@pytest.mark.parametrize("change", [Path.unlink, lambda file: os.truncate(file, 9)])
def test_a_cell_without_a_file_that_its_result_lists_is_not_finished(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Also before a run has set its result aside."""
    plan, store = finished_sweep(tmp_path)
    first, second = plan.cells
    change(Path(store.path("cells", first.cell_id, "log.parquet")))
    assert [cell_state(store, c) for c in plan.cells] == [CellState.RUNNING, CellState.FINISHED]
    assert finished_results(plan, store).keys() == {second.cell_id}


def test_an_older_ledger_of_a_finished_cell_is_written_again(tmp_path: Path) -> None:
    """Its hash and its place are right; its hours are not those of the result."""
    plan, store = finished_sweep(tmp_path)
    [cell, _] = plan.cells
    place = f"cells/{cell.cell_id}/ledger.json"
    right = store.read_json(place)
    store.write_json(right | {"gpu_seconds": 1.0}, place)
    [line] = repair_plan(plan, store)
    assert line.startswith(f"{place} ") and not store.exists(place)
    assert cell_state(store, cell) is CellState.FINISHED
    tidy_finished(store, cell)
    assert store.read_json(place) == right and repair_plan(plan, store) == []


@pytest.mark.parametrize("name", ["result.json", "cell.json"])
def test_damaged_files_of_unrelated_cells_are_left_out_of_seed_spreads_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    _, store = finished_sweep(tmp_path, policies=["random"], seeds=range(8))
    plan, _ = finished_sweep(tmp_path, policies=["random"], seeds=[0])
    key = policy_key(plan.cells[0])
    spread = read_spreads(store, plan.cells)[key].accuracy
    assert spread is not None
    unrelated = [i for i in store.folders("cells") if i not in {c.cell_id for c in plan.cells}]
    torn, foreign = (Path(store.path("cells", cell_id, name)) for cell_id in unrelated[:2])
    foreign.write_bytes(torn.read_bytes())
    torn.write_bytes(torn.read_bytes()[:100])
    with caplog.at_level(logging.WARNING):
        fewer = read_spreads(store, plan.cells)[key].accuracy
    assert fewer is not None and fewer != spread
    names = [str(file.relative_to(store.root)) for file in (torn, foreign)]
    assert {message.split()[0] for message in caplog.messages} == {*names}
    assert any(all(name in message for name in names) for message in caplog.messages), "a copy"


def test_a_damaged_subset_is_neither_exported_nor_selected_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, store = finished_sweep(tmp_path)
    subset = tmp_path / "renamed.parquet"
    data = bytearray(Path(store.path(f"subsets/{plan.cells[0].subset_key}.parquet")).read_bytes())
    data[len(data) // 3] ^= 1
    subset.write_bytes(bytes(data))
    out = ["--out", str(tmp_path / "out.jsonl"), "--task", "shuffled_objects"]
    assert main(["export", "--subset", str(subset), "--layout", "jsonl", *out]) == 2
    assert f"{subset} " in capsys.readouterr().err
    select = ["select", "--policy", "hard", "--budget", "2", "--out", str(tmp_path / "s.parquet")]
    assert main([*select, "--probe", str(subset)]) == 2
    assert f"{subset}: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["groups", "evaluations", "log"])
def test_a_table_of_another_run_of_a_cell_is_used_by_no_reader(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own proof is valid: the cell was trained twice, with other results."""
    plan, store = finished_sweep(tmp_path, policies=["hard"])
    [cell] = plan.cells
    folder = Path(store.path("cells", cell.cell_id))
    file = folder / f"{name}.parquet"
    other = file.read_bytes()
    finished_cell(store, plan, cell, seed=9)
    assert repair_plan(plan, store) == [] and len(read_rows(store, plan.cells)) == 1
    test = plan.pool(cell.baseline).test
    assert read_view(store, cell, test).points

    file.write_bytes(other)
    assert read_rows(store, plan.cells) == []
    assert f"{name}.parquet " in caplog.text
    assert CellFolder(store, cell.cell_id).finished() is None
    with pytest.raises(StoreError, match=cell.cell_id):
        read_view(store, cell, test)
    unsound = [each.path for each in audit(store, lambda *_: None).unsound]
    assert unsound == [f"cells/{cell.cell_id}/{name}.parquet"]
    assert any(f"{name}.parquet" in line for line in repair_plan(plan, store))
    assert cell_state(store, cell) is CellState.RUNNING


def test_links_fifos_and_names_that_are_not_utf_8_are_named_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, store = finished_sweep(tmp_path)
    root, cell = Path(store.root), f"cells/{plan.cells[0].cell_id}"
    links = {"cells/best": plan.cells[0].cell_id, "cells/loop": ".", f"{cell}/up": ".."}
    links[f"{cell}/copy.parquet"] = "groups.parquet"
    for place, target in links.items():
        (root / place).symlink_to(target)
    os.mkfifo(root / cell / "pipe.json")
    for folder in ("cells", cell, "subsets"):
        Path(os.fsdecode(os.fsencode(root / folder) + b"/caf\xe9.json")).write_text("{}")
    strays = {*links, f"{cell}/pipe.json"}
    strays |= {rf"{folder}/caf\xe9.json" for folder in ("cells", cell, "subsets")}
    assert {each.split()[0] for each in audit(store, lambda *_: None).ignored} == strays
    before = sorted(root.rglob("*"))
    assert main(["doctor", "--storage", store.uri, "--repair"]) == 0
    text = capsys.readouterr().out
    assert "note  ignored: 8 (" in text and "cells: 14 files verified" in text
    assert repair_plan(plan, store) == []
    assert sorted(Path(store.root).rglob("*")) == before
    assert len(read_rows(store, plan.cells)) == 2


def test_a_cell_that_is_a_link_is_refused(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path)
    cell = Path(store.path("cells", plan.cells[0].cell_id))
    cell.rename(tmp_path / "elsewhere")
    cell.symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").iterdir())
    for use in (lambda: repair_plan(plan, store), lambda: read_rows(store, plan.cells)):
        with pytest.raises(StoreError, match=f"cells/{cell.name} is a link"):
            use()
    assert sorted((tmp_path / "elsewhere").iterdir()) == before


@pytest.mark.parametrize("name", ["groups_old.parquet", "adapter/README.md", "mine.json"])
def test_a_file_that_a_result_does_not_list_does_not_cost_the_result(
    tmp_path: Path, name: str
) -> None:
    plan, store = finished_sweep(tmp_path, policies=["hard"])
    folder = Path(store.path("cells", plan.cells[0].cell_id))
    (folder / name).parent.mkdir(exist_ok=True)
    shutil.copy(folder / "groups.parquet", folder / name)
    [line] = repair_plan(plan, store)
    assert line.startswith(f"cells/{folder.name}/{name} ")
    assert line.endswith(": set aside; nothing reads it")
    assert cell_state(store, plan.cells[0]) is CellState.FINISHED
    assert repair_plan(plan, store) == []


def test_links_in_a_cell_in_training_are_moved_out_of_the_trainers_way(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard"])
    store, [cell] = Store(str(tmp_path / "runs")), plan.cells
    for update in (2, 4):
        cell_record(plan, cell).save(store, cell.cell_id, update)
    folder = Path(store.path("cells", cell.cell_id))
    (folder / "checkpoint-6").symlink_to("checkpoint-2")
    (folder / "checkpoint-4" / "adapter_model.bin").symlink_to("../checkpoint-2/log.parquet")
    lines = repair_plan(plan, store)
    assert sorted(line.partition(f"{cell.cell_id}/")[2] for line in lines) == [
        "checkpoint-4/adapter_model.bin is a link: set aside; nothing reads it",
        "checkpoint-6 is a link: set aside; nothing reads it",
    ]
    assert not (folder / "checkpoint-6").is_symlink()
    assert CellFolder(store, cell.cell_id).checkpoints() == [2, 4]
    assert repair_plan(plan, store) == []
