"""`decile doctor --gpu`: its small sweep, and its message without a GPU."""

from pathlib import Path

import pytest
import torch

from orchestrator.cli.doctor import smoke_test
from orchestrator.cli.main import main

pytestmark = pytest.mark.slow

HAS_GPU = torch.cuda.is_available()


def test_the_smoke_test_ends_with_a_result(local_ray: Path) -> None:
    summary = smoke_test(gpus=1 if HAS_GPU else 0)
    assert summary.startswith("4 updates in ") and "tokens generated, accuracy" in summary


@pytest.mark.slow
@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
def test_without_a_gpu_doctor_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu"]) == 1
    assert "FAIL  gpu: NoGpu: " in capsys.readouterr().out
