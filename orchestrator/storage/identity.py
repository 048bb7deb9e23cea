"""The identity of a local model or file: hashes of its content, each computed once.

Weights are gigabytes, and every command needs their hashes. The hash of a file is therefore kept in
the user's cache folder, with the file system's numbers that show changes of the file.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.storage import user_cache
from tasks.sources.user_files import sha256_of

NAME = "hashes.json"
SETTLED_NS = 2 * 10**9  # a file with a later change may change again within the same time stamp


def folder_identity(folder: Path) -> str:
    """A hash over the weights, tokenizer, template and configs of a model folder."""
    suffixes = {".safetensors", ".json", ".jinja", ".model", ".txt"}
    files = [file for file in sorted(folder.iterdir()) if file.suffix in suffixes]
    digest = hashlib.sha256()
    for file, content in zip(files, content_hashes(files), strict=True):
        digest.update(file.name.encode() + bytes.fromhex(content))
    return "folder:" + digest.hexdigest()[:16]


def file_identity(file: Path) -> str:
    """A hash of a file's content."""
    return "file:" + content_hashes([file])[0][:16]


def content_hashes(files: Sequence[Path]) -> list[str]:
    """SHA-256 of the content of each file, cached for unchanged files."""
    known, hashes, new = user_cache.read(NAME), [], False
    for file in map(Path.absolute, files):
        settled = time.time_ns() - SETTLED_NS
        numbers = _numbers(file)
        entry = known.get(str(file), {})
        if entry.get("numbers") != numbers:
            entry = {"sha256": sha256_of(file)}
            if max(numbers[-2:]) < settled and _numbers(file) == numbers:
                known[str(file)] = entry | {"numbers": numbers}
                new = True
        hashes.append(entry["sha256"])
    if new:
        kept = {path: entry for path, entry in known.items() if os.path.exists(path)}
        user_cache.write(NAME, kept)
    return hashes


def _numbers(file: Path) -> list[int]:
    """Numbers that change with the content: the inode's change time cannot be set by programs."""
    stat = file.stat()
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
