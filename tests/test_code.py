"""The task `code`: forms of tests, programs in completions, rows of files, and its page."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from orchestrator.cli.doctor import try_task
from orchestrator.config.catalog import load_config
from orchestrator.optional.code import task as code_task
from orchestrator.optional.code.code_results import _close, same_output
from orchestrator.optional.code.code_tests import Unreadable, _as_call, called_names, read_tests
from orchestrator.optional.code.sandbox import _bubblewrap, free_names, problem
from orchestrator.optional.code.task import Code, _blocks, find_code
from orchestrator.probing.checks import check_marker
from tasks import Answer, TaskError, get_task

PAGE = (Path(__file__).parents[1] / "docs" / "tasks.md").read_text()
BWRAP = shutil.which("bwrap")
needs_sandbox = pytest.mark.skipif(bool(problem()), reason=problem())


def written(folder: Path, *rows: dict[str, Any]) -> str:
    file = folder / "programs.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


@pytest.mark.parametrize(
    ("value", "function", "expected"),
    [
        (["assert f(1) == 2"], "", {"asserts": ["assert f(1) == 2"]}),
        ("import math\nassert f(1)\nx = 2\nassert f(x)", "", {
            "asserts": ["import math\nassert f(1)", "import math\nx = 2\nassert f(x)"]}),
        ('["assert f(1)"]', "", {"asserts": ["assert f(1)"]}),
        ("def g():\n    assert f(1)\ng()", "", {"asserts": ["def g():\n    assert f(1)\ng()"]}),
        ("x = 1; assert f(x)", "", {"asserts": ["x = 1; assert f(x)"]}),
        ("def test_a():\n    assert f(1)\n", "", {
            "asserts": ["def test_a():\n    assert f(1)\n\ntest_a()"]}),
        ("METADATA = {}\ndef check(g):\n    assert g(1) == 1\n    assert True\n", "f", {
            "asserts": ["g = f\nassert g(1) == 1"]}),
        ("def check(g):\n    for i in (1, 2):\n        assert g(i)", "f", {
            "asserts": ["def check(g):\n    for i in (1, 2):\n        assert g(i)\n\ncheck(f)"]}),
        ({"inputs": ["1\n", ["a", "b"]], "outputs": ["2", "c"]}, "", {
            "stdin": [["1\n", "2"], ["a\nb", "c"]]}),
        ('{"inputs": [[1, 2], "3\\n4"], "outputs": [[3], "7"], "fn_name": "add"}', "", {
            "calls": "add", "tests": [[[1, 2], [3]], [[3, 4], 7]]}),
        ([{"input": "1", "output": "2", "testtype": "stdin"}], "f", {"stdin": [["1", "2"]]}),
        ([{"input": "[1]\n2", "output": "true", "testtype": "functional"}], "f", {
            "calls": "f", "tests": [[[[1], 2], True]]}),
        ([{"input": "1", "output": "2", "testtype": "functional",
           "metadata": {"func_name": "g"}}], "", {"calls": "g", "tests": [[[1], 2]]}),
    ],
)  # fmt: skip
def test_tests_are_read_in_the_forms_of_data_sets(
    value: Any, function: str, expected: dict[str, Any]
) -> None:
    text = read_tests(value, function)
    assert json.loads(text) == expected
    assert read_tests(text) == text  # as `decile export` writes it


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "no keys"),
        ("f(1) ==", "JSON"),
        ("f(1)", "assert"),
        ("METADATA = {}\ndef check(g):\n    assert g(1) == 1", "definitions"),
        ("class Case:\n    def test_f(self):\n        assert f(1)", "definitions"),
        ([1, "a"], "objects"),
        ({"in": 1}, "keys in"),
        ({"inputs": ["a"], "outputs": []}, "1 input and 0 outputs"),
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"inputs": [1], "outputs": ["a"]}, "output 1 is"),
        ({"inputs": [3], "outputs": ["1"], "fn_name": "f"}, "arguments"),
        ({"inputs": [[3]], "outputs": [1], "fn_name": "f g"}, "'f g'"),
        ([{"input": "1", "output": "1", "testtype": "functional"}], "function"),
        ([{"input": "1", "output": "1", "testtype": "judge"}], "'judge'"),
        ({"asserts": 7}, "keys asserts"),
        ({"calls": "f", "tests": [[1, 2]]}, "keys calls, tests"),
    ],
)
def test_other_values_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(problem)):
        read_tests(value)


@pytest.mark.parametrize(
    ("assertion", "right", "wrong"),
    [
        ("f(1, x=[2]) == (3, None)", (3, None), [3, None]),
        ("-3 == f()", -3, 3),
        ("f() is None", None, 0),
        ("f() is True", True, 1),
        ("f()", [0], []),
        ("not f()", [], [0]),
        ("set(f()) == set([1, 2])", [2, 1], [1]),
        ("sorted(f()) == [1, 2]", [2, 1], [1]),
        ("math.isclose(f(), 0.3, rel_tol=0.01)", 0.301, 0.31),
        ("abs(f() - 0.3) < 0.01", 0.301, 0.32),
        ("abs(0.3 - f()) <= 0.01", 0.301, 0.32),
    ],
)
def test_an_assert_about_one_call_is_compared_outside(
    assertion: str, right: Any, wrong: Any
) -> None:
    converted = _as_call(f"import math\nassert {assertion}, 'message'")
    assert converted is not None
    _, check, _ = converted
    assert check(right) and not check(wrong)


@pytest.mark.parametrize(
    "script",
    ["assert f(g(1)) == 2", "x = 1\nassert f(x) == 2", "assert f(1) == g(1)", "assert f(1) < 3",
     "assert f(*[1]) == 2", "assert f(1) == 2 == 2", "assert a.f(1) == 2", "assert x"],
)  # fmt: skip
def test_other_asserts_are_not(script: str) -> None:
    assert _as_call(script) is None


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        ("\n1  2 \n3", "1 2\n3\n\n", True),
        ("1.50", "1.5", True),
        ("1.5001", "1.5", False),
        ("1 2 3", "1 2\n3", False),
        ("", "", True),
        ("0" * 200 + "1", "1", False),
    ],
)
def test_outputs_are_compared_by_lines_and_words(output: str, expected: str, same: bool) -> None:
    assert same_output(output, expected) is same


@pytest.mark.parametrize(
    ("value", "expected", "close"),
    [
        (0.1 + 0.2, 0.3, True),
        (1.0000009, 1.0, True),
        (1.0000011, 1.0, False),
        (2, 2.0000009, True),  # of which one is a float
        (2.0000011, 2, False),
        (1_000_000.0011, 1_000_000.0, False),
        (-1e12 - 999, -1e12, True),
        (-1e12 - 1001, -1e12, False),
        (10**15 + 1, 10**15, False),  # two integers
        (float("inf"), float("inf"), True),
        (float("nan"), float("nan"), False),
        ("1.0", 1.0, False),
        ([1.0, {"a": 0.9999999}], [1, {"a": 1}], True),
        ([1.0, {"a": 0.99999}], [1, {"a": 1}], False),
    ],
)
def test_results_that_are_not_whole_are_compared_nearly(
    value: Any, expected: Any, close: bool
) -> None:
    assert _close(value, expected) is close


@pytest.mark.parametrize(
    ("completion", "strict", "lenient"),
    [
        ("```python\na\n```\ntext\n```py\nb\n```", "b\n", "b\n"),
        ("```python\na\n```\n```\nb\n```", "a\n", "b\n"),
        ("```python\na\n```\n```text\n3\n```", "a\n", "a\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n", "s = '''\n```\n'''\n"),
        ("```python\na\n```\n```python\nb", "a\n", "b"),
        ("<think>\n```python\na\n```\n</think> no", "a\n", None),
        ("def f(): pass", None, "def f(): pass"),
        ("I would use a loop.", None, None),
        ("```python\n\n```", None, None),
        ("```cpp\nint x;\n```", None, None),
    ],
)
def test_the_program_of_a_completion(
    completion: str, strict: str | None, lenient: str | None
) -> None:
    assert (find_code(completion, "strict", False) or (None,))[0] == strict
    assert (find_code(completion, "lenient", False) or (None,))[0] == lenient


FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*\n(.*?)^[ \t]*\1`*[ \t]*$", re.M | re.S
)


@given(st.lists(st.sampled_from(["```", "````", " ~~~ ", "```py", "````x y", "~~~", "a", "", "`"])))
def test_blocks_are_those_of_a_regular_expression(lines: list[str]) -> None:
    text = "\n".join(lines)
    blocks, rest = _blocks(text)
    expected = [*FENCE.finditer(text)]
    assert blocks == [(block[2], block[3]) for block in expected]
    assert rest.strip("\n") == (text[expected[-1].end() :] if expected else text).strip("\n")


@pytest.mark.parametrize("fences", ["```x\n" * 20_000, "````x\n" * 9_000 + "```\n" * 9_000])
def test_fences_that_close_nothing_cost_linear_time(fences: str) -> None:
    assert find_code(f"{fences}\n~~~py\na\n~~~", "strict", False) == ("a\n", True)


def test_a_program_that_the_token_limit_cuts_is_none() -> None:
    assert find_code("```python\na\n```\n```python\nb", "lenient", True) is None
    assert find_code("def f():\n    return", "lenient", True) is None
    assert Code.name and find_code("```python\na\n```\nThis", "lenient", True) == ("a\n", True)


def test_names_that_tests_take_from_the_program() -> None:
    script = "import re as r\ndef g(x): return h(x)\nassert [f(i) for i in r.x(math.pi)] == abs(A)"
    assert free_names(script) == (["A", "f", "h"], ["math"])
    assert called_names(read_tests([script, "assert f(2)"])) == ["h", "f"]


# --- Rows of files ---


@needs_sandbox
def test_a_row_becomes_a_prompt_with_its_solution(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"q": "Double it.", "t": ["assert double(1) == 2"], "s": ["```python\ndouble = 2\n```"]},
        {"q": "Call f.", "t": "def check(c):\n    assert c(1) == 1", "entry_point": "f"},
    )
    task = Code(train=file, question="q", tests="t", solution="s")
    first, second = task.train()
    assert first.question == "Double it.\nDefine `double`."
    assert json.loads(first.info) == {"solution": "double = 2\n"}
    assert task.solution(first) == "```python\ndouble = 2\n\n```"
    assert (second.question, second.info, task.solution(second)) == ("Call f.", "", None)
    counted = ("train: 1 question ", "1 of 2 rows ")
    assert all(any(note.startswith(start) for note in task.notes) for start in counted)
    others = Code(train=file, question="q", tests="t").train()
    assert [p.prompt_id for p in others] == [first.prompt_id, second.prompt_id]


@needs_sandbox
def test_values_may_be_texts_of_json(tmp_path: Path) -> None:
    cases = [{"input": "[1]", "output": "1", "testtype": "functional"}]
    row = {
        "question": "Write first.",
        "tests": json.dumps({"language": "python", "test_cases": json.dumps(cases)}),
        "metadata": json.dumps({"func_name": "first"}),
        "solutions": json.dumps(["def first(x): return x[0]", "other"]),
    }
    file = written(tmp_path, row)
    [prompt] = Code(train=file, entry_point="metadata", solution="solutions").train()
    assert json.loads(prompt.answer) == {"calls": "first", "tests": [[[[1]], 1]]}
    assert json.loads(prompt.info) == {"solution": "def first(x): return x[0]"}


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


@pytest.mark.parametrize("option", ["solution", "entry_point"])
def test_a_named_column_that_no_row_has_is_refused(tmp_path: Path, option: str) -> None:
    file = written(tmp_path, {"question": "f?", "tests": ["assert f(1) == 1"]})
    with pytest.raises(TaskError, match="jsonl has no column 'sol': it has question, tests"):
        Code(train=file, sandbox="none", **{option: "sol"}).train()  # type: ignore[arg-type]


def test_a_test_file_may_lack_solutions(tmp_path: Path) -> None:
    file = written(tmp_path, {"question": "f?", "tests": ["assert f(1) == 1"]})
    assert len(Code(test=file, sandbox="none", solution="sol").test()) == 1


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
    shutil.copy(str(BWRAP), only_on_path)
    if folder:
        monkeypatch.chdir(only_on_path.parent)
        monkeypatch.setenv("PATH", folder)
    mark = Code().mark("```python\ndef f(x): return x\n```", read_tests(["assert f(1) == 1"]))
    assert mark.outcome == "correct"


@pytest.mark.parametrize(
    "options",
    [{"sandbox": "docker"}, {"seconds": 0}, {"seconds": float("inf")}, {"memory": True}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with refused(name, value, by=TaskError):
        get_task("code", **options)


def test_limits_are_part_of_the_marker_id() -> None:
    assert Code().marker_id == "code/2/lenient/5s/1GiB"
    assert Code(seconds=0.5, sandbox="none").marker_id == "code/2/lenient/0.5s/1GiB/unprotected"


@pytest.mark.parametrize(("of_ray", "cpus"), [("1", 1), ("3", 3), ("9", 4), ("0", 4), ("4,2", 4)])
def test_a_worker_of_ray_takes_the_cpus_of_its_task(
    of_ray: str, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", of_ray)
    assert code_task._cpus() == cpus


# --- The page ---


@needs_sandbox
def test_the_example_of_the_page_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE[PAGE.index("## Programs with tests") : PAGE.index("## Prompts")]
    rows, settings = re.findall(r"```(?:json|yaml)\n(.*?)```", section, re.DOTALL)
    (tmp_path / "programs.jsonl").write_text(rows)
    (tmp_path / "programs.yaml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    dataset = load_config(tmp_path / "programs.yaml").config.datasets["programs"]
    task = get_task(dataset.task, **dataset.options)
    prompts = [*task.train(), *task.test()]
    assert len(prompts) == 4 and task.train() and task.test()
    assert str(check_marker(task, prompts)).startswith("4 gold")
