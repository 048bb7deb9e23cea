"""Repositories of the Hugging Face Hub at pinned commits, and what the local cache holds."""

import json
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orchestrator.plugins.deadlines import MAX_REPLY, limit_body, within
from tasks.errors import TaskError
from tasks.sources.user_files import MAX_SETTINGS, read_bytes
from tasks.words import word_list

if TYPE_CHECKING:
    from huggingface_hub import DryRunFileInfo

T = TypeVar("T")
REACH_SECONDS = 4.0  # for the hub's first answer
STALL_SECONDS, STALL_BYTES = (
    60.0,
    64 << 10,
)  # a download with less has stalled

# Files that are read: weights as safetensors, no code. Subfolders of a model hold other formats
# (onnx, original), and consolidated files repeat the same weights.
_READ = {
    "model": word_list(
        "*.safetensors, *.json, *.jinja, *.model, *.tiktoken, vocab.txt, merges.txt"
    ),
    "dataset": word_list(
        "README.md, *.yaml, *.parquet, *.json, *.jsonl, *.csv, *.tsv, *.arrow, *.txt, *.gz, *.bz2, "
        "*.xz, *.zst, *.zip"
    ),
}
_NOT_READ = {"model": ("*/*.safetensors", "*/*.json", "*/*.model", "consolidated*"), "dataset": ()}


@dataclass(frozen=True, order=True)
class Repository:
    """A model or a data set of the hub at a commit (40 hex digits)."""

    kind: Literal["model", "dataset"]
    id: str
    revision: str

    def __str__(self) -> str:
        return f"{self.id}@{self.revision}"

    @property
    def folder(self) -> Path:
        """Its folder in the local cache."""
        return cache_folder() / f"{self.kind}s--{self.id.replace('/', '--')}"

    @property
    def snapshot(self) -> Path:
        """The folder of its files in the local cache, by their names."""
        return self.folder / "snapshots" / self.revision

    @property
    def url(self) -> str:
        """Its page."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{('datasets/' if self.kind == 'dataset' else '')}{self.id}"

    def reads(self, path: str) -> bool:
        """Whether a file of this name is read."""
        return any(fnmatchcase(path, pattern) for pattern in _READ[self.kind]) and not any(
            fnmatchcase(path, pattern) for pattern in _NOT_READ[self.kind]
        )


class NotCached(TaskError):
    """Files that are not in the local cache, while the hub cannot be reached."""


class HubFails(TaskError):
    """A failure of the hub, the network or the disk; another attempt may succeed."""


def cache_folder() -> Path:
    """The local cache of the hub's client: HF_HUB_CACHE, or hub/ in HF_HOME."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = os.environ.get("HF_HOME") or Path(home, "huggingface")
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(named or Path(home, "hub"))).expanduser()


def cached_folder(repository: Repository) -> Path | None:
    """The folder of a repository's files if the local cache holds all of them, else None.

    Uses no network. A download leaves a listing of the files and their sizes. Without a listing, a
    model is complete if its weights are; for a data set, completeness is unknown.
    """
    if not repository.snapshot.is_dir():
        return None
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        listed = get_cached_repo_tree(
            repository.id,
            repo_type=repository.kind,
            revision=repository.revision,
            cache_dir=cache_folder(),
        )
    except CachedRepoTreeNotFoundError:
        whole = repository.kind == "model" and _holds_a_model(repository.snapshot)
    else:
        read = [(repository.snapshot / f.path, f.size) for f in listed if repository.reads(f.path)]
        whole = all(os.path.isfile(file) and os.path.getsize(file) == size for file, size in read)
    return repository.snapshot if whole else None


def downloaded_folder(repository: Repository) -> Path:
    """The folder of a repository's files, downloaded if the local cache does not hold them.

    Raises NotCached if the hub cannot be reached, and TaskError if it denies access.
    """
    if folder := cached_folder(repository):
        return folder
    if reason := unreachable():
        if repository.snapshot.is_dir():  # from another tool; reading reports missing files
            return repository.snapshot
        raise NotCached(not_cached(repository, reason))
    fetch_snapshot(repository)
    return repository.snapshot


