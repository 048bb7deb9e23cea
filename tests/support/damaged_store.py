"""A store with every kind of file, and ways to damage one of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from factories import cell_record, evaluation, finished_cell, small_plan

from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.probing.probe_folder import ProbeFolder, write_key, write_part
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from orchestrator.storage.verification import local_files
from orchestrator.training.cell_folder import CellFolder
from orchestrator.training.micro_batch import shrink
from orchestrator.training.record import finish
from tasks import get_task

TRAINER_FILES = (
    "adapter_model.safetensors",
    "adapter_config.json",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "trainer_state.json",
)


class Example(NamedTuple):
    """Two finished cells, two in training, two trained; `deferred` evaluates after training."""

    plan: Plan
    deferred: Plan
    store: Store


def example(folder: Path) -> Example:
    """Write the store."""
    changes = {"policies": ["hard", "easy", "random"], "seeds": [0, 1], "updates": 6}
    engine = {"every": 2, "samples": 2, "engine": "transformers"}
    deferred = small_plan(folder, **changes, evaluate=engine)
    plan = small_plan(folder, **changes, evaluate={"every": 2, "samples": 2})
    store = Store(str(folder / "runs"))
    _probe(plan, store)
    for number, cell in enumerate(plan.cells):
        finished_cell(store, plan, cell, seed=number)  # subset, settings
        if cell.policy == "hard":
            _checkpoint(plan, store, cell, 6)
            adapter = CellFolder(store, cell.cell_id).keep_adapter(6, "adapter")
            finish(store, cell, cell_record(plan, cell, number), {}, adapter)
            continue
        for name in ("result.json", "ledger.json", "README.md"):
            store.delete("cells", cell.cell_id, name)
        for name in ("groups", "evaluations", "log"):
            store.delete("cells", cell.cell_id, f"{name}.parquet")
        if cell.policy == "easy":
            _in_training(plan, store, cell)
        else:
            _trained(plan, store, cell)
    for name in ("small", "other"):
        store.write_json({"experiment": name, "spent": {"seconds": 1.0}}, "sweeps", f"{name}.json")
    return Example(plan, deferred, store)


def _probe(plan: Plan, store: Store) -> None:
    """Two parts of each split, and the marks of another reading."""
    strict = get_task("shuffled_objects", marking="strict", **plan.probes[0].dataset.options)
    for spec in plan.probes:
        write_key(store, spec)
        prompts = plan.pool(spec).prompts(spec.split)
        for half in (prompts[::2], prompts[1::2]):
            fixed = {"tokens": 5, "finish": "stop", "outcome": "correct", "rule": "r"}
            fixed |= {"other_outcome": "correct", "other_rule": "r", "marker": spec.marker}
            rows = [
                fixed
                | {"prompt_id": p.prompt_id, "sample": i, "completion": rf"\boxed{{{p.answer}}}"}
                for p in half
                for i in range(spec.settings.samples)
            ]
            write_part(store, spec.key, spec.split, pa.Table.from_pylist(rows, schema=SAMPLES))
        [*ProbeFolder(store, spec, prompts, strict).rows(SAMPLES.names)]


def _checkpoint(
    plan: Plan, store: Store, cell: Cell, update: int, *, evaluated: bool = True
) -> None:
    """A complete checkpoint with files like the trainer's."""
    folder = store.local_path("cells", cell.cell_id, f"checkpoint-{update}")
    for name in TRAINER_FILES:
        text = f'{{"file": "{name}", "cell": "{cell.cell_id}", "update": {update}}}'
        (folder / name).write_text(text)
    record = cell_record(plan, cell)
    last = update if evaluated else 0
    record.evaluations = record.evaluations.filter(pc.field("update") <= last)
    record.save(
        store, cell.cell_id, update, record.running_ledger(cell, cell.size), local_files(folder)
    )


def _in_training(plan: Plan, store: Store, cell: Cell) -> None:
    for update in (2, 4):
        _checkpoint(plan, store, cell, update)
    shrink(cell, store, 8)


