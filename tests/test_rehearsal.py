"""`decile doctor --gpu`: the small sweep that it runs, and what it says where there is no GPU."""

import pytest
import torch

from orchestrator.cli.main import main
from orchestrator.cli.smoke_test import rehearse

HAS_GPU = torch.cuda.is_available()


def test_the_small_sweep_ends_with_a_result() -> None:
    said = rehearse(gpus=1 if HAS_GPU else 0)
    assert said.startswith("4 updates in ") and "tokens generated, accuracy" in said


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
def test_without_a_gpu_the_doctor_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu"]) == 1
    assert "BAD  gpu: NoGpu: torch sees no GPU" in capsys.readouterr().out
