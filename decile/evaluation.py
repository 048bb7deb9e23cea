"""A model, an adapter or a checkpoint on held-out questions, for `decile.compare`."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from decile.errors import as_user_error
from orchestrator.storage.local_files import check_output

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.pipeline.evaluate import EvaluatedModel


class Evaluation:
    """Marked answers to held-out questions. `decile.evaluate` and `Experiment.evaluate` return one.

    `decile.compare` takes it as an arm.
    """

    def __init__(self, evaluated: "EvaluatedModel") -> None:
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
        """Unused parts of the adapter's or checkpoint's folder, one sentence each."""
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
