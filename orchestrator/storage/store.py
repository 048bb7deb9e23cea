"""The store of content-addressed results, the source of MLflow and the report.

Contract: a file under its final name is complete. On a local file system, everything is written
under a temporary name, flushed and renamed; an object store shows an object only once its upload is
complete. JSON files and tables contain proofs (see `proof`): if one fails verification, its name is
logged and it is treated as absent.

Below the root, links are not followed and only regular files are opened. A link could show a file
under two names, or a folder within itself. A FIFO blocks its reader. pyarrow cannot read names that
are not UTF-8.
"""

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from cluster.redaction import redact
from orchestrator.plugins.deadlines import within
from orchestrator.storage.addresses import scheme_of, why_no_storage
from orchestrator.storage.entries import Entry, is_regular, local_entries, open_regular
from orchestrator.storage.errors import StoreError, naming
from orchestrator.storage.local_files import replace_file
from orchestrator.storage.proof import (
    FileProof,
    Json,
    Unsound,
    file_proof,
    json_bytes,
    open_json,
    open_table,
    stream_proof,
    table_bytes,
    text_bytes,
    verify,
)
from orchestrator.storage.remote import CALL_SECONDS, PART, Remote, RemoteFails

T = TypeVar("T")


log = logging.getLogger(__name__)

WRITABLE = ".writable-"  # prefix of empty files that are written as a check
WRITE_ATTEMPTS = 20  # other commands may remove the folder meanwhile
SET_ASIDE = ".unsound"  # suffix of files that failed verification
GROWN_NAME, GROWN_PATH = 128, 1024  # bytes that all file systems and object stores allow


def _cut(name: str, size: int) -> str:
    """The beginning of a name: whole characters of at most `size` bytes, and at least one."""
    return name.encode()[: max(0, size)].decode(errors="ignore") or name[0]


def moved(store: "Store", meanwhile: str) -> StoreError:
    """The error for a storage that is no longer in its place."""
    return StoreError(
        f"storage {store.uri} was moved or deleted while {meanwhile}: run the same command again, "
        "with --storage and the place where it is now"
    )


