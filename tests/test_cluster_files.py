"""The files of `cluster/kuberay` and `cluster/mlflow`: what they promise, and a server tried."""

import base64
import contextlib
import importlib.util
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli import main

CLUSTER = Path(__file__).parents[1] / "cluster"
KUBERAY, MLFLOW = CLUSTER / "kuberay", CLUSTER / "mlflow"
SERVE = MLFLOW / "serve.sh"
PASSWORD, KEY = "a-password-for-tests", "a-key-for-tests"


def load(name: str) -> Any:
    return yaml.safe_load((KUBERAY / name).read_text())


@pytest.fixture(scope="module")
def spec() -> Any:
    return load("raycluster.yaml")["spec"]


def containers(spec: Any) -> Iterator[Any]:
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        yield from group["template"]["spec"]["containers"]


@pytest.mark.parametrize("name", ["RayCluster", "RayJob"])
def test_a_file_is_of_its_kind(name: str) -> None:
    found = load(f"{name.lower()}.yaml")
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", name)


def test_the_job_makes_the_cluster_of_the_other_file(spec: Any) -> None:
    assert load("rayjob.yaml")["spec"]["rayClusterSpec"] == spec


def test_the_job_cleans_up_and_is_tried_again() -> None:
    job = load("rayjob.yaml")["spec"]
    assert job["shutdownAfterJobFinishes"] is True
    assert job["ttlSecondsAfterFinished"] > 0
    assert job["backoffLimit"] > 0
    assert job["activeDeadlineSeconds"] > 0


