"""The only module that uses private parts of Ray.

`tests/test_library_internals.py` compares everything used here with the installed version, and
`pyproject.toml` pins Ray to the minor version that was tested.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
NODE_SECONDS = 300.0  # until a local Ray has started; a process of it that ends is noticed at once
POLL_SECONDS = 0.1
# Takes the place of Ray's dashboard agent, with which a raylet starts and ends.
_WAIT_FOR_RAYLET = """import os, time
while os.getppid() == int(os.environ["RAY_RAYLET_PID"]):
    time.sleep(1)
"""


def autoscaler_limit() -> Mapping[str, float] | None:
    """The largest resource counts that the autoscaler reports for the cluster; None without one.

    Ray's public API has the resources of now only. Needs a connected Ray.
    """
    from ray._private.state import state

    limit: Mapping[str, float] | None = state.get_max_resources_from_cluster_config()
    return limit


@contextmanager
def loopback_only() -> Iterator[None]:
    """A Ray that is started inside this block listens on 127.0.0.1 only.

    Without this, Ray's servers bind to all interfaces, and `ray.init` replaces the node address
    127.0.0.1 by an external one. This is Ray's own setting for Windows and macOS; the variable
    passes it on to Ray's processes.
    """
    from ray._private import ray_constants

    enabled, variable = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(LOOPBACK_VARIABLE)
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[LOOPBACK_VARIABLE] = "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled
        os.environ.pop(LOOPBACK_VARIABLE)
        if variable is not None:
            os.environ[LOOPBACK_VARIABLE] = variable


@contextmanager
def only_needed_processes() -> Iterator[None]:
    """A Ray that is started inside this block consists of a GCS server, a raylet and its workers.

    Ray's dashboard, its agent, autoscaler and log monitor are left out: each imports Ray, and the
    raylet ends where its agents take longer than 15 s for that, as they do on a busy machine.
    The agent of runtime environments is needed. It gets a port, so that nothing waits for it before
    an environment is used. Ports of the others are said not to exist, as in a Ray that is installed
    without dashboard.
    """
    from ray import _raylet
    from ray._private import node, services

    original = node.Node

    class LocalNode(original):
        def __init__(self, ray_params: Any, **settings: Any) -> None:
            self.port = socket.socket()  # reserved as long as this exists
            self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.port.bind(("127.0.0.1", 0))
            if sys.platform != "linux":
                self.port.close()
            ray_params.update(
                no_monitor=True,
                include_log_monitor=False,
                runtime_env_agent_port=self.port.getsockname()[1],
            )
            try:
                super().__init__(ray_params, **settings)
            except BaseException:
                self.kill_all_processes(check_alive=False)
                raise

        def start_api_server(self, **_: Any) -> None:
            pass

        def start_raylet(self, *arguments: Any, **settings: Any) -> None:
            for name in ("METRICS_AGENT", "METRICS_EXPORT", "DASHBOARD_AGENT_LISTEN"):
                _raylet.persist_port(
                    self._session_dir, self._node_id, getattr(_raylet, f"{name}_PORT_NAME"), -1
                )
            command = services._build_python_executable_command_memory_profileable

            def of_component(component: str, *arguments: Any, **settings: Any) -> list[str]:
                if component == "dashboard_agent":
                    return [sys.executable, "-I", "-S", "-c", _WAIT_FOR_RAYLET]
                return command(component, *arguments, **settings)

            services._build_python_executable_command_memory_profileable = of_component
            try:
                super().start_raylet(*arguments, **settings)
            finally:
                services._build_python_executable_command_memory_profileable = command

    node.Node = LocalNode
    try:
        yield
    finally:
        node.Node = original


def keep_credentials_from_trials() -> None:
    """Stop Tune from copying AWS keys to the runtime environment of trials.

    Ray writes runtime environments to its session logs in plain text. Trials read credentials
    from the environment of their node, as samplers do.
    """
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE

    ENV_VARS_TO_PROPAGATE -= {name for name in ENV_VARS_TO_PROPAGATE if name.startswith("AWS_")}


def forget_metrics(trial: Any) -> None:
    """Drop the statistics that Tune has made of the numbers of a trial that has ended.

    Tune keeps all trials, in order to restore a run, and these are half of what one takes.
    """
    trial.metric_analysis.clear()
    trial.metric_n_steps.clear()
    trial.run_metadata.last_result.pop("config", None)  # equal to the trial's own


def worker_failures(error: BaseException) -> list[BaseException]:
    """What the workers of a Ray Train group raised, by the error of the group."""
    failures = getattr(error, "worker_failures", {}).values()
    return [getattr(failure, "_base_exc", failure) for failure in failures]


def hide_log_of_dead_raylet() -> None:
    """Do not print the log of a dead raylet, which Ray keeps; the watchdog names its cause."""
    from ray._private import worker

    original = worker.print_to_stdstream
    if original.__module__ == __name__:
        return

    def print_to_stdstream(data: Any, ignore_prefix: bool) -> None:
        if not "".join(map(str, data["lines"][:1])).startswith("Raylet is terminated"):
            original(data, ignore_prefix)

    worker.print_to_stdstream = print_to_stdstream


def started_processes() -> dict[str, "subprocess.Popen[bytes]"]:
    """The raylet and the GCS server that `ray.init` has started; empty for an existing cluster."""
    node = _node()
    started = node.all_processes if node else {}
    return {
        name: started[name][0].process for name in ("gcs_server", "raylet") if started.get(name)
    }


def raylet_socket() -> str:
    """The path of the socket of the raylet that this driver is connected to."""
    return str(_node().raylet_socket_name)


def gcs_address() -> str:
    """HOST:PORT of the cluster's GCS server."""
    return str(_node().gcs_address)


def bootstrap_address(address: str) -> str:
    """HOST:PORT of a cluster that RAY_ADDRESS names, "auto" included; empty for a local one."""
    from ray._private.services import canonicalize_bootstrap_address

    return canonicalize_bootstrap_address(address) or ""


def session_logs() -> str:
    """The folder of Ray's logs on this node; empty without a session."""
    node = _node()
    return str(node.get_logs_dir_path()) if node else ""


def node_is_alive(seconds: float) -> bool:
    """Whether the GCS server counts this driver's node as alive. OSError if it does not answer."""
    import ray
    from ray._private.worker import global_worker
    from ray._raylet import NodeID
    from ray.exceptions import RpcError

    node = NodeID.from_hex(ray.get_runtime_context().get_node_id())
    gcs: Any = global_worker.gcs_client  # type: ignore[attr-defined]
    try:
        return bool(gcs.check_alive([node], seconds)[0])
    except RpcError as error:
        raise OSError(str(error)) from error


def _node() -> Any:
    from ray._private import worker

    return worker._global_node


def pass_actor_arguments_by_value() -> None:
    """Pass Ray Data's settings to its actors by value instead of as objects of the object store.

    An actor can then restart after a node is lost. Ray prints an error about every actor that could
    not, and it can be silenced only together with all other errors of Ray.
    """
    from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator

    values = {"_data_context_ref": "data_context", "_map_transformer_ref": "_map_transformer"}
    for reference, value in values.items():
        setattr(ActorPoolMapOperator, reference, property(attrgetter(value)))
