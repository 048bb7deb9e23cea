"""Files that users name: pipes, devices, folders, huge and endless ones, and huge numbers."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_fuzz_cases import refusal
from mutations import PLACE, QUESTIONS, SMALL, _paths, _Plain
from remedies import problems
from user_files_cases import HUGE


def numbers(value: Any) -> list[tuple[Any, ...]]:
    """The paths of all numbers below a value."""
    found = []
    for path in _paths(value):
        leaf = value
        for part in path:
            leaf = leaf[part]
        if isinstance(leaf, int | float) and not isinstance(leaf, bool):
            found.append(path)
    return found


def test_every_number_of_an_experiments_file_may_be_huge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number in turn, with another spelling each time; any of them is planned or refused."""
    monkeypatch.chdir(tmp_path)
    Path("questions.jsonl").write_text(QUESTIONS)
    tree = yaml.safe_load(SMALL)
    paths = numbers(tree)
    assert len(paths) > 40
    for number, path in enumerate(paths):
        for huge in (HUGE[0], HUGE[number % len(HUGE)]):
            changed = parent = copy.deepcopy(tree)
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = PLACE
            text = yaml.dump(changed, Dumper=_Plain, sort_keys=False, width=10_000)
            Path("experiments.yaml").write_text(text.replace(PLACE, huge, 1))
            message = refusal(Path("experiments.yaml"), "")
            assert message is None or problems(message) == [], (path, message)
            assert message is None or "experiments.yaml:" in message
