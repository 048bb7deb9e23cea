"""Reads the rows of a local file (JSON, Parquet or CSV), with their columns and chats."""

import codecs
import csv
import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from orchestrator.plugins.csv_text import original
from tasks.errors import TaskError
from tasks.sources.user_files import (
    MAX_LINE,
    open_text,
    parquet_schema,
    read_bytes,
    reading_parquet,
    record_batches,
    regular,
    sha256_of,
    text_lines,
)

# Omissions from a chat, as counted in notes.
SYSTEM = "system messages dropped: the task's own prompt is used"
TURNS = "other messages of conversations dropped: only the question and its answer are read"

MESSAGE_KEYS = (("role", "content"), ("from", "value"))  # the second is ShareGPT's
_ROLES = {"human": "user", "gpt": "assistant"}  # ShareGPT's names


class Chat(NamedTuple):
    """A question in chat messages, and their other contents.

    `reply` is the last assistant message after the question ("" without one); `system` and `turns`
    count the system messages and all other messages that are neither question nor reply.
    """

    question: str
    reply: str
    system: int
    turns: int


def column_value(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or the value at a dotted path through objects and lists.

    `reward_model.ground_truth` and `messages.-1.content` are such paths; a column with the whole
    name takes precedence. Raises KeyError if there is no such value.
    """
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.removeprefix("-").isdecimal() and len(part) < 10:
            try:
                value = value[int(part)]
            except IndexError:
                raise KeyError(name) from None
        else:
            raise KeyError(name)
    return value


def cell(row: Mapping[str, Any], name: str) -> Any:
    """As `column_value`, with None for a missing value."""
    try:
        return column_value(row, name)
    except KeyError:
        return None


def is_chat(value: Any) -> TypeGuard[list[Mapping[str, Any]]]:
    """Whether a value is a list of messages, {role, content} or ShareGPT's {from, value}."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, Mapping) for message in value)
        and any(keys[0] in value[0] and keys[1] in value[0] for keys in MESSAGE_KEYS)
    )


def read_chat(messages: Sequence[Mapping[str, Any]]) -> Chat:
    """The last user message, and the assistant's last message after it."""
    roles, texts = list[str](), list[str]()
    for message in messages:
        role_key, content_key = next((k for k in MESSAGE_KEYS if k[0] in message), MESSAGE_KEYS[0])
        role = str(message.get(role_key))
        roles.append(_ROLES.get(role, role))
        texts.append(message_text(message.get(content_key)))
    last_question = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
    last_reply = max((i for i, role in enumerate(roles) if role == "assistant"), default=-1)
    has_reply = last_reply > last_question
    system = sum(role in ("system", "developer") for role in roles)
    return Chat(
        texts[last_question] if last_question >= 0 else "",
        texts[last_reply] if has_reply else "",
        system,
        len(texts) - system - (last_question >= 0) - has_reply,
    )


