"""Cells of a few updates that are killed after one of their writes, and what a rerun makes of them.

What an undisturbed run writes is traced, so that a write which is added one day is a case, too.
"""

import os
import shutil
import signal
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from chaos.proxy import flaky_proxy
from grpo import rated_pool
from s3_server import bucket
from sweeps import NAME, experiments
from write_steps import Ended, Host, Kill

from orchestrator.config.catalog import load_config
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import make_plan
from orchestrator.planning.pools import load_pool
from orchestrator.probing.probe import ProbeActor
from orchestrator.selection.stored import store_subset
from orchestrator.storage.store import Store
from orchestrator.storage.verification import is_stored
from orchestrator.training.cell_folder import CellFolder, CellState
from orchestrator.training.deferred_eval import AdapterEngine, CheckpointActor
from orchestrator.training.record import copy_result_from, finish_trained, tidy_finished
from orchestrator.training.trial import run_cell

UPDATES = 3
VARYING = ("timing", "ledger", "finished_at", "final", "base")  # seconds; the rest is in tables


@dataclass(frozen=True)
class Scenario:
    """A cell of three updates of one prompt each, and what is done with it.

    prompts: in its subset, which are an epoch. steps: what is called, one after the other, as the
    driver and its trials do. bucket: its storage is an object store.
    """

    name: str
    prompts: int = 16
    workers: int = 1
    bucket: bool = False
    steps: tuple[str, ...] = ("train",)
    settings: dict[str, Any] = field(default_factory=dict)

    def cell(self, folder: Path) -> Cell:
        grpo = {
            "max_steps": UPDATES,
            "num_generations": 2 * self.workers,
            "per_device_train_batch_size": 2,
            "max_completion_length": 8,
            "learning_rate": 1e-3,
            "save_steps": 1,
        }
        evaluate = {"every": 2, "samples": 1, "max_completion_length": 8}
        blocks = {
            "budget": self.prompts,
            "grpo": grpo,
            "evaluate": evaluate | self.settings.get("evaluate", {}),
            "resources": {"cpus": 1, "workers": self.workers},
        }
        file = experiments(folder, storage=str(folder / "runs"), **{**self.settings, **blocks})
        return make_plan(load_config(file), NAME).cells[0]


DIVIDES = {"prompts": UPDATES}  # the updates are whole epochs
SCENARIOS = (
    Scenario("part of an epoch"),
    Scenario("whole epochs", **DIVIDES),
    Scenario("part of an epoch, two workers", workers=2),
    Scenario("whole epochs, two workers", workers=2, **DIVIDES),
    Scenario("part of an epoch, bucket", bucket=True),
    Scenario("whole epochs, bucket", bucket=True, **DIVIDES),
    Scenario("part of an epoch, two workers, bucket", workers=2, bucket=True),
    Scenario("whole epochs, two workers, bucket", workers=2, bucket=True, **DIVIDES),
    Scenario(
        "evaluated after training",
        steps=("train", "evaluate_and_finish"),
        settings={"evaluate": {"engine": "transformers"}},
    ),
    Scenario("as another cell", steps=("train", "copy")),
)


# --- In the processes that are killed ---


def prepare(cell_json: str, storage: str) -> None:
    """Store what a cell needs: the samples of its base model, and its subset."""
    cell, store = Cell.model_validate_json(cell_json), Store(storage)
    pool = load_pool(cell.probe.dataset)
    actor = ProbeActor([cell.baseline], storage, 1)
    requests = [(p, range(cell.baseline.settings.samples)) for p in pool.test]
    _, failure = actor.draw_part(requests)
    assert not failure, failure
    for each in (cell, second(cell)):
        store_subset(store, each, rated_pool(cell))


def perform(steps: str, cell_json: str, storage: str) -> None:
    """Call each of the steps, which are functions below, by its name."""
    cell, store = Cell.model_validate_json(cell_json), Store(storage)
    for step in steps.split():
        globals()[step](cell, store)
    finished = CellFolder(store, cell.cell_id).state(cell) is CellState.FINISHED
    if finished and os.environ.get("RANK", "0") == "0":
        tidy_finished(store, cell)  # as the driver does at the end


def second(cell: Cell) -> Cell:
    """The cell of another seed."""
    other = cell.model_copy(update={"seed": cell.seed + 1})
    return Cell.model_validate_json(other.model_dump_json())  # a copy keeps the computed id


def train(cell: Cell, store: Store) -> None:
    """What a trial does."""
    run_cell(cell, store.uri, lambda report: None)


def evaluate_and_finish(cell: Cell, store: Store) -> None:
    """What the driver and its actors do after training where an engine evaluates."""
    folder = CellFolder(store, cell.cell_id)
    if folder.state(cell) is not CellState.TRAINED:
        return
    engine = AdapterEngine(cell.baseline.model, "transformers", {}, 4)
    actor = CheckpointActor(engine, store.uri, 1)
    for update in folder.pending_updates(cell):
        actor.evaluate(cell, update)
    problem = finish_trained(store, cell)
    assert not problem, problem


