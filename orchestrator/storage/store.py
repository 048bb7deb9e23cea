"""The store of content-addressed results, from which MLflow and the report are derived.

Contract: a file under its final name is complete. On a local file system, everything is written
under a temporary name, flushed and renamed; an object store shows an object only once its upload is
complete. A torn or foreign part is never used: its samples are drawn again.
"""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cluster.redaction import redact


class StoreError(ValueError):
    """The storage cannot be used; the message says what to write instead."""


class Store:
    """Results under one root, on a file system that pyarrow supports (path, file://, s3://, gs://)."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        _refuse_credentials(uri)
        try:
            if "://" not in uri:
                folder = Path(uri).expanduser().resolve()  # workers run in other directories
                folder.exists()  # OSError for a name that is too long
                self.uri, uri = str(folder), folder.as_uri()
            self.fs, self.root = pafs.FileSystem.from_uri(uri)
        except (ValueError, RuntimeError, OSError) as error:  # ArrowInvalid is a ValueError
            raise StoreError(
                f"storage {redact(uri)[:200]}: {redact(str(error))[:200]}: "
                "write a folder, s3://… or gs://…"
            ) from error
        self.local = isinstance(self.fs, pafs.LocalFileSystem)
        if not self.local and not self.root.strip("/"):
            raise StoreError(f"storage {uri} names no bucket: add one, as in s3://BUCKET/FOLDER")

    def path(self, *parts: str) -> str:
        """The full path of a file or folder in the store."""
        return "/".join((self.root, *parts))

    def local_path(self, *parts: str) -> Path:
        """The path of a folder in a local store; creates it if needed."""
        folder = Path(self.path(*parts))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def check_writable(self) -> None:
        """Raise StoreError unless files can be written under the root. Leaves nothing behind."""
        folders = [Path(self.root), *Path(self.root).parents] if self.local else []
        created = [folder for folder in folders if not folder.exists()]
        try:
            self.fs.create_dir(self.root, recursive=True)
            probe = f".writable-{uuid.uuid4().hex}"
            self._write(probe, b"")
            self.fs.delete_file(self.path(probe))
        except OSError as error:
            raise StoreError(
                f"storage {self.uri} cannot be written ({error}): "
                "write a folder that you can write to, or pass --storage"
            ) from error
        for folder in created:
            folder.rmdir()

    def exists(self, *parts: str) -> bool:
        """Whether a complete file of that name exists."""
        return bool(self.fs.get_file_info(self.path(*parts)).type == pafs.FileType.File)

    def names(self, *parts: str) -> list[str]:
        """Sorted names of the complete files in a folder; empty if the folder does not exist."""
        selector = pafs.FileSelector(self.path(*parts), allow_not_found=True)
        infos = self.fs.get_file_info(selector)
        return sorted(i.base_name for i in infos if i.is_file and not i.base_name.startswith("."))

    def folders(self, *parts: str) -> list[str]:
        """Sorted names of the folders in a folder."""
        selector = pafs.FileSelector(self.path(*parts), allow_not_found=True)
        infos = self.fs.get_file_info(selector)
        return sorted(i.base_name for i in infos if i.type == pafs.FileType.Directory)

    def write_json(self, value: Any, *parts: str) -> None:
        """Write indented JSON atomically."""
        self._write("/".join(parts), json.dumps(value, indent=2, sort_keys=True).encode())

    def read_json(self, *parts: str) -> Any:
        """The value of a JSON file, or None if it does not exist."""
        if not self.exists(*parts):
            return None
        with self.fs.open_input_stream(self.path(*parts)) as stream:
            return json.loads(stream.read())

    def write_table(self, table: pa.Table, *parts: str) -> None:
        """Write Parquet atomically."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self._write("/".join(parts), sink.getvalue())

    def read_table(self, schema: pa.Schema, *parts: str) -> pa.Table | None:
        """A stored table, or None if it is absent, torn or has another schema."""
        if not self.exists(*parts):
            return None
        try:
            table = pq.read_table(self.path(*parts), filesystem=self.fs, partitioning=None)
        except (pa.ArrowInvalid, OSError):
            return None
        return table if table.schema.equals(schema) else None

    def write_bytes(self, data: bytes, *parts: str) -> None:
        """Write bytes atomically."""
        self._write("/".join(parts), data)

    def read_bytes(self, *parts: str) -> bytes:
        """The content of a file. Raises OSError if it does not exist."""
        with self.fs.open_input_stream(self.path(*parts)) as stream:
            return bytes(stream.read())

    def rename(self, new: str, *parts: str) -> None:
        """Rename a file within its folder, if it still exists."""
        try:
            self.fs.move(self.path(*parts), self.path(*parts[:-1], new))
        except OSError:  # object stores have no specific error for a missing file
            if self.exists(*parts):
                raise

    def delete(self, *parts: str) -> None:
        """Delete a file, if it still exists."""
        try:
            self.fs.delete_file(self.path(*parts))
        except FileNotFoundError:
            return

    def delete_folder(self, *parts: str) -> None:
        """Delete a folder and its content, if it still exists."""
        try:
            self.fs.delete_dir(self.path(*parts))
        except FileNotFoundError:
            return

    def copy_in(self, folder: Path, *parts: str) -> None:
        """Copy the files of a local folder into the store, each atomically."""
        pafs.copy_files(str(folder), self.path(*parts), pafs.LocalFileSystem(), self.fs)

    def copy_out(self, folder: Path, *parts: str) -> None:
        """Copy a folder of the store to a local one, which is created if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        pafs.copy_files(self.path(*parts), str(folder), self.fs, pafs.LocalFileSystem())

    def _write(self, name: str, data: bytes | pa.Buffer) -> None:
        final = self.path(name)
        if not self.local:
            with self.fs.open_output_stream(final) as stream:
                stream.write(data)
            return
        target = Path(final)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def _refuse_credentials(uri: str) -> None:
    """Refuse addresses that contain credentials, because addresses are logged and stored."""
    address = urlsplit(uri)
    user, separator, _ = address.netloc.rpartition("@")
    # In abfs://CONTAINER@… the user part names a container.
    in_query = redact(address.query) != address.query
    if in_query or (separator and (address.scheme == "s3" or ":" in user)):
        raise StoreError(
            f"storage {address.scheme}://… contains credentials: remove them from the address and "
            "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or your cloud's own) instead"
        )


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a local folder's lock; blocks while another process holds it.

    The kernel releases the lock when its holder dies, so a kill leaves nothing to clean up. The
    file `.lock` contains the holder's process id.
    """
    import fcntl

    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
        yield
