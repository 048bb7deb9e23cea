"""What a process writes below a folder, call by call, and kills after each of these calls.

`write_steps.c` sees every write, whichever library makes it. The processes are forked from a host
that has imported torch and TRL, which takes five seconds; several train one cell together.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from paths import ROOT, SUPPORT
from processes import LIMIT, free_port

Kill = tuple[int, int]  # of which worker, after how many of its writes


def available() -> bool:
    """Whether this machine can load a library before all others, and compile it."""
    return sys.platform == "linux" and shutil.which("cc") is not None


@dataclass
class Ended:
    """How the processes of a run ended: exit codes (negative: a signal) and writes, by rank."""

    codes: list[int]
    steps: list[list[str]]
    output: str

    def killed(self) -> bool:
        return -signal.SIGKILL in self.codes


class Host:
    """Runs functions in forked processes, one of which is killed after one of its writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "host.log"
        command = [sys.executable, __file__]
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        variables = {"LD_PRELOAD": str(compiled(folder)), "TMPDIR": str(self.scratch)}
        variables |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        paths = [str(SUPPORT), str(ROOT)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(
        self,
        target: str,
        *arguments: str,
        root: Path,
        workers: int = 1,
        kill: Kill | None = None,
        started: Callable[[list[int]], None] = lambda pids: None,
    ) -> Ended:
        """Call `target` (module:function) in `workers` processes, whose writes below `root` count.

        `started` is called with their ids.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {"target": target, "arguments": arguments, "root": str(root)}
        request |= {"workers": workers, "kill": kill, "folder": str(self.folder)}
        before = self.log.stat().st_size
        print(json.dumps(request), file=self.process.stdin, flush=True)
        started(json.loads(self.process.stdout.readline()))
        codes = json.loads(self.process.stdout.readline())
        logs = [self.folder / f"steps-{rank}" for rank in range(workers)]
        steps = [log.read_text().splitlines() for log in logs]
        return Ended(codes, steps, self.log.read_text()[before:])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def host(folder: Path) -> Iterator[Host]:
    """A host for as long as the block runs."""
    running = Host(folder)
    try:
        yield running
    finally:
        running.close()


def compiled(folder: Path, *flags: str) -> Path:
    """The library that counts writes, compiled with these flags."""
    library = folder / "write_steps.so"
    source = Path(__file__).with_suffix(".c")
    command = ["cc", "-shared", "-fPIC", "-O1", *flags, "-o", library, source, "-ldl"]
    subprocess.run(command, check=True)
    return library


def serve() -> None:
    """The main loop of a host."""
    import_module("orchestrator.training.trainer")
    for line in sys.stdin:
        request = json.loads(line)
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        pids = [_forked(request, rank, variables) for rank in range(request["workers"])]
        print(json.dumps(pids), flush=True)
        print(json.dumps(_ended(pids)), flush=True)


def _ended(pids: Sequence[int]) -> list[int]:
    """Wait for all; as Ray does, end the others of a group of which one has failed."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + LIMIT
    while len(codes) < len(pids):
        for pid in [pid for pid in pids if pid not in codes]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        if any(codes.values()) or time.monotonic() > deadline:
            for pid in [pid for pid in pids if pid not in codes]:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def _forked(request: dict[str, Any], rank: int, variables: dict[str, str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with suppress(KeyboardInterrupt):
            _call(request, rank, variables)
            code = 0
    except BaseException:  # noqa: BLE001 for whoever reads the log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _call(request: dict[str, Any], rank: int, variables: dict[str, str]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.dup2(2, 1)  # what is printed is not a reply
    sizes = {"WORLD_SIZE": str(request["workers"]), "LOCAL_WORLD_SIZE": str(request["workers"])}
    log = os.open(f"{request['folder']}/steps-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    fatal = request["kill"][1] if request["kill"] and request["kill"][0] == rank else 0
    module, _, name = request["target"].partition(":")
    function = getattr(import_module(module), name)
    if request["workers"] > 1:
        os.environ |= variables | sizes | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT))
    ctypes.CDLL(None).arm(request["root"].encode(), ctypes.c_long(fatal), log)
    function(*request["arguments"])
    if request["workers"] > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    serve()
