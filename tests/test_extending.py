"""docs/extending.md: its files run as they are, and its tables are those of the code."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from http_server import completion, fake_server
from sweeps import decile_here

from orchestrator.probing.checks import check_marker
from orchestrator.probing.isolation import mark_answers
from orchestrator.storage.schema import DIFFICULTY
from policies import (
    BuiltAllocation,
    BuiltOnlinePolicy,
    Groups,
    History,
    get_allocation,
    get_online_policy,
)
from policies.online import checked_ids
from tasks import Answer, get_task
from tasks.reward_functions import reward_values

TEXT = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()


def files() -> dict[str, str]:
    """Name -> content of each code block that begins with a file's name."""
    return dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_columns_of_the_difficulty_table() -> None:
    table = TEXT[TEXT.index("### The difficulty table") : TEXT.index("## A policy that chooses")]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE)
    assert rows == [(field.name, str(field.type)) for field in DIFFICULTY]


def test_the_table_of_what_an_online_policy_knows() -> None:
    section = TEXT[TEXT.index("| `history.`") : TEXT.index("`history` is rebuilt")]
    first_cells = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)[1:]
    named = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    history = History(pa.array(["a", "b"]), [4, 0], [2, 0], seed=0, updates=2, group_size=4)
    public = [n for n in dir(history) if not n.startswith("_")]
    assert sorted(named) == sorted(
        {*public} - {"add", "add_refresh", "start", "fresh", "ids", "part"}
    )


def test_the_example_of_an_allocation_divides(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    rule, none = get_allocation("my_allocation:half_and_half", least=3), np.zeros(5, np.int64)
    groups = Groups(np.array([0.1, 0.9, 0.2, 0.5, 0.8]), none * np.nan, none, none, 40, 8)
    assert BuiltAllocation("mine", rule).more(groups).tolist() == [12, 3, 11, 11, 3]
    section = TEXT[TEXT.index("| `groups.`") : TEXT.index("A class with a method `__call__")]
    cells = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)[1:]
    assert [n for cell in cells for n in re.findall(r"`(\w+)`", cell)] == [*Groups._fields]


def test_the_example_of_an_online_policy_chooses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    policy = get_online_policy("my_online:Frontier", target=0.5)
    ids = pa.array([f"p{i}" for i in range(5)])
    history = History(ids, [8] * 5, [0, 4, 8, 5, 8], seed=0, updates=2, group_size=4)
    history.start(1, 2)
    assert sorted(checked_ids(policy.next(1, history), "mine", 2).to_pylist()) == ["p1", "p3"]
    history.add(1, 1, 4, 4)
    history.add(1, 0, 2, 4)
    history.start(2, 2)
    assert sorted(checked_ids(policy.next(2, history), "mine", 2).to_pylist()) == ["p0", "p3"]


def test_the_example_of_a_gate_closes_prompts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    gates = [{"my_gates:Within": {"margin": 0.2, "weight": 0.5}}]
    policy = BuiltOnlinePolicy("pools", get_online_policy("pools", gates=gates))
    ids = pa.array([f"p{i}" for i in range(4)])
    history = History(ids, [8] * 4, [0, 4, 6, 8], seed=0, updates=3, group_size=4)
    assert {*policy.next_ids(history, 1, 2).to_pylist()} == {"p0", "p1"}
    history.add(1, 1, 4, 4)
    history.add(1, 0, 2, 4)
    policy.next_ids(history, 2, 2)
    mean = 0.5 * (0.5 * (0.5 + 2 / 4) + 4 / 4)  # of p0 before p1
    assert policy.metrics["gate/my_gates:Within/mean"] == mean
    assert policy.metrics["gate/my_gates:Within/open"] == 2 / 4  # those at 0.5 and 0.75


def test_the_examples_probe(local_ray: Path, tmp_path: Path) -> None:
    for name, text in files().items():
        (local_ray if name.endswith(".py") else tmp_path).joinpath(name).write_text(text)
    process = decile_here("probe", "experiments.yaml", "-e", "mine", folder=tmp_path)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "near-half" in process.stdout and "wrote probe-mine.html" in process.stdout
    (command,) = re.findall(r"decile (select .*)", process.stdout)
    process = decile_here(*command.split(), folder=tmp_path)
    assert process.returncode == 0 and "8 prompts" in process.stdout, process.stderr


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
