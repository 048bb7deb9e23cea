"""`decile fetch`: downloads what an experiment reads from the hub, for machines without network."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

from cluster.printable_streams import unfiltered
from cluster.terminal import echo
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.json_output import json_text
from orchestrator.config.catalog import LoadedConfig, load_config
from orchestrator.config.problems import Problem
from orchestrator.planning.load import fetch_advice, fetch_command, load_pools, repositories
from orchestrator.planning.resolve import resolve
from orchestrator.plugins.counts import counted
from orchestrator.report.layout import output_width, table_text, wrapped
from orchestrator.storage.errors import UserError
from tasks import Task, TaskError
from tasks.sources.hub import (
    HubFails,
    Repository,
    cache_folder,
    cached_folder,
    fetch_snapshot,
    list_snapshot,
    unreachable,
    verify_snapshot,
)
from tasks.sources.user_files import size_text

if TYPE_CHECKING:
    from huggingface_hub import DryRunFileInfo

Users = Mapping[Repository, Sequence[str]]  # the names in the file that need a repository
Files = dict[Repository, list["DryRunFileInfo"]]  # the files that are read from each


@dataclass(frozen=True)
class Fetched:
    """A repository in the cache, with what `decile fetch --json` prints of it."""

    kind: str
    hub: str
    revision: str
    names: Sequence[str]
    folder: str
    files: int
    bytes: int
    downloaded_bytes: int

    @classmethod
    def of(
        cls, repository: Repository, names: Sequence[str], files: Sequence["DryRunFileInfo"]
    ) -> Self:
        """With the names in the file that need it, and the files that are read from it."""
        return cls(
            kind=repository.kind,
            hub=repository.id,
            revision=repository.revision,
            names=list(names),
            folder=str(repository.snapshot),
            files=len(files),
            bytes=_size(files),
            downloaded_bytes=_to_download(files),
        )

    @property
    def row(self) -> list[str]:
        """Its row of the printed table."""
        size = size_text(self.bytes) if self.files else "–"
        place = f"{self.hub}@{self.revision[:12]}"
        return [", ".join(self.names), place, size, size_text(self.downloaded_bytes)]


def fetch(arguments: argparse.Namespace) -> int:
    """Download and check the files of every repository, then load the data sets."""
    loaded = load_config(arguments.file)
    name = loaded.only_experiment(arguments.experiment)
    tasks: dict[str, Task] = {}
    with loaded.located():
        resolved = resolve(loaded.config, loaded.experiment(name))
        for dataset_name, dataset in {**resolved.datasets, **resolved.test_sets}.items():
            try:
                tasks[dataset_name] = dataset.build()  # reads no data yet
            except TaskError as error:
                path = ("datasets", dataset_name)
                raise Problem("invalid-dataset", str(error), *path) from error
    users = repositories(resolved.models.values(), tasks)
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{folder} cannot be written ({reason}): set HF_HOME to a folder on a disk with space"
        ) from error
    files: Files = {}
    if users and (reason := unreachable()):
        needed = [each for each in users if cached_folder(each) is None]
        if needed:
            advice = fetch_advice(fetch_command(loaded.file, name))
            raise HubFails(
                f"{needed[0]} cannot be downloaded ({reason}): {advice} that "
                f"shares {folder}, or copy that folder"
            )
        _say(f"{reason}: the hashes of the files are not checked")
    else:
        for each, names in users.items():
            with _at_entry(loaded, each, names[0]):
                files[each] = list_snapshot(each)
        _check_space(files)
        for each, names in users.items():
            with _at_entry(loaded, each, names[0]):
                _download(each, files[each])
    with loaded.located():  # reads the data sets as a run does, user's own tasks included
        load_pools(resolved.datasets | resolved.test_sets, fetch_command(loaded.file, name))
    fetched = [Fetched.of(each, names, files.get(each, [])) for each, names in users.items()]
    if arguments.json:
        repositories_json = [asdict(each) for each in fetched]
        view = {"experiment": name, "cache": str(folder), "repositories": repositories_json}
        echo(json_text("fetch", view))
    else:
        echo(_text(name, fetched))
    return ExitCode.DONE


@contextmanager
def _at_entry(loaded: LoadedConfig, repository: Repository, name: str) -> Iterator[None]:
    """Report what the hub refuses in this block as an error at the line of its entry."""
    try:
        yield
    except HubFails:
        raise
    except TaskError as error:
        block = "models" if repository.kind == "model" else "datasets"
        raise loaded.error(Problem("refused-by-hub", str(error), block, name)) from error


def _check_space(files: Files) -> None:
    needed = sum(_to_download(each) for each in files.values())
    free = shutil.disk_usage(cache_folder()).free
    if needed > free:
        raise UserError(
            f"{size_text(needed)} must be downloaded to {cache_folder()}, but its disk has only "
            f"{size_text(free)} free: set HF_HOME to a folder on another disk, or free some space"
        )


def _download(repository: Repository, files: Sequence["DryRunFileInfo"]) -> None:
    """Download a repository into the cache; slow steps print a line, on a terminal also bars."""
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    count = sum(file.will_download for file in files)
    if count:
        size = size_text(_to_download(files))
        _say(f"downloading {repository.id}: {counted(count, 'file')}, {size}")
    # The bars redraw with escape sequences, so they are not filtered; their texts are the client's.
    fetch_snapshot(repository, partial(tqdm, file=unfiltered(sys.stderr), disable=None))
    _say(f"checking the hashes of {repository.id}: {size_text(_size(files))}")
    verify_snapshot(repository)


def _size(files: Sequence["DryRunFileInfo"]) -> int:
    return sum(file.file_size or 0 for file in files)


def _to_download(files: Sequence["DryRunFileInfo"]) -> int:
    return _size([file for file in files if file.will_download])


def _text(name: str, fetched: Sequence[Fetched]) -> str:
    """What `decile fetch` prints."""
    if not fetched:
        return f"{name} reads nothing from the hub"
    width = output_width()
    heading = ["used by", "repository", "size", "downloaded"]
    table = table_text(heading, [each.row for each in fetched], width)
    last = (
        f"everything that {name} reads is in {cache_folder()}; on machines without "
        "internet access, set HF_HUB_OFFLINE=1 and the same HF_HOME"
    )
    return f"{table}\n\n{wrapped(last, width)}"


def _say(text: str) -> None:
    echo(text, sys.stderr)
