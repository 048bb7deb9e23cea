"""A reward function as the marker of `task: file`, and the example of docs/own-data.md."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reward_functions_of_users import CALLS
from sweeps import decile, decile_here

from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.probing.checks import MarkerFails, check_marker
from orchestrator.probing.samples import MarkingError, mark_completions
from orchestrator.sampling.base import Completion
from tasks import Answer, Mark, Prompt, TaskError, get_task, make_prompt
from tasks.question_file import QuestionFile
from tasks.reward_functions import reward_function

DOCS = Path(__file__).parents[1] / "docs"
MODULE = "reward_functions_of_users"
ROWS = [{"question": f"What is {i}?", "answer": str(i)} for i in range(6)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(rows: Sequence[dict[str, Any]], name: str = "mine.jsonl") -> str:
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return name


def task(name: str = "accuracy", rows: Sequence[dict[str, Any]] = ROWS, **options: Any) -> Any:
    marker = f"{MODULE}:{name}" if name not in ("number", "text") else name
    return get_task("file", train=write(rows), marker=marker, **options)


def leveled(**columns: Any) -> list[dict[str, Any]]:
    return [row | columns for row in ROWS]


def test_columns_are_part_of_the_id_with_a_function_only() -> None:
    assert task().train() == task("number").train()
    assert task(rows=leveled(level=1), columns=[]).train() == task("number").train()
    rows = leveled(level=1, extra={"b": [None, 1.5], "a": "é"})
    [first, *_] = task(rows=rows).train()
    assert first.info == '{"extra": {"a": "é", "b": [null, 1.5]}, "level": 1}'
    plain = task("number").train()[0]
    [other, *_] = task(rows=leveled(level=2)).train()
    assert len({plain.prompt_id, first.prompt_id, other.prompt_id}) == 3
    [limited, *_] = task(rows=rows, columns=["level"]).train()
    assert limited.info == '{"level": 1}' and limited.prompt_id != first.prompt_id
    [number, *_] = task("number", rows=rows, columns=["level"]).train()
    assert (number.info, number.prompt_id) == ('{"level": 1}', plain.prompt_id)
    assert task("number", rows=rows).train()[0].info == ""


def test_the_split_is_that_of_any_marker() -> None:
    rows = [{"question": f"q{i}", "answer": str(i), "level": i % 3} for i in range(60)]
    options: dict[str, Any] = {"path": write(rows), "test_share": 0.3}
    markers = ("number", f"{MODULE}:accuracy")
    plain, own = (get_task("file", marker=marker, **options) for marker in markers)
    assert {p.prompt_id for p in plain.test()}.isdisjoint(p.prompt_id for p in own.test())
    assert [p.question for p in plain.test()] == [p.question for p in own.test()]


def test_an_answer_of_any_value_is_passed_as_it_is() -> None:
    rows = [{"question": f"q{i}", "answer": {"tests": [i]}} for i in range(3)]
    prompts = task(rows=rows).train()
    assert prompts[1].answer == '{"tests": [1]}'
    assert prompts[1].info == '{"answer": {"tests": [1]}}'
    [prompt] = task(rows=[{"question": "q", "answer": 7}]).train()
    assert (prompt.answer, prompt.info) == ("7", '{"answer": 7}')
    assert task(rows=[{"question": "q", "answer": 7}], columns=[]).train() == [prompt]
    assert task("number", rows=[{"question": "q", "answer": 7}]).train()[0].info == ""


def test_a_file_without_answers() -> None:
    rows = [{"question": f"q{i}"} for i in range(3)]
    of_length = task("calls", rows=rows, answer=None)
    assert [prompt.answer for prompt in of_length.train()] == [""] * 3
    with pytest.raises(TaskError, match="mine.jsonl:1 has no column 'answer'"):
        task("calls", rows=rows).train()
    with pytest.raises(TaskError, match="marker 'text' .*: COLUMN"):
        task("text", rows=rows, answer=None)


def test_values_that_json_does_not_have(folder: Path) -> None:
    def of(values: list[Any]) -> str:
        columns = {"question": ["a", "b"], "answer": ["1", "2"], "more": values}
        pq.write_table(pa.table(columns), folder / "mine.parquet")
        reader = get_task("file", train="mine.parquet", marker=f"{MODULE}:accuracy")
        return reader.train()[0].info

    assert of([date(2026, 1, 2), None]) == '{"more": "2026-01-02"}'
    with pytest.raises(TaskError, match=r"row 1: .*bytes"):
        of([b"a", b"b"])


def test_columns_that_a_file_does_not_have_are_refused() -> None:
    with pytest.raises(TaskError, match="needs level; the columns of mine.jsonl are question"):
        task("needs").train()
    with pytest.raises(TaskError, match="mine.jsonl has no column 'levle': .* question"):
        task("number", columns=["levle"]).train()
    some = [*ROWS, {"question": "other", "answer": "7", "level": 5}]
    marked = task("needs", rows=some)
    marks = marked.mark_all([Answer.to(prompt, "x") for prompt in marked.train()])
    assert [mark.score for mark in marks] == [0] * 6 + [0.5]
    assert marked.mark_all([Answer.to(marked.train()[0], "x")])[0].score == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"marker": "digits"}, "number, letter, expression.* package.m"),
        ({"marker": f"{MODULE}:nothing"}, "cannot be imported: AttributeError"),
        ({"marker": f"{MODULE}:constant"}, f"{MODULE}:constant"),
        ({"marker": f"{MODULE}:lengths"}, "needs completion_ids"),
        ({"threshold": 0.5}, "threshold is"),
        ({"mark_limits": {"seconds": 1}}, "mark_limits is"),
        ({"marker": f"{MODULE}:accuracy", "threshold": 2}, "above 0, up to 1"),
        ({"marker": f"{MODULE}:accuracy", "threshold": "a"}, "invalid threshold 'a'"),
        ({"marker": f"{MODULE}:accuracy", "mark_limits": {"second": 1}}, "no setting 'second'"),
        ({"marker": f"{MODULE}:accuracy", "mark_limits": {"processes": 0.5}}, "an integer above 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        get_task("file", **options)


def marks_of(name: str, completion: str, truncated: bool = False, **options: Any) -> Mark:
    marker: QuestionFile = task(name, **options)
    return marker.mark(completion, "4", truncated)


def test_a_score_becomes_a_mark() -> None:
    rule = f"{MODULE}:returns"
    assert marks_of("accuracy", r"\boxed{4}") == Mark("correct", "4", f"{MODULE}:accuracy", 1.0)
    assert marks_of("returns", "numpy") == Mark("wrong", None, rule, 0.25)
    assert marks_of("returns", "numpy", threshold=0.25) == Mark("correct", None, rule, 0.25)
    assert marks_of("returns", "none") == Mark("unparsed", None, rule)
    assert marks_of("returns", "none", truncated=True) == Mark("truncated", None, rule)
    assert marks_of("returns", "nan") == Mark("error", None, "not-finite")
    assert marks_of("accuracy", rf"\boxed{{{'4' * 300}}}").extracted is None
    with pytest.raises(
        TaskError, match=r"returned 2 for the completion 'x': .* from 0 to 1; rewar"
    ):
        marks_of("scale", "x")


def prompts_and_completions(text: str, count: int) -> tuple[list[Prompt], list[Completion]]:
    prompts = [make_prompt("file", f"q{i // 4}", "4", "") for i in range(count)]
    return prompts, [Completion(text, 1, "stop")] * count


def test_both_readings_are_one_call(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv(CALLS, str(folder / "calls"))
    prompts, completions = prompts_and_completions("a", 8)
    pairs = mark_completions(task("counted", mark_limits={"processes": 1}), completions, prompts)
    assert (folder / "calls").read_text() == "4\n4\n"
    assert all(pair.mark is pair.other for pair in pairs)


@pytest.mark.slow
def test_a_function_that_fails_too_often_stops_the_run() -> None:
    prompts, completions = prompts_and_completions("raise", 400)
    with pytest.raises(MarkingError, match=r"\d of \d+ answers .*ZeroDivision"):
        mark_completions(task("acts"), completions, prompts[::-1], 0.1)


def test_the_marker_check_calls_the_function_and_reports_its_scores() -> None:
    assert check_marker(task(), task().train()) == (
        f"{MODULE}:accuracy called for 6 gold answers: 6 correct, mean score 1.00"
    )
    assert "0 correct, mean score 0.50" in str(check_marker(task("acts"), task("acts").train()))
    rows = [{"question": "q", "answer": "nothing"}]
    with pytest.raises(MarkerFails, match="'nothing': AssertionError@"):
        check_marker(task("picky", rows=rows), task("picky", rows=rows).train())


def test_label_noise_is_refused_where_ids_depend_on_columns() -> None:
    def pool(rows: Sequence[dict[str, Any]], marker: str) -> Any:
        options = {"train": write(rows), "marker": marker}
        return load_pool(Dataset("mine", "file", options, "lenient", {}, label_noise=0.5))

    with pytest.raises(TaskError, match="label_noise: "):
        pool(leveled(level=1), f"{MODULE}:accuracy")
    assert len(pool(ROWS, f"{MODULE}:accuracy").mislabeled) == 3
    assert len(pool(leveled(level=1), "number").mislabeled) == 3


def test_an_edited_function_is_another_marker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    markers = set()
    for score in ("1.0", "0.25"):
        (folder / "edited.py").write_text(f"def score(completions):\n    return [{score}]\n")
        sys.modules.pop("edited", None)
        reward_function.cache_clear()  # as in a new process
        markers.add(get_task("file", marker="edited:score").marker_id)
    assert len(markers) == 2
    assert all(re.fullmatch(r"file/3/lenient/edited:score@[0-9a-f]{16}", m) for m in markers)


@pytest.fixture
def example(folder: Path) -> Path:
    """A folder with the files of docs/own-data.md."""
    text = (DOCS / "own-data.md").read_text()
    files = dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", text, re.DOTALL))
    assert files.keys() == {"my_rewards.py", "experiments.yaml"}
    for name, content in files.items():
        (folder / name).write_text(content)
    shutil.copy(DOCS / "examples" / "word-problems.jsonl", folder)
    return folder


def probe(folder: Path, command: Callable[..., Any]) -> str:
    process = command("probe", "experiments.yaml", "-e", "mine", folder=folder)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


def test_the_example_and_an_edit_of_its_function(local_ray: Path, example: Path) -> None:
    output = probe(example, decile)
    assert "my_rewards:accuracy called for 20 gold answers: 20 correct" in output
    assert "samples to draw" in output
    function = example / "my_rewards.py"
    function.write_text(function.read_text().replace("1.0 if last == gold", "0.0 if last == gold"))
    for name in (function.name, "word-problems.jsonl"):
        shutil.copy(example / name, local_ray)
    output = probe(example, decile_here)
    assert "samples to draw" not in output
    assert "my_rewards:accuracy called for 20 gold answers: 0 correct" in output
