"""How many samplers and trials fit concurrently. Pure arithmetic on Ray's resource counts."""

from collections.abc import Mapping
from math import floor
from typing import NamedTuple


class ResourceError(ValueError):
    """The requested resources can never fit the cluster, or there is no cluster to connect to."""


LARGEST = 4096.0  # devices; autoscalers without a limit report arbitrarily large numbers


def capacity(now: Mapping[str, float], *limits: Mapping[str, float] | None) -> dict[str, float]:
    """The resources of a cluster after autoscaling: pending work makes it grow to its limits.

    `now` and `limits` are Ray's resource counts by name.
    """
    total = dict(now)
    for limit in limits:
        for name, most in (limit or {}).items():
            total[name] = max(total.get(name, 0.0), min(float(most), LARGEST))
    return total


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

    With `gpus_each` 0 a single one, which calls a server. One CPU is left free for Ray Data's own
    tasks, which would otherwise wait forever. Raises ResourceError if the cluster has too few GPUs
    for one sampler.
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
    """How many trials of `workers` processes fit concurrently. ResourceError if none does."""
    have_cpus, have_gpus = cluster.get("CPU", 0.0), cluster.get("GPU", 0.0)
    fits = floor(have_cpus / (cpus * workers) + 1e-9)
    if gpus:
        # A fractional share lies on one GPU: the remainders of two GPUs cannot be combined.
        shares = floor(1 / gpus + 1e-9) * floor(have_gpus)
        fits = min(fits, shares // workers)
    if fits < 1:
        raise ResourceError(
            f"a trial needs {workers} × ({cpus:g} CPUs, {gpus:g} GPUs), but the cluster has "
            f"{have_cpus:g} CPUs and {have_gpus:g} GPUs: write smaller resources, or pass the "
            "autoscaler's limit as --cpus and --gpus"
        )
    return fits
