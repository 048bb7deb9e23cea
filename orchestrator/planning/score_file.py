"""A file of difficulty by prompt: a difficulty table, or pass rates or scores by prompt_id."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.plugins.difficulty_table import DIFFICULTY
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.proof import read_parquet
from tasks.sources.files import read_file
from tasks.sources.roles import columns_in_role

if TYPE_CHECKING:
    from tasks.prompt_table import PromptTable


def read_scores(file: str | Path, *pools: "PromptTable") -> pa.Table:
    """The columns of DIFFICULTY that a Parquet, CSV or JSON Lines file has, a row per prompt.

    At least prompt_id and pass_rate. If pass_rate is missing, it is read from `score`, from 0 to 1,
    or from a column with another known name for solve rates. Raises UserError, TaskError or
    OSError, also if there is no prompt of a pool.
    """
    path, columns = Path(file).expanduser(), dict[str, Any]()
    if path.suffix == ".parquet":
        try:
            table = read_parquet(path)
        except (RuntimeError, pa.ArrowException) as error:
            raise UserError(f"{path}: {error}: write an intact Parquet file") from error
        columns = {name: table[name] for name in table.column_names}
    else:
        rows = read_file(path, ("prompt_id",)).rows
        names = {name for row in rows for name in row}
        columns = {name: [row.get(name) for row in rows] for name in names}
    rates = columns_in_role("rate", columns)
    if rates and not {"pass_rate", "score"} & {*columns}:
        columns["pass_rate"] = columns[rates[0]]
    columns = {name: columns[name] for name in DIFFICULTY.names if name in columns}
    if "prompt_id" not in columns or not {"pass_rate", "score"} & {*columns}:
        raise UserError(f"{path}: write the columns prompt_id, and pass_rate or score")
    for name, values in columns.items():
        kind = DIFFICULTY.field(name).type
        try:
            column = pa.array(values) if isinstance(values, list) else values
            columns[name] = column.cast(kind)  # a CSV has texts
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: column {name}: {reason:.80}: write {kind}") from error
    if columns["prompt_id"].null_count:
        raise UserError(f"{path}: a row has no prompt_id: write one in every row")
    table = rated_table(path, pa.table({"pass_rate": columns.get("score")} | columns))
    for pool in pools:
        if not (pool.rows_of(table["prompt_id"]) >= 0).any():
            raise UserError(
                f"{path}: has no prompt of the pool: write its prompt_ids, as in the table of "
                "decile probe"
            )
    return table


def rated_table(probe: Path | str, table: pa.Table) -> pa.Table:
    """A difficulty table, with a tier for every row. Raises UserError for invalid pass rates."""
    kind = table["pass_rate"].type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise UserError(f"{probe}: pass_rate contains {kind}: write numbers from 0 to 1")
    rates = table["pass_rate"]
    valid = pc.and_kleene(pc.greater_equal(rates, 0), pc.less_equal(rates, 1))  # null stays null
    if wrong := table.filter(pc.invert(valid)).select(["prompt_id", "pass_rate"]).to_pylist():
        rate, prompt_id = wrong[0]["pass_rate"], wrong[0]["prompt_id"]
        raise UserError(
            f"{probe}: pass_rate of prompt {shortened(prompt_id)} is {rate}: "
            "write a number from 0 to 1"
        )
    counts = table.group_by("prompt_id").aggregate([([], "count_all")])
    if repeated := counts.filter(pc.greater(counts["count_all"], 1))["prompt_id"].to_pylist():
        raise UserError(
            f"{probe}: prompt {shortened(repeated[0])} has several rows: write one row per prompt"
        )
    if "tier" not in table.column_names:
        table = table.append_column("tier", pa.array([""] * table.num_rows, pa.string()))
    return table
