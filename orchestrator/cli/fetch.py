"""`decile fetch`: downloads what an experiment reads from the hub, for machines without network."""

import argparse
import glob
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.terminal import echo
from orchestrator.config.catalog import load_config
from orchestrator.config.problems import Problem
from orchestrator.pipeline.transfer import (
    HubFile,
    TransferProgress,
    absent_files,
    download,
    list_files,
    one_at_a_time,
    received,
    size_text,
)
from orchestrator.planning.load import fetch_advice, repositories
from orchestrator.planning.plan import make_plan
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
    unreachable,
)

Users = Mapping[Repository, Sequence[str]]  # the names in the file that need a repository


def fetch(arguments: argparse.Namespace) -> int:
    """Download, check and link the files of every repository, then load the data sets."""
    loaded = load_config(arguments.file)
    name = loaded.only_experiment(arguments.experiment)
    with loaded.located():
        resolved = resolve(loaded.config, loaded.experiment(name))
    tasks: dict[str, Task] = {}
    for dataset_name, dataset in {**resolved.datasets, **resolved.test_sets}.items():
        try:
            tasks[dataset_name] = dataset.build()  # reads no data yet
        except TaskError as error:
            problem = Problem("invalid-dataset", str(error), "datasets", dataset_name)
            raise loaded.error(problem) from error
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
    files: dict[Repository, list[HubFile]] = {}
    absent: list[HubFile] = []
    if users and (reason := unreachable()):
        needed = [each for each in users if cached_folder(each) is None]
        if needed:
            raise HubFails(
                f"{needed[0]} cannot be downloaded ({reason}): {fetch_advice(loaded, name)} that "
                f"shares {folder}, or copy that folder"
            )
        _say(f"{reason}: the hashes of the files are not checked")
    else:
        with one_at_a_time(lambda process: _say(f"waits until process {process} ends")):
            for each, names in users.items():
                try:
                    files[each] = list_files(each)
                except HubFails:
                    raise
                except TaskError as error:  # refused: at the line of its entry
                    block = "models" if each.kind == "model" else "datasets"
                    problem = Problem("refused-by-hub", str(error), block, names[0])
                    raise loaded.error(problem) from error
            absent = _transfer(users, files)
    make_plan(loaded, name)  # reads the data sets as a run does, also those of a user's own tasks
    view = _view(name, users, files, absent)
    echo(json.dumps(view, indent=2) if arguments.json else _text(view))
    return 0


def _transfer(users: Users, files: Mapping[Repository, Sequence[HubFile]]) -> list[HubFile]:
    """Bring every file into the cache; returns those that were downloaded."""
    distinct = list({file.blob: file for each in files.values() for file in each}.values())
    present = [file for file in distinct if file.blob.is_file() or file.link.is_file()]
    with TransferProgress("checking", sum(file.size for file in present)) as progress:
        absent = {*absent_files(distinct, progress.advance)}
    needed = [file for file in distinct if file in absent]
    total, done = sum(file.size for file in needed), received(needed)
    free = shutil.disk_usage(cache_folder()).free
    if total - done > free:
        raise UserError(
            f"{size_text(total - done)} are to be downloaded to {cache_folder()}, and its disk has "
            f"{size_text(free)} free: set HF_HOME to a folder on another disk, or free some"
        )
    if needed:
        _say(
            f"{counted(len(needed), 'file')} to download to {cache_folder()}: "
            f"{size_text(total - done)}"
        )
    with TransferProgress("downloading", total, done) as progress:
        for repository, each in files.items():
            progress.label = f"downloading {repository.id}"
            download([file for file in each if file in absent], progress.advance)
            fetch_snapshot(repository, [glob.escape(file.path) for file in each])  # links them
    return needed


def _view(
    name: str,
    users: Users,
    files: Mapping[Repository, Sequence[HubFile]],
    downloaded: Sequence[HubFile],
) -> dict[str, Any]:
    """What `decile fetch --json` prints."""
    new = {file.blob for file in downloaded}
    return {
        "experiment": name,
        "cache": str(cache_folder()),
        "repositories": [
            {
                "kind": each.kind,
                "hub": each.id,
                "revision": each.revision,
                "names": list(names),
                "folder": str(each.snapshot),
                "files": len(files.get(each, [])),
                "bytes": sum(file.size for file in files.get(each, [])),
                "downloaded_bytes": sum(f.size for f in files.get(each, []) if f.blob in new),
            }
            for each, names in users.items()
        ],
    }


def _text(view: Mapping[str, Any]) -> str:
    """The same as text."""
    if not view["repositories"]:
        return f"{view['experiment']} reads nothing from the hub"
    rows = [
        [
            ", ".join(each["names"]),
            f"{each['hub']}@{each['revision'][:12]}",
            size_text(each["bytes"]) if each["files"] else "–",
            size_text(each["downloaded_bytes"]),
        ]
        for each in view["repositories"]
    ]
    width = output_width()
    table = table_text(["used by", "repository", "size", "downloaded"], rows, width)
    last = (
        f"everything that {view['experiment']} reads is in {view['cache']}; on machines without "
        "internet access, set HF_HUB_OFFLINE=1 and the same HF_HOME"
    )
    return f"{table}\n\n{wrapped(last, width)}"


def _say(text: str) -> None:
    echo(text, sys.stderr)
