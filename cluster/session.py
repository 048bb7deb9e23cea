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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from cluster.ray_internals import (
    bootstrap_address,
    first_error,
    loopback_only,
    only_needed_processes,
    own_session_logs,
    own_token,
    project_config,
    shorten_errors_of_raylets,
)
from cluster.redaction import redact
from cluster.resources import ResourceError, capacity, usable_cpus
from cluster.terminal import PlainError
from cluster.watchdog import Watchdog, watched_start
from orchestrator.plugins.counts import counted

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": "3",  # by default, without limit
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths of data sets may be relative
}
LOCAL_ENVIRONMENT = {
    "RAY_enable_metrics_collection": "0",
    # A busy machine needs longer than Ray's 30 seconds.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_gcs_server_port_wait_time_s": "60",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",  # 5 by default: "Failed to connect to GCS"
}
# Measured: a trial of the embedded model takes 3.7 GiB of addresses, a session 20 to 35 MB of logs
# in 100 files, and a local Ray 135 threads and 40 to 80 open files a process.
ADDRESS_SPACE = 4 * 2**30
TEMPORARY_BYTES = 100_000_000
TEMPORARY_FILES = 200
THREADS = 150
OPEN_FILES = 100
OBJECT_STORE_BYTES = 200_000_000  # parts of a probe are small; Ray's default is 30 % of memory
SOCKET = "session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"  # the longest path
SOCKET_BYTES = 107 if sys.platform == "linux" else 103
REMEDIES = {
    r"No space left|Disk quota": "free some space there, or set RAY_TMPDIR to another folder",
    r"Permission denied|Read-only": "correct this, or set RAY_TMPDIR to another folder",
    r"Resource temporarily|start new thread": "raise ulimit -u, or end other processes",
    r"Too many open files": "raise ulimit -n",
    r"allocate memory|bad_alloc|MemoryError|by signal 9": "free memory",
    r"by signal 25": "raise ulimit -f",
    r"[Tt]imed out|not ready": "wait until the machine is less busy",
}


class RayFails(PlainError, RuntimeError):
    """Ray does not start, or ends its work early; the message has the remedy."""


def in_ray_job() -> bool:
    """Whether this process is the entry point of `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def quiet_logs() -> None:
    """Silence the start-up messages of Ray's libraries; failures still raise.

    Call it again after importing one of them, because each sets its own level on import.
    """
    for name in ("ray", "ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its errors are also raised


def _check_limits() -> None:
    """Raise RayFails if a local Ray would start and then hang, or end without a reason."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= soft < ADDRESS_SPACE:
        raise RayFails(
            f"ulimit -v allows this process {soft / 2**30:.2g} GiB of address space, but Ray's "
            f"processes take up to {ADDRESS_SPACE / 2**30:.0f} GiB each: raise it, or run "
            "ulimit -v unlimited"
        )
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)  # Ray raises its limit to this one
    if 0 <= limit < OPEN_FILES:
        raise RayFails(
            f"ulimit -n allows a process {limit} open files, but Ray needs {OPEN_FILES}: raise it"
        )
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit != resource.RLIM_INFINITY and (user := os.geteuid()):
        running = psutil.process_iter(["uids", "num_threads"])
        own = [
            each.info for each in running if each.info["uids"] and each.info["uids"].real == user
        ]
        used = sum(info["num_threads"] or 0 for info in own)
        if limit - used < THREADS:
            raise RayFails(
                f"ulimit -u allows this user {limit} threads ({used} are in use), but Ray "
                f"starts {THREADS}: raise it, or end other processes"
            )
    folder = ray_folder()
    if problem := _folder_problem(folder):
        raise RayFails(
            f"Ray cannot keep its files in {folder}: {problem}: set RAY_TMPDIR to a folder of "
            "yours with a short name"
        )
    existing = _existing(folder)
    if (free := shutil.disk_usage(existing).free) < TEMPORARY_BYTES:
        raise RayFails(
            f"{existing} has {free / 10**6:.0f} MB of free space, but Ray needs "
            f"{TEMPORARY_BYTES / 10**6:.0f} MB there: free some, or set RAY_TMPDIR to another "
            "folder"
        )
    system = os.statvfs(existing)
    if system.f_files and system.f_favail < TEMPORARY_FILES:
        raise RayFails(
            f"{existing} has space for {counted(system.f_favail, 'file')}, but Ray "
            f"needs {TEMPORARY_FILES} "
            "there: delete some, or set RAY_TMPDIR to another folder"
        )


