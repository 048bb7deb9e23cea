"""Object storage: a real S3-compatible server on loopback, and a whole sweep in it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from factories import cell_record, finished_cell, sample_row, small_plan, store_samples
from s3_server import bucket, s3_server
from sweeps import evaluations, experiments, groups, plan_of, run, start, store_of, wait_for

from benchmarks.local_cluster import kill_all
from orchestrator.pipeline.audit import audit, set_aside
from orchestrator.probing.probe_folder import ProbeFolder, parts
from orchestrator.report.rows import read_rows
from orchestrator.selection.stored import read_subset
from orchestrator.storage.errors import StoreError
from orchestrator.storage.schema import LOG
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state
from orchestrator.training.trial import KEPT, Checkpoints

ROWS = pa.Table.from_pylist([{"update": 1, "name": "loss", "value": 0.5}], schema=LOG)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def storage(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a storage in a new bucket; scratch files are in the test's folder."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    return bucket(server, "decile-" + "".join(c for c in tmp_path.name if c.isalnum())[-40:])


def test_files_are_written_listed_renamed_and_deleted(storage: str) -> None:
    store = Store(storage)
    store.check_writable()
    store.write_table(ROWS, "a", "t.parquet")
    store.write_json({"x": 1}, "a", "j.json")
    assert store.read_table(LOG, "a", "t.parquet") == ROWS
    assert store.read_json("a", "j.json") == {"x": 1}
    assert (store.names("a"), store.folders()) == (["j.json", "t.parquet"], ["a"])
    assert store.names("none") == store.folders("none") == []
    assert not store.exists("a") and store.read_json("none.json") is None
    store.rename("k.json", "a", "j.json")
    store.rename("l.json", "a", "j.json")
    assert store.names("a") == ["k.json", "t.parquet"]
    for _ in range(2):
        store.delete("a", "k.json")
        store.delete_folder("a")
    assert store.names("a") == []


def test_a_missing_bucket_is_refused(storage: str) -> None:
    with pytest.raises(StoreError, match=r"decile-nowhere.* cannot be written"):
        Store(storage.replace("s3://decile-", "s3://decile-nowhere-")).check_writable()


def test_parts_of_a_probe_are_resumed_compacted_and_verified(storage: str, tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    spec, store = plan.cells[0].probe, Store(storage)
    pool = plan.pool(spec)
    prompts = pool.train[:4]

    def missing() -> int:
        return ProbeFolder(store, spec, prompts, pool.task).missing().samples

    names = [
        store_samples(store, spec, [sample_row(p.prompt_id, i) for p in prompts]) for i in range(3)
    ]
    assert missing() == 4
    data = store.read_bytes("probes", spec.key, names[0])
    store.write_bytes(data[:-9], "probes", spec.key, names[0])
    assert missing() == 8, "a torn part is resampled"
    store_samples(store, spec, [sample_row(p.prompt_id, i) for p in prompts for i in range(4)])
    ProbeFolder(store, spec, prompts, pool.task).compact()
    assert missing() == 0
    assert len([*parts(store, spec.key)]) == 1
    assert f"{names[0]}.unsound" in store.names("probes", spec.key)
    assert ProbeFolder(store, spec, prompts, pool.task).samples().num_rows == 16


def test_damaged_files_in_a_bucket_are_named_and_set_aside(storage: str, tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path), Store(storage)
    for cell in plan.cells:
        finished_cell(store, plan, cell)
        assert read_subset(store, cell) is not None
    assert [row.cell for row in read_rows(store, plan.cells)] == plan.cells
    first, second = (f"cells/{cell.cell_id}" for cell in plan.cells)
    torn = store.read_bytes(first, "log.parquet")[:-5]
    store.write_bytes(torn, first, "log.parquet")
    store.write_bytes(store.read_bytes(first, "result.json"), second, "result.json")
    result = audit(store, lambda *_: None)
    assert {each.path for each in result.unsound} == {
        f"{first}/log.parquet",
        f"{second}/result.json",
    }
    set_aside(store, result.unsound)
    assert audit(store, lambda *_: None).unsound == []
    assert store.read_bytes(first, "log.parquet.unsound") == torn
    states = [cell_state(store, cell) for cell in plan.cells]
    assert states == [CellState.RUNNING, CellState.RUNNING]


def write_checkpoint(place: Checkpoints, update: int, content: str) -> Path:
    """Write the files that a trainer writes for a checkpoint."""
    folder = place.folder / f"checkpoint-{update}"
    (folder / "deep").mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_text(content)
    (folder / "deep" / "state.json").write_text(content)
    return folder


def test_a_checkpoint_is_valid_only_with_its_manifest(storage: str, tmp_path: Path) -> None:
    plan, store = small_plan(tmp_path), Store(storage)
    cell = plan.cells[0]
    record = cell_record(plan, cell)
    place = Checkpoints(store, cell.cell_id)
    assert place.folder.is_relative_to(tmp_path / "scratch")
    for update in (2, 4, 6):
        write_checkpoint(place, update, f"after {update}")
        place.keep(update)
        if update < 6:  # then the process dies
            record.save(store, cell.cell_id, update, files=place.files(update))
            place.forget_old(update)
    latest = CellFolder(store, cell.cell_id).latest()
    assert latest and latest.update == 4

    elsewhere = Checkpoints(store, cell.cell_id, rank=1)  # another process, maybe on another node
    assert elsewhere.folder != place.folder
    restored = elsewhere.restored(latest.update)
    assert (restored / "deep" / "state.json").read_text() == "after 4"
    assert (restored / "adapter_model.safetensors").read_text() == "after 4"

    record.save(store, cell.cell_id, 6, files=place.files(6))
    place.forget_old(6)
    assert store.folders("cells", cell.cell_id) == ["checkpoint-4", "checkpoint-6"][-KEPT:]
    place.clear()
    assert list(place.folder.iterdir()) == []
    CellFolder(store, cell.cell_id).drop_checkpoints()
    assert CellFolder(store, cell.cell_id).latest() is None


def test_a_scratch_folder_of_another_user_is_refused(storage: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "scratch" / f"decile-{os.getuid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(StoreError, match="TMPDIR"):
        Checkpoints(Store(storage), "cell")


def test_a_killed_sweep_in_a_bucket_resumes_with_the_results_of_a_folder(
    storage: str, finished: Path, empty_database: Path, tmp_path: Path
) -> None:
    """Driver and all its processes die by SIGKILL in the second epoch of a cell.

    Its checkpoints are evaluated after training, from adapters that are fetched from the bucket.
    """
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]}
    evaluate = {"every": 6, "samples": 2, "greedy": True, "ood": ["far"], "engine": "transformers"}
    file = experiments(tmp_path, storage=storage, grid=grid, evaluate=evaluate)
    store, plan, calm = Store(storage), plan_of(file), store_of(finished)
    for folder in ("probes", "subsets"):  # sampling in a bucket is tried above
        store.copy_in(finished.parent / "runs" / folder, folder)
    tracking = f"sqlite:///{shutil.copyfile(empty_database, tmp_path / 'mlflow.db')}"
    log = tmp_path / "driver.log"
    driver = start(file, log, "--tracking-uri", tracking, RAY_TMPDIR="/tmp")

    def saved() -> list[str]:
        cells = [c.cell_id for c in plan.cells]
        return [c for c in cells if store.exists("cells", c, "checkpoint-6", "decile.json")]

    wait_for(saved, driver, log)
    kill_all([*psutil.Process(driver.pid).children(recursive=True), psutil.Process(driver.pid)])
    driver.wait()
    killed = saved()[0]
    assert not store.exists("cells", killed, "result.json")
    newest = CellFolder(store, killed).latest()
    assert newest is not None
    place = ("cells", killed, f"checkpoint-{newest.update}", "decile.json")
    opened = store.open_json(*place)
    assert opened is not None
    store.write_json(opened.value | {"seconds": 10_000.0}, *place, files=opened.files)
    shutil.rmtree(tmp_path / "scratch")  # the node is lost, too
    (tmp_path / "scratch").mkdir()

    text = run(file, "--tracking-uri", tracking, RAY_TMPDIR="/tmp")
    assert "for-tests" not in text + log.read_text(), "a key was printed"
    result = store.read_json("cells", killed, "result.json")
    assert result["ledger"]["seconds"] > 10_000, "it went on from its checkpoint"
    for cell in plan.cells:
        assert groups(store, cell.cell_id) == groups(calm, cell.cell_id)
        assert evaluations(store, cell.cell_id) == evaluations(calm, cell.cell_id)
        assert store.folders("cells", cell.cell_id) == ["adapter"]
        assert store.names("cells", cell.cell_id, "adapter") == [
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
    assert "evaluations: 2/2 checkpoints" in text
    assert not list((tmp_path / "scratch").rglob("checkpoint-*"))
    assert not list((tmp_path / "scratch").glob("decile-adapter-*"))