def message_text(content: Any) -> str:
    """The plain text of a message's content: text, or a list of parts as in chat APIs."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "".join(part for part in parts if isinstance(part, str))


Row = dict[str, Any]
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_LINES = (".jsonl", ".jsonl.gz")
_SEPARATOR_LINE = re.compile(r"sep=([,;|\t])")
_NOT_SPACE = re.compile(r"[^ \t\r\n]")
FIRST_LINE = 2**20  # bytes; for a longer first row, the file's suffix decides
SUFFIXES = (".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz", *_CSV)


class Rows(NamedTuple):
    """Rows, their origin (`hub@revision`, or `file sha256:…`), and notes on unusual data.

    `places` are the rows' places in one file: `FILE:LINE`, or `FILE row NUMBER`.
    """

    rows: list[Row]
    origin: str
    notes: tuple[str, ...] = ()
    places: Sequence[str] = ()


def read_file(path: str | Path, columns: Sequence[str], records: str | None = None) -> Rows:
    """The rows of one local file: JSON lines, JSON, Parquet or CSV, text also gzipped (.gz)."""
    file = Path(path)
    if not os.path.exists(file):  # also if the name is too long
        raise TaskError(f"{file} does not exist: write the path of a {or_list(SUFFIXES)} file")
    rows, places = [], []
    try:
        if not file.name.endswith(SUFFIXES):
            regular(file)  # first, because only a file has a type
            raise TaskError(f"{file}: unknown file type: write a {or_list(SUFFIXES)} file")
        for place, row in _numbered_rows(file, records):
            check_columns(place, row, columns)
            rows.append(row)
            places.append(place)
        digest = sha256_of(file)
    except UnicodeDecodeError as error:
        raise TaskError(f"{file} cannot be read: {error}: write it as UTF-8 text") from error
    except (OSError, EOFError, zlib.error) as error:
        is_torn = isinstance(error, EOFError | zlib.error | gzip.BadGzipFile)
        remedy = "compress it again" if is_torn else "check its permissions"
        raise TaskError(f"{file} cannot be read: {error}: {remedy}") from error
    return Rows(rows, f"{file.name} sha256:{digest}", places=places)


def _numbered_rows(file: Path, records: str | None) -> Iterable[tuple[str, Any]]:
    """Each row with its place for messages."""
    if file.name.endswith(".parquet"):
        return ((f"{file} row {i}", row) for i, row in enumerate(_parquet(file), 1))
    if file.name.endswith(_CSV):
        return _csv_rows(file)
    return _json_lines(file) if is_json_lines(file) else _json_values(file, records)


def is_json_lines(file: Path) -> bool:
    """Whether each line of a file is a JSON value: the first line decides, else the suffix.

    A file may also be a list, or objects that span several lines.
    """
    with open_text(file, MAX_LINE) as stream:
        first = b"\n"
        while first and not first.strip():
            first = stream.readline(FIRST_LINE)
        is_last = not stream.read(1)
    named_lines = file.name.endswith(_LINES)
    begins = first.removeprefix(codecs.BOM_UTF8).lstrip()
    if len(first) == FIRST_LINE or not begins.startswith((b"{", b"[")):
        return named_lines
    return _is_object(first) and (named_lines or not is_last)


def _is_object(line: bytes) -> bool:
    """Whether a line is a whole object in JSON."""
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(line.decode("utf-8-sig")), Mapping)
    return False


def _json_lines(file: Path) -> Iterator[tuple[str, Any]]:
    for number, line in text_lines(file):
        if line.strip():
            yield f"{file}:{number}", parse_json(line, f"{file}:{number}")


def _json_values(file: Path, records: str | None) -> Iterable[tuple[str, Any]]:
    """The rows of a list, of a list in an object, or of objects that follow one another."""
    text = read_bytes(file).decode("utf-8-sig")
    try:
        content = parse_json(text, str(file))
    except TaskError as error:
        if values := list(_json_sequence(text, file)):
            return values
        if file.name.endswith(_LINES):  # its error names the line
            return _json_lines(file)
        raise error
    if isinstance(content, dict) and records is not None:
        content = content.get(records)
    elif isinstance(content, dict):  # such as {"version": 1, "data": [rows]}
        lists = [value for value in content.values() if _are_rows(value)]
        content = lists[0] if len(lists) == 1 and not file.name.endswith(_LINES) else content
    is_row = isinstance(content, dict) or (isinstance(content, list) and not _are_rows(content))
    if is_row and file.name.endswith(_LINES):
        return [(f"{file}:1", content)]
    if not isinstance(content, list):
        form = "a list of rows" if records is None else f'{{"{records}": [rows]}}'
        raise TaskError(f"{file} does not have the form {form}: write it in this form")
    return ((f"{file} row {i}", row) for i, row in enumerate(content, 1))


def _are_rows(value: Any) -> bool:
    """Whether a value is a list with objects that are not chat messages."""
    has_objects = isinstance(value, list) and any(isinstance(each, Mapping) for each in value)
    return has_objects and not is_chat(value)


def _json_sequence(text: str, file: Path) -> Iterator[tuple[str, Any]]:
    """Consecutive JSON values, with the lines where they begin.

    None if the first one is invalid. Raises TaskError for any other invalid value.
    """
    decoder, end, line = json.JSONDecoder(), 0, 1
    while start := _NOT_SPACE.search(text, end):
        line += text.count("\n", end, start.start())
        try:
            _, stop = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            if not end:
                return
            stop = len(text)
        yield f"{file}:{line}", parse_json(text[start.start() : stop], f"{file}:{line}")
        line += text.count("\n", start.start(), stop)
        end = stop


def _csv_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Rows of text under the names of the first row, None for empty fields.

    Fields are quoted as in RFC 4180; a place is the first line of a row. The separator follows from
    the suffix or the first row, because spreadsheets write semicolons if the comma is the decimal
    sign. A line `sep=;` before it, as Excel reads it, is skipped.
    """
    csv.field_size_limit(MAX_LINE)
    lines = (line for _, line in text_lines(file))
    header = next(lines, "")
    separator = _SEPARATOR_LINE.fullmatch(header.strip("\r\n ").lower())
    header = next(lines, "") if separator else header
    if "\r" in header.rstrip("\r\n") and '"' not in header:
        raise TaskError(f"{file} ends its lines with carriage returns only: save it with newlines")
    delimiter = _delimiter(file, header, separator)
    reader = csv.reader(chain([header], lines), delimiter=delimiter, strict=True)
    names, skipped = list[str](), 1 if separator else 0
    first = 1 + skipped
    try:
        for fields in reader:
            place, first = f"{file}:{first}", reader.line_num + 1 + skipped
            if not fields:
                continue
            if not names:
                names = [original(field) for field in fields]
                check_distinct(file, names)
                continue
            if len(fields) != len(names):
                raise TaskError(
                    f"{place} has {len(fields):,} fields, and the first row {len(names):,}: "
                    f"write as many, and quote fields that contain a separator or a line break"
                )
            cells = (original(field) or None for field in fields)
            yield place, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise TaskError(
            f"{file}:{first}: invalid CSV: close each quote, and double quotes inside a quoted "
            f"field"
        ) from error


