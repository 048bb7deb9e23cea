"""A cell that is killed after any of its writes is finished by a rerun, with the same results.

`make chaos` kills after every write of every scenario; here, after some from the manifest of the
last checkpoint on, where a cell has everything but its result.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from killed_cells import SCENARIOS, UPDATES, KilledCell, Outcome
from s3_server import s3_server
from write_steps import Host, Kill, available, host

from orchestrator.storage.store import Store
from orchestrator.storage.verification import local_files
from orchestrator.training.cell_folder import LEDGER, TABLES, CellFolder
from orchestrator.training.record import CellRecord

pytestmark = pytest.mark.slow

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def bucket_server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, bucket_server: str) -> Iterator[Host]:
    """A host whose environment has the keys of the server."""
    if not available():
        pytest.skip("a library that counts writes cannot be compiled and loaded here")
    with host(tmp_path_factory.mktemp("host")) as running:
        yield running


def kills_from(cell: KilledCell, manifest: str, count: int) -> list[Kill]:
    """`count` kills of the first worker, evenly from the first after a manifest is stored."""
    stored = [n for n, step in enumerate(cell.steps[0], 1) if manifest in step]
    later = [kill for kill in cell.kills() if kill[0] == 0 and kill[1] >= stored[0]]
    complete = next(
        number
        for number, (_, step) in enumerate(later)
        if cell.steps[0][step - 1].startswith(("rename", "POST")) and step in stored
    )
    later = later[complete:]
    return [later[number * (len(later) - 1) // max(1, count - 1)] for number in range(count)]


@pytest.mark.parametrize(
    ("name", "update", "count"),
    [
        ("part of an epoch", UPDATES, 5),
        ("whole epochs", UPDATES, 1),
        ("part of an epoch, two workers", UPDATES, 2),
        ("part of an epoch, bucket", UPDATES, 1),
        ("evaluated after training", UPDATES, 2),
        ("stopped early", 2, 2),
        ("as another cell", UPDATES, 2),
    ],
)
def test_a_rerun_finishes_a_killed_cell_with_the_same_results(
    processes: Host, bucket_server: str, tmp_path: Path, name: str, update: int, count: int
) -> None:
    cell = KilledCell(BY_NAME[name], processes, tmp_path / "cell", bucket_server)
    kills = kills_from(cell, f"checkpoint-{update}/decile.json", count)
    assert [problem for kill in kills for problem in cell.problems(kill)] == []
    assert {step.rpartition("/")[2] for step in cell.repeated} <= {".lock"}


@pytest.mark.parametrize(("left", "trains"), [((3, 4), False), ((4, 5), True)])
def test_checkpoints_beyond_the_updates_of_a_cell_are_set_aside(
    processes: Host, tmp_path: Path, left: tuple[int, int], trains: bool
) -> None:
    """Versions that trained on after a kill left them, and deleted those that the cell needs."""
    cell = KilledCell(BY_NAME["part of an epoch"], processes, tmp_path / "cell")
    [kill] = kills_from(cell, f"checkpoint-{UPDATES}/decile.json", 1)
    cell.storage = cell.new_storage()
    assert cell.run(kill).killed()
    store = Store(cell.storage)
    folder = CellFolder(store, cell.cell.cell_id)
    last = folder.checkpoint(UPDATES)
    assert last is not None
    for update in left:
        if update > UPDATES:
            add_checkpoint(store, folder, CellRecord.of(last), update)
    for update in {*folder.checkpoints()} - {*left}:
        store.delete_folder(folder.checkpoint_place(update))
    assert folder.checkpoints() == [*left]

    ended = cell.run()
    assert ended.codes == [0], ended.output
    assert any("checkpoint-1/" in step for step in ended.steps[0]) is trains
    assert Outcome.of(store, cell.cell).differences(cell.undisturbed) == []


def add_checkpoint(store: Store, folder: CellFolder, record: CellRecord, update: int) -> None:
    """Copy the last checkpoint as that of a later update."""
    own = {f"{name}.parquet" for name in TABLES} | {LEDGER, "decile.json"}
    source, target = (store.local_path(folder.checkpoint_place(u)) for u in (UPDATES, update))
    for file in source.iterdir():
        if file.name not in own:
            shutil.copyfile(file, target / file.name)
    record.save(store, folder.cell_id, update, {}, local_files(target))
