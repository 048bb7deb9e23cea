"""Cells -> Ray Tune. The store determines which cells are missing; a new Tuner runs only those.

A cell with one worker is a Tune function trainable; a cell with several starts a Ray Train group
inside its trial. A trial that dies is retried and resumes from its last complete checkpoint.
Deterministic errors are not retried.
"""

import ctypes
import gc
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from cluster.ray_internals import (
    forget_metrics,
    keep_credentials_from_trials,
    limited_waits,
    retry_trials_that_run_out_of_memory,
    worker_failures,
)
from cluster.session import RayFails, quiet_logs
from orchestrator.planning.cells import Cell
from orchestrator.plugins.counts import counted
from orchestrator.probing.samples import MarkingError
from orchestrator.storage.errors import StoreError
from orchestrator.storage.locks import scratch_folder
from orchestrator.storage.store import Store
from orchestrator.training.activity import ActivityReport, Report, UpdateReport
from orchestrator.training.hangs import GRACE, GroupWatch
from orchestrator.training.micro_batch import SmallerBatch
from orchestrator.training.trial import run_cell

RETRIES = 3  # not counting attempts with a smaller micro-batch
DETERMINISTIC = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    NotImplementedError,
    MarkingError,
)
TRANSIENT = (OSError, pa.ArrowException)  # as errors or their causes


class SameAgain(RuntimeError):
    """A cell failed and would fail again in the same way; the message is for the user."""


# Trains one cell in this process: (cell, storage, report).
Train = Callable[[Cell, str, Report], None]


class CellSource(Protocol):
    """Provides cells to run, and is notified of their progress."""

    def next(self) -> Cell | None:
        """The next cell to start; None when there are no more."""

    def waits(self) -> bool:
        """Whether to ask for the next cell later, while others run."""

    def updated(self, cell: Cell, report: UpdateReport | ActivityReport) -> None:
        """A trial reported an update or its current activity."""

    def retried(self, cell: Cell, error: str) -> None:
        """A trial failed and starts again; `error` is the traceback."""

    def ended(self, cell: Cell, error: str | None) -> None:
        """A trial ended, with the reason, or the traceback, if it failed permanently."""


class Driver:
    """The source and the cells of running trials, for Tune's callbacks in this process.

    Tune pickles its searcher and callbacks to restore a run, which Decile does not use: copies are
    empty.
    """

    def __init__(self, source: CellSource | None = None, cells: int = 0) -> None:
        self.source: Any = source
        self.running: dict[str, Cell] = {}  # by trial id
        self.waiting = cells  # number of cells that have not started

    def __reduce__(self) -> tuple[type["Driver"], tuple[()]]:
        return Driver, ()


def run_cells(
    source: CellSource, cells: Sequence[Cell], at_once: int, store: Store, train: Train = run_cell
) -> None:
    """Run the cells that `source` provides until they end, at most `at_once` at a time.

    Tune asks for the next cell when resources are free, so that cells start in the source's order.
    With a grid given at the start, Tune would not keep the order when it reuses processes.

    Raises RayFails if Tune returns before all cells have ended.
    """
    if not cells:
        return
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # MLflow is the only view
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")  # no snapshots of all trials
    from ray import tune

    quiet_logs()
    # Tune would log a traceback for every failure of a trial; the callback handles it instead.
    logging.getLogger("ray.tune.execution.tune_controller").setLevel(logging.CRITICAL)
    keep_credentials_from_trials()
    retry_trials_that_run_out_of_memory()
    driver = Driver(source, len(cells))
    with scratch_folder("decile-tune-") as scratch:
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
                storage_path=str(scratch),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                callbacks=[_callback(driver)],
                verbose=0,
                progress_reporter=tune.CLIReporter(),  # the one for notebooks clears the output
            ),
        ).fit()
    if unfinished := driver.waiting + len(driver.running):  # such as after a signal to Tune
        raise RayFails(
            f"Ray Tune ended before {unfinished} of {counted(len(cells), 'cell')}; "
            "rerun the same command to resume"
        )


def _bundles(config: Mapping[str, str]) -> Any:
    """Tune's reservation for a trial; workers of a Ray Train group reserve their own resources."""
    from ray import tune

    resources = Cell.model_validate_json(config["cell"]).resources
    if resources.workers > 1:
        return tune.PlacementGroupFactory([{"memory": 2**20}])  # Tune refuses an empty one
    bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
    return tune.PlacementGroupFactory([{k: v for k, v in bundle.items() if v}])


def _searcher(driver: Driver) -> Any:
    """The source as Tune's search algorithm."""
    from ray.tune.search import Searcher

    class QueueSearcher(Searcher):
        """Suggests the next cell of the queue as the next configuration."""

        def suggest(self, trial_id: str) -> Any:
            if driver.source.waits():
                return None
            cell = driver.source.next()
            driver.waiting = 0 if cell is None else driver.waiting - 1
            if cell is None:
                return Searcher.FINISHED
            driver.running[trial_id] = cell
            return {"cell": cell.model_dump_json()}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            """The callback notifies the source."""

        def save(self, checkpoint_path: str) -> None:
            """Nothing to save: missing cells are determined from the store."""

        def restore(self, checkpoint_path: str) -> None:
            """Never called: a sweep resumes from the store."""

    return QueueSearcher()


