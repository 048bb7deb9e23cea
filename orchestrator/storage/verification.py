"""Verifies the files of a folder, by their own proofs or by the folder's manifest.

A manifest is a JSON file with a proof that lists files, including those of other libraries. It is
written last, once they are on the disk.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from orchestrator.storage.entries import NOT_UTF8, local_entries
from orchestrator.storage.errors import naming
from orchestrator.storage.proof import FileProof, Unsound, open_table, stream_proof
from orchestrator.storage.schema import EVALUATIONS, GROUPS, LOG, MARKED, SUBSET
from orchestrator.storage.store import SET_ASIDE, Store

# Files with their own proof; an adapter's settings are written by PEFT.
_PROVABLE = re.compile(r"(?<!adapter_config)\.(json|parquet)$|README\.md$")
_SCHEMAS = (
    (r"subsets/", SUBSET),
    (r"probes/\w+/marks-", MARKED),
    (r".*(/evaluations|/evaluated/\w+)\.parquet", EVALUATIONS),
    (r".*/(groups|discarded|refreshed)\.parquet", GROUPS),
    (r".*/log\.parquet", LOG),
)


class Checked(NamedTuple):
    """One file. problem: why it fails verification, or empty.

    proven: False for a file that cannot contain a proof and is not in a manifest; listed: whether
    its folder is incomplete without it.
    """

    path: str
    problem: str = ""
    proven: bool = True
    listed: bool = True


def is_stored(path: str) -> bool:
    """Whether a file is part of the storage: neither temporary nor set aside."""
    return not path.rpartition("/")[2].startswith(".") and not path.endswith(SET_ASIDE)


def local_files(folder: Path) -> dict[str, FileProof]:
    """Size and hash of every file below a local folder, by relative path; all are flushed."""
    files = {}
    for name, size, problem in local_entries(str(folder), recursive=True):
        path = folder / name
        if size is None and not problem:
            _flush(path)
        elif size is not None and is_stored(name):
            with naming(path), path.open("rb") as stream:
                files[name] = stream_proof(stream)
                os.fsync(stream.fileno())
    _flush(folder)
    return dict(sorted(files.items()))


def _flush(folder: Path) -> None:
    """Flush a folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_file(store: Store, path: str) -> Checked:
    """Check a JSON, Parquet or Markdown file by its own proof."""
    try:
        store.verify(path, schema=_schema(path))
    except Unsound as error:
        return Checked(path, str(error))
    except FileNotFoundError:
        return Checked(path, "is missing")
    return Checked(path)


def _schema(path: str) -> pa.Schema | None:
    """The schema of a stored table; None for other files."""
    return next((schema for pattern, schema in _SCHEMAS if re.match(pattern, path)), None)


def check_folder(
    store: Store,
    place: str,
    manifest: str,
    *,
    skip: tuple[str, ...] = (),
    unread: str | None = None,
    strict: bool = False,
) -> Iterator[Checked]:
    """Check every file below a folder, and missing files of its manifest.

    Paths that start with one of `skip` are left out. For listed files with a path that starts with
    `unread`, only the size is compared. With `strict`, files that a manifest does not list are
    unsound, and so are entries that are not regular files.
    """
    opened = store.open_json(place, manifest)
    listed = opened.files if opened else None
    entries = sorted(store.entries(place, recursive=True), key=lambda entry: entry.path)
    entries = [e for e in entries if is_stored(e.path) and not e.path.startswith(skip)]
    for path, _, problem in entries if strict else ():
        if problem not in ("", NOT_UTF8) and path not in (listed or {}):
            yield Checked(f"{place}/{path}", problem, listed=False)
    sizes = {entry.path: entry.size for entry in entries if entry.size is not None}
    for name in dict.fromkeys((*sizes, *(listed or {}))):
        path = f"{place}/{name}"
        if listed is not None and name in listed:
            read = unread is None or not name.startswith(unread)
            yield Checked(path, _listed_problem(store, path, listed[name], sizes.get(name), read))
        elif strict and listed is not None and name != manifest:
            yield Checked(path, "is not listed in the manifest", listed=False)
        elif _PROVABLE.search(name):
            verified = name == manifest and opened is not None
            own = Checked(path) if verified else check_file(store, path)
            yield own._replace(listed=listed is None or name == manifest)
        else:
            yield Checked(path, proven=False)


def size_problem(proof: FileProof, size: int | None) -> str:
    """Why a listed file of this size fails verification, or empty; size: None if missing."""
    if size is None:
        return "is missing"
    return "" if size == proof["size"] else f"has {size:,} bytes instead of {proof['size']:,}"


def _listed_problem(store: Store, path: str, proof: FileProof, size: int | None, read: bool) -> str:
    """Why a listed file fails verification, or empty; tables must also have their schema."""
    problem = size_problem(proof, size)
    if problem or not read:
        return problem
    try:
        if (schema := _schema(path)) is None:
            return "" if store.hash_file(path) == proof else "does not match its hash"
        open_table(store.read_bytes(path), path, schema, proof)
        return ""
    except Unsound as error:
        return str(error)
    except FileNotFoundError:
        return "is missing"