def list_snapshot(repository: Repository) -> "list[DryRunFileInfo]":
    """The files of a repository that are read: their sizes, and which must be downloaded.

    Raises TaskError if the hub has no such model or data set, denies access, or has no safetensors
    weights; HubFails if the hub cannot be reached.
    """
    files: list[DryRunFileInfo] = fetch_snapshot(repository, dry_run=True)
    if repository.kind == "model" and not any(f.filename.endswith(".safetensors") for f in files):
        raise TaskError(
            f"{repository} has no .safetensors weights: write a commit or a model that has them"
        )
    if not files:
        raise TaskError(
            f"{repository} has no data files: write a commit or a data set that has them"
        )
    return files


def fetch_snapshot(repository: Repository, bar: Any = None, *, dry_run: bool = False) -> Any:
    """Let the hub's client complete a snapshot, and list it. Raises TaskError.

    Content that is already in the cache is only linked, not read. `bar` is the class of progress
    bars.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    try:
        with nullcontext() if bar else disable_progress_bars():
            return _unless_stalled(
                lambda: snapshot_download(
                    repository.id,
                    repo_type=repository.kind,
                    revision=repository.revision,
                    cache_dir=cache_folder(),
                    allow_patterns=[*_READ[repository.kind]],
                    ignore_patterns=[*_NOT_READ[repository.kind]],
                    tqdm_class=bar,
                    dry_run=dry_run,
                )
            )
    except Exception as error:  # the hub's client raises many types of errors
        raise hub_error(repository, error) from error


def verify_snapshot(repository: Repository) -> None:
    """Compare the content of a snapshot with its hashes on the hub, and delete differing files.

    Raises HubFails if files differ, and TaskError if the hub denies the hashes.
    """
    from huggingface_hub import HfApi

    try:
        compared = _unless_stalled(
            lambda: HfApi().verify_repo_checksums(
                repository.id,
                repo_type=repository.kind,
                revision=repository.revision,
                cache_dir=cache_folder(),
            )
        )
    except Exception as error:  # the hub's client raises many types of errors
        raise hub_error(repository, error) from error
    differing = [each["path"] for each in compared.mismatches if repository.reads(each["path"])]
    for path in differing:
        link = repository.snapshot / path
        link.resolve().unlink(missing_ok=True)  # another name may have the same content
        link.unlink(missing_ok=True)
    if differing:
        raise HubFails(
            f"{repository}: content that does not match its hash on the hub was deleted "
            f"({', '.join(differing)}): run the same command again to download it"
        )


@dataclass
class _Transfer:
    """The traffic of one call of the hub's client, in all of its threads."""

    received: int = 0  # bytes
    waiting: set[threading.Thread] = field(default_factory=set)  # for the rest of a response
    stalled: bool = False

    def begin(self, request: object = None) -> None:
        """A request is sent. Raises TimeoutError in a thread that a stalled call left behind."""
        if self.stalled and threading.current_thread() in self.waiting:
            raise TimeoutError("the download has stalled")
        self.waiting.add(threading.current_thread())

    def limit_body(self, response: Any) -> None:
        """The head of a response was received."""
        length = response.headers.get("content-length", "")
        in_memory = "/api/" in response.request.url.path or not length.isdecimal()
        limit_body(response, MAX_REPLY if in_memory else int(length), self._receive)

    def _receive(self, size: int) -> None:
        self.begin()
        self.received += size
        if not size:
            self.waiting.discard(threading.current_thread())


_calls = threading.Lock()  # the hub's library has one client


@cache
def _library_hooks() -> dict[str, list[Callable[..., Any]]]:
    """The hooks of the library's own client, read before it is replaced."""
    from huggingface_hub import get_session

    return get_session().event_hooks


