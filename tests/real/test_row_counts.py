"""Every command that reads or writes rows counts them, and none replaces a file by itself."""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories import store_samples
from probe_report_cases import draw, file_plan, mixed
from sweeps import NAME, decile_here

from docs.generate import json_keys, run_keys
from orchestrator import __version__
from orchestrator.cli.commands import OUTPUTS
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.json_output import FORMS
from orchestrator.cli.main import main
from orchestrator.cli.parser import build_parser
from orchestrator.pipeline.manifest import record_pools
from orchestrator.planning.plan import Plan
from orchestrator.storage.store import Store

WITHOUT_ROWS = {"fetch", "ls", "doctor", "ui"}
PAGES = {"report", "probe"}  # of an experiment, which these commands write anew each time
LINE = re.compile(
    r"\brows(?: of ([^:]+))?: ([\d,]+) read, ([\d,]+) left out(?: \((.*)\))?, ([\d,]+) (\w+)"
)
# Calls in the folder of `project`, in an order in which one may read what another has written.
CALLS = {
    "plan": "plan experiments.yaml",
    "report": "report experiments.yaml --out page.html",
    "select": "select experiments.yaml --policy hard --budget 2 --out subset.parquet",
    "export": "export experiments.yaml --policy hard --budget 2 --layout jsonl --out own.jsonl",
    "mark": "mark --task file --input answers.jsonl --out marked.jsonl",
    "import": "import answers.jsonl --task file --out imported.parquet",
    "compare": "compare a=a.jsonl b=b.jsonl --out compare.html",
    "diagnose": "diagnose log.jsonl --out diagnosis.html",
    "replay": "replay rates.jsonl --policy hard --policy random --budget 2 --out replay.html",
    "init": "init --train own/mine.jsonl --model tiny --yes --out new.yaml "
    "--problems problems.jsonl",
    "select, of a table": "select --probe imported.parquet --policy random --budget 1 "
    "--out table.parquet",
    "export, of a subset": "export --subset subset.parquet --task file "
    "--option train=train.jsonl --option tier=tier --layout jsonl --out other.jsonl",
    "mark, with two markers": "mark --task file --input answers.jsonl --against gsm8k "
    "--option marker=expression --out both.jsonl",
    "mark, with attacks": "mark --task file --input answers.jsonl --attack",
}
# What each call counts: of what, rows read, reasons, rows used or written.
COUNTS = {
    "plan": ("", 33, "1 repeated, 1 in the test set", 31),
    "report": ("", 33, "1 repeated, 1 in the test set", 31),
    "select": ("", 30, "28 not chosen by hard", 2),
    "export": ("", 30, "28 not chosen by hard", 2),
    "mark": ("", 3, "", 4),
    "import": ("", 3, "", 3),
    "compare": ("b", 3, "1 without a score", 2),
    "diagnose": ("", 8, "1 without a reward", 7),
    "replay": ("", 30, "1 without a rate", 29),
    "init": ("", 41, "1 repeated", 40),
    "select, of a table": ("", 3, "2 not chosen by random", 1),
    "export, of a subset": ("", 2, "", 2),
    "mark, with two markers": ("", 3, "", 4),
    "mark, with attacks": ("", 3, "", 3),
}


def subparsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    [action] = [
        each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction)
    ]
    return dict(action.choices)


def form_of(words: list[str]) -> str:
    """The form of the JSON that a command prints."""
    forms = [f"{words[0]} {word}" for word in words if f"{words[0]} {word}" in FORMS]
    return forms[0] if forms else words[0]


