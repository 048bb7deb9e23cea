"""`make gpu-figures`, `make gpu-kit`: small shapes on the CPU, the tables, the parts of a kit."""

import json
import re
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from gpu_figures_cases import MACHINE
from paths import ROOT
from processes import wait_until

from benchmarks import gpu_figures, gpu_tables


def training(process: psutil.Process) -> bool:
    """Whether one of its processes trains."""
    with suppress(psutil.Error):  # a process that has just ended
        commands = [" ".join(child.cmdline()) for child in process.children(recursive=True)]
        return any("benchmarks.training_process" in command for command in commands)
    return False


def test_a_stopped_run_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_figures", "--small", "--part", "update"]
    process = psutil.Popen([*command, "--out", str(tmp_path)], cwd=ROOT)
    wait_until(lambda: training(process))
    children = process.children(recursive=True)
    process.terminate()
    assert process.wait(60) == 1
    assert psutil.wait_procs(children, 60)[1] == []


def test_the_same_code_runs_on_small_shapes_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_figures, "this_machine", lambda: MACHINE | {"gpu": None})
    parts = ["update", "sampler"]
    arguments = ["--small", "--part", *parts, "--out", str(tmp_path)]
    assert gpu_figures.main(arguments) == 0, capsys.readouterr().out
    figures = json.loads((tmp_path / "gpu-figures.json").read_text())
    assert list(figures) == parts
    ratios = figures["sampler"]["small"]["result"]["ratios"]
    assert list(ratios) == ["Decile, 8 rows", "Decile, 16 rows"]
    assert all(ratio > 0 for pair in ratios.values() for ratio in pair)
    [pair] = figures["update"]["small"]["result"]["trl_ratios"]
    assert pair > 0
    *_, packed = figures["update"]["small"]["result"]["runs"]
    assert packed["at_once"] == len(packed["processes"]) == 2
    assert all(each["max_batch"] == 16 for each in packed["processes"])
    page = (tmp_path / "notes" / "gpu.md").read_text()
    assert gpu_tables.NONE_YET not in page and "a cell ÷ plain TRL" in page
    assert not re.search(r"\bnan\b", page)
    capsys.readouterr()
    assert gpu_figures.main(arguments) == 0
    assert capsys.readouterr().out.count("is measured already") == len(parts)
