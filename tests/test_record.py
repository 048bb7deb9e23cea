"""What a trial measured outlives a kill."""

from pathlib import Path

from factories import cell_record, small_plan

from orchestrator.record import finish, latest_checkpoint
from orchestrator.store import Store


def test_the_newest_whole_checkpoint_is_found_with_its_record(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard"])
    store, [cell] = Store(str(tmp_path / "runs")), plan.cells
    assert latest_checkpoint(store, cell.cell_id) is None
    record = cell_record(plan, cell)
    for update in (2, 10):
        record.save(store, cell.cell_id, update)
    found = latest_checkpoint(store, cell.cell_id)
    assert found is not None
    assert found[0].name == "checkpoint-10"
    assert found[1].tables() == record.tables()
    assert found[1].seconds == record.seconds


def test_a_torn_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard"])
    store, [cell] = Store(str(tmp_path / "runs")), plan.cells
    record = cell_record(plan, cell)
    for update in (2, 4, 6):
        record.save(store, cell.cell_id, update)
    folder = Path(store.path("cells", cell.cell_id))
    (folder / "checkpoint-6" / "decile.json").unlink()
    groups = folder / "checkpoint-4" / "groups.parquet"
    groups.write_bytes(groups.read_bytes()[:-9])
    found = latest_checkpoint(store, cell.cell_id)
    assert found is not None
    assert found[0].name == "checkpoint-2"


def test_finishing_writes_the_result_and_drops_checkpoints(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, policies=["hard"])
    store, [cell] = Store(str(tmp_path / "runs")), plan.cells
    record = cell_record(plan, cell)
    record.save(store, cell.cell_id, 2)
    finish(store, cell, record, {"torch": "1"})
    result = store.read_json("cells", cell.cell_id, "result.json")
    assert result["gain"] == result["accuracy_final"] - result["accuracy_base"]
    assert result["versions"] == {"torch": "1"}
    assert store.folders("cells", cell.cell_id) == []
    groups = record.groups.rows
    assert result["ledger"]["rollouts"] == sum(len(g["rewards"]) for g in groups)
    assert result["ledger"]["generated_tokens"] == sum(sum(g["tokens"]) for g in groups)
