"""Rows that take long to generate, kept in the user's cache folder.

A file is replaced as a whole and proves its content. One that is torn, not this user's, or cannot
be written costs only time.
"""

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any


def load_rows(key: Sequence[Any]) -> list[Any]:
    """The rows stored under a key of JSON values; none unless this user wrote them, whole."""
    with suppress(OSError, RuntimeError, ValueError):
        file = _path(key)
        status = file.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
            proof, _, content = file.read_bytes().partition(b"\n")
            if proof.decode() == hashlib.sha256(content).hexdigest():
                stored_key, *rows = map(json.loads, content.splitlines())
                return rows if stored_key == json.loads(json.dumps(key)) else []
    return []


def save_rows(key: Sequence[Any], rows: Sequence[Any]) -> None:
    """Store the rows; of two processes at once, the later one's stay."""
    content = "".join(f"{json.dumps(row)}\n" for row in [key, *rows]).encode()
    with suppress(OSError, RuntimeError):
        file = _path(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
            try:
                part.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
                part.close()
                os.replace(part.name, file)
            except BaseException:
                os.unlink(part.name)
                raise


def _path(key: Sequence[Any]) -> Path:
    """Raises RuntimeError where the user has no home."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return Path(folder, "decile", "rows", f"{key[0]}-{name}.jsonl")
