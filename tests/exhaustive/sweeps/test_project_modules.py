"""A user's folder with modules named like Decile's, the standard library's or an optional one."""

from pathlib import Path

from project_modules_cases import (
    own,
    project,  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
)
from sweeps import NAME, decile


def test_a_sweep_runs_beside_own_modules(project: Path) -> None:
    training = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 16}
    training["max_completion_length"] = 48
    file = own(project, grpo=training, evaluate={"samples": 1})
    process = decile("run", str(file), "-e", NAME, folder=project)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "MLflow at" not in process.stderr
