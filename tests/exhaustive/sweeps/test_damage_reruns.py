"""Real sweeps whose files were damaged: the same command makes them again, with equal results."""

import shutil
from pathlib import Path

import pytest
from damaged_store import DAMAGES
from sweeps import evaluations, experiments, groups, plan_of, probed, run, same_results, store_of

from orchestrator.pipeline.audit import Audit, audit
from orchestrator.storage.store import Store
from orchestrator.storage.verification import local_files
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.trial import run_cell


def audited(store: Store) -> Audit:
    return audit(store, lambda *_: None)


def one(store: Store, pattern: str) -> Path:
    return sorted(Path(store.root).glob(pattern))[0]


def test_a_rerun_makes_damaged_and_foreign_files_again(
    finished: Path, local_ray: Path, tmp_path: Path
) -> None:
    file = experiments(tmp_path)
    shutil.copytree(finished.parent / "runs", tmp_path / "runs", dirs_exist_ok=True)
    store, (hard, random) = store_of(file), plan_of(file).cells
    cells = Path(store.path("cells"))
    subset = f"subsets/{hard.subset_key}.parquet"
    flip, cut = DAMAGES["bit in the middle"], DAMAGES["cut in half"]
    damaged = {
        f"cells/{hard.cell_id}/evaluations.parquet": flip,
        f"cells/{random.cell_id}/result.json": lambda file, _: shutil.copy(
            cells / hard.cell_id / "result.json", file
        ),
        subset: lambda file, _: shutil.copy(file.with_name(f"{random.subset_key}.parquet"), file),
        f"probes/{hard.probe.key}/{one(store, f'probes/{hard.probe.key}/*.parquet').name}": cut,
        "sweeps/small.json": cut,
    }
    for path, damage in damaged.items():
        damage(Path(store.path(path)), Path())
    text = run(file, here=True)
    for path in damaged:
        assert f"{path} " in text and Path(store.path(f"{path}.unsound")).is_file()
    assert "Traceback" not in text
    assert same_results(file, finished)
    assert audited(store).unsound == []

    before = {path: path.stat().st_mtime_ns for path in cells.glob("*/result.json")}
    flip(one(store, f"probes/{hard.baseline.key}/*.parquet"), Path())
    assert "to draw" in run(file, here=True), "a probe of finished cells is completed, too"
    assert audited(store).unsound == []
    assert before == {path: path.stat().st_mtime_ns for path in cells.glob("*/result.json")}
    assert "nothing to do" in run(file, here=True)


class Killed(BaseException):
    """Ends a trial in place of a signal."""


@pytest.fixture(scope="module")
def interrupted(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep whose first cell was killed after update 7, with the checkpoints 4 and 6."""
    file = probed(finished, tmp_path_factory.mktemp("interrupted"))

    def report(values: dict) -> None:
        if values.get("update") == 7:
            raise Killed

    cell, store = plan_of(file).cells[0], store_of(file)
    with pytest.raises(Killed):
        run_cell(cell, store.uri, report)
    assert CellFolder(store, cell.cell_id).checkpoints() == [4, 6]
    return file


@pytest.mark.parametrize(
    ("name", "damage"),
    [("rng_state.pth", "swapped"), ("optimizer.pt", "vouched for")],
)
def test_a_cell_resumes_from_the_checkpoint_before_a_damaged_one(
    interrupted: Path, finished: Path, tmp_path: Path, name: str, damage: str
) -> None:
    """Found by the manifest or by torch; test_damage.py has each damage of each file."""
    file = experiments(tmp_path)
    shutil.copytree(interrupted.parent / "runs", tmp_path / "runs", dirs_exist_ok=True)
    cell, store = plan_of(file).cells[0], store_of(file)
    folder = Path(store.path("cells", cell.cell_id))
    if damage == "vouched for":
        (folder / "checkpoint-6" / name).write_bytes(b"nothing that torch can load")
        place = ("cells", cell.cell_id, "checkpoint-6", "decile.json")
        files = local_files(folder / "checkpoint-6")
        del files["decile.json"]
        store.write_json(store.read_json(*place), *place, files=files)
    else:
        DAMAGES[damage](folder / "checkpoint-6" / name, folder / "checkpoint-4" / name)
    if damage == "swapped":  # both are foreign now; only the newer one shall be
        shutil.copy(
            interrupted.parent / "runs" / folder.relative_to(store.root) / "checkpoint-4" / name,
            folder / "checkpoint-4",
        )
    reports: list[dict] = []
    run_cell(cell, store.uri, reports.append)
    assert [report["update"] for report in reports if "update" in report] == [*range(5, 13)]
    calm = store_of(finished)
    assert groups(store, cell.cell_id) == groups(calm, cell.cell_id)
    assert evaluations(store, cell.cell_id) == evaluations(calm, cell.cell_id)
    assert audited(store).unsound == []