def ray_folder() -> str:
    """The folder where a local Ray keeps its sockets and logs.

    RAY_TMPDIR, or else the usual folder for temporary files, or /tmp if that is unsuitable.
    """
    if chosen := os.environ.get("RAY_TMPDIR"):
        return os.path.abspath(os.path.join(chosen, "ray"))
    usual = os.path.join(tempfile.gettempdir(), "ray")
    return "/tmp/ray" if _folder_problem(usual) else usual  # noqa: S108


def _folder_problem(folder: str) -> str:
    """Why Ray cannot keep its files in a folder; empty if it can."""
    if re.search(r"[^ -~]|['\\]", folder):
        return "its name has a character that is not ASCII, a quotation mark or a backslash"
    if (excess := len(os.path.join(folder, SOCKET)) - SOCKET_BYTES) > 0:
        return f"its name is {counted(excess, 'character')} too long for sockets"
    existing = _existing(folder)
    if not os.path.isdir(existing) or not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} is not a folder that this user may write to"
    return ""


def _existing(folder: str) -> str:
    """A folder that may not exist yet, or else the nearest existing one above it."""
    return folder if os.path.exists(folder) else _existing(os.path.dirname(folder))


def _local() -> dict[str, Any]:
    """Arguments of `ray.init` for a local cluster."""
    return {
        "address": "local",  # never an unrelated cluster on this machine
        "num_cpus": usable_cpus(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
        "_temp_dir": ray_folder(),
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
            # Ray itself would retry for ten minutes if nothing listens.
            host, _, port = bootstrap_address(address).rpartition(":")
            if port.isdigit() and "/" not in host:
                socket.create_connection((host.strip("[]"), int(port)), timeout=30).close()
        shorten_errors_of_raylets()
        with ExitStack() as starting:
            if local:
                starting.enter_context(only_needed_processes())
                starting.enter_context(watched_start(no_local_ray))
            config = project_config()
            ray.init(log_to_driver=False, logging_level=logging.ERROR, job_config=config, **local)
    except Exception as error:  # Ray also raises plain ones
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
        raise RayFails(no_local_ray(error)) from error


def no_local_ray(problem: BaseException | str) -> str:
    """Why Ray does not start, from the error of `ray.init` and the logs, with a remedy."""
    logs = own_session_logs(ray_folder())
    reasons = [str(problem) or type(problem).__name__, first_error(logs) if logs else ""]
    cause = " ".join(": ".join(filter(None, reasons)).split())[:300]
    remedies = [remedy for pattern, remedy in REMEDIES.items() if re.search(pattern, cause)]
    text = ": ".join([cause, *remedies[:1]])
    place = f"; Ray's logs: {logs}" if logs else ""
    host = socket.gethostname()
    return (
        f"Ray does not start on this machine ({host}): {text}; rerun the same command to resume"
        f"{place}"
    )


def this_machine() -> dict[str, float]:
    """CPUs and GPUs of this machine, as in a local Ray; GPU models are keys with count 0.

    It reads the driver's files, so that a plan imports neither Ray nor torch.
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

    An autoscaling cluster counts with its maximum, `grows_to`: autoscalers do not report it to Ray.

    `RAY_ADDRESS` (set inside a job) is the cluster's address, or "auto" for one on this machine.
    Without it, a local cluster runs for the duration of the block, on loopback, without dashboard.
    A Ray that this process is already connected to, as in a notebook, is used and left running.
    """
    is_local = not os.environ.get("RAY_ADDRESS")
    for name, value in (ENVIRONMENT | (LOCAL_ENVIRONMENT if is_local else {})).items():
        os.environ.setdefault(name, value)
    own = sys.modules.get("ray")
    if own is not None and own.is_initialized():
        quiet_logs()
        yield capacity(own.cluster_resources(), grows_to)
        return
    local = _local() if is_local else {}
    if local:
        _check_limits()
    import ray

    quiet_logs()
    with ExitStack() as session:
        if local:
            session.enter_context(loopback_only())
            session.enter_context(own_token())
        _connect(local)
        watchdog = Watchdog()
        try:
            yield capacity(ray.cluster_resources(), None if local else grows_to)
        except Exception as error:
            watchdog.explain(2.0 if isinstance(error, ray.exceptions.RayError) else 0.0)
            raise
        finally:
            watchdog.stop()
            ray.shutdown()
