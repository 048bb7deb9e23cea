"""docs/extending.md: its files run as they are, and its tables are those of the code."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from environments_cases import call, file_of, started
from extending_cases import (
    folder,  # noqa: F401 (fixtures)
)
from http_server import completion, fake_server
from paths import ROOT

from orchestrator.probing.checks import check_marker
from orchestrator.probing.isolation import mark_answers
from tasks import Answer, get_task
from tasks.reward_functions import reward_values


def test_the_graded_task_gives_scores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    task = get_task("my_graded:Close", largest=8)
    prompt = next(p for p in task.train() if p.answer == "12")
    marks = [*mark_answers(task, [Answer.to(prompt, rf"\boxed{{{n}}}") for n in (12, 9, 50)])]
    assert [(mark.outcome, mark.score) for mark in marks] == [
        ("correct", 1.0),
        ("wrong", 0.75),
        ("wrong", 0.0),
    ]
    assert f"{len(task.test())} gold answers" in str(check_marker(task, task.test()))


def test_the_judge_asks_a_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    grades = {"seven": "8", "eight": "none", "nine": "10"}

    def behaviour(path: str, body: dict[str, Any], number: int) -> Any:
        text = body["messages"][0]["content"]
        return completion(body, next(grade for word, grade in grades.items() if word in text))

    answers = [Answer(word, "?", False, "What is 3 + 4?") for word in grades]
    with fake_server() as server:
        server.behaviour = behaviour
        monkeypatch.setenv("JUDGE_URL", server.base_url)
        monkeypatch.setenv("JUDGE", "judge")
        values = reward_values("my_judge:grade", answers, get_task("file").messages_of)
    assert [value.value for value in values] == [0.8, None, 1.0]
    assert {body["model"] for body in server.bodies()} == {"judge"}


def test_the_environment_of_the_page_plays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    rows = [{"prompt": "Guess.", "number": n, "level": n % 2} for n in range(9)]
    task = get_task("my_env:Guess", path=file_of(folder, rows), tier="level")
    assert {prompt.tier for prompt in task.train()} == {"0", "1"}
    environments, sessions = started(task, rows[3:4])
    said = [
        environments.step(sessions, [[call("guess", number=number)]])[0][0].content
        for number in (1, 5, 3)
    ]
    assert said == ["higher", "lower", "correct"]
    assert environments.end(sessions, [[]]) == [1.0]
    environments.close()


def test_the_environment_of_reasoning_gym_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    [row] = import_module("rg_env").Checked.rows(size=1)
    environments, sessions = started(get_task("rg_env:Checked"), [row])
    answers = ("no number", row["item"]["answer"])
    said = [
        environments.step(sessions, [[call("check", answer=answer)]])[0][0].content
        for answer in answers
    ]
    assert said == ["wrong, 2 tries left", "correct"]
    assert environments.end(sessions, [[]]) == [1.0]
    environments.close()
