"""Imports of tables by their columns: named by the user, or as TRL, OpenRLHF and rLLM have them."""

import json
from pathlib import Path
from typing import Any

import pytest
from exchange_files import (
    OBJECTS,
    RIGHT,
    TASK,
    WRONG,
    imported,
    noted,
    outcomes,
    rates,
    refusal,
    written,
)
from paths import LOGS

from orchestrator.cli.main import main
from orchestrator.optional.exchange.imports import import_probe
from orchestrator.optional.exchange.records import Hints
from orchestrator.plugins.counts import counted_label
from tasks import TaskError, get_task
from tasks.sources.files import SYSTEM, TURNS
from tasks.sources.texts import INSTRUCTIONS

USER = {"role": "user", "content": "2+2?"}
SYSTEM_MESSAGE = {"role": "system", "content": "Be brief."}
EARLIER = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def texts(probe: Any) -> list[tuple[str, str]]:
    return [(prompt.question, prompt.answer) for prompt in probe.prompts]


def test_columns_of_rates_and_of_plain_pools_are_named(tmp_path: Path) -> None:
    rows = [{"ask": "2+2?", "gold": "4", "stats": {"mean": "3/4"}}]
    hints = Hints(question="ask", answer="gold", rate="stats.mean")
    assert rates(imported(tmp_path, rows, TASK, hints=hints)) == {"2+2?": 0.75}
    probe = imported(tmp_path, rows, TASK, hints=Hints(question="ask", answer="gold"))
    assert (probe.kind, texts(probe)) == ("prompts", [("2+2?", "4")])
    rows = [{"question": "2+2?", "answer": "2+2 = 4\n#### 4"}]
    probe = imported(tmp_path, rows, TASK)
    assert (probe.layout, probe.kind, texts(probe)) == ("columns", "prompts", [("2+2?", "4")])


def test_a_column_that_no_row_has_is_named(tmp_path: Path) -> None:
    rows = [{"ask": "2+2?", "gold": None}]
    message = refusal(tmp_path, rows, TASK, hints=Hints(question="ask", answer="gold"))
    assert "--answer gold: " in message and message.endswith(": ask, gold")
    message = refusal(tmp_path, rows, TASK, hints=Hints(question="a.b", prompt_id="x"))
    assert "--question a.b: " in message
    row = {"prompt": [USER], "reward_model": {"ground_truth": "4"}}
    message = refusal(tmp_path, [row], TASK, layout="verl", hints=Hints(question="prompt"))
    assert "--question " in message and "layout verl" in message
    row = {"ask": {"text": "2+2?"}, "gold": "4"}
    message = refusal(tmp_path, [row], TASK, hints=Hints(question="ask", answer="gold"))
    assert "in.jsonl:1: column 'ask' " in message and "such as ask.text" in message


@pytest.mark.parametrize(
    ("row", "hints"),
    [
        ({"prompt": [SYSTEM_MESSAGE, *EARLIER, USER], "answer": "4"}, {}),
        ({"prompt": [SYSTEM_MESSAGE, *EARLIER, USER], "solution": "So #### 4\n#### 4"}, {}),
        (
            {
                "prompt": [SYSTEM_MESSAGE, *EARLIER, USER],
                "completion": [reply("It is \\boxed{4}.")],
            },
            {"answer": "completion"},
        ),
        (
            {"messages": [SYSTEM_MESSAGE, *EARLIER, USER, reply("#### 4")]},
            {"answer": "messages"},
        ),
        ({"context_messages": [SYSTEM_MESSAGE, *EARLIER, USER], "label": "4"}, {}),
        ({"input": [SYSTEM_MESSAGE, *EARLIER, USER], "label": 4}, {}),
    ],
)
def test_chats_become_questions_and_what_is_dropped_is_counted(
    tmp_path: Path, row: dict, hints: dict
) -> None:
    probe = imported(tmp_path, [row], TASK, hints=Hints(**hints))
    assert (probe.kind, texts(probe)) == ("prompts", [("2+2?", "4")])
    assert (
        f"{counted_label(1, SYSTEM)} (line 1)" in probe.notes
        and f"2 {TURNS} (line 1)" in probe.notes
    )
    assert probe.layout == ("trl" if "label" not in row else "openrlhf")


def test_trl_completions_are_marked(tmp_path: Path) -> None:
    rows = [
        {"prompt": [USER], "completion": [reply(RIGHT)], "solution": "4"},
        {"prompt": [USER], "completion": [reply(WRONG)], "solution": "4"},
    ]
    assert outcomes(imported(tmp_path, rows, TASK)) == ["correct", "wrong"]
    rows = [{"prompt": "2+2?", "completion": RIGHT, "answer": "4"}]
    assert outcomes(imported(tmp_path, rows, TASK)) == ["correct"]
    rows = [{"prompt": "2+2?", "completions": [[reply(RIGHT)], [USER, reply("")]], "answer": "4"}]
    assert outcomes(imported(tmp_path, rows, TASK)) == ["correct", "unparsed"]
    rows = [{"messages": [USER, reply(RIGHT)], "answer": "4"}]
    probe = imported(tmp_path, rows, TASK, hints=Hints(completions="messages"))
    assert outcomes(probe) == ["correct"] and not any(TURNS in note for note in probe.notes)


