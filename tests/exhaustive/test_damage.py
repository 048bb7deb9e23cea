"""Every kind of stored file, damaged in every way: named, set aside, never used, made again."""

import shutil
from pathlib import Path

import pytest
from damaged_store import DAMAGES, Example, Kind, example, kinds

from orchestrator.pipeline.audit import audit, check_unit, repair_plan, set_aside
from orchestrator.pipeline.estimate import finished_results
from orchestrator.pipeline.manifest import usage_meter
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import Cell
from orchestrator.probing.probe_folder import parts
from orchestrator.report.compare import read_spreads
from orchestrator.report.rows import read_rows
from orchestrator.selection.stored import read_subset
from orchestrator.storage.schema import EVALUATIONS, GROUPS, LOG, MARKED
from orchestrator.storage.store import Store
from orchestrator.storage.verification import Checked
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state
from orchestrator.training.record import tidy_finished

SCHEMAS = {"groups": GROUPS, "evaluations": EVALUATIONS, "log": LOG}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return example(tmp_path_factory.mktemp("intact"))


def cell_of(example: Example, path: str) -> Cell:
    return next(cell for cell in example.plan.cells if cell.cell_id in path)


def is_used(example: Example, store: Store, kind: Kind) -> bool:
    """Whether the function that reads a file of this kind returns what is in it."""
    path = kind.path
    match kind.name.split():
        case [_, "part"]:
            return path.split("/")[2] in {part.name for part in parts(store, path.split("/")[1])}
        case [_, "marks"]:
            return store.read_table(MARKED, path) is not None
        case ["subset"]:
            cell = next(c for c in example.plan.cells if c.subset_key in path)
            return read_subset(store, cell) is not None
        case ["checkpoint", _]:
            newest = CellFolder(store, cell_of(example, path).cell_id).latest()
            return newest is not None and newest.update == 4
        case ["kept", _]:
            return not CellFolder(store, cell_of(example, path).cell_id).adapter_problems(6)
        case ["evaluated", _]:
            return 4 in CellFolder(store, cell_of(example, path).cell_id).evaluations()
        case ["finished", "result.json"]:
            return CellFolder(store, cell_of(example, path).cell_id).result() is not None
        case ["finished", "cell.json"]:
            return CellFolder(store, cell_of(example, path).cell_id).settings() is not None
        case ["finished", name] if name.endswith(".parquet"):
            return store.read_table(SCHEMAS[Path(name).stem], path) is not None
        case ["finished", name] if not name.endswith(".json") or name.startswith("adapter/"):
            return False  # nothing reads it
        case _:
            return store.read_json(path) is not None


def read_everything(example: Example, store: Store) -> None:
    """What plan and report read; none of it may raise."""
    rows = read_rows(store, example.plan.cells)
    read_spreads(store, [row.cell for row in rows[:1]])
    finished_results(example.plan, store)
    usage_meter(example.plan.name, store)
    for cell in example.plan.cells:
        cell_state(store, cell)


def problems(store: Store, kind: Kind) -> list[Checked]:
    """What fails verification of the units of a file and its sibling."""
    units = {tuple(path.split("/")[:2]) for path in (kind.path, kind.sibling)}
    checked = [each for kind, name in sorted(units) for each in check_unit(store, (kind, name))]
    return [each for each in checked if each.problem]


