"""Two processes of one training, as `torchrun` starts them."""

import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from processes import LIMIT, free_port
from torch.multiprocessing import start_processes

multiprocessing.set_forkserver_preload(["orchestrator.training.trainer"])


def two_workers(
    target: Callable[..., None], folder: Path, *arguments: object, connected: bool = True
) -> None:
    """Call `target(rank, folder, *arguments)` in both, in that folder. Raises the first error.

    Without `connected`, the target is what connects them. They are forked from a process that has
    imported torch and TRL, which takes five seconds.
    """
    sizes = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    values = (target, folder, arguments, connected, os.environ | sizes | meeting)
    start_processes(_worker, values, nprocs=2, start_method="forkserver")


def _worker(
    rank: int,
    target: Callable[..., None],
    folder: Path,
    arguments: tuple[object, ...],
    connected: bool,
    variables: dict[str, str],
) -> None:
    os.environ.clear()  # those of the forking process, which may be of an earlier test
    os.environ |= variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.chdir(folder)
    torch.set_num_threads(1)
    if connected:
        dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT))
    target(rank, folder, *arguments)
    dist.barrier()  # gloo aborts a process whose peer exits while a message is in flight
    dist.destroy_process_group()
