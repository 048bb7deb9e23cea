"""`decile select`: a subset from a stored probe or difficulty table, without any sweep."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.difficulty import difficulty
from orchestrator.lines import UserError
from orchestrator.schema import SAMPLES
from orchestrator.store import Store
from orchestrator.subsets import select, with_reason
from tasks import OUTCOMES


def select_file(probe: Path, policy: str, budget: str, seed: int, out: Path) -> dict[str, Any]:
    """Choose from `probe` (a probe's folder, a Parquet of samples, or a difficulty table).

    Writes the subset to `out` and returns why it is what it is. Raises UserError or PolicyError.
    """
    if out.is_dir() or any(folder.is_file() for folder in out.parents):
        raise UserError(f"--out {out}: is no place for a file: write a new file's name")
    table = _difficulty(probe)
    chosen, why = select(table, policy, _size(budget, table.num_rows), seed)
    why["source"] = str(probe)
    Store(str(out.parent)).write_table(with_reason(chosen, why), out.name)
    return why


def _difficulty(probe: Path) -> pa.Table:
    files = sorted(probe.glob("*.parquet")) if probe.is_dir() else [probe]
    if not files or not all(file.is_file() for file in files):
        raise UserError(f"{probe}: no probe is there: write a probe's folder or a Parquet file")
    try:
        table = pa.concat_tables([pq.read_table(file) for file in files])
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{probe}: cannot be read: {error}") from error
    if "pass_rate" in table.column_names and "prompt_id" in table.column_names:
        return _as_difficulty(probe, table)
    if not set(SAMPLES.names[:2]) | {"outcome"} <= set(table.column_names):
        raise UserError(f"{probe}: needs the columns prompt_id and pass_rate, or a probe's samples")
    if unknown := set(table["outcome"].to_pylist()) - set(OUTCOMES):
        raise UserError(f"{probe}: outcome {unknown.pop()!r}: write one of {', '.join(OUTCOMES)}")
    return difficulty(table.group_by(["prompt_id", "sample"]).aggregate([("outcome", "min")])
                      .rename_columns(["prompt_id", "sample", "outcome"]))  # fmt: skip


def _as_difficulty(probe: Path, table: pa.Table) -> pa.Table:
    """A table of the user's own, with its pass rates as numbers and a tier for every row."""
    kind = table["pass_rate"].type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise UserError(f"{probe}: pass_rate holds {kind}: write numbers from 0 to 1")
    if "tier" in table.column_names:
        return table
    return table.append_column("tier", pa.array([""] * table.num_rows, pa.string()))


def _size(budget: str, pool: int) -> int:
    """`0.1` is a share of the pool, `80` a count."""
    try:
        return int(budget) if budget.isdigit() else int(float(budget) * pool + 1e-9)
    except (ValueError, OverflowError) as error:
        raise UserError(f"--budget {budget}: write a share (0.1) or a count (80)") from error
