"""Work in other processes: parts mapped over a pool of actors (Ray Data), or one remote call.

Workers may use a different Python interpreter, for libraries with pins that conflict with Decile's.
"""

import importlib.metadata
import logging
import os
import platform
import re
import shlex
import socket
import subprocess
import warnings
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from cluster.ray_internals import pass_actor_arguments_by_value, session_logs
from cluster.resources import Share
from cluster.session import quiet_logs

T = TypeVar("T")
TIMEOUT = 60.0  # seconds to print two versions, from a slow network file system
_VERSIONS = """
import importlib.metadata, platform
try:
    ray = importlib.metadata.version("ray")
except importlib.metadata.PackageNotFoundError:
    ray = "none"
print("versions", platform.python_version(), ray)
"""


def interpreter_path(python: str) -> str:
    """An absolute path. Links are not followed: an environment's interpreter is a link."""
    return os.path.abspath(Path(python).expanduser())


def worker_options(python: str | None) -> dict[str, Any]:
    """Options of `ray.remote` for workers with this interpreter; empty for the driver's own."""
    if python is None:
        return {}
    command = shlex.quote(interpreter_path(python))  # Ray passes it to a shell
    return {"runtime_env": {"py_executable": command}}


def interpreter_problem(python: str) -> str:
    """Why Ray cannot start a worker with this interpreter on this node; empty if it can.

    Ray itself would repeatedly start workers that fail.
    """
    path, node = interpreter_path(python), socket.gethostname()
    command = [path, "-c", _VERSIONS]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=True, cwd="/"
        )
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"{path} does not run on {node}: {lines[-1]}"
    versions = re.search(r"^versions (\S+) (\S+)$", process.stdout, re.MULTILINE)
    if versions is None:
        return f"{path} on {node} is not a Python interpreter"
    (python, ray), own = versions.groups(), platform.python_version()
    own_ray = importlib.metadata.version("ray")
    if _minor(python) == _minor(own) and ray == own_ray:
        return ""
    return (
        f"{path} has Python {python} and {'no Ray' if ray == 'none' else f'Ray {ray}'}, but Decile "
        f"runs under Python {own} and Ray {own_ray}: the minor version of Python and the version "
        "of Ray must be the same"
    )


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


LOG = logging.getLogger(__name__)
WAIT_SECONDS = 60.0  # between log messages about a call without a result
RESTARTS = 3  # Ray Data's default restarts a crashing actor without limit


class WorkerFails(RuntimeError):
    """A worker cannot load its task, such as a function of a module that it lacks."""


def map_over_actors(
    parts: Iterable[pa.Table],
    actor: type,
    arguments: dict[str, Any],
    share: Share,
    python: str | None = None,
) -> Generator[dict[str, Any]]:
    """Yield the rows that `actor(**arguments)` returns for each part, in order of completion.

    Each row of a table is a part, and a batch, so that Ray Data's settings cannot split or merge
    parts. A table is the work of one task; only one at a time is in this process's memory before it
    moves to Ray's object store, which spills to disk. The actors use the interpreter `python`, or
    this one. Ray must be connected. Raises RuntimeError, with the traceback, if an actor raises,
    and RayError if one dies.
    """
    import ray.data
    import ray.exceptions

    quiet_logs()
    pass_actor_arguments_by_value()
    with warnings.catch_warnings():
        # There is no other parameter for restarts yet, and the default is unlimited.
        warnings.filterwarnings("ignore", message="`ray_remote_args` is deprecated")
        results = ray.data.from_arrow(iter(parts)).map_batches(
            actor,
            fn_constructor_kwargs=arguments,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=share.actors),
            num_cpus=share.cpus,
            num_gpus=share.gpus,
            max_restarts=RESTARTS,
            max_task_retries=RESTARTS,
            **worker_options(python),
        )
    batches = results.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    try:
        for batch in batches:
            yield from batch.to_pylist()  # type: ignore[union-attr]
    except ray.exceptions.UserCodeException as error:
        # Only the text has the actor's own error, followed by Ray Data's, which ends with advice.
        raise RuntimeError(str(error).partition("\n\nThe above exception was")[0]) from None
    except ray.exceptions.RayError as error:
        raise error from None  # from an uninformative exception of Ray Data


def run_in_worker(
    function: Callable[[T], str], argument: T, gpus: float = 0, python: str | None = None
) -> str:
    """Call the function in a Ray worker, with the interpreter `python` or this one.

    Its exception is raised here, unwrapped. Raises WorkerFails if the worker cannot load the
    function or its argument.
    """
    import ray

    remote = ray.remote(num_cpus=0.5, num_gpus=gpus, **worker_options(python))(function)
    result, seconds = remote.remote(argument), 0.0
    while not ray.wait([result], timeout=WAIT_SECONDS)[0]:
        seconds += WAIT_SECONDS
        LOG.warning(
            "no answer from a Ray worker for %g s: it waits for resources, or does not start; "
            "Ray's logs on this node: %s",
            seconds,
            session_logs(),
        )
    try:
        return str(ray.get(result))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RaySystemError):
            raise WorkerFails(str(error.cause).strip().splitlines()[-1]) from None
        raise error.cause from None
