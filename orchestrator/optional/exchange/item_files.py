"""Reads one file of item-level results: questions, samples and scores.

Logs of Inspect, samples of lm-eval, rollout dumps of verl, tables (JSONL, JSON, CSV, Parquet, or
Arrow in memory), and cells of a storage.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from glob import glob, has_magic
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from orchestrator.evaluation.item_columns import COLUMNS as EVALUATED
from orchestrator.evaluation.item_columns import item_metadata
from orchestrator.optional.exchange.decoded_chats import decoded_question
from orchestrator.optional.exchange.documents import document_question
from orchestrator.optional.exchange.inspect_logs import (
    attached,
    read_log,
    zipped_header,
    zipped_samples,
)
from orchestrator.optional.exchange.placed_rows import Notes, PlacedRow, Row, nested
from orchestrator.optional.exchange.source_files import json_content, located, read_source
from orchestrator.storage.errors import UserError
from orchestrator.training.cell_paths import CELLS, is_cell
from tasks import OUTCOMES, TaskError
from tasks.marking.marks import UNSCORED
from tasks.sources.files import (
    SUFFIXES,
    cell,
    check_columns,
    is_chat,
    or_list,
    read_chat,
)
from tasks.sources.roles import GOLDS, NEEDS, columns_in_role, spelling
from tasks.sources.user_files import open_file, parquet_schema, sha256_of
from tasks.sources.values import json_text, parse_count, share_of, whole

if TYPE_CHECKING:
    from orchestrator.training.cell_folder import CellFolder

# Cells are read by modules of the sweep. They load only if a path is a cell.
CELL_RESULTS = "orchestrator.optional.exchange.cell_results"
# In a folder, .json files may be settings.
TABLES = tuple(suffix for suffix in SUFFIXES if not suffix.removesuffix(".gz").endswith(".json"))
IDENTIFYING, SCORED = NEEDS["compare"]
GROUP = "group"  # of related questions; also in Inspect's metadata and lm-eval's document
BY_TEXT = "question"  # --id for logs: pair by the question's text
_LM_EVAL = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[^/]*")
_LM_EVAL_FIELDS = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter"}
_SEED = re.compile(r"seed[-_=]?(\d{1,9})(?!\d)", re.IGNORECASE)


class ItemRow(NamedTuple):
    """One score: None if the sample has none; `sample`, `seed`: None if the file has none.

    `data` are the texts that identify the question's content: equal ids need equal texts. `group`:
    of related questions; "" for a question by itself. `tier` and `source` are "" if unknown;
    `outcome`, of OUTCOMES, is None if unknown.
    """

    place: str
    item: str
    score: float | None
    sample: str | None = None
    seed: int | None = None
    question: str = ""
    data: tuple[str, ...] = ()
    group: str = ""
    tier: str = ""
    source: str = ""
    outcome: str | None = None


@dataclass(frozen=True)
class ResultFile:
    """The rows of a file. about: "model", "task" and the like; `seed`: of all rows, if known.

    cell: the cell of a storage, if it is one; changes: its questions' final minus base accuracy.
    settings: how the answers were sampled and marked, by name; empty if unknown. unread: rows of a
    different metric's filter.
    """

    path: str
    format: str
    sha256: str
    metric: str
    rows: Sequence[ItemRow]
    about: Mapping[str, str]
    seed: int | None = None
    cell: "CellFolder | None" = None
    changes: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    unread: int = 0


@dataclass(frozen=True)
class ItemColumns:
    """The columns of tables and the metric of logs to read.

    `item`: the column of the question's id, or "question" for logs: pair by the question's text.
    """

    item: str | None = None
    score: str | None = None
    seed: str | None = None
    sample: str | None = None
    metric: str | None = None
    group: str | None = None


def read_results(source: Path | pa.Table, columns: ItemColumns) -> ResultFile:
    """A file, a cell's folder, or a table. Raises UserError for anything else."""
    try:
        if isinstance(source, pa.Table):
            rows = [PlacedRow(f"row {n}", row) for n, row in enumerate(source.to_pylist(), 1)]
            rows = _known(rows, source.schema, columns)
            return _with_settings(_table(Path("table"), rows, "", columns), source.schema)
        if os.path.isdir(source):  # also False if the name is too long
            read: ResultFile = import_module(CELL_RESULTS).read_cell(source)
            return read
        digest = _sha256(source)
        if source.name.endswith(".eval"):
            header = zipped_header(source)
            _check_log(source, header)
            return _inspect(source, zipped_samples(source), header or {}, digest, columns)
        if source.name.endswith(".json"):
            content = json_content(source)
            if isinstance(content, dict) and "eval" in content:
                _check_log(source, content)
                samples = read_log(source, {"samples": [], **content}) or []
                return _inspect(source, samples, content, digest, columns)
        rows = list(read_source(source).rows)
        if not rows:
            raise UserError(f"{source} is a run of rLLM: write its items as JSONL")
        for place, row in rows:
            check_columns(place, row, [])
        schema = parquet_schema(source) if source.suffix == ".parquet" else pa.schema([])
        rows = _known(rows, schema, columns)
        names = set().union(*(row for _, row in rows))
        if {"doc", "resps", "target"} <= names:
            return _lm_eval(source, rows, digest, columns)
        if {"input", "output", "score"} <= names and names & {"step", "gts"}:
            return _verl(source, rows, digest, columns)
        return _with_settings(_table(source, rows, digest, columns), schema)
    except TaskError as error:
        raise UserError(str(error)) from error


