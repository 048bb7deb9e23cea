"""The YAML of docs/quickstart.md, docs/choosing.md and docs/examples/server.yaml is valid."""

import re
from typing import Any

import pytest
import yaml
from paths import ROOT

from orchestrator.config.catalog import load_config
from orchestrator.config.entries import DatasetEntry
from orchestrator.config.experiment import Experiment
from orchestrator.config.policy_entries import PolicyEntry
from tasks import get_task

DOCS = ROOT / "docs"


def entries(kind: str) -> dict[str, Any]:
    """The entries of one kind in all blocks of both pages, by name."""
    text = "".join((DOCS / name).read_text() for name in ("quickstart.md", "choosing.md"))
    blocks = [
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    ]
    return {name: entry for block in blocks for name, entry in block.get(kind, {}).items()}


@pytest.mark.parametrize("name", entries("policies"))
def test_every_policy_can_be_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "examples")
    PolicyEntry.model_validate(entries("policies")[name])


@pytest.mark.parametrize("name", entries("datasets"))
def test_every_data_set_has_options_of_its_task(name: str) -> None:
    entry = DatasetEntry.model_validate(entries("datasets")[name])
    if entry.task != "mix":  # which reads the file's other data sets
        get_task(entry.task, **entry.options)


@pytest.mark.parametrize("name", entries("experiments"))
def test_every_experiment_is_valid(name: str) -> None:
    Experiment.model_validate(entries("experiments")[name])


def test_the_example_of_a_server_is_valid() -> None:
    [experiment] = load_config(DOCS / "examples" / "server.yaml").config.experiments.values()
    assert experiment.probe.engine == experiment.evaluate.engine == "server"
    assert experiment.probe.engine_args == experiment.evaluate.engine_args != {}
