"""Work in other processes: parts over a pool of actors (Ray Data), or one call in a worker."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from cluster.resources import Share
from cluster.session import quiet_logs

RESTARTS = 3  # Ray Data's default restarts a crashing actor for ever


def map_over_actors(
    parts: list[pa.Table], actor: type, arguments: dict[str, Any], share: Share
) -> Iterator[dict[str, Any]]:
    """The rows that `actor(**arguments)` gives for each part, as they come, in any order.

    Every part has one row: one batch of Ray Data, so that no setting of its own can split or merge
    parts. Needs a connected Ray.
    """
    import ray.data

    quiet_logs()
    with warnings.catch_warnings():
        # No named parameter limits restarts yet, and Ray's default is "for ever".
        warnings.filterwarnings("ignore", message="`ray_remote_args` is deprecated")
        done = ray.data.from_arrow(parts).map_batches(
            actor,
            fn_constructor_kwargs=arguments,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=share.actors),
            num_cpus=share.cpus,
            num_gpus=share.gpus,
            max_restarts=RESTARTS,
            max_task_retries=RESTARTS,
        )
    for batch in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from batch.to_pylist()  # type: ignore[union-attr]


def run_in_worker(function: Callable[[Any], str], argument: Any) -> str:
    """What the function returns in a Ray worker; its error is raised here as it was there."""
    import ray

    remote = ray.remote(num_cpus=0.5)(function)
    try:
        return str(ray.get(remote.remote(argument)))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