def _unless_stalled(action: Callable[[], T]) -> T:
    """The result of a call of the hub's client. Raises TimeoutError if it receives too little.

    Hashing existing files may take any time. Xet storage is read by a Rust library, which has its
    own limits.
    """
    import httpx2
    from huggingface_hub import set_client_factory

    transfer, known, library = _Transfer(), 0, _library_hooks()
    hooks: dict[str, list[Callable[..., Any]]] = {
        "request": [*library["request"], transfer.begin],
        "response": [*library["response"], transfer.limit_body],
    }

    def limited() -> httpx2.Client:  # the library opens a new client after an error
        return httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=None)

    def advances() -> bool:
        nonlocal known
        before, known = known, transfer.received
        return not transfer.waiting or known - before >= STALL_BYTES

    with _calls:
        set_client_factory(limited)
        try:
            return within(STALL_SECONDS, action, advances)
        except TimeoutError:
            transfer.stalled = True
            raise


def current_commit(model: str) -> str:
    """The latest commit of a model on the hub. Raises the errors of the hub's client."""
    from huggingface_hub import HfApi

    return str(_unless_stalled(lambda: HfApi().model_info(model, timeout=2 * REACH_SECONDS).sha))


def unreachable() -> str:
    """Why the hub cannot be reached; empty if it answers. Takes at most REACH_SECONDS.

    The hub's client repeats a request for 25 seconds, and a resolver may block for longer than any
    timeout of a connection.
    """
    from huggingface_hub import constants, get_session

    try:
        within(REACH_SECONDS, lambda: get_session().head(constants.ENDPOINT, timeout=REACH_SECONDS))
    except TimeoutError:
        return f"{constants.ENDPOINT}: no answer in {REACH_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 (any failure means that nothing is downloaded)
        return _reason(error)
    return ""


def not_cached(repository: Repository, reason: str) -> str:
    """The message for a repository that is not in the local cache and cannot be downloaded."""
    return f"{repository} is not in {cache_folder()} and cannot be downloaded ({reason})"


def hub_error(repository: Repository, error: Exception) -> TaskError:
    """A failed request as a TaskError with a remedy; HubFails if the failure may be temporary."""
    from huggingface_hub.errors import (
        DryRunError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    is_wrapped = isinstance(error, LocalEntryNotFoundError | DryRunError)
    if is_wrapped and isinstance(error.__cause__, Exception):
        error = error.__cause__
    kind = {"model": "model", "dataset": "data set"}[repository.kind]
    token = "set HF_TOKEN to a token that may read it"  # noqa: S105 (no token)
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, GatedRepoError):
        return TaskError(
            f"{kind} {repository.id} is gated: accept its license on {repository.url}, and {token}"
        )
    if isinstance(error, RevisionNotFoundError):
        return TaskError(
            f"{kind} {repository.id} has no commit {repository.revision}: write one of "
            f"{repository.url}/commits"
        )
    if isinstance(error, RepositoryNotFoundError):
        return TaskError(
            f"{kind} {repository.id} does not exist, or it is private: correct its id, or {token}"
        )
    if status in (401, 403):
        return TaskError(f"{kind} {repository.id} may not be read ({status}): {token}")
    network = isinstance(error, ConnectionError | TimeoutError)
    if isinstance(error, OSError) and error.strerror and not network:
        return HubFails(
            f"{repository} cannot be written to {cache_folder()} ({error.strerror}): "
            "set HF_HOME to a folder on a disk with space, or free some"
        )
    return HubFails(
        f"{repository} cannot be downloaded ({_reason(error)}): "
        "run the same command again to continue"
    )


def _reason(error: BaseException) -> str:
    """An error of the hub's client in a few words."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    if isinstance(error, HfHubHTTPError):
        return f"{constants.ENDPOINT} answers with status {error.response.status_code}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return f"{cause.filename or constants.ENDPOINT}: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return f"{constants.ENDPOINT}: {' '.join(str(error).split())[:200] or type(error).__name__}"


def _holds_a_model(folder: Path) -> bool:
    """Whether a folder holds a configuration, a tokenizer and every file of the weights."""
    index = folder / "model.safetensors.index.json"
    weights = {"model.safetensors"}
    try:
        if index.is_file():
            weights = set(json.loads(read_bytes(index, MAX_SETTINGS))["weight_map"].values())
    except (ValueError, KeyError, AttributeError):
        return False
    tokenizers = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
    return all((folder / name).is_file() for name in ("config.json", *weights)) and any(
        (folder / name).is_file() for name in tokenizers
    )
