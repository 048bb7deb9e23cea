"""The files of `cluster`: validated against their schemas, checked for consistency, and run."""

import base64
import contextlib
import importlib.util
import os
import signal
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_files_cases import KEY, PASSWORD, SERVE, environment
from processes import LIMIT, free_port, wait_until


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
            process.wait(timeout=LIMIT)
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
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
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
