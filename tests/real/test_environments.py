"""Environments written for TRL: in child processes that they may hang or end, and as tasks."""

import json
from pathlib import Path
from typing import Any

import pytest
from environments_cases import MODULE, call, file_of, started, task_of

from tasks import TaskError, find_task, get_task
from tasks.environments import Environments, Session, environment_of, tool_schemas
from tasks.environments import row_of as row


@pytest.mark.parametrize(
    ("what", "failure"),
    [
        ("hang", "time-limit@act"),
        ("exit", "crashed@exit-code-3"),
        ("leave", "SystemExit@environments_of_users.py:"),
    ],
)
def test_only_the_session_that_is_the_cause_fails(what: str, failure: str) -> None:
    environments, sessions = started(task_of(), [{"number": 3}] * 3)
    environments.step(sessions, [[call("guess", number=1)]] * 3)
    calls = [[call("guess", number=2)], [call("act", what=what)], [call("guess", number=3)]]
    results = environments.step(sessions, calls)
    assert [each[0].content for each in results[::2]] == ["higher", "correct"] and not results[1]
    assert sessions[1].failure.startswith(failure)
    environments.step([sessions[0]], [[call("guess", number=3)]])
    assert environments.end(sessions, [[]] * len(sessions)) == [pytest.approx(1 / 3), None, 0.5]
    assert not sessions[0].failure and not sessions[2].failure
    environments.close()


def test_the_seconds_of_all_calls_of_an_episode_are_limited() -> None:
    limits = {"seconds": 30.0, "memory": 0.5, "processes": 1, "episode_seconds": 1.0}
    environments, sessions = started(task_of(mark_limits=limits), [{"number": 3}] * 2)
    turns = 0
    while not sessions[0].failure and turns < 9:
        turns += 1
        environments.step(sessions, [[call("act", what="wait")], [call("guess", number=1)]])
    assert turns <= 3 and sessions[0].failure == "time-limit@episode"
    environments.step(sessions[1:], [[call("act", what="pid")]])
    environments.step(sessions[1:], [[call("guess", number=3)]])
    assert environments.end(sessions, [[]] * 2) == [None, pytest.approx(1 / (turns + 1))]
    environments.close()


def test_a_lost_environment_that_differs_when_played_again_fails() -> None:
    environments, sessions = started(task_of(), [{"number": 3}] * 2)
    calls = [[call("act", what="pid")], [call("guess", number=1)]]
    environments.step(sessions, calls)
    environments.step(sessions[1:], [[call("act", what="exit")]])
    environments.step(sessions[:1], [[call("guess", number=3)]])
    assert sessions[0].failure.startswith("RuntimeError@")
    environments.close()


def test_each_session_has_an_environment_of_its_own() -> None:
    environments, sessions = started(task_of(), [{"number": 3}, {"number": 5}, {"number": 7}])
    results = environments.step(sessions, [[call("guess", number=5)]] * 3)
    assert [each[0].content for each in results] == ["lower", "correct", "higher"]
    environments.step(sessions[:1], [[call("guess", number=3)]])
    assert environments.end(sessions, [[]] * len(sessions)) == [0.5, 1.0, 0.0]
    assert not any(session.failure for session in sessions)
    environments.close()


def test_the_text_of_reset_and_what_it_gets(tmp_path: Path) -> None:
    task = task_of(path=file_of(tmp_path, [{"prompt": "p", "number": n} for n in range(9)]))
    prompt = task.train()[0]
    assert row(prompt, []).items() >= {"question": "p", "prompt": []}.items()
    environments = Environments(task)
    assert environments.reset([Session("a", row(prompt, []))]) == [" Guess."]
    environments.close()


@pytest.mark.parametrize(
    ("made", "content"),
    [
        (call("act", what="raise"), "{'error': 'no such thing'}"),
        (call("fly"), "{'error': 'Tool fly not found.'}"),
        (call("get_reward"), "{'error': 'Tool get_reward not found.'}"),
        (call("_secret"), "{'error': 'Tool _secret not found.'}"),
        ({"type": "code"}, "type: code"),
        (call("guess", what=1), "unexpected keyword argument 'what'"),
        (
            {"type": "function", "function": {"name": "guess", "arguments": "1"}},
            "must be a mapping",
        ),
    ],
)
def test_an_error_is_an_answer_to_the_model(made: dict[str, Any], content: str) -> None:
    environments, sessions = started(task_of(), [{"number": 3}])
    [[result]] = environments.step(sessions, [[made]])
    assert result.failed and content in result.content and not sessions[0].failure
    assert environments.step(sessions, [[call("guess", number=3)]])[0][0].content == "correct"
    environments.close()


def test_random_numbers_depend_on_the_session_and_its_turn_alone() -> None:
    drawn = []
    for others in (0, 3):
        environments, sessions = started(task_of(), [{"number": 3}] * (1 + others))
        turns = [
            environments.step(sessions, [[call("act", what="random")]] * len(sessions))
            for _ in range(2)
        ]
        drawn.append([results[0][0].content for results in turns])
        assert len({each[0].content for results in turns for each in results}) == 2 * (1 + others)
        environments.close()
    assert drawn[0] == drawn[1]


def test_contents_of_many_types_are_text_or_blocks() -> None:
    environments, sessions = started(task_of(), [{"number": 3}])
    calls = [call("act", what=what) for what in ("half a pair", "blocks", "text")]
    [results] = environments.step(sessions, [calls])
    assert [each.content for each in results] == ["?", [{"type": "text", "text": "seen"}], "text"]
    environments.close()