def copy(cell: Cell, store: Store) -> None:
    """Finish a second cell with the files of the first."""
    other = second(cell)
    if CellFolder(store, other.cell_id).state(other) is not CellState.FINISHED:
        assert copy_result_from(store, other, cell)
    tidy_finished(store, other)


# --- In the process that kills them ---


@dataclass
class Outcome:
    """What a cell has stored in the end, as far as two runs of it must agree."""

    state: CellState
    files: list[str]
    result: dict[str, Any]
    tables: dict[str, pa.Table]

    @classmethod
    def of(cls, store: Store, cell: Cell) -> "Outcome":
        folder = CellFolder(store, cell.cell_id)
        state, finished = folder.state(cell), folder.finished()
        files = [file for file in store.sizes("cells") if is_stored(file)]
        if finished is None:
            return cls(state, files, {}, {})
        result = {k: v for k, v in finished.result.as_json().items() if k not in VARYING}
        tables = {k: v for k, v in finished.tables.items() if k != "log"}  # it holds seconds
        return cls(state, files, result, tables)

    def differences(self, other: "Outcome") -> list[str]:
        return [
            f"{name}: {getattr(self, name)} instead of {getattr(other, name)}"[:600]
            for name in ("state", "files", "result", "tables")
            if getattr(self, name) != getattr(other, name)
        ]


class KilledCell:
    """A scenario with its undisturbed outcome; `problems` kills it and runs it again."""

    def __init__(self, scenario: Scenario, host: Host, folder: Path, server: str = "") -> None:
        self.scenario, self.host, self.folder, self.server = scenario, host, folder, server
        folder.mkdir()
        self.cell = scenario.cell(folder)
        self.proxied: list[str] = []  # requests that changed the bucket, of the last run
        self.storage = self.new_storage()
        ended = self.run()
        assert not any(ended.codes), ended.output
        self.steps = [self.proxied] if scenario.bucket else ended.steps
        self.undisturbed = Outcome.of(Store(self.storage), self.cell)
        again = self.run()
        self.repeated = self.proxied if scenario.bucket else [s for own in again.steps for s in own]

    def kills(self) -> list[Kill]:
        """Every kill: which worker, after how many of its writes; several to a file are one."""
        return [
            (rank, step)
            for rank, own in enumerate(self.steps)
            for step, (write, following) in enumerate(zip(own, [*own[1:], ""], strict=True), 1)
            if write != following
        ]

    def problems(self, kill: Kill, *more: Kill) -> list[str]:
        """Kill a new execution there, and its reruns at `more`; then what the last rerun lacks."""
        self.storage = self.new_storage()
        for each in (kill, *more):
            self.run(each)
        where = self.steps[kill[0]][kill[1] - 1]
        problems = []
        ended = self.run()
        if any(ended.codes):
            problems.append(f"the rerun fails: {ended.output[-1500:]}")
        store = Store(self.storage)
        problems += Outcome.of(store, self.cell).differences(self.undisturbed)
        folder = CellFolder(store, self.cell.cell_id)
        problems += [f"{c.path} {c.problem}" for c in folder.check() if c.problem]
        problems += [f"{path} is left" for path in self.host.scratch.rglob("checkpoint-*")]
        return [f"{self.scenario.name}, {kill} after {where}: {problem}" for problem in problems]

    def run(self, kill: Kill | None = None) -> Ended:
        """Perform the steps of the scenario."""
        if not self.scenario.bucket:
            return self._perform(self.storage, kill=kill)
        pids: list[int] = []
        self.proxied = []

        def changed(request: str) -> None:
            self.proxied.append(request)
            if kill and len(self.proxied) == kill[1]:
                with suppress(ProcessLookupError):
                    os.kill(pids[0], signal.SIGKILL)  # the first worker writes nearly all

        with flaky_proxy(f"http://{self.server}", changed=changed) as (proxy, _):
            quoted, own = (each.replace(":", "%3A") for each in (self.server, proxy[7:]))
            return self._perform(self.storage.replace(quoted, own), started=pids.extend)

    def _perform(self, storage: str, **options: Any) -> Ended:
        return self.host.run(
            "killed_cells:perform",
            " ".join(self.scenario.steps),
            self.cell.model_dump_json(),
            storage,
            root=self.folder / "runs",
            workers=self.scenario.workers,
            **options,
        )

    def new_storage(self) -> str:
        """A storage with the samples and the subset, which are drawn once."""
        base, place = self.folder / "prepared", self.folder / "runs"
        if not base.exists():
            arguments = (self.cell.model_dump_json(), str(base))
            ended = self.host.run("killed_cells:prepare", *arguments, root=base)
            assert not any(ended.codes), ended.output
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(base, place)
        if not self.scenario.bucket:
            return str(place)
        storage = bucket(self.server, f"cell-{uuid.uuid4().hex}")  # also of others at once
        store = Store(storage)
        for name in ("probes", "subsets"):
            store.copy_in(place / name, name)
        return storage
