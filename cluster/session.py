"""Connects to an existing Ray cluster, or starts a local one."""

import logging
import os
import re
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from cluster.ray_internals import (
    autoscaler_limit,
    bootstrap_address,
    hide_log_of_dead_raylet,
    loopback_only,
    only_needed_processes,
)
from cluster.redaction import redact
from cluster.resources import ResourceError, capacity, usable_cpus
from cluster.watchdog import Watchdog, watched_start

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths of data sets may be relative
}
ADDRESS_SPACE = 4 * 2**30  # of a trial of the embedded model, measured: 3.7 GiB
TEMPORARY_BYTES = 100_000_000  # measured: 20 to 35 MB of logs in a session
OBJECT_STORE_BYTES = 200_000_000  # parts of a probe are small; Ray's default is 30 % of memory


class RayFails(RuntimeError):
    """Ray does not start, or ends its work early; the message says what to do."""


def in_ray_job() -> bool:
    """Whether this process is the entry point of `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def quiet_logs() -> None:
    """Silence the start-up messages of Ray's libraries; failures still raise.

    To be called again after importing one of them, because each sets its own level on import.
    """
    for name in ("ray", "ray.data", "ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _check_limits() -> None:
    """Raise RayFails where a local Ray would start and then hang, or end without a reason."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= soft < ADDRESS_SPACE:
        raise RayFails(
            f"ulimit -v allows this process {soft / 2**30:.2g} GiB of address space, and Ray's "
            f"processes take up to {ADDRESS_SPACE / 2**30:.0f} GiB each: raise it, or run "
            "ulimit -v unlimited"
        )
    folder = Path(_temporary_folder())
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if (free := shutil.disk_usage(existing).free) < TEMPORARY_BYTES:
        raise RayFails(
            f"{existing} has {free / 10**6:.0f} MB of free space, and Ray needs "
            f"{TEMPORARY_BYTES / 10**6:.0f} MB there: free some, or set TMPDIR to another folder"
        )


def _temporary_folder() -> str:
    """The folder below which a local Ray keeps its sockets and logs."""
    return os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()


def _local() -> dict[str, Any]:
    """Arguments of `ray.init` for a local cluster."""
    return {
        "address": "local",  # never an unrelated cluster on this machine
        "num_cpus": usable_cpus(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }


def _connect(local: Mapping[str, Any]) -> None:
    import ray

    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("http"):
        raise ResourceError(
            f"RAY_ADDRESS={redact(address)} is a job submission address: run ray job submit "
            "--working-dir . -- decile …, or unset RAY_ADDRESS to run on this machine"
        )
    try:
        if not local and "://" not in address:
            # Ray itself would retry for ten minutes where nothing listens.
            host, _, port = bootstrap_address(address).rpartition(":")
            if port.isdigit() and "/" not in host:
                socket.create_connection((host.strip("[]"), int(port)), timeout=30).close()
        hide_log_of_dead_raylet()
        with watched_start(_no_local_ray) if local else nullcontext():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # Ray raises plain ones, too
        if not local:
            problem = f"cannot connect to a Ray cluster at RAY_ADDRESS={redact(address)}"
            remedy = "start one, or unset RAY_ADDRESS to run on this machine"
            if "oken" in f"{error} {error.__cause__}":  # "token" or "Token"
                problem += " with the current token"
                remedy = (
                    "export RAY_AUTH_MODE=token, and put its token in ~/.ray/auth_token or in the "
                    "file named by RAY_AUTH_TOKEN_PATH"
                )
            raise ResourceError(f"{problem}: {remedy}") from error
        ray.shutdown()
        raise RayFails(_no_local_ray(error)) from error


def _no_local_ray(cause: BaseException | str) -> str:
    reason = " ".join(str(cause).split())[:200] or type(cause).__name__
    return (
        f"Ray does not start on this machine ({socket.gethostname()}): {reason}; its logs are in "
        f"{_temporary_folder()}/ray/session_latest/logs; free memory, processes and space in "
        "TMPDIR, then rerun the same command"
    )


def this_machine() -> dict[str, float]:
    """CPUs and GPUs of this machine, as a local Ray has them; GPU models are keys with count 0.

    Reads the driver's files, so that a plan imports neither Ray nor torch.
    """
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    resources = {"CPU": float(usable_cpus()), "GPU": float(len(cards))}
    for card in cards:
        model = re.search(r"^Model:\s*(.*)$", card.read_text(), re.MULTILINE)
        if model:
            resources[model[1]] = 0.0
    return resources


@contextmanager
def ray_session(grows_to: Mapping[str, float] | None = None) -> Iterator[Mapping[str, float]]:
    """Connect to Ray, yield its resource counts, and disconnect at the end.

    An autoscaling cluster counts with its maximum: what its autoscaler reports to Ray, or else
    `grows_to`. Ray's own autoscalers report nothing (2.60), so a cluster that starts without
    workers needs `grows_to`.

    `RAY_ADDRESS` (set inside a job) is the cluster's address, or "auto" for one on this machine.
    Without it, a local cluster runs for the duration of the block, on loopback, without dashboard.
    A Ray that this process has connected to already, as in a notebook, is used and left running.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    own = sys.modules.get("ray")
    if own is not None and own.is_initialized():
        quiet_logs()
        yield capacity(own.cluster_resources(), autoscaler_limit(), grows_to)
        return
    local = {} if os.environ.get("RAY_ADDRESS") else _local()
    if local:
        _check_limits()
    import ray

    quiet_logs()
    with loopback_only() if local else nullcontext(), only_needed_processes() if local else nullcontext():
        _connect(local)
        watchdog = Watchdog()
        try:
            grown = () if local else (autoscaler_limit(), grows_to)
            yield capacity(ray.cluster_resources(), *grown)
        except Exception as error:
            watchdog.explain(2.0 if isinstance(error, ray.exceptions.RayError) else 0.0)
            raise
        finally:
            watchdog.stop()
            ray.shutdown()
