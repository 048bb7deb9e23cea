"""What the tests of catalogue share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from data import data
from paths import ROOT

from orchestrator.config.catalog import load_config
from orchestrator.config.schema import Config
from orchestrator.config.yaml_lines import load
from orchestrator.planning.plan import Plan, make_plan

FILE = ROOT / "experiments.yaml"
CONFIG: Config = load_config(FILE).config
PAPERS = [name for name, e in CONFIG.experiments.items() if e.resources.gpus]


def with_local_data(folder: Path) -> Path:
    """The catalogue with the data sets read from local files; skips where those are absent."""
    paths = {
        "gsm8k": data("raw", "gsm8k"),
        "math": data("raw", "math"),
        "shuffled_objects": data("raw", "bbh"),
        "aime2025": data("aime2025"),
    }
    content: dict[str, Any] = load(FILE)[0]
    used = {name for e in content["experiments"].values() for name in e["grid"]["dataset"]}
    used |= {n for e in content["experiments"].values() for n in e["evaluate"].get("ood", ())}
    entries: dict[str, Any] = {n: {"task": n} for n in used if n in paths} | content["datasets"]
    for entry in entries.values():
        options: Mapping[str, Any] = entry.get("options", {})
        if entry["task"] in paths and (
            entry["task"] != "shuffled_objects" or options.get("source") == "bbh"
        ):
            entry["options"] = {**options, "path": str(paths[entry["task"]])}
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content | {"datasets": entries}))
    return file


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    source = load_config(with_local_data(tmp_path_factory.mktemp("catalogue")))
    return {name: make_plan(source, name) for name in PAPERS}