def _known(rows: list[PlacedRow], schema: pa.Schema, columns: ItemColumns) -> list[PlacedRow]:
    """The rows; for a file of `decile evaluate`, its own columns and those that an option names.

    Its other columns are the user's data, whose names may mean anything.
    """
    if not item_metadata(schema):
        return rows
    known = {*EVALUATED, "source", *astuple(columns)}
    return [PlacedRow(p, {name: row[name] for name in row if name in known}) for p, row in rows]


def _with_settings(file: ResultFile, schema: pa.Schema) -> ResultFile:
    """The file with the metadata of `decile evaluate`, if that wrote it."""
    known = item_metadata(schema)
    about: dict[str, str] = {n: str(known[n]) for n in ("model", "dataset") if n in known}
    return replace(file, about={**file.about, **about}, settings=known.get("settings", {}))


def _sha256(file: Path) -> str:
    if not os.path.exists(file):  # also if the name is too long
        raise UserError(f"{file} does not exist: write the path of a log, a table or a cell")
    return sha256_of(file)


def _score(file: Path, place: str, row: Row, name: str) -> float | None:
    """The score in a row of a file."""
    try:
        return share_of(row.get(name), place, name)
    except TaskError as error:
        raise located(file, error) from error


def _text(value: Any, row: Row = MappingProxyType({})) -> str:
    """A question's or an answer's text, equal for equal content."""
    if is_chat(value):
        value = read_chat(value).question
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    value = whole(value)
    if value is None or value != value:
        return ""
    text = value if isinstance(value, str) else json_text(value)
    return attached(text, row).strip()


def _chosen(file: Path, choices: Iterable[str], metric: str | None, kind: str) -> str:
    """The metric among the choices, or the only one with this name before the comma."""
    names = list(dict.fromkeys(choices))
    fits = [n for n in names if n == metric] or [
        n for n in names if metric in (None, n.partition(",")[0])
    ]
    if len(fits) == 1:
        return fits[0]
    if not names:
        raise UserError(f"{file} has no scores: score the log first")
    problem = f"has several {kind}" if fits else f"has no {kind[:-1]} {metric}"
    raise UserError(f"{file} {problem}: write --metric with one of {'; '.join(fits or names)}")


def _check_log(file: Path, header: Row | None) -> None:
    """Raise UserError for a log of an unsuccessful evaluation."""
    status = "started" if header is None else header.get("status")
    if status != "success":
        raise UserError(
            f"{file} is a log of an unfinished evaluation (status {status}): it lacks questions "
            f"of the test set; finish it (inspect eval-retry) or leave it out"
        )
    if header is not None and header.get("invalidated"):
        raise UserError(f"{file} was invalidated in Inspect: leave it out, or evaluate again")


