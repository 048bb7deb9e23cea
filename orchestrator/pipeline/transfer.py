"""Files of the hub at pinned commits -> its local cache: resumed after a kill, checked by hash.

The hub's client begins a file again after a kill. So files are received here, under the names
by which the client looks for them in its cache (blobs/HASH), and the client then links them.
Progress is a bar on a terminal, and plain lines elsewhere.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, TextIO

from cluster.ending import at_end
from cluster.terminal import echo
from orchestrator.cost.forecast import TimeLeft
from orchestrator.pipeline.live_region import open_region, progress_stream
from orchestrator.pipeline.progress import Phase, phase_row, time_left
from orchestrator.storage.errors import UserError
from orchestrator.storage.locks import exclusive
from tasks import TaskError
from tasks.sources.hub import HubFails, Repository, cache_folder, hub_error

WORKERS = 4  # files at once
CHUNK = 1 << 20
RETRIES = 5  # without another byte of a file
LONGEST_WAIT = 8.0  # seconds before a retry
TIMEOUT = 20.0  # seconds without any data
_MAY_PASS = (408, 429, 500, 502, 503, 504)  # statuses of a hub that is busy or fails

Advance = Callable[[int], None]  # called with a number of bytes


@dataclass(frozen=True)
class HubFile:
    """A file of a repository: SHA-256 of a large file, git's hash of another, names its content."""

    repository: Repository
    path: str
    size: int
    digest: str

    @property
    def blob(self) -> Path:
        """Its content in the cache."""
        return self.repository.folder / "blobs" / self.digest

    @property
    def part(self) -> Path:
        """What is received of its content."""
        return self.blob.with_name(f"{self.digest}.incomplete")

    @property
    def link(self) -> Path:
        """Its place in the snapshot of the commit: a link to its content, or a copy."""
        return self.repository.snapshot / self.path


def list_files(repository: Repository) -> list[HubFile]:
    """The files that are read of a repository.

    Raises TaskError if the hub has no such model or data set, refuses it, or has no weights as
    safetensors; HubFails if the hub cannot be asked.
    """
    from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.hf_api import RepoFile

    kind, revision = repository.kind, repository.revision
    try:
        entries = HfApi().list_repo_tree(
            repository.id, recursive=True, repo_type=kind, revision=revision
        )
        files = [
            HubFile(repository, each.path, each.size, each.lfs.sha256 if each.lfs else each.blob_id)
            for each in entries
            if isinstance(each, RepoFile) and repository.reads(each.path)
        ]
        if files:  # a listing may be public where the files are not
            smallest = min(files, key=lambda file: file.size)
            url = hf_hub_url(repository.id, smallest.path, repo_type=kind, revision=revision)
            get_hf_file_metadata(url, timeout=TIMEOUT)
    except Exception as error:  # the hub's client raises many types of errors
        raise hub_error(repository, error) from error
    if repository.kind == "model" and not any(f.path.endswith(".safetensors") for f in files):
        raise TaskError(
            f"{repository} has no .safetensors weights: write a commit or a model that has"
        )
    if not files:
        raise TaskError(f"{repository} has no data files: write the commit of one that has")
    return files


@contextmanager
def one_at_a_time(waits: Callable[[str], None]) -> Iterator[None]:
    """Hold the cache's lock against other downloads like this; `waits` gets their process id."""
    folder = cache_folder() / ".locks" / "decile"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with suppress(OSError):  # a file system without locks: the hashes show what that spoils
            stack.enter_context(exclusive(folder, waits))
        yield


def absent_files(files: Sequence[HubFile], advance: Advance) -> list[HubFile]:
    """The files whose content the cache does not hold; content with another hash is deleted."""

    def is_absent(file: HubFile) -> bool:
        places = {place.resolve() for place in (file.link, file.blob) if place.is_file()}
        whole = []
        for place in places:
            same_size = place.stat().st_size == file.size
            whole.append(same_size and _digest(place, file, advance) == file.digest)
            if not whole[-1]:
                place.unlink()
        if not all(whole) and file.link.is_symlink():
            file.link.unlink()
        return not any(whole)

    with ThreadPoolExecutor(WORKERS) as pool:
        absent = list(pool.map(is_absent, files))
    return [file for file, missing in zip(files, absent, strict=True) if missing]


def received(files: Sequence[HubFile]) -> int:
    """Bytes of these files that an earlier download has received."""
    return sum(file.part.stat().st_size for file in files if file.part.is_file())


def download(files: Sequence[HubFile], advance: Advance) -> None:
    """Receive the content of files, continuing where an earlier download ended.

    Raises HubFails if the hub or the network fails, and for content that does not match its hash,
    which is deleted. After an error, the other files stop as well; what they received stays.
    """
    stop = threading.Event()

    def obtain(file: HubFile) -> None:
        try:
            if not stop.is_set():
                _download_file(file, advance, stop)
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(WORKERS) as pool:
        results = [pool.submit(obtain, file) for file in files]
        try:
            wait(results)
        except BaseException:
            stop.set()
            raise
    errors = [error for result in results if (error := result.exception())]
    if errors:
        raise errors[0]


