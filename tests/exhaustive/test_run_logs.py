"""Logs of every trainer are read as one table: the same groups, whoever wrote them.

The files of other trainers are built as their source writes them: TRL 1.16 (also by real runs),
verl 0.9.1, prime-rl 0.8.1 with verifiers 0.4.0, verifiers 0.1.14, NeMo-RL 7ea279a, rLLM 0.3.0,
AReaL 1.0.4, open-instruct e6c3044. Each was compared with a file that its own code wrote.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from run_logs_cases import STRANGE, WRITERS, write_trl

import decile
from orchestrator.storage.errors import UserError


def rewritten(file: Path, name: str, value: Any) -> None:
    """Replace a field of the second row of JSON lines, or of a JSON object."""
    lines = file.read_text().splitlines()
    at = min(1, len(lines) - 1)
    row = json.loads(lines[at])
    lines[at] = json.dumps(row | {name: value})
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("layout", WRITERS)
def test_no_value_of_a_row_ends_in_a_traceback(layout: str, tmp_path: Path) -> None:
    WRITERS[layout](tmp_path / "run")
    files = sorted(
        {file.parent: file for file in sorted((tmp_path / "run").rglob("*.json*"))}.values()
    )
    for file in files:
        whole = file.read_text()
        for name in json.loads(whole.splitlines()[0]):
            for value in STRANGE:
                rewritten(file, name, value)
                with suppress(UserError):
                    json.dumps(decile.diagnose(tmp_path / "run").to_dict(), allow_nan=False)
        file.write_text(whole)


@pytest.mark.parametrize("name", ["step", "reward", "rewards/accuracy_reward/mean", "eval_reward"])
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: ascii(value)[:8])
def test_no_value_of_a_trainer_state_ends_in_a_traceback(
    name: str, value: Any, tmp_path: Path
) -> None:
    write_trl(tmp_path)
    file = tmp_path / "checkpoint-4" / "trainer_state.json"
    state = json.loads(file.read_text())
    state["log_history"][1] |= {"eval_reward": 1.0, "eval_rewards/accuracy_reward/mean": value}
    state["log_history"][1][name] = value
    file.write_text(json.dumps(state | {"max_steps": value}))
    with suppress(UserError):
        json.dumps(decile.diagnose(tmp_path).to_dict(), allow_nan=False)
