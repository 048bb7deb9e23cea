"""`decile select`: a subset from difficulty tables in files, without a sweep or its probes."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.policy_entries import DifficultyEntry, PolicyEntry, difficulty_option
from orchestrator.difficulty.remedies import few_signals_of
from orchestrator.difficulty.sources import OF_AGREEMENT, by_agreement, with_ranks_of
from orchestrator.planning.score_file import rated_table, read_scores
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.selection.budgets import size_of
from orchestrator.selection.subsets import SubsetRequest, select, with_reason
from orchestrator.storage.addresses import why_no_storage
from orchestrator.storage.errors import StoreError, UserError
from orchestrator.storage.local_files import check_output, replace_file
from orchestrator.storage.proof import Unsound, read_parquet, table_bytes
from orchestrator.storage.schema import PROBE, SAMPLES, completed, split_of
from policies import labelled_rows
from tasks import TaskError
from tasks.sources.user_files import parquet_schema, reading_parquet

Files = Sequence[tuple[Path, pa.Table]]  # the tables that were read, each with the user's path
OWN_TABLE = (
    "select from the difficulty table that decile probe FILE -e NAME writes beside its page, or "
    "use the subset that it writes to the storage's subsets/"
)


class RankedTable(NamedTuple):
    """The prompts of a difficulty table that have a gold answer, and the subset to choose."""

    rated: pa.Table
    ranked: pa.Table  # the same prompts, with the difficulty that the policy ranks by
    request: SubsetRequest
    unlabelled: int  # prompts that are left out


def is_rated(columns: Sequence[str]) -> bool:
    """Whether a table with these columns has a pass rate by prompt, as a difficulty table does."""
    return {"prompt_id", "pass_rate"} <= {*columns}


def are_rated(files: Sequence[Path]) -> bool:
    """Whether each is a Parquet file with a pass rate by prompt; False if one cannot be read."""
    try:
        return all(is_rated(parquet_schema(file).names) for file in files)
    except (TaskError, OSError, ValueError):  # ValueError: an invalid file name
        return False


def select_file(
    probes: Sequence[str | Path],
    rule: PolicyEntry,
    budget: str,
    seed: int,
    out: str | Path,
    ranked_by: str = "gold",
) -> dict[str, Any]:
    """Select from a difficulty table; `probes` are its Parquet files: see `are_rated`.

    ranked_by: gold, agreement, or a file of difficulty by prompt. Writes the subset to `out` and
    returns its reason and the `row_counts` of the prompts. Raises UserError or PolicyError.
    """
    paths = [*map(Path, probes)]
    ranking = checked_ranking(ranked_by, paths, Path(out))
    tables = [(path, table) for path in paths for table in file_tables(path)]
    key = common_key(tables)
    rated = rated_table(paths[0], training_rows(tables))
    request = SubsetRequest(rule, size_of(budget, rated.num_rows), seed)
    return write_subset(ranked_table(paths[0], rated, request, ranking), paths, key, Path(out))


def checked_ranking(ranked_by: str, inputs: Sequence[Path], out: Path) -> DifficultyEntry | None:
    """The difficulty that the policy ranks by, if not its own pass rates.

    Raises UserError for a model's difficulty, or if the output cannot be written.
    """
    ranking = DifficultyEntry.of(difficulty_option(ranked_by))
    if ranking and ranking.model:
        raise UserError(
            f"--difficulty {ranked_by}: a model needs FILE -e NAME: write the difficulty "
            "table of that model's probe"
        )
    check_output(out, inputs=[*inputs, *([ranking.file] if ranking and ranking.file else [])])
    return ranking


def ranked_table(
    probe: Path, rated: pa.Table, request: SubsetRequest, ranking: DifficultyEntry | None
) -> RankedTable:
    """The prompts of a difficulty table to choose from. Raises UserError if there are none."""
    labelled = rated.filter(pa.array(labelled_rows(rated)))
    if not labelled.num_rows:
        raise UserError(
            f"{probe}: none of its prompts has a gold answer: write decile select FILE -e NAME "
            "--to-label FILE to have some labelled",
            "missing-gold-answers",
        )
    ranked = labelled
    if ranking:
        ranked, request = _ranked(probe, labelled, ranking, request)
    return RankedTable(labelled, ranked, request, rated.num_rows - labelled.num_rows)


def write_subset(
    table: RankedTable, source: Sequence[Path], key: str | None, out: Path
) -> dict[str, Any]:
    """Choose and write a subset; returns its reason and `row_counts`.

    source, key: the files that were read, and the key of their probe, if any. Raises UserError or
    PolicyError.
    """
    request = table.request
    own_table = None if table.ranked is table.rated else table.rated
    chosen, why = select(table.ranked, request, own_table)
    size = 1 if request.rule.build().takes_all else why["size"]
    if warning := few_signals_of(table.rated, size):
        why["notes"] = [*why.get("notes", []), warning]
    why |= {"source": [str(path) for path in source], "probe_key": key}
    if problem := why_no_storage(str(out.parent)):
        raise StoreError(f"storage {out.parent}: {problem}")
    replace_file(Path(os.path.expanduser(out)), table_bytes(with_reason(chosen, why), out.name))
    left_out = {
        "without a gold answer": table.unlabelled,
        f"not chosen by {request.rule.policy}": table.rated.num_rows - chosen.num_rows,
    }
    counts = RowCounts(table.unlabelled + table.rated.num_rows, left_out, chosen.num_rows)
    return why | {"row_counts": counts.to_dict()}


def training_rows(files: Files) -> pa.Table:
    """The rows of the training split of all tables. Raises UserError."""
    first = files[0][0]
    tables = [table.replace_schema_metadata(None) for table in _training_tables(files)]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise UserError(f"{first}: its tables cannot be merged: {error}") from error
    if not table.num_rows:
        raise UserError(f"{first} has no rows: write one row per prompt, or a probe's samples")
    if "prompt_id" in table.column_names and (missing := table["prompt_id"].null_count):
        rows = counted(missing, "row has no prompt_id", "rows have no prompt_id")
        raise UserError(f"{first}: {rows}: write one in every row")
    return table


def _ranked(
    probe: Path,
    rated: pa.Table,
    ranking: DifficultyEntry,
    request: SubsetRequest,
) -> tuple[pa.Table, SubsetRequest]:
    """The table with a different difficulty, and the request for its subset. Raises UserError."""
    if ranking.file:
        table = with_ranks_of(rated, read_scores(ranking.file))
        name = Path(ranking.file).name
        if table["pass_rate"].null_count == table.num_rows:
            raise UserError(f"{ranking.file}: has no pass rate of a prompt of {probe}: write some")
        return table, request._replace(samples=None, difficulty=name)
    known = [n for n in rated.column_names if rated[n].null_count < rated.num_rows]
    if missing := [name for name in OF_AGREEMENT if name not in known]:
        raise UserError(
            f"{probe}: agreement needs the column {missing[0]}: write a probe's folder, samples "
            "with the column extracted, or a table that decile probe writes"
        )
    return by_agreement(rated), request._replace(difficulty="agreement")


def file_tables(path: Path) -> Iterator[pa.Table]:
    """The table of a Parquet file, or those of the files in a folder. Raises UserError."""
    files = sorted(path.glob("*.parquet")) if os.path.isdir(path) else [path]
    if not files or not all(os.path.isfile(file) for file in files):
        raise UserError(
            f"{path}: no probe found: write a probe's folder or a Parquet file", "no-probe"
        )
    for file in files:
        try:
            with reading_parquet(file, "write a probe's folder or a Parquet file"):
                samples = completed(read_parquet(file), SAMPLES)
        except Unsound as error:
            raise UserError(f"{file}: {error}: write an intact file") from error
        except TaskError as error:
            raise UserError(str(error), "no-parquet") from error
        yield samples


def _key(table: pa.Table) -> str:
    return str((table.schema.metadata or {}).get(PROBE, b"").decode())


def common_key(
    files: Files, differences: Callable[[Path, Path], Sequence[str]] | None = None
) -> str | None:
    """The key that all tables share. Raises UserError with the difference if keys differ.

    differences: the settings that differ between two probe folders.
    """
    one, key = files[0][0], _key(files[0][1])
    for two, table in files:
        if _key(table) == key:
            continue
        reason = f"keys {key or 'none'} and {_key(table) or 'none'}"
        if differences and (settings := differences(one, two)):
            reason = "; ".join(settings)
        raise UserError(
            f"{one} and {two} are different probes and cannot be merged: {reason}: "
            "write paths of one probe",
            "different-probes",
        )
    return key or None


def _training_tables(files: Files) -> list[pa.Table]:
    """The tables of the training split, and tables that are not part of a probe.

    Raises UserError if training prompts cannot be distinguished from test questions.
    """
    train: list[pa.Table] = []
    test: list[pa.Table] = []
    for _, table in files:
        (test if split_of(table.schema) == "test" else train).append(table)
    if not train:
        raise UserError(
            f"{files[0][0]}: has only samples of the test split: write the probe of a training "
            "pool (decile plan FILE -e NAME --json lists the probes with key and split)",
            "test-split-only",
        )
    if test:
        questions = pa.concat_arrays([t["prompt_id"].combine_chunks() for t in test])
        shared = [t["prompt_id"].filter(pc.is_in(t["prompt_id"], questions)) for t in train]
        if both := {prompt_id for ids in shared for prompt_id in ids.to_pylist()}:
            raise UserError(
                f"{files[0][0]}: {counted(len(both), 'prompt is', 'prompts are')} "
                "both training prompts and test "
                f"questions of the datasets that share this probe: {OWN_TABLE}",
                "train-in-test",
            )
    return train
