"""`make gpu-figures`, `make gpu-kit`: small shapes on the CPU, the tables, the parts of a kit."""

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from packaging.requirements import Requirement
from processes import wait_until

from benchmarks import gpu_figures, gpu_kit, gpu_tables, offline

ROOT = Path(__file__).parents[1]
MACHINE = {
    "gpu": {"name": "GPU 9000", "gib": 80.0, "driver": "580.1", "cuda": "13.0"},
    "cpus": 16,
    "python": "3.12.3",
    "versions": {"torch": "2.11.0"},
}


def measurement(**content: Any) -> dict[str, Any]:
    return {"command": "…", "machine": MACHINE, "date": "2026-11-22", "seconds": 1.0} | content


def process(seconds: float, gib: float | None = 20.0, **more: Any) -> dict[str, Any]:
    names = ("rollout_gib", "update_gib", "allocated_gib", "reserved_gib", "device_gib")
    return {
        "parts": {"rollout": seconds, "scoring": 0.0, "forward-backward": 0.0, "rest": 0.0},
        "memory": dict.fromkeys(names, gib) if gib else None,
        "estimate_gib": {"peak": 25.0, "rollout": 23.0, "update": 14.0},
        "max_batch": 256,
    } | more


def update_result(*runs: tuple[str, int, float], **more: Any) -> dict[str, Any]:
    return {
        "options": {"prompts": 32, "tokens": 250},
        "runs": [
            {"kind": kind, "at_once": n, "processes": [process(seconds)] * n}
            for kind, n, seconds in runs
        ],
    } | more


def row(tables: str, *starts: str) -> str:
    [line] = [line for line in tables.splitlines() if line.startswith("| " + " | ".join(starts))]
    return line


def test_a_cell_is_compared_with_plain_trl_and_with_several_at_once() -> None:
    result = update_result(("bare", 1, 4.0), ("cell", 1, 5.0), trl_ratios=[1.25])
    packed = update_result(("cell", 1, 2.0), ("cell", 4, 4.0), trl_ratios=[])
    figures = {"4b": measurement(result=result), "14b": measurement(failed="exit code 1")}
    tables = gpu_tables.tables({"update": figures, "packing": {"tiny": measurement(result=packed)}})
    assert "* update, 14b: exit code 1" in tables
    # Four cells at once make one update per second.
    assert "| 4 | 4.00 | 1.000 | 2.00 | 20.0 | 256 |" in tables
    assert row(tables, "4b", "32 × 8 × 250 tokens", "plain TRL").startswith(
        "| 4b | 32 × 8 × 250 tokens | plain TRL | 1 | 4.00 | 4.00 | 0.00 "
    )
    assert row(tables, "4b", "32 × 8 × 250 tokens", "a cell").endswith("1.25 / **1.25** / 1.25 |")
    # The same cell, its memory: 25 GiB were estimated, 20 used.
    memory = row(tables, "4b", "32 × 8 × 250 tokens", "20.0 (23.0)", "20.0 (14.0)")
    assert memory.endswith("| 20.0 | 25.0 | 1.25 |")


def test_the_tables_of_the_page_are_those_of_the_stored_figures() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    figures = gpu_figures.read_json(ROOT / "docs" / "gpu-figures.json")
    assert gpu_tables.with_tables(page, figures) == page
    assert all(each["machine"]["gpu"] for part in figures.values() for each in part.values())


def test_figures_of_a_cpu_stay_out_of_the_documentation(tmp_path: Path) -> None:
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir(), out.mkdir()
    without = measurement(machine=MACHINE | {"gpu": None}, failed="exit code 1")
    (out / "memory.json").write_text(json.dumps({"4b": measurement(failed="a"), "tiny": without}))
    (out / "update.json").write_text('{"torn": ')
    list(gpu_figures.write_figures(out, docs))
    assert list(gpu_figures.read_json(docs / "gpu-figures.json")["memory"]) == ["4b"]
    # The parts of another day are kept.
    (out / "memory.json").unlink()
    (out / "guards.json").write_text(json.dumps({"guards": measurement(failed="a")}))
    list(gpu_figures.write_figures(out, docs))
    assert set(gpu_figures.read_json(docs / "gpu-figures.json")) == {"memory", "guards"}


def test_a_measurement_of_another_command_or_machine_is_taken_again() -> None:
    stored = measurement(result={})
    assert gpu_figures.is_valid(stored, "…", MACHINE)
    assert not gpu_figures.is_valid(stored, "other", MACHINE)
    assert not gpu_figures.is_valid(stored, "…", MACHINE | {"cpus": 8})
    assert not gpu_figures.is_valid(measurement(failed="…"), "…", MACHINE)
    assert not gpu_figures.is_valid([], "…", MACHINE)


