"""The files of `cluster`: validated against their schemas, checked for consistency, and run."""

import base64
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kuberay import resource
from processes import free_port, wait_until

from orchestrator.cli.main import main

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "cluster"
KUBERAY, MLFLOW, SLURM = CLUSTER / "kuberay", CLUSTER / "mlflow", CLUSTER / "slurm"
SWEEP = SLURM / "sweep.sbatch"
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
def test_files_meet_the_schema_of_their_kind(name: str) -> None:
    content = load(f"{name.lower()}.yaml")
    jsonschema.validate(content, resource(name))
    misspelt = content["spec"] if name == "RayCluster" else content["spec"]["rayClusterSpec"]
    misspelt["rayVersoin"] = "2"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, resource(name))


def test_pods_meet_the_schema_of_kubernetes(spec: Any) -> None:
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **group["template"]}
        kubernetes_validate.validate(pod, desired_version="1.34", strict=True)


@pytest.mark.parametrize("file", [KUBERAY / "storage.yaml", MLFLOW / "kubernetes.yaml"])
def test_plain_kubernetes_objects_meet_their_schema(file: Path) -> None:
    for each in yaml.safe_load_all(file.read_text()):
        kubernetes_validate.validate(each, desired_version="1.34", strict=True)


def test_the_job_uses_the_address_of_the_tracking_server() -> None:
    claim, deployment, service = yaml.safe_load_all((MLFLOW / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    [port] = service["spec"]["ports"]
    address = f"{service['metadata']['name']}:{port['port']}"
    assert f"--tracking-uri http://{address}" in load("rayjob.yaml")["spec"]["entrypoint"]
    assert container["command"] == ["/opt/decile/cluster/mlflow/serve.sh"]
    variables = {v["name"]: v for v in container["env"]}
    assert address in variables["MLFLOW_SERVER_ALLOWED_HOSTS"]["value"].split(",")
    secret = {name for name in variables if re.search("PASSWORD|KEY", name)}
    assert all(set(variables[name]) == {"name", "valueFrom"} for name in secret)
    assert secret == {"MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_FLASK_SERVER_SECRET_KEY"}
    [volume] = pod["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_the_job_creates_the_cluster_of_the_cluster_file(spec: Any) -> None:
    assert load("rayjob.yaml")["spec"]["rayClusterSpec"] == spec


def test_the_entrypoint_is_a_valid_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All options are accepted; only the file is missing, which a pod would mount."""
    program, *arguments = load("rayjob.yaml")["spec"]["entrypoint"].split()
    assert program == "decile"
    assert arguments[arguments.index("--storage") + 1].startswith("/storage/")
    mounted = str(tmp_path / "experiments.yaml")
    assert main([mounted if a.endswith("experiments.yaml") else a for a in arguments]) == 2
    assert "experiments.yaml" in capsys.readouterr().err


def test_the_cluster_runs_the_ray_that_is_installed(spec: Any) -> None:
    import ray

    assert spec["rayVersion"] == ray.__version__


def test_ray_asks_for_a_token_and_is_reachable_only_inside_the_cluster(spec: Any) -> None:
    assert spec["authOptions"] == {"mode": "token", "secretName": "decile-ray-token"}
    head = spec["headGroupSpec"]
    assert head["serviceType"] == "ClusterIP" and "enableIngress" not in head


def test_secrets_are_only_referenced(spec: Any) -> None:
    variables = [variable for each in containers(spec) for variable in each["env"]]
    secret = [v for v in variables if re.search("PASSWORD|TOKEN|KEY|USERNAME", v["name"])]
    assert {v["name"] for v in secret} == {"MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"}
    assert all(set(v) == {"name", "valueFrom"} for v in secret)
    assert all(set(v["valueFrom"]) == {"secretKeyRef"} for v in secret)
    for file in KUBERAY.glob("*.yaml"):
        assert not re.search("^kind: Secret|^ *(stringData|data):", file.read_text(), re.MULTILINE)


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


@pytest.mark.parametrize("script", [SERVE, SWEEP])
def test_scripts_pass_bash_and_shellcheck(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    lint(["shellcheck", "--severity=warning", str(script)])
    assert os.access(script, os.X_OK)


def lint(command: list[str]) -> None:
    """Run a linter that is installed next to the interpreter; fails with its output."""
    tool = shutil.which(command[0], path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if tool is None:
        pytest.skip(f"{command[0]} is not installed: pip install -e '.[dev]'")
    run = subprocess.run([tool, *command[1:]], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_image_is_linted_and_copies_existing_files() -> None:
    file = CLUSTER / "Dockerfile"
    lint(["hadolint", str(file)])
    lines = file.read_text().replace("\\\n", " ").splitlines()
    steps = [line.split() for line in lines if line and not line.startswith("#")]
    assert [words[1] for words in steps if words[0] == "USER"] == ["1000"]
    copied = [source for words in steps if words[0] == "COPY" for source in words[1:-1]]
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {p.rstrip("*") for p in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages | {project["project"]["readme"]} <= set(copied)
    variables = dict(words[1].split("=") for words in steps if words[0] == "ARG")
    assert set(variables["EXTRAS"].split(",")) <= project["project"]["optional-dependencies"].keys()
    assert variables["CONSTRAINTS"] in copied


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder of commands that log their arguments; `srun` runs its command."""
    log_call = 'echo "$(basename "$0") $*" >> "$CALLS"\n'
    bodies = {
        # In two writes: the script must not close the pipe after the first line.
        "scontrol": "[[ $1 != show ]] || { echo node1; sleep 0.2; printf 'node2\\nnode3\\n'; }",
        "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
        "hostname": "echo 10.0.0.1",
        "ray": "[[ $1 != start ]] || exec sleep 60",
        "decile": 'echo "$RAY_ADDRESS ${#RAY_AUTH_TOKEN} $RAY_AUTH_MODE" >> "$CALLS"; exit 1',
        "python": f"""[[ $1 == - ]] || exec {sys.executable} "$@"
            until (($(grep -c "^ray start" "$CALLS") > 1)); do sleep 0.1; done""",
    }
    for name, body in bodies.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{log_call}{body}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_a_slurm_job_starts_head_and_workers_and_returns_the_exit_code_of_the_sweep(
    slurm: Path,
) -> None:
    calls = slurm / "calls"
    variables = {
        "CALLS": str(calls),
        "PATH": f"{slurm}:{os.environ['PATH']}",
        **{"SLURM_JOB_NODELIST": "node[1-3]", "SLURM_JOB_NUM_NODES": "3"},
        **{"SLURM_JOB_ID": "77", "SLURM_CPUS_ON_NODE": "8", "SLURM_GPUS_ON_NODE": "2"},
    }
    run = subprocess.run(
        [str(SWEEP), str(ROOT / "experiments.yaml"), "quickstart", "/shared/runs", "--json"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1, run.stderr
    log = calls.read_text()
    head = "ray start --head --node-ip-address=10.0.0.1 --port=20077 --include-dashboard=false"
    assert f"{head} --num-cpus=8 --num-gpus=2 --block" in log
    assert "srun --nodes=2 --ntasks=2 --overlap --exclude=node1 bash" in log
    assert "ray start --address=10.0.0.1:20077 --num-cpus=8 --num-gpus=2 --block" in log
    assert "decile run " in log and "-e quickstart --storage /shared/runs --json" in log
    assert "10.0.0.1:20077 64 token" in log
    token = re.compile("[0-9a-f]{64}")
    assert not token.search(log + run.stdout + run.stderr), "the token is in no command line"


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ([], {}, "usage: sbatch"),
        (["no.yaml", "x", "s"], {}, "start it with sbatch"),
        (["no.yaml", "x", "s"], {"SLURM_JOB_NODELIST": "n1"}, "no.yaml cannot be read"),
    ],
)
def test_a_slurm_job_names_missing_settings(
    arguments: list[str], variables: dict[str, str], message: str
) -> None:
    run = subprocess.run(
        [str(SWEEP), *arguments],
        env={"PATH": os.environ["PATH"]} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2 and message in run.stderr


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")
    }
    return inherited | {"PATH": path} | more


@pytest.mark.parametrize(
    ("variables", "messages"),
    [
        ({}, ["MLFLOW_AUTH_ADMIN_PASSWORD is not set", "MLFLOW_FLASK_SERVER_SECRET_KEY is not"]),
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
def test_the_mlflow_script_names_missing_settings(
    variables: dict[str, str], messages: list[str], tmp_path: Path
) -> None:
    run = subprocess.run(
        [str(SERVE)],
        env=environment(DECILE_MLFLOW_HOME=str(tmp_path / "home"), **variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2, run.stderr
    assert all(message in run.stderr for message in messages), run.stderr
    assert not any(value in run.stdout + run.stderr for value in (PASSWORD, KEY, "tiny-one"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of serve.sh, which runs in its own process group until the test ends."""
    if importlib.util.find_spec("flask_wtf") is None:
        pytest.skip("flask_wtf is not installed: pip install 'mlflow[auth]'")
    port = free_port()
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
        wait_until(
            lambda: status(f"{address}/health") == 200,
            running=lambda: process.poll() is None or pytest.fail(log.read_text()),
            seconds=120,
        )
        yield address
        assert PASSWORD not in log.read_text()
        assert KEY not in log.read_text()
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, so that MLflow ends its workers, and then kill the rest of the group."""
    process.terminate()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def status(url: str, password: str | None = None) -> int:
    """The HTTP status of the response; 0 without a response."""
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


def test_the_mlflow_server_requires_the_password(
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
    client.log_text(run, "hello", "note.txt")
    assert [file.path for file in client.list_artifacts(run)] == ["note.txt"]

    home = tmp_path / "home"
    assert {"mlflow.db", "basic_auth.db", "artifacts"} <= {each.name for each in home.iterdir()}
    for each in (home, *home.iterdir()):
        assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0, each
