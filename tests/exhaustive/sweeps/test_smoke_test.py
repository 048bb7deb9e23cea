"""`decile doctor --gpu`: a small sweep, and what the guards measure; without a GPU on the CPU."""

import re

import pytest
import torch

from orchestrator.cli.main import main

HAS_GPU = torch.cuda.is_available()


def test_the_checks_of_a_gpu_have_one_verdict_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu"]) == (0 if HAS_GPU else 1)
    lines = capsys.readouterr().out
    names = "gpu|sweep on a [CG]PU|rollouts|base weights|resume"
    verdicts = re.findall(rf"^(ok|FAIL) +({names}): ", lines, re.MULTILINE)
    where = "a GPU" if HAS_GPU else "a CPU"
    assert verdicts == [
        ("ok" if HAS_GPU else "FAIL", "gpu"),
        *(("ok", name) for name in (f"sweep on {where}", "rollouts", "base weights", "resume")),
    ]