@pytest.fixture(scope="module")
def copied(intact: Example, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copied") / "runs"
    return Path(shutil.copytree(intact.store.root, folder))


def contents(folder: Path) -> dict[Path, tuple[int, int]]:
    """The size and time of every file by its path in the folder."""
    files = {file: file.stat() for file in folder.rglob("*") if file.is_file()}
    return {f.relative_to(folder): (s.st_size, s.st_mtime_ns) for f, s in files.items()}


@pytest.fixture
def store(intact: Example, copied: Path) -> Store:
    """A copy of the intact store; what an earlier test has changed in it is restored."""
    original, now = contents(Path(intact.store.root)), contents(copied)
    for path in now.keys() - original.keys():
        (copied / path).unlink()
    for path in original:
        if now.get(path) != original[path]:
            (copied / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(intact.store.root) / path, copied / path)
    assert contents(copied) == original
    return Store(str(copied))


NAMES = [
    *(f"{split} {what}" for split in ("train", "test") for what in ("part", "marks")),
    *("probe key", "subset", "sweep"),
    *(
        f"finished {name}"
        for name in (
            *("result.json", "cell.json", "ledger.json", "README.md"),
            *("groups.parquet", "evaluations.parquet", "log.parquet"),
            *("adapter/adapter_model.safetensors", "adapter/adapter_config.json"),
        )
    ),
    *(
        f"checkpoint {name}"
        for name in (
            *("adapter_model.safetensors", "adapter_config.json", "optimizer.pt", "scheduler.pt"),
            *("rng_state.pth", "trainer_state.json", "decile.json", "ledger.json"),
            *("groups.parquet", "evaluations.parquet", "log.parquet"),
        )
    ),
    "running micro_batch.json",
    *(
        f"kept {name}"
        for name in ("adapter_model.safetensors", "adapter_config.json", "decile.json")
    ),
    *(f"evaluated {name}" for name in ("parquet", "json")),
]
# Files whose absence is no damage: they were never written, or are listed nowhere.
OPTIONAL = {"part", "marks", "key", "subset", "sweep", "parquet", "json", "result.json"}
OPTIONAL |= {"cell.json", "ledger.json", "README.md", "micro_batch.json", "decile.json"}


def test_the_table_covers_every_kind_of_file(intact: Example) -> None:
    assert [kind.name for kind in kinds(intact)] == sorted(
        NAMES, key=[kind.name for kind in kinds(intact)].index
    )
    assert len(NAMES) * len(DAMAGES) >= 300
    for kind in kinds(intact):
        assert is_used(intact, intact.store, kind) or kind.name.startswith("finished "), kind
    assert audit(intact.store, lambda *_: None).unsound == []
    assert repair_plan(intact.plan, intact.store) == []
    assert repair_plan(intact.deferred, intact.store) == []


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_named_set_aside_and_not_used(
    intact: Example, store: Store, name: str, damage: str
) -> None:
    [kind] = (kind for kind in kinds(intact) if kind.name == name)
    file, sibling = Path(store.path(kind.path)), Path(store.path(kind.sibling))
    DAMAGES[damage](file, sibling)
    damaged = file.read_bytes() if file.exists() else None
    read_everything(intact, store)
    unsound = problems(store, kind)
    absent = damage == "deleted" and name.split()[-1] in OPTIONAL
    absent &= name != "checkpoint ledger.json"  # which its manifest lists
    assert (kind.path in {checked.path for checked in unsound}) is not absent
    assert not is_used(intact, store, kind)

    lines = [*set_aside(store, unsound), *repair_plan(intact.deferred, store)]
    assert len({line.split(" ")[0] for line in lines}) == len(lines), "one line for each file"
    if damaged is not None:
        assert file.with_name(f"{file.name}.unsound").read_bytes() == damaged
    assert problems(store, kind) == []
    assert not is_used(intact, store, kind)
    check_what_is_missing(intact, store, kind)


def check_what_is_missing(intact: Example, store: Store, kind: Kind) -> None:
    """After the repair, the state of the store says that the work has to be done again."""
    plan = intact.plan
    match kind.name.split():
        case [split, "part"]:
            [spec] = (spec for spec in plan.probes if spec.split == split)
            assert Run.of(plan, store).folder(spec).missing()
        case ["finished", "cell.json" | "ledger.json" | "README.md"]:
            cell = cell_of(intact, kind.path)
            assert cell_state(store, cell) is CellState.FINISHED
            tidy_finished(store, cell)
            store.verify(kind.path)
        case ["finished", _]:
            assert cell_state(store, cell_of(intact, kind.path)) is CellState.RUNNING
        case ["kept", _]:
            cell = next(c for c in intact.deferred.cells if c.cell_id in kind.path)
            assert cell_state(store, cell) is CellState.RUNNING
            assert CellFolder(store, cell.cell_id).lost_updates(cell) == []
        case ["evaluated", _]:
            cell = next(c for c in intact.deferred.cells if c.cell_id in kind.path)
            assert cell_state(store, cell) is CellState.TRAINED
