"""A reward function as the marker of `task: file`, and the example of docs/quickstart.md."""

import re
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from function_markers_cases import (
    MODULE,
    ROWS,
    folder,  # noqa: F401 (fixtures)
    task,
    write,
)

from orchestrator.planning.pools import Dataset, load_pool
from tasks import TaskError, get_task
from tasks.reward_functions import reward_function


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
    assert all(re.fullmatch(r"file/4/lenient/edited:score@[0-9a-f]{16}", m) for m in markers)
