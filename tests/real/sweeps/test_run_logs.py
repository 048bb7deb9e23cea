"""Logs of every trainer are read as one table: the same groups, whoever wrote them.

The files of other trainers are built as their source writes them: TRL 1.16 (also by real runs),
verl 0.9.1, prime-rl 0.8.1 with verifiers 0.4.0, verifiers 0.1.14, NeMo-RL 7ea279a, rLLM 0.3.0,
AReaL 1.0.4, open-instruct e6c3044. Each was compared with a file that its own code wrote.
"""

import json
from pathlib import Path

import pytest

from benchmarks import troubled_runs
from orchestrator.cli.main import main
from orchestrator.evaluation.run_facts import Facts
from orchestrator.optional.exchange.run_logs import read_logs
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder


def test_the_log_of_a_real_run_of_trl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(troubled_runs, "UPDATES", 2)
    (run,) = [run for run in troubled_runs.runs() if run.name == "cut-plus_minus"]
    troubled_runs.train(run, tmp_path)
    log = read_logs(str(tmp_path))[0]
    facts = Facts(log)
    assert (log.layout, log.by_correct, log.lora) == ("TRL", "correct", True)
    assert len(facts.groups.update) == 16
    means = [
        row["reward"]
        for row in json.loads((tmp_path / "trainer_state.json").read_text())["log_history"][:2]
    ]
    assert facts.mean_by_update(facts.groups.reward) == pytest.approx(means)
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert main(["diagnose", str(tmp_path), "--json", "--out", str(page)]) == 4
    (values,) = json.loads(capsys.readouterr().out)["runs"]
    assert {"truncated"} <= {finding["code"] for finding in values["findings"]}
    assert "truncated" in page.read_text()


def test_a_cell_has_the_numbers_of_its_ledger(finished: Path) -> None:
    store = Store(str(finished.parent / "runs"))
    logs = read_logs(str(finished.parent / "runs"))
    folders = CellFolder.all(store)
    assert len(logs) == len(folders) == 2
    for folder, log in zip(folders, logs, strict=True):
        done = folder.finished()
        assert done is not None
        ledger, kinds = done.result.ledger, Facts(log).kinds
        assert {name: kinds[name] for name in ("live", "all_right", "all_wrong")} == {
            name: ledger.get(name) for name in ("live", "all_right", "all_wrong")
        }
        (alone,) = read_logs(str(finished.parent / "runs" / folder.place))
        assert alone.completions == log.completions
