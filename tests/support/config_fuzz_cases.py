"""What the tests of config fuzz share."""

import re
from pathlib import Path

import pytest
from mutations import QUESTIONS, variants
from processes import hang_limit
from remedies import problems

from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import make_plan
from orchestrator.storage.errors import UserError, one_line
from tasks import TaskError
from tasks.sources import source as reading

PLACE = re.compile(r"experiments\.yaml:\d+: ")


def refusal(file: Path, change: str) -> str | None:
    """The message that refuses a file; None if its experiments (one, if there are many) plan."""
    try:
        loaded = load_config(file)
        names = [*loaded.config.experiments]
        changed = [name for name in names if f"experiments.{name}." in change]
        for name in names if len(names) < 5 else changed[:1] or names[:1]:
            make_plan(loaded, name)
    except UserError as error:
        return one_line(str(error))
    return None


def check(folder: Path, count: int, seed: int) -> None:
    """Every variant is planned or refused well; both happen."""
    file, faults, planned = folder / "experiments.yaml", [], 0
    (folder / "questions.jsonl").write_text(QUESTIONS)
    for change, data in variants(count, seed):
        file.write_bytes(data)
        with hang_limit():
            message = refusal(file, change)
        planned += message is None
        if message and (wrong := problems(message) + ["no line"] * (not PLACE.search(message))):
            faults.append(f"{change}: {', '.join(wrong)}\n    {message}")
    assert not faults, "\n".join(faults)
    assert 0 < planned < count / 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, without access to the hub."""

    def offline(source: reading.Source, revision: str | None) -> reading.Rows:
        raise TaskError(f"{source.hub} cannot be loaded: write path: FOLDER")

    monkeypatch.setattr(reading, "_from_hub", offline)
    monkeypatch.chdir(tmp_path)
    return tmp_path