def outputs(command: str) -> set[str]:
    """The options of a command that name a file to write."""
    return {action.dest for action in subparsers()[command]._actions} & {*OUTPUTS}


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A probed experiment on a file with a repeated and a test question; files for all commands."""
    monkeypatch.chdir(tmp_path)
    questions = [
        {"question": f"What is {i} + {i}?", "answer": str(2 * i), "tier": "a"} for i in range(30)
    ]
    of_test = {"question": "2+2?", "answer": "4", "tier": "a"}
    plan = file_plan(tmp_path, [*questions, questions[0], of_test])
    store = Store(str(tmp_path / "runs"))
    draw(plan, store, mixed)
    record_pools(plan, store)
    (tmp_path / "own").mkdir()
    own = [{"question": f"What is {i} - 1?", "answer": str(i - 1)} for i in range(40)]
    write(tmp_path / "own" / "mine.jsonl", [*own, own[0]])
    answers = [
        {**questions[i], "completions": [f"\\boxed{{{2 * i}}}"] * (2 - i % 2)} for i in (1, 2, 3)
    ]
    write(tmp_path / "answers.jsonl", answers)
    for name in "ab":
        scores = [True, False, True if name == "a" else None]
        write(tmp_path / f"{name}.jsonl", [{"id": i, "correct": c} for i, c in enumerate(scores)])
    log = [
        {"update": i // 4, "prompt": "p", "completion": "x", "reward": float(i % 2)}
        for i in range(8)
    ]
    write(tmp_path / "log.jsonl", [*log[:7], log[7] | {"reward": None}])
    rates = [
        {"prompt_id": f"q{i % 10}", "visit": i // 10, "pass_rate": (i * 3 % 5) / 4}
        for i in range(30)
    ]
    write(tmp_path / "rates.jsonl", [*rates[:29], rates[29] | {"pass_rate": None}])
    return plan


def found(value: Any) -> list[Mapping[str, Any]]:
    """Every `row_counts` in JSON values."""
    if isinstance(value, list):
        return [each for item in value for each in found(item)]
    if not isinstance(value, dict):
        return []
    own = [value["row_counts"]] if "row_counts" in value else []
    return [*own, *(each for item in value.values() for each in found(item))]


def test_every_command_says_how_many_rows_it_read_left_out_and_wrote(
    project: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    called = {name.partition(",")[0] for name in CALLS}
    assert called | WITHOUT_ROWS | {"run", "probe", "evaluate"} == {*subparsers()}
    for name, call in CALLS.items():
        words = call.split()
        assert main(words) in (ExitCode.DONE, ExitCode.PROBLEM), name
        printed = capsys.readouterr().out
        lines = [match.groups(default="") for match in LINE.finditer(printed)]
        own, read, reasons, rest = COUNTS[name]
        expected = [each for each in lines if each[0] == own]
        assert expected, (name, printed)
        counts = expected[-1]
        assert (int(counts[1]), counts[3], int(counts[4])) == (read, reasons, rest), name
        if "--json" in subparsers()[words[0]]._option_string_actions:
            force = ["--force"] if "--out" in words and words[0] not in PAGES else []
            assert main([*words, *force, "--json"]) in (ExitCode.DONE, ExitCode.PROBLEM), name
            printed = json.loads(capsys.readouterr().out)
            assert (printed.pop("command"), printed.pop("version")) == (words[0], __version__)
            if "…" not in FORMS[form_of(words)]:
                assert {*printed} <= {*json_keys(form_of(words))}, name
            for run in printed.get("runs", []):
                assert {*run} == {*run_keys(form_of(words))}, name
            values = found(printed)
            assert read in [each["read"] for each in values], name
            assert {frozenset(each) for each in values} == {
                frozenset(("read", "left_out", "written"))
            }


def test_no_command_replaces_a_file_without_force(
    project: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page of an experiment is written anew each time: it has no --force."""
    writing = {name for name in subparsers() if outputs(name)}
    forced = {n for n in writing if "--force" in subparsers()[n]._option_string_actions}
    assert writing - forced == PAGES
    calls = {name: words for name, words in CALLS.items() if " --out " in words}
    calls |= {
        "evaluate": "evaluate experiments.yaml --out after.parquet",
        "select, to label": "select experiments.yaml --policy random --to-label labels.csv",
    }
    assert {name.partition(",")[0] for name in calls} - PAGES == forced
    for name, call in calls.items():
        words = call.split()
        if words[0] in PAGES:
            continue
        for option in ("--out", "--problems", "--to-label"):
            if option not in words:
                continue
            file = Path(words[words.index(option) + 1])
            before = file.read_bytes() if file.exists() else None
            file.write_text("of the user")
            assert main(words) == 2, (name, option)
            error = capsys.readouterr().err
            assert str(file) in error and option in error and "--force" in error
            assert file.read_text() == "of the user"
            file.unlink()
            if before is not None:
                file.write_bytes(before)
        if words[0] == "evaluate" or "--to-label" in words:  # of a model without weights; no label
            continue
        assert main(words) in (ExitCode.DONE, ExitCode.PROBLEM), name
        assert main([*words, "--force"]) in (ExitCode.DONE, ExitCode.PROBLEM), name
    capsys.readouterr()
    provenance = Path("own.jsonl.provenance.json")
    Path("own.jsonl").unlink()
    assert main(CALLS["export"].split()) == 2 and str(provenance) in capsys.readouterr().err


def test_a_sweep_its_probe_and_an_evaluation_count_rows(finished: Path) -> None:
    folder = finished.parent
    for words in (["run"], ["probe"], ["evaluate", "--dataset", "few", "--out", "after.parquet"]):
        command, *options = words
        done = decile_here(command, str(finished), "-e", NAME, *options, folder=folder)
        assert done.returncode == 0, done.stderr
        counts = [match.groups(default="") for match in LINE.finditer(done.stdout)]
        read, written = (int(counts[0][i].replace(",", "")) for i in (1, 4))
        assert (read, written) == ((16, 32) if command == "evaluate" else (80, 80))


def test_an_export_that_would_lose_prompts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{i} + 1?", "answer": str(i + 1), "tier": "a"} for i in range(30)]
    plan, store = file_plan(tmp_path, rows), Store(str(tmp_path / "runs"))
    draw(plan, store, mixed)
    record_pools(plan, store)
    export = ["export", "experiments.yaml", "--policy", "hard", "--budget", "0.5"]
    export += ["--layout", "jsonl", "--out"]
    assert main([*export, "before.jsonl"]) == 0
    file_plan(tmp_path, rows[:20])
    capsys.readouterr()
    for command in (
        [*export, "after.jsonl"],
        ["select", *export[1:6], "--out", "after.parquet"],
    ):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "10 prompts are gone" in error and "decile probe experiments.yaml" in error
    assert not Path("after.jsonl").exists()
    assert main(["plan", "experiments.yaml"]) == 0
    assert "warning: the pool of small has changed" in capsys.readouterr().out
    record_pools(file_plan(tmp_path, rows[:20]), store)  # as decile probe does
    assert main([*export, "after.jsonl"]) == 0
    assert len(Path("after.jsonl").read_text().splitlines()) == 10
    extra = [{"question": "new?", "answer": "1", "tier": "a"}]
    plan = file_plan(tmp_path, [*rows[:19], *extra])
    spec = next(spec for spec in plan.probes if spec.split == "train")
    store_samples(store, spec, [])
    assert main([*export, "third.jsonl"]) == 2
    assert "not finished" in capsys.readouterr().err
