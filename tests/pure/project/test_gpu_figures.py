"""`make gpu-figures`, `make gpu-kit`: small shapes on the CPU, the tables, the parts of a kit."""

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_figures_cases import MACHINE, packed_kit, process
from packaging.requirements import Requirement
from paths import ROOT

from benchmarks import gpu_figures, gpu_kit, gpu_tables, offline


def measurement(**content: Any) -> dict[str, Any]:
    return {"command": "…", "machine": MACHINE, "date": "2026-11-22", "seconds": 1.0} | content


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
    page = (ROOT / "docs" / "notes" / "gpu.md").read_text("utf-8")
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
