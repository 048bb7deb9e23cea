"""docs/trainers.md: its commands on files run, and it has every layout.

What trains is in tests/real/numeric/test_trl_selector.py and exhaustive/sweeps/test_evaluate.py.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from exchange_files import subset_of, written
from paths import LOGS, ROOT

from orchestrator.cli.main import main
from orchestrator.optional.exchange.exports import LAYOUTS
from tasks import get_task
from tasks.competition_math import CompetitionMath
from tasks.prompt_table import PromptTable

TEXT = (ROOT / "docs" / "trainers.md").read_text("utf-8")
COMMANDS = re.findall(r"^decile (.+)$", TEXT, re.MULTILINE)


def test_the_page_names_every_layout_and_the_setting_that_keeps_its_order() -> None:
    table = TEXT[TEXT.index("| `--layout` |") : TEXT.index("Rows are in the order")]
    for name, layout in LAYOUTS.items():
        assert f"`{name}`" in table
        settings = r"data\.shuffle\W|shuffle_dataset|curriculum_sampling"
        assert all(name in table for name in re.findall(settings, layout.order_kept))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page's commands read, in the working directory."""
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    shutil.copy(LOGS / "verl_rollouts.jsonl", "rollouts.jsonl")
    written(tmp_path, [{"q": "2+2?", "a": "4", "stats": {"mean": 0.5}}], "rates.jsonl")
    pool = PromptTable.of(get_task("arithmetic", train=20).train())
    monkeypatch.setattr(CompetitionMath, "prompt_table", lambda task, split: pool)
    monkeypatch.setattr(CompetitionMath, "provenance", {})
    pq.write_table(subset_of([*pool], [1, 2]), "subset.parquet")
    return tmp_path


def test_every_command_on_files_runs(folder: Path) -> None:
    # With an experiment: test_evaluate; with a probe's table: test_trl_selector.
    elsewhere = ("mine.yaml", "rates.parquet", "full.parquet", "compare")
    of_files = [line for line in COMMANDS if not any(word in line for word in elsewhere)]
    assert len(of_files) == 5
    of_files.sort(key=lambda line: "--task math" not in line)  # others replace the subset
    for line in of_files:
        arguments = shlex.split(line)
        if arguments[0] == "select":
            arguments[arguments.index("--budget") + 1] = "1"  # of a few prompts
        if "rates.jsonl" in arguments:
            arguments[arguments.index("probe.parquet")] = "rated.parquet"
        assert main([*arguments, "--force"]) == 0, line
    assert len(Path("train.jsonl").read_text().splitlines()) == 1
