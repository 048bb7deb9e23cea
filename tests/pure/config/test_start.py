"""What an experiment starts from: checked when the file is read."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import make_plan
from orchestrator.storage.errors import UserError

FIRST = {"from": "first", "policy": "hard"}


def test_a_plan_without_a_storage_is_refused(tmp_path: Path) -> None:
    experiments = {"second": experiment(start={"adapter": "folder"})}
    content = {"models": {"tiny": {"embedded": "tiny"}}, "experiments": experiments}
    file = tmp_path / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError) as error:
        make_plan(load_config(file), "second")
    assert error.value.code == "start-without-storage"


def experiment(**settings: Any) -> dict[str, Any]:
    grid = {"model": ["tiny"], "dataset": ["arithmetic"], "policy": ["hard"], "seed": [0, 1]}
    return {"grid": grid | settings.pop("grid", {}), **settings}


def problem(folder: Path, start: Any, *, first: Any = None, **second: Any) -> str:
    """The code and the line's text of the error of an experiment with this start."""
    experiments = {"first": experiment(**first or {}), "second": experiment(start=start, **second)}
    models = {"tiny": {"embedded": "tiny"}, "past": {"recorded": "completions.parquet"}}
    content = {"models": models, "experiments": experiments}
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError) as error:
        load_config(file)
    line = int(str(error.value).split(":")[1])
    return f"{error.value.code} at {file.read_text().splitlines()[line - 1].strip(' -')}"


@pytest.mark.parametrize(
    ("start", "others", "expected"),
    [
        ({}, {}, "one-start at start: {}"),
        ({"from": "first"}, {}, "one-start at start:"),
        (FIRST | {"adapter": "folder"}, {}, "one-start at start:"),
        ({"adapter": "folder", "policy": "hard"}, {}, "one-start at start:"),
        (FIRST | {"from": "frist"}, {}, "unknown-experiment at from: frist"),
        (FIRST | {"policy": "easy"}, {}, "no-such-start at policy: easy"),
        (FIRST, {"grid": {"seed": [1, 7]}}, "no-such-start at 7"),
        (FIRST, {"grid": {"dataset": ["shuffled_objects"]}}, "no-such-start at shuffled_objects"),
        (FIRST, {"first": {"grid": {"grpo.beta": [0, 0.1]}}}, "several-starts at from: first"),
        (FIRST, {"first": {"grid": {"probe_seed": [0, 1]}}}, "several-starts at from: first"),
        (FIRST | {"from": "second"}, {}, "start-from-itself at from: second"),
        (
            FIRST,
            {"first": {"start": {"from": "second", "policy": "hard"}}},
            "start-from-itself at from: second",
        ),
        (
            {"adapter": "folder"},
            {"probe": {"engine": "server", "engine_args": {"base_url": "http://127.0.0.1:1/v1"}}},
            "start-on-server at engine: server",
        ),
        (
            FIRST,
            {"grpo": {"deepspeed": "zero.json"}},
            "start-with-deepspeed at deepspeed: zero.json",
        ),
        (
            {"adapter": "folder"},
            {"grid": {"model": ["tiny", "past"]}},
            "recorded-start at past",
        ),
    ],
)
def test_a_start_that_no_cell_can_have_is_refused_at_its_line(
    tmp_path: Path, start: Any, others: dict[str, Any], expected: str
) -> None:
    assert problem(tmp_path, start, **others) == expected
