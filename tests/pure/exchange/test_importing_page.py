"""docs/importing.md: every command of the page runs, and every layout and note is on it."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from exchange_files import RIGHT, WRONG, subset_of, written
from paths import LOGS, ROOT

from orchestrator.cli.main import main
from orchestrator.optional.exchange.exports import LAYOUTS
from orchestrator.optional.exchange.layouts import ALIASES, REQUIRES
from tasks import get_task
from tasks.competition_math import CompetitionMath
from tasks.prompt_table import PromptTable
from tasks.sources import files, texts

PAGE = ROOT / "docs" / "importing.md"
TEXT = PAGE.read_text("utf-8")


def test_the_page_names_every_layout_and_every_note() -> None:
    for name in (*REQUIRES, *ALIASES, *LAYOUTS):
        assert f"`{name}`" in TEXT or name == "dapo", name
    notes = (files.SYSTEM, files.TURNS, texts.ANSWERS, texts.INSTRUCTIONS)
    for note in (*notes, texts.SOLUTIONS):
        assert note.partition(":")[0] in TEXT, note


COMMANDS = re.findall(r"^decile (.+)$", TEXT, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page's commands read, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rollouts").mkdir()
    shutil.copy(LOGS / "inspect.eval", "log.eval")
    shutil.copy(LOGS / "lm_eval_sums.jsonl", "samples_gsm8k.jsonl")
    for name in ("rollouts.jsonl", "rollouts/1.jsonl"):
        shutil.copy(LOGS / "verl_rollouts.jsonl", name)
    chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "#### 4"}]
    written(tmp_path, [{"messages": chat}], "chats.jsonl")
    row = {"problem": "2+2?", "meta": {"gold": "4"}, "outputs": [RIGHT, WRONG]}
    written(tmp_path, [row], "mine.jsonl")
    written(tmp_path, [{"q": "2+2?", "a": "4", "stats": {"mean": 0.5}}], "rates.jsonl")
    written(tmp_path, [{"q": "2+2?", "a": "4", "solved": 3, "tries": 4}], "counts.jsonl")
    return tmp_path


def test_every_command_of_the_page_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = get_task("arithmetic", train=20).train()
    pool = PromptTable.of(sums)
    monkeypatch.setattr(CompetitionMath, "prompt_table", lambda task, split: pool)
    monkeypatch.setattr(CompetitionMath, "provenance", {})
    of_files = [command for command in COMMANDS if "mine.yaml" not in command]
    assert len(of_files) == len(COMMANDS) - 3 == 11  # test_api exports from an experiment
    for command in of_files:
        arguments = shlex.split(command)
        if arguments[0] == "select":
            arguments[arguments.index("--budget") + 1] = "2"  # of a few prompts
        if "math" in arguments:
            import pyarrow.parquet as pq

            pq.write_table(subset_of(sums, [1, 2]), "subset.parquet")
        assert main([*arguments, "--force"]) == 0, command  # several write the same file
    assert len(Path("train.jsonl").read_text().splitlines()) == 2
