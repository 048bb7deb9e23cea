"""`make gpu-figures`, `make gpu-kit`: small shapes on the CPU, the tables, the parts of a kit."""

import subprocess
import sys
from pathlib import Path

from gpu_figures_cases import packed_kit

from benchmarks import gpu_figures, offline


def test_a_command_that_fails_or_takes_too_long_says_so(tmp_path: Path) -> None:
    failed = gpu_figures.run("benchmarks.nothing", 60, tmp_path / "log")
    assert failed["failed"] == "exit code 1" and "No module named" in failed["output"][-1]
    slow = gpu_figures.run("benchmarks.update", 0.5, tmp_path / "log")
    assert "not done after" in slow["failed"]
    assert gpu_figures.run("json", 0, tmp_path / "log") == {"failed": "no time was left"}


def test_a_kit_is_joined_and_unpacked_once(tmp_path: Path) -> None:
    kit = packed_kit(tmp_path)
    site = offline.unpacked(kit)
    command = [sys.executable, "-c", "import package; print(package.VALUE)"]
    out = subprocess.run(command, env={"PYTHONPATH": str(site)}, capture_output=True, text=True)
    assert out.stdout == "7\n"
    (kit / "kit-00.tar.xz").unlink()  # no longer read
    assert offline.unpacked(kit) == site
    assert [path.name for path in kit.iterdir() if path.is_dir()] == ["site-packages"]
