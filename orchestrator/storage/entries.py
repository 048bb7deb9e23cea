"""The content of a local folder, and which entries are ignored."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

NOT_UTF8 = "has a name that is not UTF-8"


class Entry(NamedTuple):
    """A file, or a folder if it has no size (bytes). problem: why it is ignored, or empty."""

    path: str
    size: int | None = None
    problem: str = ""


def local_entries(folder: str, *, recursive: bool = False) -> Iterator[Entry]:
    """The content of a local folder, by relative path; empty if it does not exist.

    Raises NotADirectoryError for a file.
    """
    below = [""]
    while below:
        start = below.pop()
        try:
            children = [*os.scandir(f"{folder}/{start}".rstrip("/"))]
        except FileNotFoundError:
            continue
        for child in children:
            path = f"{start}{os.fsencode(child.name).decode(errors='backslashreplace')}"
            if path != f"{start}{child.name}":
                yield Entry(path, problem=NOT_UTF8)
            elif child.is_symlink():
                yield Entry(path, problem="is a link")
            elif child.is_dir(follow_symlinks=False):
                yield Entry(path)
                if recursive:
                    below.append(f"{path}/")
            elif not child.is_file(follow_symlinks=False):
                yield Entry(path, problem="is not a regular file")
            else:
                with suppress(FileNotFoundError):  # deleted after the folder was read
                    yield Entry(path, child.stat(follow_symlinks=False).st_size)


def is_regular(file: str | Path) -> bool:
    """Whether a local path is a regular file, not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(file).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_regular(file: str) -> BinaryIO:
    """Open a regular file for reading. Raises OSError if it does not exist or is not regular."""
    if not is_regular(file):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
    return open(file, "rb")
