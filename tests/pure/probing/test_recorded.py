"""A recording replayed as a probe, on Ray without a model: adaptive and full replay agree."""

from pathlib import Path

import pytest
from recorded_cases import experiments, recording

from orchestrator.cli.main import main


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples": 7}, "probe: {samples: 6}"),
        ({}, "20 of the 120"),
    ],
)
def test_an_incomplete_recording_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict, words: str
) -> None:
    recording(tmp_path, 120 if change else 100)
    file = experiments(tmp_path, ["hard"], **change)
    assert main(["plan", str(file), "-e", "study"]) == 2
    assert words in capsys.readouterr().err


def test_a_recording_cannot_be_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path)
    assert main(["run", str(experiments(tmp_path, ["hard"])), "-e", "study"]) == 2
    assert "decile probe" in capsys.readouterr().err