def _trained(plan: Plan, store: Store, cell: Cell) -> None:
    """After the updates 2, 4 and 6, of which 2 is evaluated."""
    for update in (2, 4, 6):
        _checkpoint(plan, store, cell, update, evaluated=False)
        CellFolder(store, cell.cell_id).keep_for_evaluation(update)
    table = evaluation(cell, plan.pool(cell.probe).test, 2, np.random.default_rng(0))
    place = ("cells", cell.cell_id, "evaluated")
    for update in (2, 4):  # of 4, the adapter is also there
        store.write_json({"seconds": 1.0 + update}, *place, f"{update}.json")
        store.write_table(table, *place, f"{update}.parquet")


class Kind(NamedTuple):
    """A kind of file: the path of one, and of a sibling."""

    name: str
    path: str
    sibling: str


def kinds(example: Example) -> Iterator[Kind]:
    """Every kind of file of the store."""
    plan, store = example.plan, example.store
    cells: dict[str, list[str]] = {}
    for cell in plan.cells:
        cells.setdefault(cell.policy, []).append(f"cells/{cell.cell_id}")
    specs = {spec.split: spec for spec in plan.probes}
    train, test = f"probes/{specs['train'].key}", f"probes/{specs['test'].key}"
    for split, place in (("train", train), ("test", test)):
        parts = [f"{place}/{n}" for n in store.names(place) if n.endswith(".parquet")]
        yield Kind(f"{split} part", parts[0], parts[1])
        [marks] = store.folders(place)
        names = store.names(place, marks)
        yield Kind(f"{split} marks", *(f"{place}/{marks}/{name}" for name in names[:2]))
    yield Kind("probe key", f"{train}/key.json", f"{test}/key.json")
    hard, other = (c for c in plan.cells if c.policy == "hard")
    yield Kind("subset", *(f"subsets/{cell.subset_key}.parquet" for cell in (hard, other)))
    for name in (
        *("result.json", "cell.json", "ledger.json", "README.md"),
        *("groups.parquet", "evaluations.parquet", "log.parquet"),
        *("adapter/adapter_model.safetensors", "adapter/adapter_config.json"),
    ):
        yield Kind(f"finished {name}", *(f"{cell}/{name}" for cell in cells["hard"]))
    tables = ("groups.parquet", "evaluations.parquet", "log.parquet", "ledger.json", "decile.json")
    for name in (*TRAINER_FILES, *tables):
        own = cells["easy"][0]
        yield Kind(f"checkpoint {name}", f"{own}/checkpoint-4/{name}", f"{own}/checkpoint-2/{name}")
    yield Kind("running micro_batch.json", *(f"{cell}/micro_batch.json" for cell in cells["easy"]))
    own = cells["random"][0]
    for name in (*TRAINER_FILES[:2], "decile.json"):
        yield Kind(f"kept {name}", f"{own}/adapters/6/{name}", f"{own}/adapters/2/{name}")
    for name in ("parquet", "json"):
        yield Kind(f"evaluated {name}", f"{own}/evaluated/4.{name}", f"{own}/evaluated/2.{name}")
    yield Kind("sweep", "sweeps/small.json", "sweeps/other.json")


def flip(at: float) -> Callable[[Path, Path], None]:
    """Change one bit of the byte at a share of the length."""

    def damage(file: Path, sibling: Path) -> None:
        data = bytearray(file.read_bytes())
        data[int(at * (len(data) - 1))] ^= 1
        file.write_bytes(bytes(data))

    return damage


def swap(file: Path, sibling: Path) -> None:
    """Exchange two files."""
    own = file.read_bytes()
    file.write_bytes(sibling.read_bytes())
    sibling.write_bytes(own)


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "cut in half": lambda file, _: (
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]) and None
    ),
    "last byte missing": lambda file, _: file.write_bytes(file.read_bytes()[:-1]) and None,
    "bit at the start": flip(0.0),
    "bit in the middle": flip(0.5),
    "bit near the end": flip(0.97),
    "zeros": lambda file, _: file.write_bytes(b"\0" * file.stat().st_size) and None,
    "appended": lambda file, _: file.write_bytes(file.read_bytes() + b" ") and None,
    "empty": lambda file, _: file.write_bytes(b"") and None,
    "deleted": lambda file, _: file.unlink(),
    "swapped": swap,
}