def test_the_entrypoint_is_one_that_the_command_line_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its options are known; what is refused is the file, which a pod would mount."""
    program, *arguments = load("rayjob.yaml")["spec"]["entrypoint"].split()
    assert program == "decile"
    assert arguments[arguments.index("--storage") + 1].startswith("/storage/")
    mounted = str(tmp_path / "experiments.yaml")
    assert main([mounted if a.endswith("experiments.yaml") else a for a in arguments]) == 2
    assert "experiments.yaml" in capsys.readouterr().err


def test_the_cluster_runs_the_ray_that_is_installed(spec: Any) -> None:
    import ray

    assert spec["rayVersion"] == ray.__version__


def test_ray_asks_for_a_token_from_a_secret(spec: Any) -> None:
    assert spec["authOptions"] == {"mode": "token", "secretName": "decile-ray-token"}


def test_the_dashboard_is_reached_inside_the_cluster_only(spec: Any) -> None:
    head = spec["headGroupSpec"]
    assert head["rayStartParams"]["dashboard-host"] == "0.0.0.0"
    assert head["serviceType"] == "ClusterIP"
    assert "enableIngress" not in head


def test_secrets_come_by_reference_only(spec: Any) -> None:
    variables = [variable for each in containers(spec) for variable in each["env"]]
    secret = [v for v in variables if re.search("PASSWORD|TOKEN|KEY|USERNAME", v["name"])]
    assert {v["name"] for v in secret} == {"MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"}
    assert all(set(v) == {"name", "valueFrom"} for v in secret)
    assert all(set(v["valueFrom"]) == {"secretKeyRef"} for v in secret)
    for file in KUBERAY.glob("*.yaml"):
        assert not re.search("^kind: Secret|^ *(stringData|data):", file.read_text(), re.MULTILINE)


def test_workers_grow_and_have_gpus(spec: Any) -> None:
    assert spec["enableInTreeAutoscaling"] is True
    (workers,) = spec["workerGroupSpecs"]
    assert 1 <= workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    (worker,) = workers["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_every_container_is_limited_and_mounts_the_storage(spec: Any) -> None:
    for each in containers(spec):
        limits, requests = each["resources"]["limits"], each["resources"]["requests"]
        assert limits["memory"] == requests["memory"]
        assert {"name": "storage", "mountPath": "/storage"} in each["volumeMounts"]
        assert each["image"] == "REGISTRY/decile:latest"
    claim = load("storage.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        volumes = {volume["name"]: volume for volume in group["template"]["spec"]["volumes"]}
        named = volumes["storage"]["persistentVolumeClaim"]["claimName"]
        assert named == claim["metadata"]["name"]


def test_the_login_file_has_no_password() -> None:
    assert not re.search(r"^\s*admin_password", (MLFLOW / "basic_auth.ini").read_text(), re.M)


def test_the_script_is_good_bash() -> None:
    subprocess.run(["bash", "-n", str(SERVE)], check=True)
    assert os.access(SERVE, os.X_OK)


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    return kept | {"PATH": path} | more


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ["MLFLOW_AUTH_ADMIN_PASSWORD is not set", "MLFLOW_FLASK_SERVER_SECRET_KEY is not"]),
        ({"MLFLOW_FLASK_SERVER_SECRET_KEY": KEY}, ["export MLFLOW_AUTH_ADMIN_PASSWORD=…"]),
        ({"MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD}, ["export MLFLOW_FLASK_SERVER_SECRET_KEY=…"]),
        (
            {"MLFLOW_AUTH_ADMIN_PASSWORD": "tiny-one", "MLFLOW_FLASK_SERVER_SECRET_KEY": KEY},
            ["12 characters"],
        ),
        (
            {
                "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
                "MLFLOW_FLASK_SERVER_SECRET_KEY": KEY,
                "MLFLOW_AUTH_CONFIG_PATH": "missing.ini",
            },
            ["missing.ini cannot be read"],
        ),
    ],
)
def test_the_script_refuses_and_says_what_to_set(
    given: dict[str, str], said: list[str], tmp_path: Path
) -> None:
    run = subprocess.run(
        [str(SERVE)],
        env=environment(DECILE_MLFLOW_HOME=str(tmp_path / "home"), **given),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2, run.stderr
    assert all(words in run.stderr for words in said), run.stderr
    assert not any(value in run.stdout + run.stderr for value in (PASSWORD, KEY, "tiny-one"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """serve.sh in a process group of its own, which ends with the test; gives its address."""
    if importlib.util.find_spec("flask_wtf") is None:
        pytest.skip("flask_wtf is not installed: pip install 'mlflow[auth]'")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SERVE)],
            env=environment(
                DECILE_MLFLOW_HOME=str(tmp_path / "home"),
                MLFLOW_PORT=str(port),
                MLFLOW_WORKERS="1",
                MLFLOW_AUTH_ADMIN_PASSWORD=PASSWORD,
                MLFLOW_FLASK_SERVER_SECRET_KEY=KEY,
            ),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 120
        while status(f"{address}/health") != 200:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.3)
        yield address
        assert PASSWORD not in log.read_text()
        assert KEY not in log.read_text()
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM first, so that MLflow ends its workers; then whatever the group still has."""
    process.terminate()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def status(url: str, password: str | None = None) -> int:
    """The answer's HTTP status; 0 where nobody answers."""
    request = urllib.request.Request(url)
    if password is not None:
        login = base64.b64encode(f"admin:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_a_server_wants_the_password(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    search = f"{server}/api/2.0/mlflow/experiments/search?max_results=1"
    artifacts = f"{server}/api/2.0/mlflow-artifacts/artifacts"
    for url in (search, artifacts, f"{server}/"):
        assert status(url) == 401
        assert status(url, "not-the-password") == 401
    assert status(search, PASSWORD) == 200

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    client = MlflowClient(server)
    run = client.create_run(client.create_experiment("decile/try")).info.run_id
    client.log_param(run, "policy", "hard")
    client.log_metric(run, "eval/accuracy", 0.5)
    client.log_text(run, "hello", "note.txt")
    logged = client.get_run(run).data
    assert (logged.params, logged.metrics) == ({"policy": "hard"}, {"eval/accuracy": 0.5})
    assert [file.path for file in client.list_artifacts(run)] == ["note.txt"]

    home = tmp_path / "home"
    assert {"mlflow.db", "basic_auth.db", "artifacts"} <= {each.name for each in home.iterdir()}
    for each in (home, *home.iterdir()):
        assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0, each
