"""Two processes of one training, connected by gloo."""

import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

multiprocessing.set_forkserver_preload(["orchestrator.training.trainer"])


def two_workers(target: Callable[..., None], folder: Path, *arguments: object) -> None:
    """Call `target(rank, folder, *arguments)` in both, in that folder. Raises the first error.

    They are forked from a process that has imported torch and TRL, which takes five seconds.
    """
    meeting = f"file://{folder}/{uuid4().hex}"
    values = (target, folder, arguments, meeting, dict(os.environ))
    start_processes(_worker, values, nprocs=2, start_method="forkserver")


def _worker(
    rank: int,
    target: Callable[..., None],
    folder: Path,
    arguments: tuple[object, ...],
    meeting: str,
    variables: dict[str, str],
) -> None:
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ.clear()  # those of the forking process, which may be of an earlier test
    os.environ |= variables | ranks | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.chdir(folder)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=300)
    )
    target(rank, folder, *arguments)
    dist.barrier()  # gloo aborts a process whose peer exits while a message is in flight
    dist.destroy_process_group()
