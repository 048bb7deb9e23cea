"""A model, an adapter or a checkpoint on held-out questions, for `decile.compare`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from decile.errors import UserError, as_user_error
from orchestrator.pipeline.evaluate import EvaluatedModel, evaluate_model, plan_evaluation
from orchestrator.pipeline.own_data import planned_probe
from orchestrator.plugins.project_modules import add_project
from orchestrator.storage.store import Store, check_output

if TYPE_CHECKING:
    import pandas as pd

# Settings of the block `evaluate` that say when and what a sweep evaluates.
_OF_SWEEPS = ("every", "pass_at", "greedy", "ood", "ood_samples")


class Evaluation:
    """Marked answers to held-out questions. `decile.evaluate` and `Experiment.evaluate` return one.

    `decile.compare` takes it as an arm.
    """

    def __init__(self, evaluated: EvaluatedModel) -> None:
        self._evaluated = evaluated

    @property
    def accuracy(self) -> float:
        """The mean over the questions, a share."""
        return self._evaluated.accuracy.mean

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy, over the questions."""
        _, low, high, _ = self._evaluated.accuracy
        return low, high

    @property
    def notes(self) -> list[str]:
        """What of the adapter's or checkpoint's folder is not used, a sentence each."""
        return [*self._evaluated.evaluation.notes]

    @property
    def table(self) -> pa.Table:
        """A row per question and sample: prompt_id, sample, correct, outcome, completion, …."""
        return self._evaluated.table

    @as_user_error()
    def write(self, file: str | Path) -> Path:
        """Write the table as Parquet, for `decile compare`. Raises UserError."""
        check_output(file, [".parquet"])
        self._evaluated.write(Path(file))
        return Path(file)

    def to_pandas(self) -> "pd.DataFrame":
        """The table."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        return f"<Evaluation: {self._evaluated.summary()}>"


@as_user_error()
def evaluate(
    data: Any,
    model: str,
    *,
    adapter: str | Path | None = None,
    checkpoint: str | Path | None = None,
    samples: int = 4,
    test: Any = None,
    storage: str | Path = "./runs",
    wait: bool = False,
    **settings: Any,
) -> Evaluation:
    """Evaluate a model on the held-out questions of a file: draw and mark what is not stored.

    data, model, test, storage, wait: as of `decile.probe`; with the same data, no question is one
    that was probed. adapter: the folder of a LoRA adapter of PEFT. checkpoint: a folder with full
    weights in the Hub's layout. Both are sampled with the tokenizer and the chat template of
    `model`. samples: completions per question. settings: those of the data set, as of
    `decile.probe`, and others of the block `evaluate`: temperature, max_completion_length, seed,
    engine, engine_args, engine_python.

    Raises UserError for invalid input, before anything is sampled.
    """
    if unused := [name for name in _OF_SWEEPS if name in settings]:
        raise UserError(f"{unused[0]} is a setting of sweeps: leave it out")
    add_project([os.getcwd()])
    store = Store(storage)
    settings["samples"] = samples
    plan = planned_probe(data, model, test, settings, store, "evaluate")
    evaluation = plan_evaluation(plan, adapter=adapter, checkpoint=checkpoint)
    store.check_writable()
    return Evaluation(evaluate_model(plan, store, evaluation, wait=wait))
