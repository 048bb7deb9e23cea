"""Reward functions of TRL's signature, called in child processes."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import reward_functions_of_users as users
from remedies import refused

from tasks import Answer, MarkLimits, TaskError
from tasks.base import Message
from tasks.reward_functions import reward_function, reward_values

MODULE = "reward_functions_of_users"
LIMITS = MarkLimits(seconds=1.0, memory=0.5)


def ask(question: str, info: str = "") -> list[Message]:
    return [{"role": "user", "content": f"Ask: {question}"}]


def answers(texts: Sequence[str], question: str = "q", **info: Any) -> list[Answer]:
    columns = json.dumps(info) if info else ""
    return [Answer(text, "4", False, question, columns) for text in texts]


def values(name: str, given: Sequence[Answer], **options: Any) -> list[Any]:
    """The value of each completion, or its failure."""
    returned = reward_values(f"{MODULE}:{name}", given, ask, LIMITS, **options)
    return [each.failure or each.value for each in returned]


FILE = r"(misbehaving_task|reward_functions_of_users)\.py:\d+"


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("raise", f"ZeroDivisionError@{FILE}"),
        ("leave", f"SystemExit@{FILE}"),
        ("exit", "crashed@exit-code-3"),
        ("segmentation fault", "crashed@SIGSEGV"),
        ("eat memory", f"MemoryError@{FILE}"),
        ("hang", "time-limit"),
        ("read input", f"EOFError@{FILE}"),
    ],
)
def test_only_the_completion_that_is_the_cause_fails(what: str, rule: str) -> None:
    given = [*answers(["a", "b"], "one"), *answers(["a", what, "c"], "two"), *answers(["a"])]
    returned = values("acts", given)
    assert re.fullmatch(rule, returned.pop(3))
    assert returned == [0.5] * 5


def test_the_rest_is_not_tried_after_too_many_failures() -> None:
    given = [answer for i in range(20) for answer in answers(["raise", "a"], f"question {i}")]
    returned = values("acts", given, tolerated=3)
    assert sum(str(each).startswith("ZeroDivisionError") for each in returned) >= 4
    assert "not-tried" in returned
    assert sum(each == 0.5 for each in values("acts", given, tolerated=30)) == 20


def test_the_time_limit_is_that_of_one_completion(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(users.CALLS, str(tmp_path / "calls"))
    reward_values(f"{MODULE}:slow", answers(["a"] * 8), ask, LIMITS._replace(processes=1))
    assert (tmp_path / "calls").read_text() == "8\n"


def test_functions_of_trl() -> None:
    given = [Answer(r"\boxed{\frac{1}{2}}", "", False, "q", json.dumps({"solution": "$0.5$"}))]
    returned = reward_values("trl.rewards:accuracy_reward", given, ask, MarkLimits(seconds=60))
    assert returned == [(1.0, "")]
    given = answers(["<think>a</think>b", "b"])
    returned = reward_values("trl.rewards:think_format_reward", given, ask)
    assert [value for value, _ in returned] == [1.0, 0.0]


def test_a_function_is_called_once_for_the_completions_of_a_prompt() -> None:
    given = [*answers(["a"] * 3, "one"), *answers(["a"] * 2, "two"), *answers(["a"], "one")]
    assert values("calls", given) == [3, 3, 3, 2, 2, 1]
    assert values("accuracy", answers(["4", "5", "14"])) == [1, 0, 1]
    assert values("accuracy", []) == []


def test_it_gets_what_trl_passes() -> None:
    assert values("by_name", answers(["x", "y"], solution=[1, {"a": None}])) == [1, 1]


def test_a_column_that_a_prompt_does_not_have_is_none() -> None:
    given = [*answers(["a", "b"], level=5), *answers(["a"], other=1)]
    assert values("needs", given) == [0.5, 0.5, 0]
    with pytest.raises(TaskError, match="level; .* question"):
        values("needs", answers(["a"]))


def test_the_tokens_of_completions_are_passed_where_they_are_known() -> None:
    given = answers(["a", "b"])
    assert values("lengths", given, completion_ids=[[1, 2], [3]]) == [2, 1]
    with pytest.raises(TaskError, match="completion_ids"):
        values("lengths", given)


@pytest.mark.parametrize(
    ("returned", "value"),
    [("numpy", 0.25), ("true", 1), ("tuple", 1), ("none", None), ("infinity", "not-finite")],
)
def test_values_of_many_types(returned: str, value: Any) -> None:
    assert values("returns", answers([returned])) == [value]


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("a number", "1.0"),
        ("two", "[1.0, 1.0]"),
        ("text", "['1.0']"),
        ("a text", "'1'"),
        ("a mapping", "{0: 1.0}"),
        ("nested", "[[1.0, 1.0]]"),
    ],
)
def test_anything_else_is_refused(returned: str, shown: str) -> None:
    with refused(f"{MODULE}:returns' returned {shown} for 1 completion", by=TaskError):
        values("returns", answers([returned]))


@pytest.mark.parametrize("what", ["print", "change folder", "handle signals", "fork"])
def test_what_a_function_does_to_its_process_concerns_no_other(what: str) -> None:
    assert values("acts", answers([what, "b", what])) == [0.5] * 3
    assert values("where", answers(["a"])) != [os.getpid()]


def test_calls_for_several_completions_that_fail_are_no_failures_yet() -> None:
    given = [answer for i in range(20) for answer in answers(["a", "b"], f"question {i}")]
    assert values("alone", given, tolerated=3) == [1] * 40


def test_functions_that_are_awaited() -> None:
    given = [answer for i in range(20) for answer in answers(["a", "bb"], f"question {i}")]
    assert values("judge", given) == [1, 0.5] * 20
    failed = values("judge", [*given, *answers(["", "a"])])
    assert failed[:40] == [1, 0.5] * 20 and failed[41] == 1
    assert re.fullmatch(rf"ZeroDivisionError@{MODULE}\.py:\d+", failed[40])
    left = values("judge_that_leaves", answers(["a", "leave", "b", "c"]))
    assert [left.pop(1).partition("@")[0], *left] == ["SystemExit", 1, 1, 1]


def test_what_is_not_a_function_is_refused() -> None:
    assert values("scale", answers(["a"])) == [2]
    with refused(f"{MODULE}:constant", "package.module:function", by=TaskError):
        values("constant", answers(["a"]))
    for unknown in (f"{MODULE}:acuracy", "accuracy"):
        with pytest.raises(TaskError, match=unknown):
            reward_values(unknown, answers(["a"]), ask)


def test_its_version_is_that_of_its_source() -> None:
    assert reward_function(f"{MODULE}:accuracy").version
    versions = {reward_function(f"{MODULE}:{name}").version for name in ("accuracy", "scale")}
    assert len(versions) == 1
    assert users.scale([], a=1) == []
