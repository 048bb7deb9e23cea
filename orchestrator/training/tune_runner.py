"""Cells -> Ray Tune. The store decides what is owed; only that is given to a fresh Tuner.

A cell of one worker is a Tune function trainable; one of several starts a Ray Train group inside
its trial. A trial that dies is tried again and goes on from its last whole checkpoint.
"""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from cluster.session import quiet_logs
from orchestrator.planning.cells import Cell
from orchestrator.storage.store import Store
from orchestrator.training.micro_batch import halvings
from orchestrator.training.trial import Report, run_cell

RETRIES = 3

# Brings a cell to its result, in this process: (cell, storage, report).
Train = Callable[[Cell, str, Report], None]


class CellSource(Protocol):
    """Hands out cells, and hears what becomes of them."""

    def next(self) -> Cell | None:
        """The next cell to start; None where no other will ever start."""

    def updated(self, cell: Cell, report: dict[str, Any]) -> None:
        """A trial reported an update."""

    def ended(self, cell: Cell, error: str | None) -> None:
        """A trial ended, with the reason where it failed for good."""


class Driver:
    """A source and the cell of each trial, for what Tune calls back in this process.

    Tune pickles its searcher and callbacks for a restore that never comes here; a copy is empty.
    """

    def __init__(self, source: CellSource | None = None) -> None:
        self.source: Any = source
        self.handed: dict[str, Cell] = {}

    def __reduce__(self) -> tuple[type["Driver"], tuple[()]]:
        return Driver, ()


def run_cells(
    source: CellSource, cells: Sequence[Cell], at_once: int, store: Store, train: Train = run_cell
) -> None:
    """Run as many of these cells as `source` hands out, `at_once` of them, to their ends.

    Tune asks for a cell when there is a place for it: so they start in the source's order, which a
    grid that Tune knows from the start would not keep where processes are reused.
    """
    if not cells:
        return
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # MLflow is our only view
    from ray import tune

    quiet_logs()
    driver = Driver(source)
    with tempfile.TemporaryDirectory(prefix="decile-tune-") as scratch:
        tune.Tuner(
            tune.with_resources(partial(trainable, train=train), _bundles),
            param_space={"storage": store.uri},
            tune_config=tune.TuneConfig(
                reuse_actors=True,
                max_concurrent_trials=at_once,
                num_samples=len(cells),
                search_alg=_searcher(driver),
            ),
            run_config=tune.RunConfig(
                name="cells",
                storage_path=scratch,
                failure_config=tune.FailureConfig(max_failures=_tries(cells)),
                callbacks=[_callback(driver)],
                verbose=0,
            ),
        ).fit()


def _tries(cells: Sequence[Cell]) -> int:
    """Failures that end a trial: beside what happens, each smaller micro-batch is one."""
    return RETRIES + max(halvings(cell) for cell in cells)


def _bundles(config: dict[str, Any]) -> Any:
    """What Tune reserves for a trial; the workers of a Ray Train group reserve their own."""
    from ray import tune

    resources = Cell.model_validate_json(config["cell"]).resources
    if resources.workers > 1:
        return tune.PlacementGroupFactory([{"memory": 2**20}])  # Tune refuses an empty one
    bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
    return tune.PlacementGroupFactory([{k: v for k, v in bundle.items() if v}])


def _searcher(driver: Driver) -> Any:
    """A source as Tune's search algorithm."""
    from ray.tune.search import Searcher

    class QueueSearcher(Searcher):
        """Gives the next cell as the next configuration."""

        def suggest(self, trial_id: str) -> Any:
            cell = driver.source.next()
            if cell is None:
                return Searcher.FINISHED
            driver.handed[trial_id] = cell
            return {"cell": cell.model_dump_json()}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            """The callback tells it."""

        def save(self, checkpoint_path: str) -> None:
            """The store knows what is owed; nothing of a search outlives it."""

        def restore(self, checkpoint_path: str) -> None:
            """Never called: a sweep goes on from the store."""

    return QueueSearcher()


def trainable(config: dict[str, Any], train: Train) -> None:
    """One Tune trial: the cell in this process, or as a Ray Train group."""
    cell = Cell.model_validate_json(config["cell"])
    if cell.resources.workers > 1:
        _run_group(cell, config["storage"])
        return
    from ray import tune

    train(cell, config["storage"], _as_text(tune.report))


def _as_text(report: Callable[[dict[str, Any]], None]) -> Report:
    """Reports as one text each: Tune keeps statistics of every number of every trial."""

    def say(said: dict[str, Any]) -> None:
        report({"said": json.dumps(said)})

    return say


def _run_group(cell: Cell, storage: str) -> None:
    """Train one cell with several Ray Train workers, one process (and GPU) each."""
    import ray.train
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    resources = cell.resources
    bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
    with tempfile.TemporaryDirectory(prefix="decile-train-") as scratch:
        TorchTrainer(
            group_worker,
            train_loop_config={"cell": cell.model_dump_json(), "storage": storage},
            scaling_config=ray.train.ScalingConfig(
                num_workers=resources.workers,
                use_gpu=resources.gpus > 0,
                resources_per_worker={k: v for k, v in bundle.items() if v},
            ),
            run_config=ray.train.RunConfig(
                name=cell.cell_id,
                storage_path=scratch,
                callbacks=[TuneReportCallback()],  # type: ignore[list-item]
                failure_config=ray.train.FailureConfig(max_failures=_tries([cell])),
            ),
        ).fit()


def group_worker(config: dict[str, Any]) -> None:
    """One worker of a Ray Train group."""
    import ray.train

    cell = Cell.model_validate_json(config["cell"])
    run_cell(cell, config["storage"], _as_text(ray.train.report))


def _callback(driver: Driver) -> Any:
    from ray.tune import Callback

    class ReportCallback(Callback):
        """Tells the source what trials report."""

        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
        ) -> None:
            if "said" in result:
                said = json.loads(result["said"])
                driver.source.updated(driver.handed[trial.trial_id], said)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            driver.source.ended(driver.handed[trial.trial_id], None)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            error = _last_line(str(trial.get_error() or ""))
            driver.source.ended(driver.handed[trial.trial_id], error)

    return ReportCallback()


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
