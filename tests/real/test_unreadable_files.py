"""Small files of other processes: what cannot be read, or is not what it should be, is unknown."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import bucket, s3_server

from orchestrator.storage.locks import exclusive
from orchestrator.storage.store import GROWN_PATH, SET_ASIDE, Store


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


def test_an_object_with_the_longest_key_is_set_aside(server: str) -> None:
    store = Store(bucket(server, "keys"))
    within = len(store.root.partition("/")[2]) + 7  # the bucket is no part of a key
    for name in ("é" * ((GROWN_PATH - within) // 2 - 4), "k" * 120, "k"):
        store.write_bytes(b"x", "cells", name)
        store.set_aside("cells", name)
    names = store.names("cells")
    assert len(names) == 3 and all(name.endswith(SET_ASIDE) for name in names)
    assert max(len(name.encode()) + within for name in names) <= GROWN_PATH


def test_a_lock_that_names_no_process_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / ".lock").write_bytes(b"\xff\x1b]0;x\x07" * 1000)
    heard: list[str] = []
    held = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", held, folder / ".lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()

        def waits(process: str) -> None:
            heard.append(process)
            other.stdin.write(b"\n")
            other.stdin.flush()

        with exclusive(folder, waits):
            assert (folder / ".lock").read_text() == f"{os.getpid()}\n"
    assert len(heard) == 1 and len(heard[0]) <= 20
