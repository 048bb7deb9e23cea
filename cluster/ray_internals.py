"""The only module that uses private parts of Ray.

`tests/real/test_library_internals.py` compares everything used here with the installed version, and
`pyproject.toml` pins Ray to the minor version that was tested.
"""

import json
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from orchestrator.plugins.project_modules import PROJECT_MARK, project_folders

if TYPE_CHECKING:
    from ray.job_config import JobConfig

LOG = logging.getLogger(__name__)
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
NODE_SECONDS = 300.0  # until a new raylet is known to its GCS server; Ray's own limit is 30
POLL_SECONDS = 0.1
NOTES = b"decile"  # namespace of texts in the GCS server
# Replaces Ray's dashboard agent. A raylet starts an agent, and each ends with the other.
_AGENT = """import os, time
while os.getppid() == int(os.environ["RAY_RAYLET_PID"]):
    time.sleep(1)
"""
# An error or a failed check, but not a line of the following stack trace.
_LOG_LINE = re.compile(
    r"^\[(\S+ \S+) [CE] \d+ \d+\] (?:\(\w+\) )?\S+:\d+: *(?!\*\*\*|PC: |@ |Stack trace)(\S.*)",
    re.MULTILINE,
)
_BOILERPLATE = re.compile(r"An unexpected system state .* fix it\. ")
_EXCHANGES = ("torch.distributed", "torch.autograd.graph", "ray.")
_LIBRARIES = ("torch.", "ray.", "accelerate.", "threading")
_FAILED_AGENT = re.compile(r"one Ray agent failed, agent_name = (\w+)")


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def loopback_only() -> Iterator[None]:
    """A Ray that is started inside this block listens on 127.0.0.1 only.

    Without this, Ray's servers bind to all interfaces, and `ray.init` replaces the node address
    127.0.0.1 by an external one. This is Ray's own setting for Windows and macOS; the variable
    passes it on to Ray's processes.
    """
    from ray._private import ray_constants

    enabled = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with _environment(**{LOOPBACK_VARIABLE: "0"}):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled


@contextmanager
def own_token() -> Iterator[None]:
    """A Ray that is started inside this block has its own token, unless the user has set one.

    Without this, `ray.init` writes one to HOME, which may be missing or not writable.
    """
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

    if os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}:
        yield
        return
    loader = AuthenticationTokenLoader.instance()
    loader.reset_cache()
    try:
        with _environment(RAY_AUTH_TOKEN=secrets.token_hex(32)):
            yield
    finally:
        loader.reset_cache()


