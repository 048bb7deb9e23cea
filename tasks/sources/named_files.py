"""The files of a setting: paths and globs."""

import glob
import os
from pathlib import Path

from tasks.errors import TaskError
from tasks.sources.user_files import Files, matching


def named_files(named: Files, apart_from: Files | None = None) -> list[str]:
    """The files of paths and globs in their order; files of a glob are sorted.

    Raises TaskError if there are no files, or if a file is named twice or is also in `apart_from`.
    """
    files = list[str]()
    for path in [named] if isinstance(named, str) else named:
        if not (found := matching(path)):
            raise TaskError(f"{path} matches no file: write a path, or another pattern")
        files += found
    if not files:
        raise TaskError("the list of files is empty: write the paths of files")
    others = {*map(os.path.realpath, named_files(apart_from))} if apart_from else set()
    seen = set[str]()
    for file in files:
        if "\0" in file:  # not a path; opening it raises the error
            continue
        if (real := os.path.realpath(file)) in others:
            raise TaskError(
                f"train and test are the same file, {file}: write path: {file} to hold out a "
                f"part of it as test questions, or a different file"
            )
        if real in seen:
            raise TaskError(f"{file} is named twice: write each file once")
        seen.add(real)
    return files


def path_below(folder: str | Path, path: str) -> str:
    """A path or a glob relative to a folder; the folder's name is not a pattern."""
    joined = os.path.join(folder, path)
    if glob.escape(path) == path or os.path.lexists(joined):
        return str(Path(joined))
    return str(Path(glob.escape(str(folder)), path))
