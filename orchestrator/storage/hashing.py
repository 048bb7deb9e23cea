"""Content hashes that identify files, model folders and JSON values."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def folder_identity(folder: Path) -> str:
    """A hash over the weights, tokenizer, template and configs of a model folder."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in {".safetensors", ".json", ".jinja", ".model", ".txt"}:
            digest.update(file.name.encode())
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return "folder:" + digest.hexdigest()[:16]


def file_identity(file: Path) -> str:
    """A hash of a file's content."""
    with file.open("rb") as stream:
        return "file:" + hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def canonical_hash(value: Any) -> str:
    """16 hex digits of the SHA-256 of a value's canonical JSON: equal content, equal hash."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sequence_hash(parts: Iterable[list[str]]) -> str:
    """The `canonical_hash` of the concatenated lists, of which one at a time is in memory."""
    digest, separator = hashlib.sha256(b"["), b""
    for part in filter(None, parts):
        text = json.dumps(part, separators=(",", ":"), ensure_ascii=True)
        digest.update(separator + text[1:-1].encode())
        separator = b","
    digest.update(b"]")
    return digest.hexdigest()[:16]
