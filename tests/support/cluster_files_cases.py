"""What the tests of cluster files share."""

import os
import sys
from pathlib import Path

import pytest
from paths import ROOT

CLUSTER = ROOT / "cluster"
KUBERAY, MLFLOW, SLURM = CLUSTER / "kuberay", CLUSTER / "mlflow", CLUSTER / "slurm"
SERVE = MLFLOW / "serve.sh"
PASSWORD, KEY = "a-password-for-tests", "a-key-for-tests"


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


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")
    }
    return inherited | {"PATH": path} | more