def _inspect(
    file: Path, samples: Iterable[PlacedRow], header: Row, digest: str, columns: ItemColumns
) -> ResultFile:
    """A log of Inspect; its epochs are samples of a question."""
    values: list[Mapping[str, Any]] = []
    rows: list[ItemRow] = []
    for place, sample in samples:
        scores: dict[str, Any] = {}
        for name, score in nested(sample, "scores").items():
            value = score.get("value") if isinstance(score, Mapping) else None
            parts = value if isinstance(value, Mapping) else {"": value}
            scores |= {f"{name}.{part}".rstrip("."): v for part, v in parts.items()}
        values.append({} if sample.get("error") else scores)
        question = _text(sample.get("input"), sample)
        data = (question, json_text(sample.get("choices") or []), _text(sample.get("target")))
        item = question if columns.item == BY_TEXT else str(sample.get("id"))
        epoch = str(sample.get("epoch", 1))
        group = _text(cell(nested(sample, "metadata"), columns.group or GROUP))
        row = ItemRow(place, item, None, epoch, question=question, data=data, group=group)
        rows.append(row)
    if not rows:
        raise UserError(f"{file} has no samples: write a log with samples")
    metric = _chosen(file, (n for each in values for n in each), columns.metric, "scorers")
    rows = [
        row._replace(score=_score(file, row.place, each, metric))
        for row, each in zip(rows, values, strict=True)
    ]
    about = {name: str(nested(header, "eval").get(name, "")) for name in ("task", "model")}
    return ResultFile(str(file), "Inspect", digest, metric, rows, about)


def _lm_eval(
    file: Path, rows: Sequence[PlacedRow], digest: str, columns: ItemColumns
) -> ResultFile:
    """Samples of lm-eval: a row per document and filter; a choice is "metric,filter"."""

    def metrics(row: Row) -> list[str]:
        listed = row.get("metrics")
        if isinstance(listed, list):
            return [str(name) for name in listed]
        return [n for n, v in row.items() if n not in _LM_EVAL_FIELDS and not isinstance(v, str)]

    choices = (f"{name},{row.get('filter', 'none')}" for _, row in rows for name in metrics(row))
    chosen = _chosen(file, choices, columns.metric, "metrics")
    metric, _, wanted = chosen.rpartition(",")
    read = []
    for place, row in rows:
        if str(row.get("filter", "none")) != wanted:
            continue
        document = nested(row, "doc")
        question = _text(document_question(document) or row.get("doc"))
        item = question if columns.item == BY_TEXT else _text(row.get("doc_id"))
        data = (question, json_text(document.get("choices") or []), _text(row.get("target")))
        score = _score(file, place, row, metric)
        group = _text(cell(document, columns.group or GROUP))
        read.append(ItemRow(place, item, score, question=question, data=data, group=group))
    task = _LM_EVAL.fullmatch(file.name)
    about = {"task": task[1]} if task else {}
    unread = len(rows) - len(read)
    return ResultFile(str(file), "lm-eval", digest, chosen, read, about, unread=unread)


def _verl(file: Path, rows: Sequence[PlacedRow], digest: str, columns: ItemColumns) -> ResultFile:
    """Rollouts of verl, without numbers of questions and samples: equal questions are samples."""
    names = {name for _, row in rows for name in row}
    metric = columns.metric or ("acc" if "acc" in names else "score")
    if metric not in names:
        raise UserError(f"{file} has no metric {metric}: write --metric acc, score or another")
    seen: Counter[str] = Counter()
    read = []
    for place, row in rows:
        prompt = row.get("input")
        if not isinstance(prompt, str):
            raise located(file, TaskError(f"{place}: input is {prompt!r:.60}: expected text"))
        question = decoded_question(prompt, place, Notes()).strip()
        score = _score(file, place, row, metric)
        sample = str(seen[question])
        seen[question] += 1
        data = (question, _text(row.get("gts")))
        read.append(ItemRow(place, question, score, sample, question=question, data=data))
    steps = sorted({str(row.get("step", "")) for _, row in rows})
    if len(steps) > 1:
        raise UserError(f"{file} has steps {', '.join(steps[:5])}: keep the rows of one step")
    return ResultFile(str(file), "verl", digest, metric, read, {"training step": steps[0]})


