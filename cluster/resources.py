"""The usable CPUs of this machine, and the numbers of samplers and trials that fit concurrently."""

import os
from collections.abc import Mapping
from contextlib import suppress
from math import floor, inf
from pathlib import Path
from typing import NamedTuple

from cluster.terminal import PlainError


class ResourceError(PlainError, ValueError):
    """The requested resources can never fit the cluster, or there is no cluster to connect to."""


CGROUP = Path("/sys/fs/cgroup")


def usable_cpus(cgroup: Path = CGROUP) -> int:
    """CPUs that this process may use: its affinity, bounded by its container's quota; at least 1.

    Ray's own count ignores affinity (cpusets, Slurm, taskset), and is 0 for a quota below 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, floor(min(count, _cpu_quota(cgroup))))


def _cpu_quota(cgroup: Path) -> float:
    """The CPUs of a container's quota, from version 2 or 1 of the kernel's interface."""
    with suppress(OSError, ValueError):  # `max` is not a number: there is no quota
        quota, period = (cgroup / "cpu.max").read_text().split()
        return int(quota) / int(period)
    with suppress(OSError, ValueError):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota, period = ((cgroup / "cpu" / name).read_text() for name in names)
        return int(quota) / int(period) if int(quota) > 0 else inf
    return inf


def capacity(now: Mapping[str, float], limit: Mapping[str, float] | None) -> dict[str, float]:
    """Ray's resource counts after autoscaling: pending work makes a cluster grow to its limit."""
    return {**now, **{name: max(now.get(name, 0.0), most) for name, most in (limit or {}).items()}}


class Share(NamedTuple):
    """A number of actors, and the CPUs and GPUs of each."""

    actors: int
    cpus: float
    gpus: float


def probe_share(
    cluster: Mapping[str, float], parts: int, gpus_each: int = 1, most_on_cpus: int | None = None
) -> Share:
    """Sampler actors for a probe of `parts` parts: one per `gpus_each` GPUs, or one per CPU,
    `most_on_cpus` at most.

    With `gpus_each` 0 there is a single one, which calls a server. One CPU is left free for Ray
    Data's own tasks, which would otherwise wait forever. Raises ResourceError if the cluster has
    too few GPUs for one sampler.
    """
    cpus, gpus = cluster.get("CPU", 1.0), cluster.get("GPU", 0.0)
    if gpus_each > max(1.0, gpus):
        raise ResourceError(
            f"a sampler needs {gpus_each} GPUs, but the cluster has {gpus:g}: "
            "write a smaller probe.gpus"
        )
    on_cpus = min(floor(cpus), most_on_cpus or parts)
    most = floor(gpus) // max(1, gpus_each) if gpus >= 1 else on_cpus
    count = max(1, min(parts, most)) if gpus_each else 1
    each = floor(100 * max(cpus - 1, cpus / 2) / count) / 100
    return Share(count, min(1.0, each), float(gpus_each) if gpus >= 1 else 0.0)


def trials_at_once(cluster: Mapping[str, float], cpus: float, gpus: float, workers: int) -> int:
    """The number of trials of `workers` processes that fit. Raises ResourceError for 0."""
    have_cpus, have_gpus = cluster.get("CPU", 0.0), cluster.get("GPU", 0.0)
    fits = floor(have_cpus / (cpus * workers) + 1e-9)
    if gpus:
        # A fractional share is on one GPU: the remainders of two GPUs cannot be combined.
        shares = floor(1 / gpus + 1e-9) * floor(have_gpus)
        fits = min(fits, shares // workers)
    if fits < 1:
        raise ResourceError(
            f"a trial needs {workers} × ({cpus:g} CPUs, {gpus:g} GPUs), but the cluster has "
            f"{have_cpus:g} CPUs and {have_gpus:g} GPUs: write smaller resources, or pass the "
            "autoscaler's limit as --cpus and --gpus"
        )
    return fits
