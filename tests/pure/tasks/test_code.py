"""The task `code`: forms of tests, programs in completions, rows of files, and its page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from code_cases import needs_sandbox, written
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from orchestrator.optional.code import task as code_task
from orchestrator.optional.code.code_results import _as_json, _close, same_output
from orchestrator.optional.code.code_tests import Unreadable, _as_call, called_names, read_tests
from orchestrator.optional.code.sandbox import free_names
from orchestrator.optional.code.task import Code, _blocks, find_code
from tasks import TaskError, get_task


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
        ("+1e3", "1000", True),
        ("1_000", "1000", False),
        ("\u0661\u0660\u0660\u0660", "1000", False),
        ("\uff11\uff10", "10", False),
        ("inf", "Infinity", False),
        ("nan", "nan", True),  # the same word
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
        (True, 1, False),
        (1, True, False),
        (True, 1.0, False),
        (True, True, True),
        ([0], [False], False),
        ([1.0, {"a": 0.9999999}], [1, {"a": 1}], True),
        ([1.0, {"a": 0.99999}], [1, {"a": 1}], False),
    ],
)
def test_results_that_are_not_whole_are_compared_nearly(
    value: Any, expected: Any, close: bool
) -> None:
    assert _close(value, expected) is close


@pytest.mark.parametrize(
    ("value", "json"),
    [
        ({1: 0, "a": (2,)}, {"1": 0, "a": [2]}),
        ({True: 0}, {"true": 0}),
        ({None: 0, 1.5: 1}, {"null": 0, "1.5": 1}),
    ],
)
def test_results_are_compared_as_json_has_them(value: Any, json: Any) -> None:
    assert _as_json(value) == json


@pytest.mark.parametrize("value", [{1: 0, "1": 5}, [{"a": {None: 0, "null": 5}}]])
def test_keys_that_json_would_make_one_are_no_result(value: Any) -> None:
    with pytest.raises(ValueError, match="two keys"):
        _as_json(value)


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
    counted = ("train: 1 question ", " 1 of 2 rows")
    assert all(any(part in note for note in task.notes) for part in counted)
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


@pytest.mark.parametrize("option", ["solution", "entry_point"])
def test_a_named_column_that_no_row_has_is_refused(tmp_path: Path, option: str) -> None:
    file = written(tmp_path, {"question": "f?", "tests": ["assert f(1) == 1"]})
    with pytest.raises(TaskError, match="jsonl has no column 'sol': it has question, tests"):
        Code(train=file, sandbox="none", **{option: "sol"}).train()  # type: ignore[arg-type]


def test_a_test_file_may_lack_solutions(tmp_path: Path) -> None:
    file = written(tmp_path, {"question": "f?", "tests": ["assert f(1) == 1"]})
    assert len(Code(test=file, sandbox="none", solution="sol").test()) == 1


@pytest.mark.parametrize(
    "options",
    [{"sandbox": "docker"}, {"seconds": 0}, {"seconds": float("inf")}, {"memory": True}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with refused(name, value, by=TaskError):
        get_task("code", **options)


def test_limits_are_part_of_the_marker_id() -> None:
    assert Code().marker_id == "code/4/lenient/5s/1GiB"
    assert Code(seconds=0.5, sandbox="none").marker_id == "code/4/lenient/0.5s/1GiB/unprotected"


@pytest.mark.parametrize(("of_ray", "cpus"), [("1", 1), ("3", 3), ("9", 4), ("0", 4), ("4,2", 4)])
def test_a_worker_of_ray_takes_the_cpus_of_its_task(
    of_ray: str, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", of_ray)
    assert code_task._cpus() == cpus