class Store:
    """Results under one root, on a file system that pyarrow supports (path, file://, s3://, gs://)."""

    def __init__(self, uri: str | Path) -> None:
        self.uri = uri = os.fspath(uri)
        if not uri.strip():
            raise StoreError("the storage is empty: write a folder, s3://… or gs://…")
        try:
            address = urlsplit(uri)
        except ValueError as error:
            raise StoreError(
                f"storage {uri[:200]}: {error}: write a folder, s3://… or gs://…"
            ) from error
        user, separator, _ = address.netloc.rpartition("@")
        # In abfs://CONTAINER@… the user part names a container.
        in_query = redact(address.query) != address.query
        if in_query or (separator and (address.scheme == "s3" or ":" in user)):
            raise StoreError(  # addresses are logged and stored
                f"storage {address.scheme}://… contains credentials: remove them from the address "
                "and export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or your cloud's own) "
                "instead"
            )
        if problem := why_no_storage(uri):
            raise StoreError(f"storage {redact(uri)[:200]}: {problem}")
        try:
            if not scheme_of(uri):
                folder = Path(uri).expanduser().resolve()  # workers run in other directories
                if folder.exists() and not folder.is_dir():  # OSError for a name that is too long
                    raise NotADirectoryError("a file, not a folder")
                self.uri, uri = str(folder), folder.as_uri()
            # Constructing from an address may also request a region.
            fs, self.root = within(CALL_SECONDS, lambda: pafs.FileSystem.from_uri(uri))
        except (ValueError, RuntimeError, OSError) as error:  # ArrowInvalid is a ValueError
            raise StoreError(
                f"storage {redact(uri)[:200]}: {redact(str(error))[:200]}: "
                "write a folder, s3://… or gs://…"
            ) from error
        self.local = isinstance(fs, pafs.LocalFileSystem)
        self.fs: Any = fs if self.local else Remote(fs)
        if not self.local and not self.root.strip("/"):
            raise StoreError(f"storage {uri} has no bucket: add one, as in s3://BUCKET/FOLDER")
        self._logged: set[str] = set()
        self._existed = False  # also for a folder that was only checked to be writable
        with suppress(OSError):
            names = os.listdir(self.root) if self.local else []
            self._existed = any(not name.startswith(WRITABLE) for name in names)
        self.before_write: Callable[[], None] = self._check_root

    def path(self, *parts: str) -> str:
        """The full path of a file or folder in the store."""
        return "/".join((self.root, *parts))

    def local_path(self, *parts: str) -> Path:
        """The path of a folder in a local store; creates it if needed."""
        self.before_write()
        folder = Path(self._unlinked(*parts, ""))
        folder.mkdir(parents=True, exist_ok=True)
        self._existed = True
        return folder

    def _check_root(self) -> None:
        """Raise StoreError if the folder was moved or deleted: writers must not recreate it."""
        if self.local and self._existed and not os.path.isdir(self.root):
            raise moved(self, "it was in use")

    def check_writable(self) -> None:
        """Raise StoreError unless files can be written under the root. Leaves nothing behind."""
        folders = [Path(self.root), *Path(self.root).parents] if self.local else []
        created = [folder for folder in folders if not folder.exists()]
        try:
            probe = f"{WRITABLE}{uuid.uuid4().hex}"
            for left in reversed(range(WRITE_ATTEMPTS)):
                try:
                    self.fs.create_dir(self.root, recursive=True)
                    self.write_bytes(b"", probe)
                    self.fs.delete_file(self.path(probe))
                    break
                except FileNotFoundError:  # another command has removed its own folder
                    if not left:
                        raise
                    self._existed = False
        except OSError as error:
            if isinstance(error, RemoteFails) and error.passes:
                raise
            raise StoreError(
                f"storage {self.uri} cannot be written ({error}): "
                "write a folder that you can write to, or pass --storage"
            ) from error
        with suppress(OSError):  # another command is already using it
            for folder in created:
                folder.rmdir()
        self._existed = not created

    def exists(self, *parts: str) -> bool:
        """Whether a complete file of that name exists."""
        file = self._unlinked(*parts)
        return is_regular(file) if self.local else bool(self.fs.get_file_info(file).is_file)

    def names(self, *parts: str) -> list[str]:
        """Sorted names of the complete files in a folder; empty if the folder does not exist."""
        names = (e.path for e in self.entries(*parts) if e.size is not None)
        return sorted(name for name in names if not name.startswith("."))

    def folders(self, *parts: str) -> list[str]:
        """Sorted names of the folders in a folder."""
        return sorted(e.path for e in self.entries(*parts) if e.size is None and not e.problem)

    def sizes(self, *parts: str) -> dict[str, int]:
        """Bytes of every file below a folder, temporary ones included, by relative path, sorted."""
        entries = self.entries(*parts, recursive=True)
        return dict(sorted((e.path, e.size) for e in entries if e.size is not None))

    def entries(self, *parts: str, recursive: bool = False) -> list[Entry]:
        """The content of a folder, by relative path; empty if it does not exist."""
        if self.local:
            return [*local_entries(self._unlinked(*parts, "").rstrip("/"), recursive=recursive)]
        folder = self.path(*parts)
        selector = pafs.FileSelector(folder, recursive=recursive, allow_not_found=True)
        infos = self.fs.get_file_info(selector)
        return [Entry(i.path[len(folder) + 1 :], i.size if i.is_file else None) for i in infos]

    def write_json(
        self, value: Mapping[str, Any], *parts: str, files: Mapping[str, FileProof] | None = None
    ) -> FileProof:
        """Write indented JSON atomically; its proof lists `files` by relative path."""
        data = json_bytes(value, "/".join(parts), files)
        self.write_bytes(data, *parts)
        return file_proof(data)

    def open_json(self, *parts: str) -> Json | None:
        """A JSON file with the files that it lists; None as for `read_json`."""
        return self._opened(open_json, *parts)

    def read_json(self, *parts: str) -> Any:
        """The value of a JSON file, or None if it is absent or fails verification."""
        opened = self.open_json(*parts)
        return None if opened is None else opened.value

    def write_text(self, text: str, *parts: str) -> None:
        """Write Markdown atomically."""
        self.write_bytes(text_bytes(text, "/".join(parts)), *parts)

    def write_table(self, table: pa.Table, *parts: str) -> FileProof:
        """Write Parquet atomically."""
        data = table_bytes(table, "/".join(parts))
        self.write_bytes(data, *parts)
        return file_proof(data)

    def read_table(
        self, schema: pa.Schema, *parts: str, listed: FileProof | None = None
    ) -> pa.Table | None:
        """A stored table, or None if it is absent, fails verification or has a different schema.

        Also None if the file differs from `listed`.
        """
        return self._opened(partial(open_table, schema=schema, listed=listed), *parts)

    def verify(self, *parts: str, schema: pa.Schema | None = None) -> None:
        """Verify a JSON, Parquet or Markdown file.

        Raises Unsound if it fails or has a different schema, OSError if it cannot be read.
        """
        verify(self.read_bytes(*parts), "/".join(parts), schema)

    def warn_unsound(self, reason: object, *parts: str) -> None:
        """Log once that a file is not used."""
        message = f"{'/'.join(parts)} {reason}"
        if message not in self._logged:
            self._logged.add(message)
            log.warning("%s: not used; decile run creates it again", message)

    def write_bytes(self, data: bytes, *parts: str) -> None:
        """Write bytes atomically."""
        self.before_write()
        if self.local:
            replace_file(Path(self._unlinked(*parts)), data)
            self._existed = True
            return
        with self.fs.open_output_stream(self.path(*parts)) as stream:
            stream.write(data)

    def read_bytes(self, *parts: str, most: int | None = None) -> bytes:
        """The content of a file, or its first `most` bytes. Raises OSError if it does not exist."""
        with self._open(*parts) as stream:
            return bytes(stream.read(most))

    def hash_file(self, *parts: str) -> FileProof:
        """Size and hash of a file of any size. Raises OSError if it does not exist."""
        with self._open(*parts) as stream:
            return stream_proof(stream)

    def set_aside(self, *parts: str) -> None:
        """Rename a file to a new, unused name, if it still exists.

        The end of a long name is cut off, so that the name does not grow.
        """
        folder, _, name = "/".join(parts).rpartition("/")
        taken, copies = {entry.path for entry in self.entries(folder)}, count(2)
        allowed = min(GROWN_NAME, GROWN_PATH - len(os.fsencode(self.path(folder))) - 1)
        allowed, suffix = max(allowed, len(name.encode())), SET_ASIDE
        while (new := _cut(name, allowed - len(suffix)) + suffix) in taken:
            suffix = f".{next(copies)}{SET_ASIDE}"
        self.rename(new, folder, name)

    def rename(self, new: str, *parts: str) -> None:
        """Rename a file within its folder, if it still exists."""
        self.before_write()
        try:
            self.fs.move(self._unlinked(*parts), self.path(*parts[:-1], new))
        except OSError:  # object stores have no specific error for a missing file
            if self.exists(*parts):
                raise

    def delete(self, *parts: str) -> None:
        """Delete a file, if it still exists."""
        self.before_write()
        with suppress(FileNotFoundError):
            self.fs.delete_file(self._unlinked(*parts))

    def delete_folder(self, *parts: str) -> None:
        """Delete a folder and its content, if it still exists."""
        self.before_write()
        with suppress(FileNotFoundError):
            self.fs.delete_dir(self._unlinked(*parts, "").rstrip("/"))

    def copy_in(self, folder: Path, *parts: str) -> None:
        """Copy the files of a local folder into the store, each atomically."""
        self.before_write()
        if self.local:
            pafs.copy_files(str(folder), self.path(*parts), self.fs, self.fs)
            return
        for entry in local_entries(str(folder), recursive=True):
            if entry.size is not None:
                path = self.path(*parts, entry.path)
                opened = self.fs.open_output_stream(path)
                with (folder / entry.path).open("rb") as file, opened as stream:
                    shutil.copyfileobj(file, stream, PART)

    def copy_out(self, folder: Path, *parts: str) -> None:
        """Copy a folder of the store to a local one, which is created if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.local:
            pafs.copy_files(self.path(*parts), str(folder), self.fs, self.fs)
            return
        for path in self.sizes(*parts):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with self._open(*parts, path) as stream, (folder / path).open("wb") as file:
                shutil.copyfileobj(stream, file, PART)

    def _opened(self, reader: Callable[[bytes, str], T], *parts: str) -> T | None:
        """The result of `reader` for a file; None if it is absent or unsound, which is logged."""
        if not self.exists(*parts):
            return None
        try:
            return reader(self.read_bytes(*parts), "/".join(parts))
        except FileNotFoundError:  # deleted since
            return None
        except Unsound as error:
            self.warn_unsound(error, *parts)
            return None

    @contextmanager
    def _open(self, *parts: str) -> Iterator[Any]:
        """A file for reading. Raises OSError if it does not exist or is not a regular file."""
        file = self._unlinked(*parts)
        opened = open_regular if self.local else self.fs.open_input_stream
        with naming(file), opened(file) as stream:
            yield stream

    def _unlinked(self, *parts: str) -> str:
        """The full path of a file. Raises StoreError if a folder above it is a link."""
        path = "/".join(parts)
        for at, letter in enumerate(path if self.local else ""):
            if letter == "/" and os.path.islink(self.path(path[:at])):
                raise StoreError(
                    f"storage {self.uri}: {path[:at]} is a link, and links in a storage are not "
                    "followed: put the folder itself there, or remove the link"
                )
        return self.path(path)