def _download_file(file: HubFile, advance: Advance, stop: threading.Event) -> None:
    """Raises UserError where the content cannot be written."""
    try:
        file.part.parent.mkdir(parents=True, exist_ok=True)
        with file.part.open("ab") as out:
            _receive(file, out, advance, stop)
            os.fsync(out.fileno())
        if stop.is_set():
            return
        if _digest(file.part, file, lambda _: None) == file.digest:
            os.replace(file.part, file.blob)
            return
        file.part.unlink()
    except OSError as error:
        raise UserError(
            f"{file.part} cannot be written ({error.strerror or error}): set HF_HOME to a folder "
            "on a disk with space, or free some"
        ) from error
    raise HubFails(
        f"{file.repository}: {file.path} does not match its hash on the hub: deleted; "
        "run the same command again to download it"
    )


def _receive(file: HubFile, out: BinaryIO, advance: Advance, stop: threading.Event) -> None:
    """Append the rest of a file; retries while the hub or the network fails for a moment."""
    import httpx2  # of the hub's client
    from huggingface_hub.errors import HfHubHTTPError

    failures, furthest = 0, os.fstat(out.fileno()).st_size
    if furthest > file.size:
        os.ftruncate(out.fileno(), 0)
    while os.fstat(out.fileno()).st_size < file.size and not stop.is_set():
        problem: Exception = EOFError("the body ends early")
        try:
            _receive_body(file, out, advance, stop)
        except httpx2.TransportError as error:
            problem = error
        except HfHubHTTPError as error:
            problem = error
            if error.response.status_code not in _MAY_PASS:
                raise hub_error(file.repository, error) from error
        size = os.fstat(out.fileno()).st_size
        failures = 0 if size > furthest else failures + 1
        furthest = max(size, furthest)
        if failures > RETRIES:
            raise hub_error(file.repository, problem) from problem
        if size < file.size:
            stop.wait(min(LONGEST_WAIT, 2.0**failures / 2))


def _receive_body(file: HubFile, out: BinaryIO, advance: Advance, stop: threading.Event) -> None:
    """Append one response's body. The client drops the token where it is sent to another host."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        hf_raise_for_status,
    )

    repository, start = file.repository, os.fstat(out.fileno()).st_size
    url = hf_hub_url(
        repository.id, file.path, repo_type=repository.kind, revision=repository.revision
    )
    headers: Mapping[str, str] = build_hf_headers() | {"Accept-Encoding": "identity"}
    if start:
        headers = {**headers, "Range": f"bytes={start}-"}
    with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT) as response:
        if response.is_error:
            response.read()
        hf_raise_for_status(response)
        if start and response.status_code != 206:  # the whole file again
            os.ftruncate(out.fileno(), 0)
            advance(-start)
        for chunk in response.iter_bytes(CHUNK):
            out.write(chunk)
            out.flush()
            advance(len(chunk))
            if stop.is_set():
                return


def _digest(place: Path, file: HubFile, advance: Advance) -> str:
    """The hash of a file's content, of the kind that its digest is."""
    if len(file.digest) == 64:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % place.stat().st_size, usedforsecurity=False)
    with place.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()


UNITS = ("B", "kB", "MB", "GB", "TB")


class TransferProgress:
    """Bytes done of a total, with the time left at the speed so far.

    As a context manager it draws a bar if `out` is a terminal; elsewhere it prints a line from time
    to time. `done` bytes at the start count as no time. Several threads may call `advance`.
    """

    def __init__(
        self, label: str, total: int, done: int = 0, out: TextIO | None = None, every: float = 10.0
    ) -> None:
        self.label, self.total, self.done = label, total, done
        self._first, self._start = done, time.monotonic()
        self._out = out or progress_stream()
        self._every, self._last_line = every, self._start
        self._lock = threading.Lock()
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        region = open_region(self._out, lambda columns, lines: phase_row(self._phase()))
        if region:
            self._ending.callback(region.stop)
            self._ending.enter_context(at_end(region.stop, before_message=True))
            self._every = float("inf")
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def advance(self, count: int) -> None:
        """Count more bytes; fewer if some were lost."""
        with self._lock:
            self.done += count
            now = time.monotonic()
            if now - self._last_line < self._every:
                return
            self._last_line = now
        phase = self._phase()
        text = f"{phase.label}: {phase.detail}, ETA {time_left(phase.left)}"
        echo(text, self._out)

    def _phase(self) -> Phase:
        now = time.monotonic()
        gained, missing = self.done - self._first, self.total - self.done
        left = TimeLeft((now - self._start) * missing / gained, now) if gained > 0 else None
        share = min(1.0, self.done / self.total) if self.total else 1.0
        detail = f"{size_text(self.done)} of {size_text(self.total)}"
        return Phase(self.label, share, detail, left)


def size_text(size: float) -> str:
    """`8045000000` -> `8.05 GB`: three digits of the largest unit that is not below 1."""
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    digits = 0 if unit == 0 or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {UNITS[unit]}"
