"""Joins the Ray cluster that is there, or starts a small one in this process."""

import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.ray_internals import autoscaler_limit
from cluster.resources import ResourceError, capacity

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
OBJECT_STORE_BYTES = 200_000_000  # parts of a probe are small; Ray's default takes 30 % of memory


def in_ray_job() -> bool:
    """Whether this process is the entry point of `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def quiet_logs() -> None:
    """Ray's libraries speak of themselves at every start; what fails still raises.

    Called again after an import of one of them, because each sets its own level then.
    """
    for name in ("ray", "ray.data", "ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _local() -> dict[str, Any]:
    """Arguments of `ray.init` for a Ray of our own."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    return {
        "address": "local",  # not the cluster that somebody else may have started here
        "num_cpus": os.cpu_count(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }


def _connect(local: Mapping[str, Any]) -> None:
    import ray
    from ray.exceptions import AuthenticationError

    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("http"):
        raise ResourceError(
            f"RAY_ADDRESS={address} is where jobs are handed in: write ray job submit "
            "--working-dir . -- decile …, or unset RAY_ADDRESS to compute on this machine"
        )
    try:
        _check_reachable(address)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, AuthenticationError) as error:
        raise ResourceError(_no_cluster(error)) from error


def _check_reachable(address: str) -> None:
    """OSError where nothing listens at host:port; Ray itself would ask there for ten minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=30).close()


def _no_cluster(error: BaseException) -> str:
    at = f"no Ray cluster answers at RAY_ADDRESS={os.environ.get('RAY_ADDRESS')}"
    told = f"{error} {error.__cause__}"
    if "oken" not in told:
        return f"{at}: start one, or unset RAY_ADDRESS to compute on this machine"
    return (
        f"{at} with the token of this shell: write export RAY_AUTH_MODE=token, and keep the "
        "cluster's token in ~/.ray/auth_token, or in the file that RAY_AUTH_TOKEN_PATH names"
    )


def this_machine() -> dict[str, float]:
    """CPUs and GPUs of this machine, as Ray would count them; a GPU's model is a name with count 0.

    Asks the files of the driver, so that a plan loads neither Ray nor torch.
    """
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    found = {"CPU": float(os.cpu_count() or 1), "GPU": float(len(cards))}
    for card in cards:
        model = re.search(r"^Model:\s*(.*)$", card.read_text(), re.MULTILINE)
        found[model[1] if model else "GPU"] = found.get(model[1] if model else "GPU", 0.0)
    return found


@contextmanager
def ray_session(grows_to: Mapping[str, float] | None = None) -> Iterator[Mapping[str, float]]:
    """A connected Ray, as its resource counts; disconnects at the end.

    A cluster that grows counts as grown: to what its autoscaler tells Ray, or else to `grows_to`.
    Ray's own autoscalers tell nothing (2.60), so one that starts from no worker has to be named.

    `RAY_ADDRESS` (set inside a job) names a cluster, "auto" the one on this machine; without it a
    local Ray lives as long as the block, on loopback, without dashboard.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    local = {} if os.environ.get("RAY_ADDRESS") else _local()
    quiet_logs()
    _connect(local)
    try:
        grown = () if local else (autoscaler_limit(), grows_to)
        yield capacity(ray.cluster_resources(), *grown)
    finally:
        ray.shutdown()