def test_rows_without_an_answer_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = [{"prompt": [USER], "answer": "4"}, {"prompt": [USER], "answer": ""}]
    assert "1 row dropped: no answer (line 2)" in imported(tmp_path, rows, TASK).notes
    rows = [{"prompt": [USER], "completion": [reply(RIGHT)]}]
    message = refusal(tmp_path, rows, TASK)
    assert "1 row dropped: no answer (line 1)" in message and "--answer" in message


def test_instructions_inside_questions_are_removed_and_counted(tmp_path: Path) -> None:
    wordings = [
        "2+2?\nPlease reason step by step, and put your final answer within \\boxed{}.",
        '3+3? Let\'s think step by step and output the final answer after "####".',
        TASK.messages("4+4?")[-1]["content"],
        "What does \\boxed{} print in put your final answer within \\boxed{}. Say 1.",
    ]
    rows = [{"prompt": text, "answer": "1"} for text in wordings]
    probe = imported(tmp_path, rows, TASK)
    assert [q for q, _ in texts(probe)] == ["2+2?", "3+3?", "4+4?", wordings[3]]
    assert f"3 {INSTRUCTIONS} (line 1, line 2, line 3)" in probe.notes
    bare = get_task("file", prompt={"preset": "bare"})
    assert [q for q, _ in texts(imported(tmp_path, rows, bare))] == wordings


def test_an_import_has_the_ids_of_the_same_file_as_a_dataset(tmp_path: Path) -> None:
    rows = [
        {"messages": [SYSTEM_MESSAGE, {"role": "user", "content": wording}, reply(answer)]}
        for wording, answer in (
            ("2+2?", "So #### 4\n#### 4"),
            ("3+3? Put your final answer within \\boxed{}.", "\\boxed{6}"),
            ("5*200?", "1,000"),
        )
    ]
    options = {"question": "messages", "answer": "messages"}
    task = get_task("file", train=str(written(tmp_path, rows)), **options)
    assert imported(tmp_path, rows, task, hints=Hints(**options)).prompts == tuple(task.train())


def test_answers_that_the_marker_cannot_mark_correct_are_counted(tmp_path: Path) -> None:
    rows = [
        {"question": str(number), "answer": answer, "completion": RIGHT}
        for number, answer in enumerate(("4", "4}", "{4", "4}"))
    ]
    text = get_task("file", marker="text")
    assert noted(imported(tmp_path, rows, text), "^3 answers .*line 2, line 3, line 4")
    assert not noted(imported(tmp_path, rows[:1], text), "answer")


def test_an_import_for_a_function_of_columns_needs_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_marker.py").write_text("def same(completions, level): return completions")
    monkeypatch.syspath_prepend(tmp_path)
    rows = [{"question": "2+2?", "answer": "4", "level": 1, "completion": RIGHT}]
    task = get_task("file", marker="my_marker:same")
    with pytest.raises(TaskError, match="'my_marker:same' needs level, .*: write --pool, and"):
        imported(tmp_path, rows, task)


def test_choices_in_another_column_make_a_question_unusable(tmp_path: Path) -> None:
    text, letter = (get_task("file", marker=marker) for marker in ("text", "letter"))
    row = {"question": "Which?", "ground_truth": "yes", "choices": ["yes", "no"]}
    assert "choices" in refusal(tmp_path, [row], text)
    assert texts(imported(tmp_path, [row], letter)) == [("Which?\n(A) yes\n(B) no", "(A)")]
    row["question"] = "Which? (A) yes (B) no"
    assert texts(imported(tmp_path, [row], letter)) == [("Which? (A) yes (B) no", "(A)")]


@pytest.mark.parametrize("name", ["rllm.parquet", "rllm_verl.parquet"])
def test_data_sets_that_rllm_wrote_are_read(name: str) -> None:
    probe = import_probe(LOGS / name, None, TASK)
    assert probe.layout == ("verl" if "verl" in name else "rllm-data")
    assert texts(probe) == [("2+2?", "4"), ("3+4?", "7")]


def test_with_a_pool_answers_and_even_questions_may_be_missing(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    right = OBJECTS.format_answer(pool[0].answer)
    rows = [{"prompt": pool[0].question, "completion": right}]
    probe = imported(tmp_path, rows, OBJECTS, pool=pool)
    assert outcomes(probe) == ["correct"] and probe.prompts == (pool[0],)
    rows = [{"id": pool[0].prompt_id, "out": right}, {"id": "0" * 16, "out": right}]
    hints = Hints(prompt_id="id", completions="out")
    probe = imported(tmp_path, rows, OBJECTS, pool=pool, hints=hints)
    assert outcomes(probe) == ["correct"] and probe.prompts == (pool[0],)
    assert noted(probe, "^1 row dropped: .*pool .line 2")


def test_the_command_takes_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, [{"a": {"b": "2+2?"}, "gold": "4", "outs": [RIGHT]}])
    out = str(tmp_path / "o.parquet")
    command = ["import", str(file), "--task", "file", "--out", out]
    columns = ["--question", "a.b", "--answer", "gold", "--completions", "outs"]
    assert main([*command, *columns, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "samples"
    assert main([*command, "--force"]) == 2
    error = capsys.readouterr().err
    assert "--question and --answer" in error and error.count("\n") == 1
