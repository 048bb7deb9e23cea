"""How many probes and trials fit at once. Pure arithmetic on Ray's resource counts."""

from collections.abc import Mapping
from math import floor
from typing import NamedTuple


class ResourceError(ValueError):
    """What was asked for never fits this cluster; the message says what there is."""


LARGEST = 4096.0  # devices; an autoscaler without a limit says "as many as there are"


def capacity(now: Mapping[str, float], *limits: Mapping[str, float] | None) -> dict[str, float]:
    """What a cluster has, or may grow to where a limit says so: pending work makes it grow.

    `now` and `limits` are Ray's resource counts by name.
    """
    found = dict(now)
    for limit in limits:
        for name, most in (limit or {}).items():
            found[name] = max(found.get(name, 0.0), min(float(most), LARGEST))
    return found


class Share(NamedTuple):
    """`actors` processes with so many CPUs and GPUs each."""

    actors: int
    cpus: float
    gpus: float


def probe_share(cluster: Mapping[str, float], parts: int, gpus_each: int = 1) -> Share:
    """Sampler actors for a probe of `parts` parts: one per `gpus_each` GPUs, or one per CPU.

    One CPU is left free: Ray Data's own tasks need it, and wait for ever where there is none.
    Raises ResourceError where the GPUs there are do not make one sampler.
    """
    cpus, gpus = cluster.get("CPU", 1.0), cluster.get("GPU", 0.0)
    if gpus_each > max(1.0, gpus):
        raise ResourceError(
            f"a sampler takes {gpus_each} GPUs, the cluster has {gpus:g}: "
            "write a smaller probe.gpus"
        )
    count = max(1, min(parts, floor(gpus) // gpus_each if gpus >= 1 else floor(cpus)))
    each = floor(100 * max(cpus - 1, cpus / 2) / count) / 100
    return Share(count, min(1.0, each), float(gpus_each) if gpus >= 1 else 0.0)


def trials_at_once(cluster: Mapping[str, float], cpus: float, gpus: float, workers: int) -> int:
    """How many trials of `workers` processes fit at once; ResourceError where not even one does."""
    have_cpus, have_gpus = cluster.get("CPU", 0.0), cluster.get("GPU", 0.0)
    fits = floor(have_cpus / (cpus * workers) + 1e-9)
    if gpus:
        # A fraction lies on one GPU: what is left on two of them never makes a third share.
        shares = floor(1 / gpus + 1e-9) * floor(have_gpus)
        fits = min(fits, shares // workers)
    if fits < 1:
        raise ResourceError(
            f"a trial takes {workers} × ({cpus:g} CPUs, {gpus:g} GPUs), the cluster has "
            f"{have_cpus:g} CPUs and {have_gpus:g} GPUs: write smaller resources, or --cpus and "
            "--gpus of a cluster that grows"
        )
    return fits
