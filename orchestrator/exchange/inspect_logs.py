"""Evaluation logs of Inspect: .json, or .eval (a zip of JSON files), read without inspect_ai."""

import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from orchestrator.exchange.records import (
    CompletionRecord,
    Hints,
    Notes,
    PlacedRow,
    Row,
    count_dropped,
    first_answer,
    nested,
    objects,
    source_question,
    valid_count,
)
from orchestrator.sampling.base import Completion
from tasks import TaskError
from tasks.columns import is_chat, message_text, read_chat
from tasks.files import parse_json

MEMBER_LIMIT = 256 * 2**20  # bytes of one sample, decompressed
TOTAL_LIMIT = 8 * 2**30  # bytes of all samples
ZSTANDARD = 93  # the zip method that inspect_ai uses ; zipfile reads it from 3.14
CUT = ("max_tokens", "model_length")
_READ = 2**20
_GRADES = {"C": True, "I": False, 1: True, 0: False}
_ATTACHMENT = "attachment://"
_KEPT = ("id", "epoch", "input", "choices", "target", "messages", "output", "scores", "error")
_KEPT_TOO = ("attachments", "limit")


def read_log(file: Path, log: Any) -> list[PlacedRow] | None:
    """The samples of a .eval file or of the content of a .json file; None for other content.

    Raises TaskError if the log is damaged.
    """
    if file.name.endswith(".eval"):
        return list(_zipped_samples(file))
    if not isinstance(log, dict) or "eval" not in log or "samples" not in log:
        return None
    samples = log["samples"] or []
    if not isinstance(samples, list):
        raise TaskError(f"{file}: samples is not a list: write a log of inspect_ai")
    return [_sample(sample, f"sample {n}", file) for n, sample in enumerate(samples, 1)]


def _zipped_samples(file: Path) -> Iterator[PlacedRow]:
    total = 0
    try:
        with zipfile.ZipFile(file) as archive, file.open("rb") as raw:
            for member in archive.infolist():
                if not member.filename.startswith("samples/"):
                    continue
                text = _member_bytes(archive, member, raw)
                total += len(text)
                if len(text) > MEMBER_LIMIT or total > TOTAL_LIMIT:
                    raise TaskError(
                        f"{file}: {member.filename} is larger than {MEMBER_LIMIT // 2**20} MiB, "
                        f"or all samples than {TOTAL_LIMIT // 2**30} GiB: export fewer samples"
                    )
                place = member.filename.removesuffix(".json")
                yield _sample(parse_json(text, f"{file}: {member.filename}"), place, file)
    except (OSError, EOFError, zipfile.BadZipFile, pa.ArrowException, struct.error) as error:
        raise TaskError(f"{file} cannot be read as a log of inspect_ai: {error}") from error
    except (NotImplementedError, RuntimeError, ValueError) as error:  # methods, passwords, offsets
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"{file} cannot be read as a log of inspect_ai: {error}") from error


def _member_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo, raw: IO[bytes]) -> bytes:
    """A member's content, at most one byte more than the limit, whatever the archive declares."""
    if member.compress_type != ZSTANDARD:
        with archive.open(member) as stream:
            return stream.read(MEMBER_LIMIT + 1)
    raw.seek(member.header_offset)
    header = raw.read(30)  # of a zip's local file header, with two lengths at its end
    name, extra = struct.unpack("<HH", header[26:30])
    raw.seek(member.header_offset + 30 + name + extra)
    packed = pa.BufferReader(raw.read(member.compress_size))
    with pa.CompressedInputStream(packed, "zstd") as stream:
        chunks, size = [], 0
        while size <= MEMBER_LIMIT and (chunk := stream.read(_READ)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


def _sample(sample: Any, place: str, file: Path) -> PlacedRow:
    if not isinstance(sample, dict) or not {"input", "target"} <= sample.keys():
        raise TaskError(
            f"{file}: {place} is not a sample of inspect_ai: it has no input and target"
        )
    return PlacedRow(place, {name: sample[name] for name in (*_KEPT, *_KEPT_TOO) if name in sample})


def read_inspect(rows: Sequence[PlacedRow], hints: Hints, notes: Notes) -> list[CompletionRecord]:
    """Samples as inspect_ai 0.3 logs them: one per input and epoch.

    The question is the input; with choices it is the user message that a solver made of them. The
    completion is the output's first choice.
    """
    records = []
    for place, row in rows:
        question = _question(row, place, notes)
        answer = first_answer(row.get("target"), place, notes)
        source = source_question({}, place, question, answer, notes)
        if source is None:
            continue
        choice = next(iter(objects(nested(row, "output").get("choices"))), {})
        text = _attached(message_text(nested(choice, "message").get("content")), row)
        failed = bool(row.get("error")) or not choice
        cut = choice.get("stop_reason") in CUT
        tokens = valid_count(nested(row, "output", "usage").get("output_tokens"))
        completion = Completion(
            text, tokens or 0, "error" if failed else "length" if cut else "stop"
        )
        correct = None if failed else _grade(row)
        records.append(CompletionRecord(source, completion, tokens, correct=correct))
    return records


def _question(row: Row, place: str, notes: Notes) -> Any:
    prompt, messages = row.get("input"), row.get("messages")
    if is_chat(messages):
        chat = read_chat(messages)
        count_dropped(chat.system, chat.turns, place, notes)
        if row.get("choices"):
            notes.count("questions with choices are read as the solver worded them", place)
            users = (m.get("content") for m in messages if m.get("role") == "user")
            return _attached(message_text(next(users, "")), row)
    question = read_chat(prompt).question if is_chat(prompt) else prompt
    return _attached(question, row) if isinstance(question, str) else question


def _attached(text: str, row: Row) -> str:
    """A text, which a log may hold apart from its messages."""
    if not text.startswith(_ATTACHMENT):
        return text
    value = nested(row, "attachments").get(text.removeprefix(_ATTACHMENT))
    return value if isinstance(value, str) else text


def _grade(row: Row) -> bool | None:
    """What the only scorer decided, where that is correct or incorrect."""
    scores = [
        score.get("value") for score in nested(row, "scores").values() if isinstance(score, Mapping)
    ]
    value = scores[0] if len(scores) == 1 else None
    return _GRADES.get(value) if isinstance(value, str | int | float) else None