def _table(file: Path, rows: Sequence[PlacedRow], digest: str, columns: ItemColumns) -> ResultFile:
    """One row per question, or per question and sample."""
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    if not rows:
        raise UserError(f"{file} has no rows: write one row per question")
    known = ", ".join(map(str, names))

    def column(option: str, named: str | None, roles: Sequence[str], needed: str = "") -> str:
        among = (name for role in roles for name in columns_in_role(role, names))
        name_of_column = named or next(among, "")
        if named and all(cell(row, named) is None for _, row in rows):
            raise UserError(f"{file}: --{option} {named}: no row has a value; columns are: {known}")
        if needed and not name_of_column:
            raise UserError(f"{file} has no {needed}: write --{option} COLUMN; it has: {known}")
        return name_of_column

    item = column("id", columns.item, IDENTIFYING, "id or text of the question")
    score = column("score", columns.score, SCORED, "column correct or score")
    seed = column("seed", columns.seed, ("seed",))
    sample = column("sample", columns.sample, ("sample",))
    group = column("group", columns.group, (GROUP,))
    outcome = column("outcome", None, ("outcome",))
    questions = columns_in_role("question", names)
    if item not in questions:  # a prompt may have a template, which differs between runs
        questions = [name for name in questions if spelling(name) in ("question", "problem")]
    question = item if item in questions else next(iter(questions), "")
    gold = next((name for name in columns_in_role("answer", names) if spelling(name) in GOLDS), "")
    read = []
    for place, row in rows:
        try:
            identity = _text(cell(row, item))
            if not identity:
                raise TaskError(f"{place}: {item} is empty: write the question's id")
            texts = tuple(_text(cell(row, name)) if name else "" for name in (question, gold))
            number = cell(row, sample) if sample else None
            share = share_of(cell(row, score), place, score)
            read.append(
                ItemRow(
                    place,
                    identity,
                    share,
                    None if number in (None, "") or number != number else _text(number),
                    _seed(cell(row, seed), place, seed) if seed else None,
                    texts[0],
                    texts,
                    _text(cell(row, group)) if group else "",
                    _text(row.get("tier")),
                    _text(row.get("source")),
                    _outcome(cell(row, outcome), share) if outcome else None,
                )
            )
        except TypeError as error:
            remedy = "write texts and numbers"
            raise located(file, TaskError(f"{place}: a value {error}: {remedy}")) from error
        except TaskError as error:
            raise located(file, error) from error
    return ResultFile(str(file), "table", digest, score, read, _model_of(file, rows))


def _model_of(file: Path, rows: Sequence[PlacedRow]) -> dict[str, str]:
    """The model that a table names, if any. Raises UserError if there are several."""
    models = sorted({_text(row["model"]) for _, row in rows if row.get("model") is not None})
    if len(models) > 1:
        raise UserError(
            f"{file} has several models ({', '.join(models[:5])}): write a file for each"
        )
    return {"model": models[0]} if models else {}


def _outcome(value: Any, score: float | None) -> str | None:
    """The outcome in a row, None if it is not one of OUTCOMES or contradicts the score."""
    if value not in OUTCOMES or (value in UNSCORED) != (score is None):
        return None
    agrees = score is None or score == (value == "correct")
    return str(value) if agrees else None


def _seed(value: Any, place: str, name: str) -> int:
    seed = parse_count(value, place, name)
    if seed is None:
        raise TaskError(f"{place}: {name} is empty: write the run's seed, an integer")
    return seed


def seed_in(path: str) -> int | None:
    """The seed in a file's name ("hard-seed3.jsonl"), or in its folder's name."""
    parts = Path(path).parts[-2:]
    numbers = [match for part in reversed(parts) for match in _SEED.findall(part)]
    return int(numbers[0]) if numbers else None


def files_of(path: str) -> list[Path]:
    """The files of an arm: a file, a cell's folder, a glob of them, or a folder's logs or tables.

    For a folder: every .eval below it, else samples_*.jsonl of lm-eval, else tables.
    """
    if has_magic(path) and not os.path.lexists(path):
        matches = sorted(glob(path, recursive=True))
        if not matches:
            raise UserError(f"{path} matches no file: write the path of a log, a table or a cell")
        return [file for match in matches for file in files_of(match)]
    folder = Path(path)
    if not os.path.isdir(path) or is_cell(folder):
        return [folder]
    below = sorted(file for file in folder.rglob("*") if file.is_file())
    kinds = (
        [file for file in below if file.suffix == ".eval"],
        [file for file in below if _LM_EVAL.match(file.name)],
        [file for file in below if file.name.endswith(TABLES)],
        [file for file in below if file.suffix == ".json" and _is_log(file)],
    )
    if (folder / CELLS).is_dir():
        raise UserError(f"{path} is a storage: write the folders of its cells, {path}/{CELLS}/ID")
    files = next(filter(None, kinds), None)
    if files is None:
        raise UserError(f"{path} has no logs and no tables: write a {or_list(SUFFIXES)} file")
    return files


def _is_log(file: Path) -> bool:
    """Whether a .json file begins like a log of Inspect; others in its folder are settings."""
    with open_file(file) as stream:
        return b'"eval"' in stream.read(2**16)
