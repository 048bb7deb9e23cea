"""Content hashes: of values, as identities, and of files, as proofs.

A stored file contains the hash of its bytes and its path in the storage: JSON in the field `proof`,
Parquet in the metadata of its footer, Markdown in a comment. The hash is of the file with BLANK in
place of the hash's own digits. A file fails verification if its bytes have changed, or if it was
moved to a different path. The proof of a manifest also lists files that cannot contain a proof,
with size and hash each.

A file without a proof also fails verification.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.terminal import PlainError
from orchestrator.storage.schema import completed, has_schema, without_empty
from tasks.sources.user_files import free_memory, read_bytes, record_batches


def canonical_hash(value: Any) -> str:
    """16 hex digits of the SHA-256 of a value's canonical JSON: equal content, equal hash."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sequence_hash(parts: Iterable[list[str]]) -> str:
    """The `canonical_hash` of the concatenated lists, with one at a time in memory."""
    digest, separator = hashlib.sha256(b"["), b""
    for part in filter(None, parts):
        text = json.dumps(part, separators=(",", ":"), ensure_ascii=True)
        digest.update(separator + text[1:-1].encode())
        separator = b","
    digest.update(b"]")
    return digest.hexdigest()[:16]


PATH, HASH = "decile.path", "decile.sha256"  # the same names in every format
BLANK = "the SHA-256 of this file with these 64 characters as its digits."
_DIGITS = re.compile(rb"decile\.sha256[^0-9a-f]{1,4}([0-9a-f]{64})")
_COMMENT = re.compile(rb"<!-- decile\.path: (.*) decile\.sha256: [0-9a-f]{64} -->\n$")


class Unsound(PlainError, RuntimeError):
    """A stored file fails verification, for the reason in the message."""


class FileProof(TypedDict):
    """Size in bytes and SHA-256 of a file's content."""

    size: int
    sha256: str


class Json(NamedTuple):
    """The value of a JSON file, and the files that it lists, by name."""

    value: Any
    files: dict[str, FileProof]


def file_proof(data: bytes | pa.Buffer) -> FileProof:
    """The size and hash of these bytes."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def stream_proof(stream: Any) -> FileProof:
    """The size and hash of a binary stream's content, with one part at a time in memory."""
    hasher, size = hashlib.sha256(), 0
    while block := stream.read(2**20):
        hasher.update(block)
        size += len(block)
    return {"size": size, "sha256": hasher.hexdigest()}


def json_bytes(
    value: Mapping[str, Any], path: str, files: Mapping[str, FileProof] | None = None
) -> bytes:
    """An object as indented JSON with a proof that also lists `files`."""
    proof: dict[str, Any] = {PATH: path, HASH: BLANK}
    if files is not None:
        proof["files"] = dict(files)
    return _filled(json.dumps({**value, "proof": proof}, indent=2, sort_keys=True).encode())


def table_bytes(table: pa.Table, path: str) -> bytes:
    """A table as Parquet with a proof, without empty optional columns."""
    table, sink = without_empty(table), pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({PATH: path, HASH: BLANK})
    return _filled(sink.getvalue().to_pybytes())


def text_bytes(text: str, path: str) -> bytes:
    """Markdown with a proof at its end."""
    return _filled(f"{text}\n<!-- {PATH}: {path} {HASH}: {BLANK} -->\n".encode())


def open_json(data: bytes, path: str) -> Json:
    """The value without its proof. Raises Unsound."""
    _check_hash(data)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unsound("is not valid JSON") from error
    proof = value.pop("proof", None) if isinstance(value, dict) else None
    if not isinstance(proof, dict):
        raise Unsound("has its hash outside its proof")
    _check_path(proof.get(PATH), path)
    return Json(value, proof.get("files", {}))


def open_table(
    data: bytes, path: str, schema: pa.Schema | None = None, listed: FileProof | None = None
) -> pa.Table:
    """The table. Raises Unsound, also for a different schema or bytes that are not `listed`."""
    _check_hash(data)  # first, because reading a damaged file may require any amount of memory
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        _check_path((file.metadata.metadata or {}).get(PATH.encode(), b"").decode(), path)
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise Unsound("is not valid Parquet") from error
    if schema is not None and not has_schema(table := completed(table, schema), schema):
        raise Unsound("has a different schema")
    if listed is not None and file_proof(data) != listed:
        raise Unsound("belongs to a different run")
    return table


def read_parquet(file: Path) -> pa.Table:
    """A table outside a storage, in any place: if it has a proof, only its hash is verified.

    Raises Unsound, TaskError for a file that is not regular or too large, and the errors of pyarrow
    and of the file system.
    """
    data = read_bytes(file, free_memory() // 2)
    if _has_proof(data):
        _check_hash(data)
    with pq.ParquetFile(pa.BufferReader(data)) as opened:
        schema = opened.schema_arrow
    return pa.Table.from_batches(record_batches(pa.BufferReader(data), file), schema)


def verify(data: bytes, path: str, schema: pa.Schema | None = None) -> None:
    """Verify a JSON, Parquet or Markdown file. Raises Unsound."""
    if path.endswith(".json"):
        open_json(data, path)
    elif path.endswith(".parquet"):
        open_table(data, path, schema)
    else:
        _check_hash(data)
        comment = _COMMENT.search(data)
        _check_path(comment[1].decode() if comment else "another file", path)


def _filled(data: bytes) -> bytes:
    """The bytes with their hash in place of the last BLANK."""
    before, _, after = data.rpartition(BLANK.encode())
    return before + hashlib.sha256(data).hexdigest().encode() + after


def _has_proof(data: bytes) -> bool:
    """Whether the bytes contain a proof, possibly a damaged one."""
    return HASH.encode() in data or PATH.encode() in data


def _check_hash(data: bytes) -> None:
    """Raises Unsound unless the bytes contain their own hash."""
    if not _has_proof(data):
        raise Unsound("has no proof" if data else "is empty")
    if matches := [*_DIGITS.finditer(data)]:
        digits = matches[-1]  # a text before it may look like one
        rest = memoryview(data)
        hasher = hashlib.sha256(rest[: digits.start(1)])
        hasher.update(BLANK.encode())
        hasher.update(rest[digits.end(1) :])
        if hasher.hexdigest().encode() == digits[1]:
            return
    raise Unsound("does not match its hash")


def _check_path(own: Any, path: str) -> None:
    if own != path:
        raise Unsound(f"is a copy of {own}")
