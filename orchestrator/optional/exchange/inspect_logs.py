"""Logs of inspect_ai: .json, or .eval (a zip of JSON files), read without it."""

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from orchestrator.optional.exchange.placed_rows import PlacedRow, Row, nested
from tasks import TaskError
from tasks.sources.files import parse_json
from tasks.sources.user_files import open_file

MEMBER_LIMIT = 256 * 2**20  # bytes of one sample, decompressed
TOTAL_LIMIT = 8 * 2**30  # bytes of all samples
HEADER = "header.json"
ZSTANDARD = 93  # the zip method that inspect_ai uses; zipfile reads it since Python 3.14
_READ = 2**20
_ATTACHMENT = "attachment://"
_KEPT = ("id", "epoch", "input", "choices", "target", "messages", "output", "scores", "error")
_KEPT_TOO = ("attachments", "limit", "metadata")


def read_log(file: Path, log: Any) -> list[PlacedRow] | None:
    """The samples of a .eval file or of the content of a .json file; None for other content.

    Raises TaskError if the log is damaged.
    """
    if file.name.endswith(".eval"):
        return list(zipped_samples(file))
    if not isinstance(log, dict) or "eval" not in log or "samples" not in log:
        return None
    samples = log["samples"] or []
    if not isinstance(samples, list):
        raise TaskError(f"{file}: samples is not a list: write a log of inspect_ai")
    return [_sample(sample, f"sample {n}", file) for n, sample in enumerate(samples, 1)]


def zipped_samples(file: Path) -> Iterator[PlacedRow]:
    """The samples of a .eval file, one after the other. Raises TaskError for a damaged file."""
    total = 0
    with _opened(file) as (archive, raw):
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


def zipped_header(file: Path) -> Row | None:
    """header.json of a .eval file, which inspect_ai writes last; None if it is missing."""
    with _opened(file) as (archive, raw):
        if HEADER not in archive.namelist():
            return None
        text = _member_bytes(archive, archive.getinfo(HEADER), raw)
        header = parse_json(text, f"{file}: {HEADER}")
        return header if isinstance(header, dict) else None


@contextmanager
def _opened(file: Path) -> Iterator[tuple[zipfile.ZipFile, IO[bytes]]]:
    try:
        with open_file(file) as raw, zipfile.ZipFile(raw) as archive:
            yield archive, raw
    except (OSError, EOFError, zipfile.BadZipFile, pa.ArrowException, struct.error) as error:
        raise TaskError(f"{file} cannot be read as a log of inspect_ai: {error}") from error
    except (NotImplementedError, RuntimeError, ValueError) as error:  # methods, passwords, offsets
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"{file} cannot be read as a log of inspect_ai: {error}") from error


def _member_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo, raw: IO[bytes]) -> bytes:
    """A member's content, at most one byte more than the limit, regardless of declared sizes."""
    if member.compress_type != ZSTANDARD:
        with archive.open(member) as stream:
            return stream.read(MEMBER_LIMIT + 1)
    raw.seek(member.header_offset)
    header = raw.read(30)  # of a zip's local file header, with two lengths at its end
    name, extra = struct.unpack("<HH", header[26:30])
    raw.seek(member.header_offset + 30 + name + extra)
    packed = pa.BufferReader(raw.read(min(member.compress_size, MEMBER_LIMIT)))
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


def attached(text: str, row: Row) -> str:
    """A text, which a log may store apart from its messages."""
    if not text.startswith(_ATTACHMENT):
        return text
    value = nested(row, "attachments").get(text.removeprefix(_ATTACHMENT))
    return value if isinstance(value, str) else text
