"""Joins the Ray cluster that is there, or starts a small one in this process."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

OBJECT_STORE_BYTES = 200_000_000  # parts of a probe are small; Ray's default takes 30 % of memory


def in_ray_job() -> bool:
    """Whether this process is the entry point of `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


@contextmanager
def ray_session() -> Iterator[Mapping[str, float]]:
    """A connected Ray, as its resource counts; disconnects at the end.

    `RAY_ADDRESS` (set inside a job) names a cluster; without it a local Ray lives as long as the
    block, on loopback, without dashboard.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if not os.environ.get("RAY_ADDRESS"):
        local = {
            "num_cpus": os.cpu_count(),
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    else:
        local = {}
    ray.init(log_to_driver=False, logging_level="warning", **local)
    try:
        yield ray.cluster_resources()
    finally:
        ray.shutdown()