def project_config() -> "JobConfig":
    """Tells workers the folders of the user's modules, in a form that Ray does not import from.

    By default Ray puts the driver's folder before all libraries on the path of every worker. Its
    own actors import pandas, which would import a user's numpy.py.
    """
    from ray.job_config import JobConfig

    class Config(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            return True  # so that `ray.init` does not add a folder

    folders = dict.fromkeys([*project_folders(), os.getcwd()])
    return Config(_py_driver_sys_path=[folder + PROJECT_MARK for folder in folders])


@contextmanager
def only_needed_processes() -> Iterator[None]:
    """A Ray that is started inside this block is a GCS server, a raylet with an agent, and workers.

    Without this, Ray also starts a dashboard, its agent, an autoscaler and a log monitor. Each of
    them imports Ray, and a raylet ends if its agents need more than 15 s, as on a busy machine.
    """
    from ray._private import node

    module: Any = node
    original = module.Node
    nodes: list[Any] = []
    module.Node = _local_node_class(nodes)
    try:
        yield
    except BaseException:
        for each in nodes:  # `ray.shutdown` only handles started nodes
            each.kill_all_processes(check_alive=False)
        raise
    finally:
        module.Node = original


def _local_node_class(nodes: list[Any]) -> Any:
    """A subclass of Ray's Node that adds created nodes to `nodes`."""
    from ray import _raylet
    from ray._private import node, services

    class LocalNode(node.Node):
        def __init__(self, ray_params: Any, **settings: Any) -> None:
            # The raylet does not wait for an agent of runtime environments with a known port. While
            # this socket is open, Linux gives the port only to that agent.
            self.reserved = socket.socket()
            self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.reserved.bind(("127.0.0.1", 0))
            port = self.reserved.getsockname()[1]
            if sys.platform != "linux":
                self.reserved.close()
            ray_params.update(
                no_monitor=True, include_log_monitor=False, runtime_env_agent_port=port
            )
            nodes.append(self)
            super().__init__(ray_params, **settings)

        def start_api_server(self, **_: Any) -> None:
            """Do not start a dashboard."""

        def start_raylet(self, *arguments: Any, **settings: Any) -> None:
            for port in ("METRICS_AGENT", "METRICS_EXPORT", "DASHBOARD_AGENT_LISTEN"):
                name = getattr(_raylet, f"{port}_PORT_NAME")
                # The value that Ray writes if its dashboard is not installed.
                _raylet.persist_port(  # type: ignore[attr-defined]
                    self._session_dir, self._node_id, name, -1
                )
            with _no_dashboard_agent():
                super().start_raylet(*arguments, **settings)

        def start_ray_processes(self) -> None:
            super().start_ray_processes()
            raylet = self.all_processes["raylet"][0].process
            deadline = time.monotonic() + NODE_SECONDS
            while raylet.poll() is None and time.monotonic() < deadline:
                with suppress(RuntimeError):  # the GCS server does not know the node yet
                    services.get_node(self.gcs_address, self._node_id)
                    return
                time.sleep(POLL_SECONDS)
            raise RuntimeError(f"the raylet (process {raylet.pid}) {process_state(raylet.poll())}")

    return LocalNode


def process_state(code: int | None) -> str:
    """The text for a process with this return code; None means that it is still running."""
    if code is None:
        return "is not ready"
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


@contextmanager
def _no_dashboard_agent() -> Iterator[None]:
    """A raylet that is started inside this block gets an agent that does nothing."""
    from ray._private import services

    original = services._build_python_executable_command_memory_profileable

    def interpreter(component: str, *arguments: Any, **settings: Any) -> list[str]:
        if component == "dashboard_agent":
            return [sys.executable, "-I", "-S", "-c", _AGENT]
        return original(component, *arguments, **settings)

    services._build_python_executable_command_memory_profileable = interpreter
    try:
        yield
    finally:
        services._build_python_executable_command_memory_profileable = original


def own_session_logs(folder: str) -> str:
    """Logs of the Ray that this process last tried to start below a folder; empty without any."""
    started = psutil.Process().create_time()
    sessions = Path(folder).glob(f"session_*_{os.getpid()}/logs")  # the name begins with the date
    return max((str(each) for each in sessions if each.stat().st_mtime >= started), default="")


def first_error(logs: str) -> str:
    """The first error in Ray's logs, or the end of a failed agent's output.

    Empty if there is neither.
    """
    lines = []
    for file in Path(logs).glob("*.*"):
        lines += _LOG_LINE.findall(file.read_text(errors="replace"))
    if not lines:
        return ""
    _, text = min(lines, key=itemgetter(0))
    if agent := _FAILED_AGENT.search(text):
        output = Path(logs, f"{agent[1]}.err")
        ending = output.read_text(errors="replace").split("\n") if output.exists() else []
        return next((line for line in reversed(ending) if line.strip()), text)
    return _BOILERPLATE.sub("", text)


def keep_credentials_from_trials() -> None:
    """Stop Tune from copying AWS keys to the runtime environment of trials.

    Ray writes runtime environments to its session logs in plain text. Trials read credentials
    from the environment of their node, as samplers do.
    """
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE

    ENV_VARS_TO_PROPAGATE -= {name for name in ENV_VARS_TO_PROPAGATE if name.startswith("AWS_")}


def retry_trials_that_run_out_of_memory() -> None:
    """Let Tune handle an actor that Ray has killed for its memory like one that has died.

    Ray raises an error that Tune does not expect, so that Tune would end all trials.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.exceptions import OutOfMemoryError, RayActorError

    manager: Any = RayActorManager
    original = manager._actor_task_failed
    if original.__module__ == __name__:
        return

    def actor_task_failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=str(exception))
        original(self, tracked_actor_task, exception)

    manager._actor_task_failed = actor_task_failed


def forget_metrics(trial: Any) -> None:
    """Drop Tune's statistics of the numbers of an ended trial.

    Tune keeps all trials to restore a run; the statistics are half of a trial's memory.
    """
    trial.metric_analysis.clear()
    trial.metric_n_steps.clear()
    trial.run_metadata.last_result.pop("config", None)  # equal to the trial's own


def worker_failures(error: BaseException) -> dict[int, BaseException]:
    """The exceptions of the workers of a Ray Train group, by rank, from the error of the group."""
    failures = getattr(error, "worker_failures", {})
    return {rank: getattr(each, "_base_exc", each) for rank, each in failures.items()}


@contextmanager
def limited_waits(seconds: int, *, nccl: bool) -> Iterator[None]:
    """A Ray Train group inside this block fails if its workers wait longer than `seconds`.

    The limit applies to Ray's own exchanges, such as reports, and with `nccl` to NCCL exchanges
    that Ray's hang detector sees; torch has its own limit. Variables that the user has set do not
    change.
    """
    from ray.train.v2._internal import constants

    variables = {constants.COLLECTIVE_TIMEOUT_S_ENV_VAR: str(seconds)}
    if nccl:
        with socket.socket() as free:  # groups with the same port would see each other's workers
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        variables |= {
            constants.ENABLE_NCCL_HANG_DETECTOR_ENV_VAR: "1",
            constants.NCCL_RAS_ACTION_ENV_VAR: constants.NCCL_RAS_ACTION_FAIL,
            constants.NCCL_RAS_CONFIRM_DURATION_S_ENV_VAR: str(seconds),
            constants.NCCL_RAS_ADDR_ENV_VAR: f"localhost:{port}",
        }
    with _environment(**{k: v for k, v in variables.items() if k not in os.environ}):
        yield


class WorkerPlace(NamedTuple):
    """The place of a worker of a Ray Train group: node, process, and the line that it executes.

    waits: it is in an exchange with other workers. failed: it has raised an error, or has died. The
    line and the stack are empty if it does not respond.
    """

    rank: int
    node: str
    process: int
    failed: bool = False
    waits: bool = False
    line: str = ""
    stack: str = ""


def places_callback(file: Path, function: str) -> Any:
    """A callback of a Ray Train group: writes the places of its workers as soon as one has failed.

    It writes [seconds since the last report, places] to `file`, on the driver's node. `function` is
    the one that the workers run.
    """
    import ray
    from ray.train.v2._internal.execution.callback import WorkerGroupCallback

    class PlacesCallback(WorkerGroupCallback):
        def after_worker_group_start(self, worker_group: Any) -> None:
            self.group, self.reported = worker_group, time.monotonic()

        def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
            statuses = worker_group_status.worker_statuses
            if any(status.training_report for status in statuses.values()):
                self.reported = time.monotonic()
            if worker_group_status.errors:
                with suppress(Exception):  # a failure here would hide the errors
                    self.write(worker_group_status.errors)

        def write(self, errors: Any) -> None:
            workers = {w.distributed_context.world_rank: w for w in self.group.get_workers()}
            calls = {
                rank: worker.execute_async(current_line, function)
                for rank, worker in workers.items()
                if rank not in errors
            }
            answered, _ = ray.wait([*calls.values()], num_returns=len(calls), timeout=5.0)
            places = []
            for rank, worker in workers.items():
                data = worker.metadata
                answer = ray.get(calls[rank]) if calls.get(rank) in answered else ()
                places.append((rank, data.node_ip, data.pid, rank in errors, *answer))
            file.write_text(json.dumps([time.monotonic() - self.reported, places]))

    return PlacesCallback()


def current_line(function: str) -> tuple[bool, str, str]:
    """For the thread that runs `function`: whether it is in an exchange, the line, and the stack.

    The line is the innermost one outside the exchanging libraries.
    """
    for thread in sys._current_frames().values():
        frames = [frame for frame, _ in traceback.walk_stack(thread)]
        if function not in [frame.f_code.co_name for frame in frames]:
            continue
        modules = [frame.f_globals.get("__name__", "") for frame in frames]
        waits = any(module.startswith(_EXCHANGES) for module in modules)
        own = next(f for f, m in zip(frames, modules, strict=True) if not m.startswith(_LIBRARIES))
        file = "/".join(Path(own.f_code.co_filename).parts[-2:])
        line = f"{file}:{own.f_lineno} in {own.f_code.co_name}"
        return waits, line, "".join(traceback.format_stack(thread))
    return False, "", ""


def read_places(file: Path) -> tuple[float, list[WorkerPlace]]:
    """The output of `places_callback`: seconds since the last report, and the places of workers."""
    try:
        seconds, places = json.loads(file.read_text())
    except FileNotFoundError:
        return 0.0, []
    return seconds, [WorkerPlace(*place) for place in places]


def places_of_nccl(folder: Path) -> list[WorkerPlace]:
    """The waiting ranks in the newest report of Ray's hang detector below a run's folder.

    If the ranks of a communicator have entered different numbers of collectives, those with the
    most are waiting. Stacks are from the detector.
    """
    from ray.train.v2._internal.callbacks.nccl_ras import parse_ras_schema
    from ray.train.v2._internal.constants import HANG_DETECTOR_DIRNAME

    for file in sorted(folder.rglob(f"{HANG_DETECTOR_DIRNAME}/nccl_ras/*.json"), reverse=True):
        report = parse_ras_schema(file.read_text())
        if report is None or not report.mismatched_comms:
            continue
        name = min(report.mismatched_comms)
        counts = {rank: sum(ops.values()) for rank, ops in report.comm_op_counts[name].items()}
        ranks = {
            rank["rank"]: rank
            for communicator in json.loads(report.raw_json)["communicators"]
            if communicator["hash"] == name
            for rank in communicator["ranks"]
        }
        places = []
        for rank, count in sorted(counts.items()):
            stack = file.parents[1] / "stack_traces" / f"rank_{rank}.log"
            text = stack.read_text(errors="replace") if stack.exists() else "none was written"
            where = (str(ranks[rank].get("host", "?")), int(ranks[rank].get("pid", 0)))
            places.append(
                WorkerPlace(rank, *where, waits=count == max(counts.values()), stack=text)
            )
        return places
    return []


def shorten_errors_of_raylets() -> None:
    """Print one line if memory runs out or an internal worker fails, and no dead raylet's log.

    Ray prints whole pages, which are also in its logs. The watchdog reports why a raylet is dead.
    """
    from ray._private import worker

    original = worker.print_to_stdstream
    if original.__module__ == __name__:
        return

    def print_to_stdstream(data: Any, ignore_prefix: bool) -> None:
        text = "\n".join(map(str, data["lines"]))
        if memory := low_memory(text):
            LOG.warning("%s; Ray has ended a worker; its work is repeated", memory)
        elif not text.startswith("Raylet is terminated"):
            lines = text.strip().splitlines()
            whole = "Traceback (most recent call last)" not in text
            original(data | {"lines": lines if whole else lines[-1:]}, ignore_prefix)

    worker.print_to_stdstream = print_to_stdstream


def low_memory(text: str) -> str:
    """The memory use in Ray's message about a killed worker; empty for other messages."""
    used = re.search(
        r"running low on memory\..* \(IP: ([^,)]+).* was (\S+) used / (\S+) limit", text
    )
    return f"node {used[1]} runs out of memory ({used[2]} of {used[3]} are used)" if used else ""


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
    """HOST:PORT of the cluster in RAY_ADDRESS, including "auto"; empty for a local one."""
    from ray._private.services import canonicalize_bootstrap_address

    return canonicalize_bootstrap_address(address) or ""


def session_logs() -> str:
    """The folder of Ray's logs on this node; empty without a session."""
    node = _node()
    return str(node.get_logs_dir_path()) if node else ""


def node_is_alive(seconds: float) -> bool:
    """Whether the GCS server considers this node alive. Raises OSError without a response."""
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


@contextmanager
def _notes() -> Iterator[Any]:
    """The client of the cluster's GCS server, which keeps short texts.

    Failures are only logged: work continues, and the watchdog reports a lost server.
    """
    from ray._private.worker import global_worker
    from ray.exceptions import RayError

    try:
        yield global_worker.gcs_client  # type: ignore[attr-defined]
    except RayError as error:
        LOG.debug("progress cannot be kept in the GCS server: %s", error)


def put_note(key: str, text: str, seconds: float) -> None:
    """Keep a short text in the cluster, unless it takes longer than these seconds."""
    with _notes() as client:
        client.internal_kv_put(key.encode(), text.encode(), True, NOTES, seconds)


def notes(prefix: str, seconds: float) -> list[str] | None:
    """The texts with keys that begin with this prefix; None if they cannot be read."""
    with _notes() as client:
        keys = client.internal_kv_keys(prefix.encode(), NOTES, seconds)
        texts = client.internal_kv_multi_get(keys, NOTES, seconds) if keys else {}
        return [text.decode() for text in texts.values()]
    return None


def delete_notes(prefix: str, seconds: float) -> None:
    """Delete the texts with keys that begin with this prefix."""
    with _notes() as client:
        client.internal_kv_del(prefix.encode(), True, NOTES, seconds)


def _node() -> Any:
    from ray._private import worker

    return worker._global_node


def pass_actor_arguments_by_value() -> None:
    """Pass Ray Data's settings to its actors by value instead of as objects of the object store.

    An actor can then restart after the loss of a node. Otherwise Ray prints an error about every
    actor that cannot, which can only be silenced together with all other errors of Ray.
    """
    from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator

    values = {"_data_context_ref": "data_context", "_map_transformer_ref": "_map_transformer"}
    for reference, value in values.items():
        setattr(ActorPoolMapOperator, reference, property(attrgetter(value)))
