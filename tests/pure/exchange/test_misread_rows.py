"""Rows that were once misread without a word: each is read rightly, noted or refused."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from exchange_files import TASK, imported, noted, outcomes, refusal

from orchestrator.evaluation.diagnosis import diagnose
from orchestrator.optional.exchange.imports import import_probe
from orchestrator.optional.exchange.mark import mark_file
from orchestrator.optional.exchange.run_logs import read_logs
from orchestrator.storage.errors import UserError
from tasks import TaskError
from tasks.sources.files import read_file
from tasks.sources.survey import survey_rows

N = 24
QUESTIONS = [f"What is {n} plus 1?" for n in range(N)]


def lines(folder: Path, **columns: list[Any]) -> Path:
    """A file of N questions with these further columns."""
    rows = [
        {"question": text} | {name: values[n] for name, values in columns.items()}
        for n, text in enumerate(QUESTIONS)
    ]
    (file := folder / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


GOLDS = [n + 1 for n in range(N)]


def test_a_column_without_a_name_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / "index.csv"
    rows = "".join(f"{n},{text},{n + 1 if n else ''}\n" for n, text in enumerate(QUESTIONS))
    file.write_text(f",question,answer\n{rows}")
    probe = import_probe(file, None, TASK)
    assert probe.difficulty is None and len(probe.prompts) == N - 1
    assert noted(probe, "^1 row dropped: no answer")


@pytest.mark.parametrize(
    "columns",
    [{"pass_rate": 1.0, "n": 8, "num_correct": 0}, {"passrate": 0.3, "total_rollouts": 0}],
)
def test_rates_that_contradict_their_counts_are_refused(
    tmp_path: Path, columns: Mapping[str, Any]
) -> None:
    row = {"question": "2+2", "answer": "4"}
    successes = {} if "num_correct" in columns else {"successes": 0}
    assert "in.jsonl:1" in refusal(tmp_path, [row | dict(columns) | successes], TASK)
    rounded = row | {"pass_rate": 0.33, "n": 3, "num_correct": 1}
    assert imported(tmp_path, [rounded], TASK).difficulty is not None


def test_an_output_beside_a_grade_is_no_gold_answer(tmp_path: Path) -> None:
    for name in ("completion", "response", "output"):
        for grade in ("reward", "correct", "score"):
            file = lines(tmp_path, **{name: GOLDS, grade: [0, 1] * (N // 2)})
            with pytest.raises(TaskError, match="answers"):
                survey_rows(read_file(file, []))
    assert survey_rows(read_file(lines(tmp_path, output=GOLDS), [])).answer == "output"


@pytest.mark.parametrize("name", ["pass_rate", "difficulty", "length", "url", "key", "score"])
def test_a_column_with_another_role_is_no_answer(tmp_path: Path, name: str) -> None:
    with pytest.raises(TaskError, match="answers"):
        survey_rows(read_file(lines(tmp_path, **{name: GOLDS}), []))


def test_gold_answers_that_disagree_are_noted(tmp_path: Path) -> None:
    said = [f"The answer is {n + 2}" for n in range(N)]
    file = lines(tmp_path, answer=said, ground_truth=GOLDS, completion=said)
    assert noted(import_probe(file, None, TASK), f"'ground_truth' .* {N} of {N} rows .*line 1")
    notes: list[str] = []
    mark_file("file", {"marker": "number"}, file, tmp_path / "m.jsonl", 1, notes=notes)
    assert any("'ground_truth'" in note and "in.jsonl:1" in note for note in notes)
    solutions = [f"It is {n + 1}.\n#### {n + 1}" for n in range(N)]
    agreeing = lines(tmp_path, answer=solutions, ground_truth=GOLDS)
    assert not noted(import_probe(agreeing, None, TASK), "ground_truth")


@pytest.mark.parametrize("write", [json.dumps, str])
def test_a_list_of_completions_may_be_a_text(tmp_path: Path, write: Any) -> None:
    texts = [write([rf"\boxed{{{n + 1}}}", r"\boxed{0}"]) for n in range(N)]
    file = lines(tmp_path, answer=GOLDS, completions=texts)
    assert outcomes(import_probe(file, None, TASK)).count("correct") == N
    marked = mark_file("file", {"marker": "number"}, file, tmp_path / "m.jsonl", 1)
    assert marked.outcomes["correct"] == N and sum(marked.outcomes.values()) == 2 * N


def test_what_a_server_says_of_a_completion_is_read(tmp_path: Path) -> None:
    columns = {"answer": GOLDS, "completion": ["…"] * N, "correct": ["yes", "no"] * (N // 2)}
    file = lines(tmp_path, **columns, finish_reason=["length"] * N)
    probe = import_probe(file, None, TASK)
    assert {*outcomes(probe)} == {"truncated"} and noted(probe, f"agree on {N // 2} of {N}")
    assert (
        mark_file("file", {"marker": "number"}, file, tmp_path / "m.jsonl", 1).outcomes["truncated"]
        == N
    )


def test_a_chat_with_its_reply_and_an_instruction_with_its_output_have_answers(
    tmp_path: Path,
) -> None:
    chats = [
        [
            {"from": "human", "value": text},
            {"from": "gpt", "value": f"It is {n + 1}.\n#### {n + 1}"},
        ]
        for n, text in enumerate(QUESTIONS)
    ]
    for name, rows in {
        "chats": [{"conversations": chat} for chat in chats],
        "outputs": [{"instruction": text, "output": n + 1} for n, text in enumerate(QUESTIONS)],
    }.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        answers = [prompt.answer for prompt in import_probe(file, None, TASK).prompts]
        assert sorted(map(int, answers)) == GOLDS, name


def test_metrics_that_are_no_number_are_a_problem(tmp_path: Path) -> None:
    for value in (math.nan, math.inf):
        history = [
            {"step": n, "loss": value if n > 6 else 0.1, "grad_norm": 1.0, "reward": 0.5, "kl": 0.1}
            for n in range(1, 31)
        ]
        state = {"log_history": history, "max_steps": 30}
        (tmp_path / "trainer_state.json").write_text(json.dumps(state))
        [log] = read_logs(str(tmp_path))
        assert "not-finite" in {each.code for each in diagnose(log).findings if each.bad}, value


def test_rows_of_completions_without_prompts_are_no_metrics(tmp_path: Path) -> None:
    rows = [{"step": n // 8, "user_prompt": str(n % 4), "reward": n % 2} for n in range(64)]
    (file := tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(UserError, match="several rows per update.*user_prompt"):
        read_logs(str(file))


def test_repeated_questions_of_a_pool_are_counted(tmp_path: Path) -> None:
    rows = [{"question": text, "answer": n + 1} for n, text in enumerate(QUESTIONS)]
    probe = imported(tmp_path, [*rows, rows[0], rows[1] | {"answer": 7}], TASK)
    assert noted(probe, f"^1 row dropped: duplicate prompt.*line {N + 1}")
    assert noted(probe, f"^1 question is repeated with different answers.*line {N + 2}")
    assert probe.read.used == len(probe.prompts) == N + 1


def test_a_context_that_is_not_asked_is_noted(tmp_path: Path) -> None:
    file = lines(tmp_path, answer=GOLDS, article=[f"Text {n}." for n in range(N)])
    assert noted(import_probe(file, None, TASK), "^'article' is not asked")
    asked = lines(tmp_path, answer=GOLDS, context=QUESTIONS)
    assert not noted(import_probe(asked, None, TASK), "not asked")


def test_lines_of_a_sheet_that_end_with_carriage_returns_are_refused(tmp_path: Path) -> None:
    (file := tmp_path / "old.csv").write_bytes(b"question,answer\ra,1\rb,2\r")
    with pytest.raises(TaskError, match="old.csv.*carriage returns"):
        read_file(file, [])


@pytest.mark.parametrize(
    "columns",
    [
        {"finish_reason": "content_filter"},
        {"reward": [0.5, 0.2, 1.0]},
        {"completion_tokens": "many"},
        {"score": {"f1": 0.5}},
    ],
)
def test_what_another_tool_says_otherwise_of_a_completion_refuses_no_row(
    tmp_path: Path, columns: Mapping[str, Any]
) -> None:
    row = {"question": "2+2", "answer": "4", "completion": r"\boxed{4}"} | dict(columns)
    assert outcomes(imported(tmp_path, [row], TASK)) == ["correct"]
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(row | {"tokens": [1, 2, 3]}))  # their ids, which no mark needs
    marked = mark_file("file", {"marker": "number"}, file, tmp_path / "m.jsonl", 1)
    assert marked.outcomes["correct"] == 1


def test_counts_without_a_number_of_samples_and_rounded_rates_refuse_no_row(tmp_path: Path) -> None:
    row = {"question": "2+2", "answer": "4"}
    for columns in (
        {"pass_rate": 0.5, "num_correct": 4},
        {"pass_rate": 0.5, "n": 8, "solved": True},
        {"pass_rate": 0.1, "n": 8, "num_correct": 1},
        {"pass_rate": 0.66, "n": 3, "num_correct": 2},
    ):
        assert imported(tmp_path, [row | columns], TASK).difficulty is not None, columns
