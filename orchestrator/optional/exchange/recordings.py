"""Recorded runs of any trainer as `Recording`: logs that `diagnose` reads, and tables of rates."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.evaluation.recording import Recording, Visit
from orchestrator.evaluation.run_log import RunLog
from orchestrator.optional.exchange.run_logs import columns_in, first_value, read_logs
from orchestrator.planning.score_file import read_scores
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.storage.errors import UserError
from tasks import TaskError
from tasks.sources.files import SUFFIXES, is_json_lines, parse_json, read_file
from tasks.sources.roles import NEEDS
from tasks.sources.user_files import exists, parquet_schema, read_bytes, text_lines
from tasks.sources.values import (
    counts_of,
    is_missing,
    literal_of,
    number_of,
    share_of,
    truth_of,
    valid_count,
    value_text,
)

MOST_SAMPLES = 64  # the largest group whose size is inferred from rates
ROUNDED = 6e-4  # error of a rate with three decimals
PARTS = ("source", "tier")  # roles of columns by which a choice is broken down
_PROMPT, _VISIT, _RATE = NEEDS["replay"]

Row = Mapping[str, Any]


class _Cell(NamedTuple):
    """A cell of a table: the rate or the marks of a visit, and the row's number of samples."""

    prompt: str
    visit: int
    value: Any
    samples: int | None
    place: str


class _Mark(NamedTuple):
    """A row of one completion: its mark, and the sample of the group."""

    prompt: str
    visit: int
    value: Any
    sample: str
    place: str


def read_recordings(path: str, correct: str | None = None) -> list[Recording]:
    """The runs of a log, or of a table of rates by prompt and visit.

    `correct` is the reward function or column that marks correct completions. Raises UserError or
    TaskError for any other file.
    """
    if not exists(path):
        raise UserError(f"{path} does not exist: write a log of a run, or a table of pass rates")
    rows = _rated_rows(Path(path)) if Path(path).is_file() else []
    if rows and correct is not None:
        raise UserError(f"--correct {correct} is for logs, and {path} is a table: remove it")
    if rows:
        return [_of_rates(path, rows)]
    try:
        logs = read_logs(path, correct)
    except (UserError, TaskError) as error:
        if not path.endswith(SUFFIXES) or correct is not None:
            raise
        raise UserError(
            f"{error}; or, for a table of rates, the columns prompt_id, visit and pass_rate"
        ) from error
    return [_of_log(log) for log in logs]


def _rated_rows(file: Path) -> Sequence[Row]:
    """The rows of a table with rates, lists of marks, or marks of a visit's completions.

    None for any other file. Completions of an update, instead of a visit, are a log.
    """
    if not file.name.endswith(SUFFIXES):
        return []
    if file.name.endswith(".parquet"):
        schema = parquet_schema(file)
        rated = _rate_columns(schema.names)
        lists = [name for name in rated[1] if pa.types.is_list(schema.field(name).type)]
        is_rated = rated[0] or lists or _by_visit(schema.names)
        return read_file(file, ()).rows if is_rated else []
    if file.name.endswith((".json", ".json.gz")) and not is_json_lines(file):
        content = parse_json(read_bytes(file), str(file))
        own = [*content.values()] if isinstance(content, dict) else []
        if own and all(_is_list(each) or isinstance(each, int | float) for each in own):
            if wrong := [name for name, each in content.items() if not _is_list(each)]:
                raise UserError(
                    f"{file}: prompt {wrong[0]:.60} has {content[wrong[0]]!r:.60}: write a list of "
                    "its rates by visit, such as [0.25, 0.5]"
                )
            return [{"prompt_id": name, "pass_rate": each} for name, each in content.items()]
    if file.name.endswith((".jsonl", ".jsonl.gz")):  # a log of completions may be large
        first = next((line for _, line in text_lines(file) if line.strip()), "null")
        rows = [parse_json(first, f"{file}:1")]
    else:
        rows = read_file(file, ()).rows
    first_rows = [row for row in islice(rows, 1) if isinstance(row, Mapping)]
    names = [name for row in first_rows for name in row]
    rates, marks = _rate_columns(names)
    values = [_value(row[name]) for row in first_rows for name in marks]
    if rates or any(isinstance(value, list) for value in values) or _by_visit(names):
        return read_file(file, ()).rows
    return []


def _value(cell: Any) -> Any:
    """A cell, or the list in its text, as in CSV."""
    listed = literal_of(cell) if isinstance(cell, str) and cell.strip().startswith("[") else None
    return listed if isinstance(listed, list) else cell


