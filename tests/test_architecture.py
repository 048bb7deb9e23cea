"""The house keeps its own rules: which room may import what, and files made from code."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator.config.catalog import json_schema

ROOT = Path(__file__).parents[1]
PURE = (
    "config.catalog",
    "config.entries",
    "config.experiment",
    "config.library_settings",
    "planning.plan",
    "planning.overlap",
    "planning.cells",
    "storage.schema",
    "difficulty.table",
    "difficulty.estimates",
    "evaluation.metrics",
    "evaluation.groups",
    "cost.caps",
    "cost.memory",
    "cost.forecast",
    "cost.schedule",
    "cost.throughput",
    "probing.adaptive",
)


@pytest.mark.parametrize("room", ["tasks", "policies", "cluster"])
def test_rooms_below_import_neither_the_orchestrator_nor_each_other(room: str) -> None:
    others = {"orchestrator", "tasks", "policies", "cluster"} - {room}
    for file in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            tops = {name.partition(".")[0] for name in names}
            assert not tops & others, f"{file}: imports {tops & others}"


@pytest.mark.parametrize("module", PURE)
def test_pure_rooms_load_no_heavy_library(module: str) -> None:
    heavy = "{'torch', 'ray', 'mlflow', 'trl', 'transformers', 'peft'}"
    script = f"import sys, orchestrator.{module}; print({heavy} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert run.stdout.strip() == "set()"


def test_the_exported_schema_is_that_of_the_code() -> None:
    stored = json.loads((ROOT / "docs" / "experiments.schema.json").read_text())
    assert stored == json_schema(), "make schema writes it anew"


def test_the_cluster_file_is_one_that_ray_accepts() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((ROOT / "cluster" / "ray-cluster.yaml").read_text())
    validate_config(prepare_config(config))


def test_functions_stay_small() -> None:
    for package in ("orchestrator", "tasks", "policies", "cluster"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef):
                    lines = (node.end_lineno or 0) - node.lineno + 1
                    assert lines <= 60, f"{file}:{node.lineno} {node.name} has {lines} lines"
