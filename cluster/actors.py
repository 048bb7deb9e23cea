"""Work in other processes: parts mapped over a pool of actors (Ray Data), or one remote call."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from cluster.interpreter import worker_options
from cluster.ray_internals import pass_actor_arguments_by_value, session_logs
from cluster.resources import Share
from cluster.session import quiet_logs

LOG = logging.getLogger(__name__)
WAIT_SECONDS = 60.0  # until a call that has no result yet is mentioned, again and again
RESTARTS = 3  # Ray Data's default restarts a crashing actor without limit


class WorkerFails(RuntimeError):
    """A worker cannot load what it is sent, such as a function of a module that it lacks."""


def map_over_actors(
    parts: Iterable[pa.Table],
    actor: type,
    arguments: dict[str, Any],
    share: Share,
    python: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows that `actor(**arguments)` returns for each part, in order of completion.

    Each row of a table is a part, hence a batch, so that Ray Data's settings cannot split or merge
    parts. A table is the work of one task; one at a time is in this process's memory before Ray's
    object store holds it, which spills to disk. The actors run under the interpreter `python`, or
    this one. Ray must be connected. Raises RuntimeError, with the traceback, where an actor raises,
    and RayError where one dies.
    """
    import ray.data
    import ray.exceptions

    quiet_logs()
    pass_actor_arguments_by_value()
    with warnings.catch_warnings():
        # There is no other parameter that limits restarts yet, and the default is unlimited.
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
        # Only the text has the actor's own error, before that of Ray Data, which ends with advice.
        raise RuntimeError(str(error).partition("\n\nThe above exception was")[0]) from None
    except ray.exceptions.RayError as error:
        raise error from None  # of an exception of Ray Data's own that says nothing


def run_in_worker(
    function: Callable[[Any], str], argument: Any, gpus: float = 0, python: str | None = None
) -> str:
    """Call the function in a Ray worker, under the interpreter `python` or this one.

    Its own exception is raised here, unwrapped. Raises WorkerFails where the worker cannot load
    the function or its argument.
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
