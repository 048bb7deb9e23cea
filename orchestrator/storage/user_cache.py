"""The user's cache folder: results of commands that need not be computed again.

A JSON file that is incomplete, of another user, or not writable only costs time.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.storage.entries import is_regular
from orchestrator.storage.local_files import replace_file
from orchestrator.storage.proof import Unsound, json_bytes, open_json


def read(name: str) -> dict[str, Any]:
    """The content of a file; empty unless it is complete and this user's."""
    with suppress(OSError, RuntimeError, Unsound):
        file = cache_path(name)
        if is_regular(file) and file.stat().st_uid == os.getuid():
            return dict(open_json(file.read_bytes(), name).value)
    return {}


def write(name: str, content: Mapping[str, Any]) -> None:
    """Replace the content of a file; if two commands write, the later one wins."""
    with suppress(OSError, RuntimeError):
        replace_file(cache_path(name), json_bytes(dict(content), name))


def cache_path(name: str) -> Path:
    """A file or folder in the cache. Raises RuntimeError if the user has no home folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "decile", name)