def test_async_methods_are_awaited(tmp_path: Path) -> None:
    path = file_of(tmp_path, [{"question": f"q{n}"} for n in range(9)])
    environments, sessions = started(task_of("Waits", path=path), [{}])
    [results] = environments.step(sessions, [[call("look"), call("look")]])
    assert [each.content for each in results] == ["look 1", "look 2"]
    assert environments.end(sessions, [[]] * len(sessions)) == [1.0]
    environments.close()


@pytest.mark.parametrize(
    ("reward", "problem"),
    [
        ("good", r"get_reward\(\) returned 'good'"),
        ([1.0], r"get_reward\(\) returned \[1.0\]"),
    ],
)
def test_a_reward_that_is_no_number_is_refused(tmp_path: Path, reward: Any, problem: str) -> None:
    path = file_of(tmp_path, [{"question": "q", "reward": 1}])
    environments, sessions = started(task_of("Rewards", path=path), [{"reward": reward}])
    with pytest.raises(TaskError, match=problem):
        environments.end(sessions, [[]] * len(sessions))
    environments.close()


def test_a_reset_that_fails_or_returns_anything_but_text() -> None:
    environments, sessions = started(task_of("BadReset"), [{"number": "raise"}])
    assert sessions[0].failure.startswith("KeyError@environments_of_users.py:")
    with pytest.raises(TaskError, match=r"reset\(\) returned 5"):
        environments.reset([Session("b", {"number": 1})])
    environments.close()


COUNTED = {"marker": f"{MODULE}:counted"}


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("NoTools", {}, "NoTools has no tools"),
        ("NoDocstring", {}, "look has no docstring"),
        ("NoReward", {}, r"get_reward\(\).*answer: COLUMN"),
        ("NoReset", {}, r"reset\(\)"),
        ("Draws", {}, r"get_reward\(\)"),
        ("Draws", COUNTED, "episodes: N"),
        ("Draws", {**COUNTED, "episodes": 2, "path": "a"}, "episodes"),
        ("Draws", {**COUNTED, "episodes": 0}, "invalid episodes 0"),
        ("Guess", {"marker": "number", "answer": "number"}, "leave marker out"),
        ("Guess", {"turns": 0}, "invalid turns 0"),
        ("Guess", {"threshold": 2}, "invalid threshold 2"),
        ("Guess", {"mark_limits": {"second": 1}}, "'second'"),
        ("Guess", {"test_share": 2}, "invalid test_share 2"),
        ("Guess", {"path": "a", "train": "b"}, "path "),
    ],
)
def test_a_class_or_options_that_give_no_environment(
    name: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TaskError, match=problem):
        task_of(name, **options).train()


def test_tools_are_described_as_chat_templates_take_them(tmp_path: Path) -> None:
    environment = task_of().environment
    assert environment is not None
    assert environment_of(environment).tools == ("act", "guess")
    schema = tool_schemas(environment)[1]["function"]
    assert schema["name"] == "guess" and [*schema["parameters"]["properties"]] == ["number"]
    bad = task_of("NoTypes", path=file_of(tmp_path, [{"question": "q"}])).environment
    assert bad is not None
    with pytest.raises(TaskError, match="the tool look cannot be described: Argument where"):
        tool_schemas(bad)


def test_rows_of_a_class_are_split_by_their_content() -> None:
    task = task_of(test_share=0.4)
    train, test = task.train(), task.test()
    assert len(train) + len(test) == 30 and 5 < len(test) < 20
    assert {p.prompt_id for p in train}.isdisjoint(p.prompt_id for p in test)
    assert json.loads(train[0].info) == {"number": int(train[0].question.split()[-1][:-1]) % 10}
    assert task_of(test_share=0.1).train()[:3] != train[:3] or len(test) < 6


def test_a_class_that_draws_its_own_task_draws_the_same_for_all_samples_of_an_episode() -> None:
    task = task_of("Draws", episodes=6, marker=f"{MODULE}:counted", test_share=0.5)
    prompts = [*task.train(), *task.test()]
    assert len({p.prompt_id for p in prompts}) == 6 and task.train() and task.test()
    environments = Environments(task)
    sessions = [Session(f"{p.prompt_id} {k}", {}, p.prompt_id) for p in prompts for k in range(2)]
    texts = environments.reset(sessions)
    assert texts[::2] == texts[1::2] and len({*texts}) > 3
    environments.close()


def test_rows_with_one_question_are_distinct_by_their_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": "Play.", "number": n % 20} for n in range(40)]
    task = task_of(path=file_of(tmp_path, rows), test_share=0.3)
    prompts = [*task.train(), *task.test()]
    assert len({p.prompt_id for p in prompts}) == len(prompts) == 20
    assert {p.question for p in prompts} == {"Play."} and task.train() and task.test()
    repeated = [int(note.split()[1]) for note in task.notes if "repeated prompts" in note]
    assert sum(repeated) == 20


def test_chats_and_rows_without_a_question(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "ask"}]
    path = file_of(tmp_path, [{"prompt": chat, "number": 1, "level": "a"}, {"number": 2}])
    (tmp_path / "copy.jsonl").write_bytes(Path(path).read_bytes())
    files = {"train": path, "test": str(tmp_path / "copy.jsonl")}
    task = get_task("file", environment=f"{MODULE}:Guess", **files)
    assert [p.question for p in task.test()] == ["ask", ""]
    assert "1 system message dropped" in " ".join(task.notes)
    assert not task.train(), "test questions"
    assert [p.tier for p in task_of(train=path, tier="number").train()] == ["1", "2"]


def test_an_environment_is_found_as_a_task() -> None:
    assert find_task(f"{MODULE}:Guess") is find_task("environment")
    with pytest.raises(TaskError, match="environment: package"):
        get_task("environment")
    marker = task_of(threshold=0.5).marker_id
    assert marker.startswith(f"environment/3/{MODULE}:Guess@") and marker.endswith("/from-0.5")
