"""The files of `cluster`: validated against their schemas, checked for consistency, and run."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from cluster_files_cases import KUBERAY, MLFLOW
from kuberay import resource

from orchestrator.cli.main import main


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