def trainable(config: Mapping[str, str], train: Train) -> None:
    """One Tune trial: the cell in this process, or as a Ray Train group."""
    from ray import tune

    cell = Cell.model_validate_json(config["cell"])
    try:
        if cell.resources.workers > 1:
            _run_group(cell, config["storage"])
        else:
            with deterministic_errors():
                train(cell, config["storage"], _as_json(tune.report))
    except SameAgain as error:
        # Tune retries on any exception of a trial, so the trial reports the error and ends.
        tune.report({"failure": str(error)})
    except SmallerBatch:
        tune.report({"smaller_batch": True})
        raise
    finally:
        _free_memory()


def _free_memory() -> None:
    """Free a cell's memory, since the next one runs in the same process, in a different thread.

    A trainer and its model refer to each other. Also, glibc keeps memory freed by a thread in the
    thread's arena, which added 4 GB for each cell of 135 million parameters.
    """
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # not on macOS
        trim(0)


@contextmanager
def deterministic_errors() -> Iterator[None]:
    """Raise SameAgain for a deterministic error, while its causes are still available."""
    try:
        yield
    except DETERMINISTIC as error:
        if not is_deterministic(error):
            raise
        reason = " ".join(str(error).split())
        raise SameAgain(f"{type(error).__name__}: {reason}") from error


def is_deterministic(error: BaseException) -> bool:
    """Whether a cell would fail in the same way again: wrong values, not file or network errors."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (*TRANSIENT, StoreError)):
            return False
        cause = cause.__cause__ or cause.__context__
    return isinstance(error, DETERMINISTIC)


def _as_json(report: Callable[[dict[str, str]], None]) -> Report:
    """Send each report as one text: Tune keeps statistics of every number of every trial."""
    return lambda values: report({"report": json.dumps(values)})


def _run_group(cell: Cell, storage: str) -> None:
    """Train one cell with several Ray Train workers, one process (and GPU) each.

    Raises SameAgain or SmallerBatch if a worker did, and Hang if workers wait for each other. Hangs
    and other failures fail the trial, and Tune retries it. Ray Train itself would restart the
    workers after any exception.
    """
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    resources = cell.resources
    bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
    gpu = resources.gpus > 0
    limit = resources.timeout
    with scratch_folder("decile-train-") as scratch, limited_waits(limit, nccl=gpu):
        watch = GroupWatch(scratch, group_worker.__name__, limit, nccl=gpu)
        trainer = TorchTrainer(
            group_worker,
            train_loop_config={"cell": cell.model_dump_json(), "storage": storage},
            scaling_config=ray.train.ScalingConfig(
                num_workers=resources.workers,
                use_gpu=gpu,
                resources_per_worker={k: v for k, v in bundle.items() if v},
            ),
            torch_config=TorchConfig(timeout_s=limit + GRACE if gpu else limit),
            run_config=ray.train.RunConfig(
                name=cell.cell_id,
                storage_path=str(scratch),
                callbacks=[TuneReportCallback(), watch.callback],  # type: ignore[list-item]
                failure_config=ray.train.FailureConfig(max_failures=0),
            ),
        )
        try:
            trainer.fit()
        except ray.train.TrainingFailedError as error:
            for failure in worker_failures(error).values():
                if isinstance(failure, SameAgain | SmallerBatch):
                    raise failure from error
            if hang := watch.hang(error):
                raise hang from error
            raise


def group_worker(config: Mapping[str, str]) -> None:
    """One worker of a Ray Train group."""
    import ray.train

    cell = Cell.model_validate_json(config["cell"])
    with deterministic_errors():
        run_cell(cell, config["storage"], _as_json(ray.train.report))


def _last_failure(trial: Any) -> str:
    """The text of a trial's latest error; Tune appends each error to one file, with a heading."""
    try:
        text = Path(trial.error_file or "/").read_text()
    except OSError:  # a full disk
        text = str(trial.get_pickled_error() or "")
    return text.rpartition("Failure # ")[2].partition("\n")[2].strip() or "no reason given"


def _callback(driver: Driver) -> Any:
    from ray.tune import Callback

    failures: dict[str, str] = {}  # by trial id, for trials that reported an error

    class ReportCallback(Callback):
        """Passes on what trials report to the source."""

        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
        ) -> None:
            if "report" in result:
                report = json.loads(result["report"])
                driver.source.updated(driver.running[trial.trial_id], report)
            if "failure" in result:
                failures[trial.trial_id] = result["failure"]
            if "smaller_batch" in result:
                trial.max_failures += 1  # Tune also counts this attempt

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            cell = driver.running.pop(trial.trial_id)
            driver.source.ended(cell, failures.pop(trial.trial_id, None))
            forget_metrics(trial)

        def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            driver.source.retried(driver.running[trial.trial_id], _last_failure(trial))

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            driver.source.ended(driver.running.pop(trial.trial_id), _last_failure(trial))
            forget_metrics(trial)

    return ReportCallback()