def _delimiter(file: Path, header: str, separator: re.Match[str] | None) -> str:
    """The declared separator, else the suffix's if it divides the first row."""
    if separator:
        return separator[1]
    own = "," if ".csv" in file.suffixes[-2:] else "\t"
    counts = {}
    for mark in (own, *(mark for mark in ",;\t" if mark != own)):
        with suppress(csv.Error):
            counts[mark] = len(next(csv.reader([header], delimiter=mark), []))
    if counts.get(own, 0) > 1:
        return own
    return max(counts, key=lambda mark: counts[mark], default=own)


def check_distinct(file: Path | str, names: Sequence[str]) -> None:
    """Raise TaskError for two columns with the same name."""
    counts = Counter(names)
    if len(counts) < len(names):
        repeated = next(name for name in names if counts[name] > 1)
        raise TaskError(f"{file} has two columns {repeated!r:.60}: rename or remove one")


def parse_json(text: str | bytes, place: str) -> Any:
    """A JSON value. Raises TaskError for invalid UTF-8 or JSON and for lone surrogates."""
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(text)
        if "\\ud" in text.lower():  # only an escape can encode half of a surrogate pair
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise TaskError(f"{place}: {error}: write it as UTF-8 text") from error
    except UnicodeEncodeError as error:
        raise TaskError(f"{place}: holds half of a surrogate pair (\\ud…): remove it") from error
    except RecursionError as error:
        raise TaskError(f"{place}: invalid JSON: its values are nested too deeply") from error
    except json.JSONDecodeError as error:
        raise TaskError(
            f"{place}: invalid JSON at character {error.pos + 1}: correct it"
        ) from error
    except ValueError as error:  # Python does not read numbers with more than 4,300 digits
        raise TaskError(f"{place}: invalid JSON: a number is too long: shorten it") from error
    return value


def _parquet(file: Path) -> list[Row]:
    check_distinct(file, parquet_schema(file).names)
    rows: list[Row] = []
    with reading_parquet(file):
        for batch in record_batches(file, file):
            rows += batch.to_pylist()
    return rows


def check_columns(place: str, row: Any, columns: Sequence[str]) -> None:
    """Raise TaskError unless `row` is an object with a value in each column."""
    if not isinstance(row, Mapping):
        columns = columns or ("question", "answer")
        raise TaskError(f"{place} is not a row: write an object with {', '.join(columns)}")
    for column in columns:
        try:
            value = column_value(row, column)
        except KeyError:
            known = ", ".join(map(str, row))
            raise TaskError(f"{place} has no column {column!r}: write one of {known}") from None
        if value is None:
            raise TaskError(f"{place}: column {column!r} is null: write a value")


def or_list(names: Sequence[str]) -> str:
    """The names as "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
