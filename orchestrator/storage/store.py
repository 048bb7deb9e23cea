"""Content-addressed results: the truth that MLflow and the report are views of.

Contract: a file is complete when it has its name. On a file system that renames, everything is
written under a temporary name, flushed, then renamed; an object store shows an object only when
its upload is complete. A torn or foreign part is owed again, never used.
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


class StoreError(ValueError):
    """The storage cannot be used as given; the message says what to write instead."""


class Store:
    """Results under one root, on any file system that pyarrow knows (path, file://, s3://, gs://)."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        _refuse_keys(uri)
        if "://" not in uri:
            folder = Path(uri).expanduser().resolve()  # workers run in folders of their own
            self.uri, uri = str(folder), folder.as_uri()
        try:
            self.fs, self.root = pafs.FileSystem.from_uri(uri)
        except (pa.ArrowInvalid, OSError) as error:
            raise StoreError(f"storage {uri}: {error}: write a folder, s3://… or gs://…") from error
        self.local = isinstance(self.fs, pafs.LocalFileSystem)

    def path(self, *parts: str) -> str:
        """The full path of a file or folder in the store."""
        return "/".join((self.root, *parts))

    def local_path(self, *parts: str) -> Path:
        """The same as a local folder, made if absent, of a store that is one."""
        folder = Path(self.path(*parts))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def check_writable(self) -> None:
        """Raise StoreError unless a file can be written under the root; leaves nothing behind."""
        folders = [Path(self.root), *Path(self.root).parents] if self.local else []
        made = [folder for folder in folders if not folder.exists()]
        try:
            self.fs.create_dir(self.root, recursive=True)
            probe = f".writable-{uuid.uuid4().hex}"
            self._write(probe, b"")
            self.fs.delete_file(self.path(probe))
        except OSError as error:
            raise StoreError(
                f"storage {self.uri} cannot be written ({error}): "
                "write a folder that you own, or give --storage"
            ) from error
        for folder in made:
            folder.rmdir()

    def exists(self, *parts: str) -> bool:
        """Whether a complete file of that name is there."""
        return bool(self.fs.get_file_info(self.path(*parts)).type == pafs.FileType.File)

    def names(self, *parts: str) -> list[str]:
        """Sorted names of the complete files in a folder; none where there is no folder."""
        selector = pafs.FileSelector(self.path(*parts), allow_not_found=True)
        infos = self.fs.get_file_info(selector)
        return sorted(i.base_name for i in infos if i.is_file and not i.base_name.startswith("."))

    def folders(self, *parts: str) -> list[str]:
        """Sorted names of the folders in a folder."""
        selector = pafs.FileSelector(self.path(*parts), allow_not_found=True)
        infos = self.fs.get_file_info(selector)
        return sorted(i.base_name for i in infos if i.type == pafs.FileType.Directory)

    def write_json(self, value: Any, *parts: str) -> None:
        """Write readable JSON, whole or not at all."""
        self._write("/".join(parts), json.dumps(value, indent=2, sort_keys=True).encode())

    def read_json(self, *parts: str) -> Any:
        """The value of a JSON file, or None where there is none."""
        if not self.exists(*parts):
            return None
        with self.fs.open_input_stream(self.path(*parts)) as stream:
            return json.loads(stream.read())

    def write_table(self, table: pa.Table, *parts: str) -> None:
        """Write Parquet, whole or not at all."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self._write("/".join(parts), sink.getvalue())

    def read_table(self, schema: pa.Schema, *parts: str) -> pa.Table | None:
        """A stored table, or None where it is absent, torn, or of another schema."""
        if not self.exists(*parts):
            return None
        try:
            table = pq.read_table(self.path(*parts), filesystem=self.fs, partitioning=None)
        except (pa.ArrowInvalid, OSError):
            return None
        return table if table.schema.equals(schema) else None

    def write_bytes(self, data: bytes, *parts: str) -> None:
        """Write any bytes, whole or not at all."""
        self._write("/".join(parts), data)

    def read_bytes(self, *parts: str) -> bytes:
        """The content of a file. Raises OSError where there is none."""
        with self.fs.open_input_stream(self.path(*parts)) as stream:
            return bytes(stream.read())

    def rename(self, new: str, *parts: str) -> None:
        """Give a file another name in its folder; it is no error when it is gone."""
        try:
            self.fs.move(self.path(*parts), self.path(*parts[:-1], new))
        except OSError:  # an object store has no error of its own for what is gone
            if self.exists(*parts):
                raise

    def delete(self, *parts: str) -> None:
        """Delete one file; it is no error when somebody else already did."""
        try:
            self.fs.delete_file(self.path(*parts))
        except FileNotFoundError:
            return

    def delete_folder(self, *parts: str) -> None:
        """Delete a folder with all that is in it; it is no error when it is gone."""
        try:
            self.fs.delete_dir(self.path(*parts))
        except FileNotFoundError:
            return

    def copy_in(self, folder: Path, *parts: str) -> None:
        """Copy a local folder's files into the store, each whole or not at all."""
        pafs.copy_files(str(folder), self.path(*parts), pafs.LocalFileSystem(), self.fs)

    def copy_out(self, folder: Path, *parts: str) -> None:
        """Copy a folder of the store to a local one, made if absent."""
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


def _refuse_keys(uri: str) -> None:
    """An address is printed and kept; a key in it would be, too."""
    address = urlsplit(uri)
    user, found, _ = address.netloc.rpartition("@")
    if found and (address.scheme == "s3" or ":" in user):  # abfs://CONTAINER@… names a container
        raise StoreError(
            f"storage {address.scheme}://… holds a key: leave it out of the address, and export "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or your cloud's own) instead"
        )


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a local folder's lock; waits for another process that holds it.

    The kernel gives the lock back when its holder dies, so a kill leaves nothing to clean. The file
    `.lock` names the holder's process, for whoever wonders.
    """
    import fcntl

    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
        yield