def test_a_command_that_fails_or_takes_too_long_says_so(tmp_path: Path) -> None:
    failed = gpu_figures.run("benchmarks.nothing", 60, tmp_path / "log")
    assert failed["failed"] == "exit code 1" and "No module named" in failed["output"][-1]
    slow = gpu_figures.run("benchmarks.update", 0.5, tmp_path / "log")
    assert "not done after" in slow["failed"]
    assert gpu_figures.run("json", 0, tmp_path / "log") == {"failed": "no time was left"}


def training(process: psutil.Process) -> bool:
    """Whether one of its processes trains."""
    with suppress(psutil.Error):  # a process that has just ended
        commands = [" ".join(child.cmdline()) for child in process.children(recursive=True)]
        return any("benchmarks.training_process" in command for command in commands)
    return False


@pytest.mark.slow
def test_a_stopped_run_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_figures", "--small", "--part", "update"]
    process = psutil.Popen([*command, "--out", str(tmp_path)], cwd=ROOT)
    wait_until(lambda: training(process))
    children = process.children(recursive=True)
    process.terminate()
    assert process.wait(60) == 1
    assert psutil.wait_procs(children, 60)[1] == []


@pytest.mark.slow
def test_the_same_code_runs_on_small_shapes_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_figures, "this_machine", lambda: MACHINE | {"gpu": None})
    parts = ["sampler", "update"]
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
    page = (tmp_path / "performance.md").read_text()
    assert gpu_tables.NONE_YET not in page and "a cell ÷ plain TRL" in page
    assert not re.search(r"\bnan\b", page)
    capsys.readouterr()
    assert gpu_figures.main(arguments) == 0
    assert capsys.readouterr().out.count("is measured already") == len(parts)


TARGET = gpu_kit.environment("3.12", "x86_64")


def test_a_kit_holds_what_is_needed_and_not_there() -> None:
    packages = gpu_kit.closure(["pydantic>=2", "torch>=2.11"], {"torch": ""}, TARGET)
    assert {"pydantic", "pydantic-core", "typing-extensions"} <= set(packages)
    assert "torch" not in packages and "sympy" not in packages
    there = {"torch": "", "pydantic": "2.99", "typing-extensions": "1.0"}
    assert gpu_kit.closure(["pydantic>=2"], there, TARGET) == {}
    # One that is there in a version too old comes along, with what it needs.
    assert "pydantic" in gpu_kit.closure(["pydantic>=2"], there | {"pydantic": "1.0"}, TARGET)


def test_extras_and_markers_are_those_of_the_other_machine() -> None:
    declared = ["a; extra == 'x'", "b; sys_platform == 'win32'", "c; python_version >= '3.12'"]
    assert [r.name for r in gpu_kit.needs(declared, TARGET, "")] == ["c"]
    assert [r.name for r in gpu_kit.needs(declared, TARGET, "x")] == ["a", "c"]
    assert not gpu_kit.satisfies(None, Requirement("a"))


def test_pip_freeze_is_read(tmp_path: Path) -> None:
    file = tmp_path / "freeze.txt"
    file.write_text("# here\nTyping_Extensions==4.16\n-e .\ntorch @ file:///x.whl\nnumpy\n")
    expected = {"typing-extensions": "4.16", "torch": "", "numpy": ""}
    assert gpu_kit.read_freeze(file) == expected


def packed_kit(folder: Path) -> Path:
    """A kit of two files in parts of 1,000 bytes."""
    site, kit = folder / "wheels", folder / "kit"
    (site / "package").mkdir(parents=True)
    (site / "package" / "__init__.py").write_text("VALUE = 7\n")
    (site / "noise").write_bytes(bytes(range(256)) * 4 + Path(sys.executable).read_bytes()[:4000])
    parts = gpu_kit.pack(site, kit, 1000)
    assert len(parts) > 1 and all(part["bytes"] <= 1000 for part in parts.values())
    content = {"python": "{}.{}".format(*sys.version_info), "parts": parts}
    (kit / "kit.json").write_text(json.dumps(content))
    return kit


def test_a_kit_is_joined_and_unpacked_once(tmp_path: Path) -> None:
    kit = packed_kit(tmp_path)
    site = offline.unpacked(kit)
    command = [sys.executable, "-c", "import package; print(package.VALUE)"]
    out = subprocess.run(command, env={"PYTHONPATH": str(site)}, capture_output=True, text=True)
    assert out.stdout == "7\n"
    (kit / "kit-00.tar.xz").unlink()  # no longer read
    assert offline.unpacked(kit) == site
    assert [path.name for path in kit.iterdir() if path.is_dir()] == ["site-packages"]


def test_a_kit_that_lacks_a_part_or_is_damaged_is_refused(tmp_path: Path) -> None:
    kit = packed_kit(tmp_path)
    part = kit / "kit-01.tar.xz"
    data = part.read_bytes()
    part.write_bytes(data[:-1])
    with pytest.raises(SystemExit, match="damaged"):
        offline.unpacked(kit)
    part.unlink()
    with pytest.raises(SystemExit, match="missing"):
        offline.unpacked(kit)
    (kit / "kit.json").unlink()
    with pytest.raises(SystemExit, match="make gpu-kit"):
        offline.unpacked(kit)
