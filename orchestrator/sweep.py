"""Cells -> Ray Tune. The store decides what is owed; only that is given to a fresh Tuner.

A cell of one worker is a Tune function trainable; one of several starts a Ray Train group inside
its trial. A trial that dies is tried again and goes on from its last whole checkpoint.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from cluster.resources import trials_at_once
from cluster.session import quiet_logs
from orchestrator.blocks import Resources
from orchestrator.cells import Cell
from orchestrator.micro_batch import halvings
from orchestrator.store import Store
from orchestrator.trial import is_finished, run_cell

RETRIES = 3

OnUpdate = Callable[[Cell, dict[str, Any]], None]
OnEnd = Callable[[Cell, str | None], None]  # the reason of a failure, None where it finished


def run_cells(
    cells: list[Cell],
    store: Store,
    cluster: Mapping[str, float],
    on_update: OnUpdate,
    on_end: OnEnd,
) -> None:
    """Run the cells that have no result yet, as many at once as fit; returns when all ended."""
    owed = [cell for cell in cells if not is_finished(store, cell)]
    if not owed:
        return
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # MLflow is our only view
    from ray import tune

    quiet_logs()
    resources = owed[0].resources
    at_once = trials_at_once(cluster, resources.cpus, resources.gpus, resources.workers)
    with tempfile.TemporaryDirectory(prefix="decile-tune-") as scratch:
        tune.Tuner(
            tune.with_resources(trainable, _bundles(resources)),
            param_space={
                "cell": tune.grid_search([cell.model_dump(mode="json") for cell in owed]),
                "storage": store.uri,
            },
            tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=at_once),
            run_config=tune.RunConfig(
                name="cells",
                storage_path=scratch,
                failure_config=tune.FailureConfig(max_failures=_tries(owed)),
                callbacks=[_callback(owed, on_update, on_end)],
                verbose=0,
            ),
        ).fit()


def _tries(cells: list[Cell]) -> int:
    """Failures that end a trial: beside what happens, each smaller micro-batch is one."""
    return RETRIES + max(halvings(cell) for cell in cells)


def _bundles(resources: Resources) -> Any:
    """What Tune reserves for a trial; the workers of a Ray Train group reserve their own."""
    from ray import tune

    if resources.workers > 1:
        return {"memory": 2**20}  # Tune refuses a trial that asks for nothing
    bundle = {"CPU": resources.cpus, "GPU": resources.gpus}
    return tune.PlacementGroupFactory([{k: v for k, v in bundle.items() if v}])


def trainable(config: dict[str, Any]) -> None:
    """One Tune trial: the cell in this process, or as a Ray Train group."""
    cell = Cell.model_validate(config["cell"])
    if cell.resources.workers > 1:
        _run_group(cell, config["storage"])
        return
    from ray import tune

    run_cell(cell, config["storage"], tune.report)


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
            train_loop_config={"cell": cell.model_dump(mode="json"), "storage": storage},
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

    run_cell(Cell.model_validate(config["cell"]), config["storage"], ray.train.report)


def _callback(cells: list[Cell], on_update: OnUpdate, on_end: OnEnd) -> Any:
    from ray.tune import Callback

    by_id = {cell.cell_id: cell for cell in cells}

    class Watch(Callback):
        """Hands what trials report to the driver's views."""

        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
        ) -> None:
            if "update" in result:
                on_update(self._cell(trial), result)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            on_end(self._cell(trial), None)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            on_end(self._cell(trial), _last_line(str(trial.get_error() or "")))

        def _cell(self, trial: Any) -> Cell:
            return by_id[Cell.model_validate(trial.config["cell"]).cell_id]

    return Watch()


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
