"""Which layout an import has, and matching its questions with a task's pool."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from exchange_files import (
    OBJECTS,
    RIGHT,
    TASK,
    imported,
    noted,
    outcomes,
    refusal,
    rllm_run,
    select,
    written,
)

from orchestrator.cli.main import main
from orchestrator.optional.exchange.imports import import_file, import_probe
from orchestrator.optional.exchange.layouts import INPUTS
from orchestrator.storage.errors import UserError
from tasks import TaskError


def test_an_unknown_layout_lists_columns_and_requirements(tmp_path: Path) -> None:
    message = refusal(tmp_path, [{"q": "2+2", "gold": "4"}], TASK)
    assert "q, gold" in message and "--question" in message
    assert all(name in message for name in INPUTS)


def test_an_ambiguous_file_lists_its_layouts(tmp_path: Path) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT, "pass_rate": 0.5}
    message = refusal(tmp_path, [row], TASK)
    assert "(completions, solve-rates)" in message and "--layout completions" in message
    assert imported(tmp_path, [row], TASK, layout="solve-rates").kind == "difficulty"


def test_a_named_layout_has_to_fit(tmp_path: Path) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT}
    message = refusal(tmp_path, [row], TASK, layout="dapo")
    assert "prompt, reward_model" in message
    message = refusal(tmp_path, [row], TASK, layout="parquet")
    assert "'parquet'" in message and "completions, solve-rates" in message
    run = rllm_run(tmp_path / "run", [])
    with pytest.raises(TaskError, match="verl.* items"):
        import_probe(run, "verl", TASK)


def test_a_source_without_rows_is_refused(tmp_path: Path) -> None:
    assert "has no rows" in refusal(tmp_path, [], TASK)
    row = {"question": "2+2", "answer": None, "completion": RIGHT}
    assert "1 row dropped: no answer (line 1)" in refusal(tmp_path, [row], TASK)
    (tmp_path / "x.json").write_text("{}")
    for source, words in (
        (tmp_path, "results.json, traces.jsonl, results.jsonl"),
        (tmp_path / "no.jsonl", "no.jsonl"),
        (tmp_path / "x.json", "x.json"),
    ):
        with pytest.raises(TaskError, match=words):
            import_probe(source, None, TASK)


@pytest.mark.parametrize("name", ["out.jsonl", "in.jsonl/out.parquet", "folder.parquet"])
def test_an_import_goes_into_a_new_parquet_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.parquet").mkdir()
    file = written(tmp_path, [{"question": "2+2", "answer": "4", "completion": RIGHT}])
    with pytest.raises(UserError, match="^output "):
        import_file(file, TASK, tmp_path / name)


def test_with_a_pool_questions_get_its_ids_answers_and_tiers(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    worded = OBJECTS.messages(pool[1].question)[-1]["content"]
    questions = [pool[0].question, worded, f"Be brief.\n\n{pool[2].question}\n\nAnswer:", "2+2"]
    rows = [
        {"question": question, "answer": prompt.answer, "solve_rate": 0.5}
        for question, prompt in zip(questions, pool, strict=False)
    ]
    rows.append(rows[3] | {"question": "\n" * 64 + pool[3].question})
    probe = imported(tmp_path, rows, OBJECTS, pool=pool)
    assert probe.prompts == tuple(pool[:3])
    assert noted(probe, "^2 rows dropped: .*pool .line 4, line 5.")
    assert imported(tmp_path, rows, OBJECTS).prompts[0].tier == "all"
    assert "1 row dropped: " in refusal(tmp_path, rows[3:4], OBJECTS, pool=pool)


@pytest.mark.parametrize("rated", [True, False], ids=["rates", "completions"])
def test_with_a_pool_test_questions_are_dropped_and_never_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rated: bool
) -> None:
    train, test = OBJECTS.train(), OBJECTS.test()
    values = {"solve_rate": 0.0} if rated else {"completions": ["no"]}
    rows = [{"question": p.question, "answer": p.answer, **values} for p in [*test, *train]]
    file, out = written(tmp_path, rows), tmp_path / "probe.parquet"
    sizes = ["--option", "train=20", "--option", "test=4"]
    arguments = ["import", str(file), "--task", "shuffled_objects", *sizes, "--out", str(out)]
    assert main([*arguments, "--pool"]) == 0
    assert "4 rows dropped: " in capsys.readouterr().out
    subset = pq.read_table(select(out, "hard", "20"))
    assert set(subset["prompt_id"].to_pylist()) == {prompt.prompt_id for prompt in train}


def test_with_a_pool_other_answers_are_named(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    other = next(p.answer for p in pool if p.answer != pool[0].answer)
    rows = [
        {"question": pool[0].question, "answer": a, "completion": OBJECTS.format_answer(other)}
        for a in (pool[0].answer, pool[0].answer.strip("()"), other)
    ]
    probe = imported(tmp_path, rows, OBJECTS, pool=pool)
    assert outcomes(probe) == ["wrong"] * 3
    assert noted(probe, "^1 answer differs .*line 3")