def _by_visit(names: Sequence[str]) -> bool:
    """Whether rows may be completions of a visit without an update."""
    has_marks = bool(_rate_columns(names)[1] and columns_in(("visit",), names))
    return has_marks and not columns_in(("update",), names)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int | float) for each in value)


def _rate_columns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns of rates, and columns that may have the marks of a group in each row."""
    if not columns_in(_PROMPT, names):
        return [], []
    return columns_in(("rate",), names), columns_in(_RATE[1:], names)


def _of_rates(path: str, rows: Sequence[Row]) -> Recording:
    """The recording of a table: a row per visit, or one per prompt with a list of rates."""
    names = [*dict.fromkeys(name for row in rows for name in row)]
    prompts, places = columns_in(_PROMPT, names), columns_in(_VISIT, names)
    rated = [*_rate_columns(names)[0], *_rate_columns(names)[1]][:1]
    sizes, samples = columns_in(("samples",), names), columns_in(("sample",), names)
    parts = {role: own for role in PARTS if (own := columns_in((role,), names))}
    texts: dict[str, dict[str, str]] = {role: {} for role in parts}
    is_mark = not _rate_columns(names)[0]  # of a completion, unless it is a list of marks
    cells, marks = [], list[_Mark]()
    for number, row in enumerate(rows, 1):
        place = f"{path} row {number}"
        prompt = value_text(first_value(row, prompts))
        if not prompt:
            raise UserError(f"{place} has no {prompts[0]}: write one in every row")
        for role, known in texts.items():
            known.setdefault(prompt, value_text(first_value(row, parts[role])))
        value, size = _value(row.get(rated[0])), valid_count(first_value(row, sizes))
        visit = valid_count(first_value(row, places))
        if visit is not None and is_mark and not isinstance(value, list):
            sample = value_text(first_value(row, samples)) or str(number)
            marks.append(_Mark(prompt, visit, value, sample, place))
        elif visit is not None:
            cells.append(_Cell(prompt, visit, value, size, place))
        elif isinstance(value, list) and not places:
            cells += [_Cell(prompt, at, each, size, place) for at, each in enumerate(value, 1)]
        else:
            raise UserError(
                f"{place} has no visit number: write the column visit or update, or all rates of "
                f"a prompt as a list in {rated[0]}"
            )
    missing = sum(map(is_missing, [cell.value for cell in cells] + [mark.value for mark in marks]))
    read = len(cells) + len(marks)
    if missing == read:
        raise UserError(f"{path} has no rate: write a share from 0 to 1 in {rated[0]}")
    cells += _groups(marks, rated[0])
    _check_once(cells, places)
    visits, notes = _visits(path, rated[0], cells)
    ids = sorted({visit.prompt for visit in visits})
    columns = {role: tuple(known[name] for name in ids) for role, known in texts.items()}
    return Recording.of(
        path,
        "completions" if marks else "rates",
        visits,
        columns={role: own for role, own in columns.items() if len({*own}) > 1},
        notes=notes,
        rows=RowCounts(read, {"without a rate": missing}),
    )


def _groups(marks: Sequence[_Mark], column: str) -> list[_Cell]:
    """The marks of each prompt and visit as a cell.

    Raises UserError for a repeated sample, and TaskError if a value is not a mark.
    """
    cells, seen = dict[tuple[str, int], _Cell](), dict[tuple[str, int, str], str]()
    for mark in marks:
        own = (mark.prompt, mark.visit)
        if (first := seen.setdefault((*own, mark.sample), mark.place)) != mark.place:
            raise UserError(
                f"{mark.place} has sample {mark.sample:.60} of visit {mark.visit} of prompt "
                f"{mark.prompt:.60} again, after {first}: write each run to its own file"
            )
        cells.setdefault(own, _Cell(*own, [], None, mark.place)).value.append(
            truth_of(mark.value, mark.place, column)
        )
    return [*cells.values()]


def _check_once(cells: Sequence[_Cell], places: Sequence[str]) -> None:
    """Raise UserError if a table has a visit of a prompt twice, as tables of two runs do."""
    seen = dict[tuple[str, int], str]()
    for cell in cells:
        if (first := seen.setdefault(cell[:2], cell.place)) != cell.place:
            raise UserError(
                f"{cell.place} has {places[0]} {cell.visit} of prompt {cell.prompt:.60} again, "
                f"after {first}: write one row for each visit, and each run to its own file"
            )


def _visits(path: str, column: str, cells: Sequence[_Cell]) -> tuple[list[Visit], tuple[str, ...]]:
    """The groups of these cells, and a note if their size was inferred.

    A missing rate is a visit without completions, so that later visits keep their numbers. Raises
    UserError or TaskError if a cell is not a rate.
    """
    shares = np.full(len(cells), np.nan)
    counts: dict[int, tuple[int, int]] = {}
    for number, cell in enumerate(cells):
        if is_missing(cell.value):
            counts[number] = (0, 0)
        elif isinstance(cell.value, list):
            marks = [number_of(mark) for mark in cell.value if not is_missing(mark)]
            if not {*marks} <= {0.0, 1.0}:
                raise UserError(
                    f"{cell.place}: {column} is {cell.value!r:.60}: write 0 or 1 for each "
                    "completion, or the rate of the group in pass_rate"
                )
            counts[number] = (marks.count(1.0), len(marks))
        elif pair := counts_of(cell.value):
            if pair[0] > pair[1]:
                raise UserError(f"{cell.place}: {column} is {cell.value}: write at most 1")
            counts[number] = pair
        else:
            share = share_of(cell.value, cell.place, column)
            assert share is not None, "missing cells are left out"
            shares[number] = share
    own = [cell.samples for cell in cells]
    rated = np.flatnonzero(np.isfinite(shares))
    notes: tuple[str, ...] = ()
    if any(own[number] is None for number in rated.tolist()):
        size = group_size_of(path, column, shares[rated])
        notes = (
            f"{counted(size, 'completion')} per group are assumed, the smallest number that fits "
            f"the rates: add a column samples to state it",
        )
        own = [samples or size for samples in own]
    for number in rated.tolist():
        samples = own[number] or 0
        correct = round(shares[number] * samples)
        if not samples or abs(shares[number] - correct / samples) > ROUNDED:
            raise UserError(
                f"{cells[number].place}: {column} is {cells[number].value} of "
                f"{counted(samples, 'sample')}: write a multiple of 1/{samples}"
            )
        counts[number] = (correct, samples)
    visits = [Visit(*cell[:2], *counts[number]) for number, cell in enumerate(cells)]
    return visits, notes


def group_size_of(path: str, column: str, shares: np.ndarray) -> int:
    """The completions of a group: the smallest number whose reciprocal divides all rates."""
    values = np.unique(shares)
    for size in range(2, MOST_SAMPLES + 1):
        if np.abs(values - (values * size).round() / size).max() < ROUNDED:
            return size
    raise UserError(
        f"{path}: the rates in {column} are not shares of up to {MOST_SAMPLES} completions: add "
        f"a column samples with the completions per group"
    )


def _of_log(log: RunLog) -> Recording:
    """The recording of a log. Raises UserError if it does not mark correct completions."""
    table = log.completions
    if not table.num_rows:
        raise UserError(f"{log.name} only has metrics: write a log with completions and prompts")
    if not pc.any(pc.is_valid(table["correct"])).as_py():
        raise UserError(
            f"{log.name} does not mark correct completions: write --correct NAME with a reward "
            f"function or column of 0 and 1"
        )
    table = table.append_column("marked", pc.cast(pc.is_valid(table["correct"]), pa.int64()))
    table = table.append_column("right", pc.fill_null(pc.cast(table["correct"], pa.int64()), 0))
    groups = table.group_by(["prompt", "update", "group"]).aggregate(
        [("right", "sum"), ("marked", "sum")]
    )
    names = ("prompt", "update", "right_sum", "marked_sum")
    rows = zip(*(groups[name].to_pylist() for name in names), strict=True)
    visits = [Visit(*row) for row in rows]
    notes = (*log.notes,)
    if unmarked := sum(not visit.marked for visit in visits):
        notes += (f"{counted(unmarked, 'group')} without a marked completion",)
    columns = {}
    if len({*table["source"].drop_null().to_pylist()}) > 1:
        named = dict(zip(table["prompt"].to_pylist(), table["source"].to_pylist(), strict=True))
        prompts = sorted({visit.prompt for visit in visits})
        columns["source"] = tuple(named[prompt] or "" for prompt in prompts)
    return Recording.of(log.name, log.layout, visits, columns, notes, log.rows)


def read_probe(path: str, recording: Recording) -> pa.Table:
    """A difficulty table from a file, in the order of a recording's prompts.

    Prompts that the file lacks are null. Raises UserError if it has no pass rate of these prompts.
    """
    table = read_scores(path)
    ids = pa.array(recording.prompt_ids, pa.string())
    places = pc.index_in(ids, value_set=table["prompt_id"].combine_chunks())
    if places.null_count == len(ids):
        raise UserError(f"{path}: has no prompt of {recording.name}: write its prompt_ids")
    table = table.take(places)
    if table["pass_rate"].null_count == len(ids):
        raise UserError(
            f"{path}: has no pass rate of a prompt of {recording.name}: write pass_rate"
        )
    return table.set_column(table.column_names.index("prompt_id"), "prompt_id", ids)
