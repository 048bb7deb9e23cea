"""Import and export: what others wrote becomes a probe, a subset becomes what trainers read."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.main import main
from orchestrator.difficulty.estimates import wilson
from orchestrator.difficulty.table import difficulty
from orchestrator.exchange import (
    EXPORTS,
    IMPORTS,
    Hints,
    Imported,
    export_file,
    export_subset,
    import_file,
    import_probe,
    prompts_of,
    read_subset_file,
    summary_of,
    write_import,
)
from orchestrator.selection.subsets import reason, with_reason
from orchestrator.storage.schema import DIFFICULTY, SAMPLES, SUBSET
from tasks import Prompt, Task, TaskError, get_task, make_prompt

TINY = Path(__file__).parents[1] / "orchestrator" / "embedded" / "tiny"
RIGHT, WRONG = r"\boxed{4}", r"\boxed{5}"
WHY = {"policy": "hard", "size": 2, "seed": 3, "ties": None, "probe": "abc"}


@pytest.fixture(scope="module")
def task() -> Task:
    return get_task("file", marker="number")


@pytest.fixture(scope="module")
def objects() -> Task:
    return get_task("shuffled_objects", train=20, test=4)


def written(folder: Path, rows: list[dict], name: str = "in.jsonl") -> Path:
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def imported(folder: Path, rows: list[dict], task: Task, **more: Any) -> Imported:
    layout = more.pop("layout", None)
    return import_probe(written(folder, rows), layout, task, **more)


def refusal(folder: Path, rows: list[dict], task: Task, **more: Any) -> str:
    with pytest.raises(TaskError) as caught:
        imported(folder, rows, task, **more)
    return str(caught.value)


def outcomes(found: Imported) -> list[str]:
    assert found.samples is not None
    return found.samples["outcome"].to_pylist()


def rates(found: Imported) -> dict[str, float]:
    """Pass rates by question."""
    assert found.difficulty is not None
    of = {p.prompt_id: p.question for p in found.prompts}
    table = found.difficulty
    return {
        of[name]: rate
        for name, rate in zip(
            table["prompt_id"].to_pylist(), table["pass_rate"].to_pylist(), strict=True
        )
    }


# Completions


@pytest.mark.parametrize("kind", ["in.jsonl", "in.parquet"])
def test_completions_are_marked_by_the_tasks_own_marker(
    tmp_path: Path, task: Task, kind: str
) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "completion": RIGHT},
        {"question": "1+1", "answer": "2", "completion": WRONG},
        {"question": "2+2", "answer": "4", "completion": "hm"},
    ]
    found = import_probe(written(tmp_path, rows, kind), None, task)
    assert found.layout == "completions"
    assert found.samples is not None and found.samples.schema.equals(SAMPLES)
    assert outcomes(found) == ["correct", "wrong", "unparsed"]
    four, two = (make_prompt("file", q, a, "all") for q, a in (("2+2", "4"), ("1+1", "2")))
    assert found.prompts == (four, two)
    assert found.samples["prompt_id"].to_pylist() == [p.prompt_id for p in (four, two, four)]
    assert found.samples["sample"].to_pylist() == [0, 0, 1]
    assert found.samples["tokens"].to_pylist() == [None] * 3
    assert set(found.samples["marker"].to_pylist()) == {task.marker_id} == {found.marker}
    assert found.source.startswith(f"{kind} sha256:")


def test_lists_carry_cuts_lengths_and_ends(tmp_path: Path, task: Task) -> None:
    rows = [
        {
            "question": "2+2",
            "answer": 4,
            "completions": ["so", RIGHT],
            "truncated": [True, False],
            "tokens": [9, 4],
        },
        {"question": "2+3", "answer": "5", "responses": ["so", ""], "finish": ["length", "error"]},
        {"question": "3+3", "answer": "6", "completions": ["so", "or"], "truncated": True},
    ]
    found = imported(tmp_path, rows, task)
    assert outcomes(found) == ["truncated", "correct", "truncated", "error", *["truncated"] * 2]
    assert found.samples is not None
    assert found.samples["tokens"].to_pylist() == [9, 4, None, None, None, None]
    assert found.samples["finish"].to_pylist()[:4] == ["length", "stop", "length", "error"]


def test_rows_without_question_answer_or_completion_are_dropped_aloud(
    tmp_path: Path, task: Task
) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "completion": RIGHT},
        {"question": " ", "answer": "4", "completion": RIGHT},
        *[{"question": "2+2", "answer": None, "completion": RIGHT}] * 4,
        {"question": "2+2", "answer": "4", "completions": []},
    ]
    found = imported(tmp_path, rows, task)
    assert outcomes(found) == ["correct"]
    assert found.notes[1:] == (
        "1 rows dropped: no question (row 2)",
        "4 rows dropped: no answer (row 3, row 4, row 5, …)",
        "1 rows dropped: no completion (row 7)",
    )


def test_sample_numbers_of_the_file_are_kept(tmp_path: Path, task: Task) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT}
    found = imported(tmp_path, [row | {"sample": 7}, row | {"sample": 2}], task)
    assert found.samples is not None and found.samples["sample"].to_pylist() == [7, 2]
    said = refusal(tmp_path, [row | {"sample": 7}, row | {"sample": 7}], task)
    assert "row 2 is sample 7 of the same prompt as row 1" in said
    assert "row 2 has no sample number" in refusal(tmp_path, [row | {"sample": 7}, row], task)


def test_an_answer_column_that_changes_with_the_completion_is_refused(
    tmp_path: Path, task: Task
) -> None:
    rows = [{"question": "2+2", "answer": a, "completion": RIGHT} for a in ("4", "5")]
    said = refusal(tmp_path, rows, task)
    assert "row 2 gives the answer '5' to the question of row 1, which gives '4'" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completion": 7}, "row 1: write completion (a text) or completions (a list of texts)"),
        ({"completions": ["a", 7]}, "row 1: write completion (a text)"),
        ({"truncated": "yes"}, "row 1: truncated 'yes': write true or false"),
        ({"truncated": [True, True]}, "row 1: truncated has 2 entries for 1 completions"),
        ({"finish": "eos"}, "row 1: finish 'eos': write stop, length or error"),
        ({"tokens": -1}, "row 1: tokens -1 is no count: write a whole number from 0"),
        ({"tokens": True}, "row 1: tokens True is no count"),
        ({"sample": 0.5}, "row 1: sample 0.5 is no count"),
    ],
)
def test_a_column_of_another_form_is_named(
    tmp_path: Path, task: Task, change: dict, said: str
) -> None:
    row = {"question": "2+2", "answer": "4"}
    row |= change if "completion" in change or "completions" in change else {"completion": RIGHT}
    got = refusal(tmp_path, [row | change], task)
    assert said in got and "in.jsonl" in got


# Solve rates


def test_solve_rates_are_marked_as_such_and_absent_columns_stay_absent(
    tmp_path: Path, task: Task
) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "solve_rate": 0.25, "n": 8},
        {"question": "1+1", "answer": "2", "solve_rate": "7/8"},
        {"question": "1+2", "answer": "3", "solve_rate": 0.33, "n": 8},
        {"question": "1+3", "answer": "4", "solve_rate": None},
    ]
    found = imported(tmp_path, rows, task)
    assert found.layout == "solve-rates" and found.samples is None
    assert rates(found) == {"2+2": 0.25, "1+1": 0.875, "1+2": 0.33}
    table = found.difficulty
    assert table is not None and set(table.column_names) < set(DIFFICULTY.names)
    assert not {"wrong", "unparsed", "truncated", "error", "first"} & set(table.column_names)
    assert all(table.schema.field(n).type == DIFFICULTY.field(n).type for n in table.column_names)
    of = {p.prompt_id: p.question for p in found.prompts}
    rows = {of[row["prompt_id"]]: row for row in table.to_pylist()}
    assert (rows["1+1"]["n"], rows["1+1"]["successes"]) == (8, 7)
    assert (rows["1+2"]["n"], rows["1+2"]["successes"], rows["1+2"]["low"]) == (8, None, None)
    low, high = wilson(np.array([2]), np.array([8]))
    assert (rows["2+2"]["low"], rows["2+2"]["high"]) == pytest.approx((low[0], high[0]))
    assert "1 rows dropped: no solve rate (row 4)" in found.notes
    assert any(note.startswith("solve rates only: no outcome detail") for note in found.notes)


def test_counts_say_a_rate_too_and_hints_say_the_rest(tmp_path: Path, task: Task) -> None:
    row = {"problem": "2+2", "answer": "4"}
    found = imported(tmp_path, [row | {"samples": 8.0, "num_correct": 2}], task)
    assert rates(found) == {"2+2": 0.25}
    found = imported(tmp_path, [row | {"mine": 0.5}], task, hints=Hints(rate="mine", samples=4))
    assert found.difficulty is not None
    assert found.difficulty.select(["n", "successes"]).to_pylist() == [{"n": 4, "successes": 2}]


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_exact_rate_gives_its_counts_back(counts: tuple[int, int]) -> None:
    from orchestrator.exchange.rates import _exact

    right, n = counts
    assert _exact(right / n, n) == right
    assert _exact((right + 0.5) / (n + 1), n) in (None, right)


def test_a_repeated_prompt_keeps_its_first_rate(tmp_path: Path, task: Task) -> None:
    row = {"question": "2+2", "answer": "4", "pass_rate": 0.5}
    rows = [row, row, row | {"pass_rate": 0.75}, row | {"answer": "5"}]
    found = imported(tmp_path, rows, task)
    assert len(found.prompts) == 2
    assert found.notes[1:4] == (
        "1 rows dropped: the prompt was there before (row 2)",
        "1 rows dropped: the prompt was there before, with another rate (row 3)",
        "1 questions come again with another answer; both are kept (row 4)",
    )


@pytest.mark.parametrize("rate", [43.0, -0.1, True, "half", float("nan")])
def test_a_rate_that_is_no_share_is_refused(tmp_path: Path, task: Task, rate: Any) -> None:
    said = refusal(tmp_path, [{"question": "2+2", "answer": "4", "solve_rate": rate}], task)
    assert "row 1: solve rate" in said and "write a number from 0 to 1" in said


def test_several_rates_have_to_be_told_apart(tmp_path: Path, task: Task) -> None:
    names = ("solve_rate_qwen_r1_distill_1b", "solve_rate_qwen_r1_distill_7b")
    row = {"question": "2+2", "answer": "4", names[0]: 0.1, names[1]: 0.9}
    assert f"write which one: rate: {names[0]}" in refusal(tmp_path, [row], task)
    assert rates(imported(tmp_path, [row], task, hints=Hints(rate=names[1]))) == {"2+2": 0.9}


def test_big_math(tmp_path: Path, task: Task) -> None:
    row = {"source": "orca_math", "domain": ["Algebra"]}
    rows = [
        row | {"problem": "2+2", "answer": "4", "llama8b_solve_rate": 0.15625},
        row | {"problem": "1+1", "answer": "2", "llama8b_solve_rate": None},
    ]
    found = imported(tmp_path, rows, task)
    assert found.layout == "big-math" and rates(found) == {"2+2": 0.15625}
    assert found.difficulty is not None
    (told,) = found.difficulty.to_pylist()
    assert (told["n"], told["successes"], told["scorable"]) == (64, 10, 64)
    assert told["low"] < 0.15625 < told["high"] and 0 < told["learnability"] < 1
    assert rates(imported(tmp_path, rows, task, layout="solve-rates")) == {"2+2": 0.15625}


def verl_row(question: str, answer: str, /, **extra: Any) -> dict:
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": question}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b", **extra},
    }


def skywork_row(question: str, answers: Any, **failures: Any) -> dict:
    models = {name.replace("_", "-"): count for name, count in failures.items()}
    return verl_row(question, json.dumps(answers), model_difficulty=models)


def test_skywork_counts_failures_of_sixteen(tmp_path: Path, task: Task) -> None:
    rows = [
        skywork_row("2+2", ["4", "4.0"], small=16, large=0),
        skywork_row("1+1", ["2"], small=4, large=None),
        skywork_row("code", {"inputs": ["1"]}, small=1, large=1),
    ]
    found = imported(tmp_path, rows, task, hints=Hints(model="small"))
    assert found.layout == "skywork" and rates(found) == {"2+2": 0.0, "1+1": 0.75}
    assert {p.answer for p in found.prompts} == {"4", "2"}
    assert "1 rows dropped: no answer (row 3)" in found.notes
    assert "where several answers are right, the first is kept" in found.notes
    assert rates(imported(tmp_path, rows, task, hints=Hints(model="large"))) == {"2+2": 1.0}
    said = refusal(tmp_path, rows, task)
    assert "several models are rated: write model: one of small, large" in said
    assert "model 'x' has no difficulty here" in refusal(
        tmp_path, rows, task, hints=Hints(model="x")
    )
    rows[0]["extra_info"]["model_difficulty"]["small"] = 17
    said = refusal(tmp_path, rows, task, hints=Hints(model="small"))
    assert "row 1: 17 failures of 16 samples" in said


def test_one_model_needs_no_hint_and_the_pool_alone_can_be_read(tmp_path: Path, task: Task) -> None:
    rows = [skywork_row("2+2", ["4"], only=8)]
    assert rates(imported(tmp_path, rows, task)) == {"2+2": 0.5}
    assert imported(tmp_path, rows, task, layout="dapo").kind == "prompts"


@pytest.mark.parametrize("kind", ["in.jsonl", "in.parquet"])
def test_dapo_is_a_pool_without_rates_freed_of_its_wording(
    tmp_path: Path, task: Task, kind: str
) -> None:
    wording = (
        "Solve the following math problem step by step. The last line of your response should be "
        "of the form Answer: $Answer (without quotes) where $Answer is the answer to the problem."
        '\n\nWhat is\n\n2+2?\n\nRemember to put your answer on its own line after "Answer:".'
    )
    file = written(tmp_path, [verl_row(wording, "4"), verl_row("1+1", "2")], kind)
    found = import_probe(file, None, task)
    assert (found.layout, found.kind) == ("verl", "prompts")
    assert [p.question for p in found.prompts] == ["What is\n\n2+2?", "1+1"]
    assert "questions were freed of DAPO's wording: the task asks in its own" in found.notes
    assert any(note.startswith("no solve rates: a pool of prompts only") for note in found.notes)
    write_import(found, tmp_path / "pool.parquet")
    assert pq.read_table(tmp_path / "pool.parquet").num_rows == 2
    assert prompts_of(tmp_path / "pool.parquet") == list(found.prompts)


def test_verl_reads_question_and_rate_of_extra_info(tmp_path: Path, task: Task) -> None:
    row = verl_row("2+2 Think!", "4", question="2+2", answer="… #### 4", pass_rate=0.5)
    assert rates(imported(tmp_path, [row], task)) == {"2+2": 0.5}
    row["reward_model"]["ground_truth"] = ["4"]
    assert imported(tmp_path, [row], task).prompts[0].answer == "4"


# Evaluations of others


def rllm_run(folder: Path, items: list[dict], attempts: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    head = {"dataset_name": "d", "model": "m", "agent": "a", "score": 0.5, "attempts": attempts}
    (folder / "results.json").write_text(json.dumps(head | {"items": items}))
    return folder


def rllm_item(idx: int, attempt: int, right: bool, /, **more: Any) -> dict:
    item = {"idx": idx, "attempt": attempt, "task_id": f"t{idx}", "reward": float(right)}
    return item | {"is_correct": right, "error": None, "termination_reason": "env_done"} | more


def episode(folder: Path, index: int, question: str, answer: str, text: str, **more: Any) -> None:
    chat = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
    content = {
        "id": f"t:{index}",
        "task": {"id": "t", "instruction": question, "metadata": {"ground_truth": answer}},
        "trajectories": [{"name": "agent", "steps": [{"chat_completions": chat}]}],
        "eval_idx": index,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"episode_{index:06d}_t.json").write_text(json.dumps(content | more))


def test_rllm_results_alone_are_rates_by_task(tmp_path: Path, task: Task) -> None:
    items = [
        rllm_item(0, 0, True),
        rllm_item(0, 1, False, error="timeout"),
        rllm_item(1, 0, False),
        rllm_item(1, 1, False),
        rllm_item(2, 0, False, error="x", task_id=None),
    ]
    found = import_probe(rllm_run(tmp_path / "run", items), None, task)
    assert found.layout == "rllm" and found.difficulty is not None
    columns = ["prompt_id", "n", "successes", "pass_rate", "error", "scorable"]
    assert [tuple(row.values()) for row in found.difficulty.select(columns).to_pylist()] == [
        ("t0", 2, 1, 1.0, 1, 1),
        ("t1", 2, 0, 0.0, 0, 2),
    ]
    assert "no episodes/ beside results.json: prompts are known by rLLM's task ids only" in (
        found.notes
    )
    assert any(note.startswith("2 prompts have no text") for note in found.notes)
    write_import(found, tmp_path / "out.parquet")
    assert prompts_of(tmp_path / "out.parquet") == []


def test_rllm_ids_that_are_the_pools_are_its_prompts(tmp_path: Path, objects: Task) -> None:
    pool = objects.train()
    items = [rllm_item(0, 0, True, task_id=pool[3].prompt_id)]
    found = import_probe(rllm_run(tmp_path / "run", items), "rllm", objects, pool=pool)
    assert found.prompts == (pool[3],)


@pytest.mark.parametrize("beside", ["episodes", "results/episodes"])
def test_rllm_episodes_are_marked_again(tmp_path: Path, task: Task, beside: str) -> None:
    run = rllm_run(
        tmp_path / "run",
        [
            rllm_item(0, 0, True),
            rllm_item(0, 1, True),
            rllm_item(1, 0, False, termination_reason="max_response_length_exceeded"),
            rllm_item(1, 1, False, error="proxy"),
            rllm_item(2, 0, True),
        ],
    )
    for index, text in enumerate([RIGHT, WRONG]):
        episode(run / beside, index, "2+2", "4", text)
    episode(run / beside, 2, "1+1", "2", "so")
    outputs = {"trajectories": [{"steps": [{"output": "so"}]}]}
    episode(run / beside, 3, "1+1", "2", "", **outputs)
    found = import_probe(run / "results.json", None, task)
    assert outcomes(found) == ["correct", "wrong", "truncated", "error"]
    assert "1 items dropped: no episode was saved (item 4)" in found.notes
    assert any("agree on 2 of 3 (1 right for the source only" in note for note in found.notes)


def test_rllm_of_another_form_is_refused(tmp_path: Path, task: Task) -> None:
    run = rllm_run(tmp_path / "run", [{"is_correct": True}])
    with pytest.raises(TaskError, match="items is of another form"):
        import_probe(run, None, task)
    rllm_run(run, [rllm_item(0, 0, True, idx=None)])
    episode(run / "episodes", 0, "2+2", "4", RIGHT)
    with pytest.raises(TaskError, match="item 0: idx is null"):
        import_probe(run, None, task)
    rllm_run(run, [rllm_item(0, 0, True)])
    (run / "episodes" / "episode_000000_t.json").write_text("{")
    with pytest.raises(TaskError, match="cannot be read as JSON"):
        import_probe(run, None, task)


def v0_row(text: str, **more: Any) -> dict:
    return {
        "example_id": 0,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2"}],
        "completion": [{"role": "assistant", "content": text}],
        "answer": "4",
        "reward": 1.0,
        "is_truncated": False,
        "token_usage": {"input_tokens": 9.0, "output_tokens": 5.0},
    } | more


def test_verifiers_results(tmp_path: Path, task: Task) -> None:
    parts = [{"type": "text", "text": "so "}, {"type": "text", "text": RIGHT}]
    rows = [
        v0_row(RIGHT),
        v0_row("", completion=[{"role": "assistant", "content": parts}], reward=0.7),
        v0_row("so", is_truncated=True, reward=0.0),
        v0_row("", completion=None, error={"error": "E"}, reward=0.0),
    ]
    run = tmp_path / "run"
    run.mkdir()
    written(run, rows, "results.jsonl")
    found = import_probe(run, None, task)
    assert found.layout == "verifiers"
    assert outcomes(found) == ["correct", "correct", "truncated", "error"]
    assert [p.question for p in found.prompts] == ["2+2"]
    assert found.samples is not None and found.samples["tokens"].to_pylist()[0] == 5
    assert any("agree on 2 of 2" in note for note in found.notes)


def trace(text: str, **more: Any) -> dict:
    data = {"idx": 0, "prompt": "Reason step by step.\n\n2+2", "answer": "4"}
    nodes = [
        {"message": {"role": "user", "content": data["prompt"]}, "sampled": False},
        {"parent": 0, "message": {"role": "assistant", "content": text}, "sampled": True},
    ]
    call = {"node": 1, "finish_reason": "stop", "usage": {"completion_tokens": 7}}
    return {
        "version": 1,
        "task": {"type": "T", "data": data},
        "nodes": nodes,
        "calls": [call],
        "rewards": {"correct": {"score": 1.0, "weight": 1.0}},
        "errors": [],
        "ok": True,
    } | more


def test_verifiers_traces_and_episodes(tmp_path: Path, task: Task) -> None:
    cut = [{"node": 1, "finish_reason": "length"}]
    rows = [
        trace(RIGHT),
        trace("so", calls=cut, rewards={"correct": 0.0}),
        trace("so", stop_condition="max_output_tokens", rewards={}),
        trace("", nodes=[], ok=False, errors=[{"type": "E", "message": "m"}]),
    ]
    task_of = rows[0]["task"]
    rows += [
        {"task": task_of, "traces": [trace(WRONG)]},
        {"task": task_of, "traces": []},
        {"task": task_of, "traces": [trace(RIGHT), trace(RIGHT)]},
    ]
    found = imported(tmp_path, rows, task)
    assert found.layout == "verifiers"
    assert outcomes(found) == ["correct", "truncated", "truncated", "error", "wrong", "error"]
    assert found.samples is not None
    assert found.samples["tokens"].to_pylist() == [7, None, 7, 7, 7, None]
    assert "1 rows dropped: several agents answer in one episode (row 7)" in found.notes


def test_early_traces_have_flat_tasks_and_unsaid_sampling(tmp_path: Path, task: Task) -> None:
    row = trace(RIGHT, task={"prompt": "2+2", "answer": "4"})
    for node in row["nodes"]:
        del node["sampled"]
    assert outcomes(imported(tmp_path, [row], task)) == ["correct"]


def test_traces_without_an_answer_are_refused_with_what_tasks_have(
    tmp_path: Path, task: Task
) -> None:
    row = trace(RIGHT, task={"type": "T", "data": {"prompt": "2+2", "gold": "4"}})
    said = refusal(tmp_path, [row], task)
    assert "tasks have: gold, prompt: add the field answer" in said


# A task's own pool


def test_with_a_pool_questions_get_its_ids_answers_and_tiers(tmp_path: Path, objects: Task) -> None:
    pool = objects.train()
    worded = objects.messages(pool[1].question)[-1]["content"]
    questions = [pool[0].question, worded, f"Be brief.\n\n{pool[2].question}\n\nAnswer:", "2+2"]
    rows = [
        {"question": question, "answer": prompt.answer, "solve_rate": 0.5}
        for question, prompt in zip(questions, pool, strict=False)
    ]
    found = imported(tmp_path, rows, objects, pool=pool)
    assert found.prompts[:3] == tuple(pool[:3])
    long = rows[0] | {"question": "\n" * 64 + pool[0].question}
    assert imported(tmp_path, [long], objects, pool=pool).prompts[0].tier == "all"
    assert "1 rows ask what the task's pool does not (row 4)" in found.notes
    assert imported(tmp_path, rows, objects).prompts[0].tier == "all"


def test_with_a_pool_other_answers_are_named(tmp_path: Path, objects: Task) -> None:
    pool = objects.train()
    other = next(p.answer for p in pool if p.answer != pool[0].answer)
    rows = [
        {"question": pool[0].question, "answer": a, "completion": objects.answering(other)}
        for a in (pool[0].answer, pool[0].answer.strip("()"), other)
    ]
    found = imported(tmp_path, rows, objects, pool=pool)
    assert outcomes(found) == ["wrong"] * 3
    (note,) = [note for note in found.notes if "differ" in note]
    assert note.startswith("1 answers differ from the pool's, which are kept (row 3")


# Which layout


def test_an_unknown_layout_lists_what_was_found_and_what_is_needed(
    tmp_path: Path, task: Task
) -> None:
    said = refusal(tmp_path, [{"q": "2+2", "gold": "4"}], task)
    assert "is in no known layout; it has: q, gold. Layouts need" in said
    assert all(name in said for name in IMPORTS if name != "dapo")


def test_an_ambiguous_file_is_named_by_its_layouts(tmp_path: Path, task: Task) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT, "pass_rate": 0.5}
    said = refusal(tmp_path, [row], task)
    assert "fits several layouts (completions, solve-rates)" in said
    assert "write which one: layout: completions" in said
    assert imported(tmp_path, [row], task, layout="solve-rates").kind == "difficulty"


def test_a_named_layout_has_to_fit(tmp_path: Path, task: Task) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT}
    said = refusal(tmp_path, [row], task, layout="dapo")
    assert "is not in the layout verl, which needs prompt, reward_model" in said
    assert "layout 'parquet' is unknown: write completions, solve-rates" in refusal(
        tmp_path, [row], task, layout="parquet"
    )
    run = rllm_run(tmp_path / "run", [])
    with pytest.raises(TaskError, match="not in the layout verl.*one object with items"):
        import_probe(run, "verl", task)


def test_a_source_without_rows_is_refused(tmp_path: Path, task: Task) -> None:
    assert "holds no rows" in refusal(tmp_path, [], task)
    row = {"question": "2+2", "answer": None, "completion": RIGHT}
    assert "no row is left. 1 rows dropped: no answer (row 1)" in refusal(tmp_path, [row], task)
    with pytest.raises(TaskError, match=r"holds no results.json, traces.jsonl, results.jsonl"):
        import_probe(tmp_path, None, task)
    with pytest.raises(TaskError, match="is not there"):
        import_probe(tmp_path / "no.jsonl", None, task)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(TaskError, match="not of the form a list of rows"):
        import_probe(tmp_path / "x.json", None, task)


def test_packed_text_is_read_too(tmp_path: Path, task: Task) -> None:
    row = {"question": "2+2", "answer": "4", "completion": RIGHT}
    file = tmp_path / "in.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(row).encode()))
    assert outcomes(import_probe(file, None, task)) == ["correct"]


# From an import to a subset


def select(probe: Path, policy: str, budget: str) -> None:
    """The command that an import is made for; writes subset.parquet to the working folder."""
    arguments = ["--probe", str(probe), "--policy", policy, "--budget", budget, "--seed", "1"]
    assert main(["select", *arguments, "--out", "subset.parquet"]) == 0


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_written_import_is_a_probe_to_select_from(tmp_path: Path, task: Task) -> None:
    rows = [
        {
            "question": f"{n}+{n}",
            "answer": str(2 * n),
            "tier": "sum",
            "completions": [rf"\boxed{{{2 * n}}}"] * n + [r"\boxed{-1}"] * (4 - n),
        }
        for n in range(1, 5)
    ]
    out = tmp_path / "new" / "probe.parquet"
    summary = import_file(written(tmp_path, rows), task, out)
    assert (summary["kind"], summary["prompts"], summary["rows"]) == ("samples", 4, 16)
    assert summary_of(out) == summary
    assert [file.name for file in out.parent.iterdir()] == ["probe.parquet"]
    select(out, "hard", "2")
    chosen = read_subset_file(tmp_path / "subset.parquet")
    texts = prompts_of(out)
    of = {p.prompt_id: p.question for p in texts}
    assert [of[name] for name in chosen["prompt_id"].to_pylist()] == ["1+1", "2+2"]
    assert {p.tier for p in texts} == {"sum"}
    why = export_file(tmp_path / "subset.parquet", texts, task, "jsonl", tmp_path / "out.jsonl")
    assert why["subset"]["policy"] == "hard" and why["file"].startswith("subset.parquet sha256:")


def test_written_rates_choose_as_the_rates_do(tmp_path: Path, task: Task) -> None:
    rows = [
        {"problem": f"{n}+1", "answer": str(n + 1), "llama8b_solve_rate": n / 64} for n in range(9)
    ]
    out = tmp_path / "probe.parquet"
    import_file(written(tmp_path, rows), task, out, layout="big-math")
    for policy, first in (("hard", "0+1"), ("easy", "8+1")):
        select(out, policy, "1")
        (name,) = pq.read_table(tmp_path / "subset.parquet")["prompt_id"].to_pylist()
        assert {p.prompt_id: p.question for p in prompts_of(out)}[name] == first


@pytest.mark.parametrize("name", ["out.jsonl", "in.jsonl/out.parquet", "folder.parquet"])
def test_an_import_goes_into_a_new_parquet_file(tmp_path: Path, task: Task, name: str) -> None:
    (tmp_path / "folder.parquet").mkdir()
    file = written(tmp_path, [{"question": "2+2", "answer": "4", "completion": RIGHT}])
    with pytest.raises(TaskError, match="output .* is (of another kind|no place for a file)"):
        import_file(file, task, tmp_path / name)


# Exports


def subset_of(prompts: list[Prompt], chosen: list[int]) -> pa.Table:
    rows = [
        {
            "rank": rank,
            "prompt_id": prompts[i].prompt_id,
            "tier": prompts[i].tier,
            "pass_rate": None if i == 0 else i / 32,
        }
        for rank, i in enumerate(chosen)
    ]
    return with_reason(pa.Table.from_pylist(rows, schema=SUBSET), WHY)


def test_a_jsonl_export_has_texts_by_rank_and_says_where_they_came_from(
    tmp_path: Path, objects: Task
) -> None:
    pool = objects.train()
    table = subset_of(pool, [5, 0, 2]).take(pa.array([2, 0, 1]))
    out = tmp_path / "deep" / "subset.jsonl"
    why = export_subset(table, pool, objects, "jsonl", out, {"options": {"train": 20}})
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt_id"] for row in rows] == [pool[i].prompt_id for i in (5, 0, 2)]
    assert [row["rank"] for row in rows] == [0, 1, 2]
    assert [row["pass_rate"] for row in rows] == [5 / 32, None, 2 / 32]
    assert rows[0]["messages"] == objects.messages(pool[5].question)
    assert (rows[0]["question"], rows[0]["answer"], rows[0]["tier"]) == (
        pool[5].question,
        pool[5].answer,
        pool[5].tier,
    )
    assert json.loads((tmp_path / "deep" / "subset.jsonl.provenance.json").read_text()) == why
    assert why["subset"] == WHY and why["options"] == {"train": 20} and why["rows"] == 3
    assert why["task"]["marker"] == objects.marker_id
    import hashlib

    assert why["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("layout", "name"),
    [("jsonl", "o.jsonl"), ("verl", "o.parquet"), ("verifiers", "o.jsonl"), ("trl", "o.parquet")],
)
def test_an_export_comes_back_as_the_same_prompts(
    tmp_path: Path, objects: Task, layout: str, name: str
) -> None:
    pool = objects.train()
    out = tmp_path / name
    export_subset(subset_of(pool, [3, 1, 2]), pool, objects, layout, out)
    if layout in ("trl", "verifiers"):  # trainers' inputs: their rollouts come back as results
        rows = (
            pq.read_table(out).to_pylist()
            if layout == "trl"
            else [json.loads(line) for line in out.read_text().splitlines()]
        )
        rows = [
            row | {"completion": objects.answering(row["answer"]), "reward": 1.0} for row in rows
        ]
        out = written(tmp_path, rows, "results.jsonl")
    more = {"pool": pool} if layout == "trl" else {}
    found = import_probe(out, None, objects, **more)
    assert {p.prompt_id for p in found.prompts} == {pool[i].prompt_id for i in (1, 2, 3)}
    assert {p.prompt_id: p for p in found.prompts} == {p.prompt_id: p for p in pool[1:4]}
    if layout in ("jsonl", "verl"):
        assert rates(found) == {pool[i].question: i / 32 for i in (1, 2, 3)}
    else:
        assert outcomes(found) == ["correct"] * 3


def test_a_verl_export_without_rates_comes_back_as_a_pool(tmp_path: Path, objects: Task) -> None:
    pool = objects.train()
    export_subset(subset_of(pool, [0]), pool, objects, "verl", tmp_path / "o.parquet")
    found = import_probe(tmp_path / "o.parquet", "verl", objects)
    assert found.kind == "prompts" and found.prompts == (pool[0],)
    assert any(note.startswith("no solve rates") for note in found.notes)


def test_verl_columns_are_those_of_its_examples(tmp_path: Path, objects: Task) -> None:
    pool = objects.train()
    export_subset(subset_of(pool, [4]), pool, objects, "verl", tmp_path / "o.parquet")
    (row,) = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert row["data_source"] == "decile/shuffled_objects"
    assert row["prompt"] == objects.messages(pool[4].question)
    assert row["reward_model"] == {"style": "rule", "ground_truth": pool[4].answer}
    extra = row["extra_info"]
    assert (extra["index"], extra["split"], extra["rank"]) == (0, "train", 0)
    assert (extra["prompt_id"], extra["pass_rate"]) == (pool[4].prompt_id, 4 / 32)
    assert reason(pq.read_table(tmp_path / "o.parquet"))["subset"] == WHY


@pytest.mark.parametrize(
    ("layout", "kind"), [("trl", "jsonl"), ("trl", "parquet"), ("verl", "parquet")]
)
def test_datasets_loads_an_export_and_a_chat_template_renders_it(
    tmp_path: Path, objects: Task, layout: str, kind: str
) -> None:
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import is_conversational

    pool = objects.train()
    out = tmp_path / f"o.{kind}"
    export_subset(subset_of(pool, [1, 0]), pool, objects, layout, out)
    loaded = load_dataset(
        "json" if kind == "jsonl" else "parquet",
        data_files=str(out),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    assert is_conversational(loaded[0])
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for row, prompt in zip(loaded, [pool[1], pool[0]], strict=True):
        text = tokenizer.apply_chat_template(
            row["prompt"], tokenize=False, add_generation_prompt=True
        )
        asked = tokenizer.apply_chat_template(
            objects.messages(prompt.question), tokenize=False, add_generation_prompt=True
        )
        assert text == asked and prompt.question in text
    if layout == "trl":
        assert loaded["answer"][:] == [pool[1].answer, pool[0].answer]
        assert loaded["pass_rate"][:] == [1 / 32, None]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(min_size=1), st.integers(-99, 99), st.text()), min_size=1, max_size=6
    )
)
def test_any_text_survives_the_round_trip(entries: list[tuple[str, int, str]]) -> None:
    import tempfile

    task = get_task("file", marker="number")
    prompts = {
        prompt.prompt_id: prompt
        for question, answer, tier in entries
        if question.strip()
        for prompt in [make_prompt("file", question, str(answer), tier or "all")]
    }
    if not prompts:
        return
    pool = list(prompts.values())
    table = subset_of(pool, list(range(len(pool))))
    place = table.column_names.index("pass_rate")
    table = table.set_column(place, "pass_rate", pa.array([0.5] * len(pool)))
    with tempfile.TemporaryDirectory() as folder:
        for layout, name in (("jsonl", "a.jsonl"), ("verl", "a.parquet")):
            export_subset(table, pool, task, layout, Path(folder) / name)
            found = import_probe(Path(folder) / name, None, task)
            assert {p.prompt_id: p for p in found.prompts} == prompts


def test_completions_keep_their_outcomes_out_and_in(tmp_path: Path, task: Task) -> None:
    rows = [
        {
            "question": q,
            "answer": "4",
            "completions": [RIGHT, WRONG, "hm"],
            "truncated": [False, False, True],
        }
        for q in ("2+2", "3+1")
    ]
    first = imported(tmp_path, rows, task)
    write_import(first, tmp_path / "probe.parquet")
    again = import_probe(tmp_path / "probe.parquet", None, task)
    assert again.samples is not None and again.samples.equals(first.samples)
    assert again.prompts == first.prompts
    assert difficulty(again.samples).equals(difficulty(first.samples))


def test_written_rates_come_back_as_they_were(tmp_path: Path, task: Task) -> None:
    rows = [
        {"problem": f"{n}+1", "answer": str(n + 1), "llama8b_solve_rate": n / 64} for n in range(5)
    ]
    first = imported(tmp_path, rows, task)
    write_import(first, tmp_path / "probe.parquet")
    again = import_probe(tmp_path / "probe.parquet", None, task)
    assert again.layout == "solve-rates" and again.difficulty is not None
    assert first.difficulty is not None and again.difficulty.equals(first.difficulty)


def test_a_prompt_outside_the_data_is_named(tmp_path: Path, objects: Task) -> None:
    pool = objects.train()
    with pytest.raises(TaskError) as caught:
        export_subset(
            subset_of(pool, [1, 2, 3, 4, 5]), pool[:2], objects, "trl", tmp_path / "o.jsonl"
        )
    said = str(caught.value)
    assert "4 of 5 prompts of the subset are not in the data of task shuffled_objects" in said
    assert f"({pool[2].prompt_id}, {pool[3].prompt_id}, {pool[4].prompt_id}, …)" in said
    assert not list(tmp_path.iterdir())


def test_exports_refuse_what_they_cannot_write_or_read(tmp_path: Path, objects: Task) -> None:
    pool = objects.train()
    table = subset_of(pool, [1])
    with pytest.raises(TaskError, match=f"layout 'csv' is unknown: write {', '.join(EXPORTS)}"):
        export_subset(table, pool, objects, "csv", tmp_path / "o.csv")
    with pytest.raises(TaskError, match=r"is of another kind: write a \.parquet file"):
        export_subset(table, pool, objects, "verl", tmp_path / "o.jsonl")
    with pytest.raises(TaskError, match=r"write a \.jsonl or \.parquet file"):
        export_subset(table, pool, objects, "trl", tmp_path / "o.csv")
    with pytest.raises(TaskError, match="is not there"):
        read_subset_file(tmp_path / "no.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(TaskError, match="cannot be read as Parquet"):
        read_subset_file(tmp_path / "torn.parquet")
    pq.write_table(table.drop_columns("rank"), tmp_path / "other.parquet")
    with pytest.raises(TaskError, match=r"is no subset \(no column rank\)"):
        read_subset_file(tmp_path / "other.parquet")
    with pytest.raises(TaskError, match=r"holds no texts \(no column question, answer\)"):
        prompts_of(tmp_path / "other.parquet")


def test_a_chosen_subset_is_exported_with_its_ties(tmp_path: Path, task: Task) -> None:
    rows = [{"question": f"{n}+1", "answer": str(n + 1), "pass_rate": 0.0} for n in range(6)]
    found = imported(tmp_path, rows, task)
    write_import(found, tmp_path / "probe.parquet")
    select(tmp_path / "probe.parquet", "hard", "2")
    out = tmp_path / "o.jsonl"
    said = export_file(tmp_path / "subset.parquet", found.prompts, task, "jsonl", out)
    assert said["subset"]["ties"] == {"pool": 6, "chosen": 2}
    assert all(json.loads(line)["why"] for line in out.read_text().splitlines())


def test_unlike_numbers_of_samples_are_rates_with_all_outcomes(tmp_path: Path, task: Task) -> None:
    rows = [
        {"question": "2+2", "answer": "4", "tier": "a", "completions": [RIGHT, WRONG, "hm"]},
        {"question": "1+3", "answer": "4", "tier": "b", "completion": RIGHT},
    ]
    found = imported(tmp_path, rows, task)
    assert found.kind == "difficulty" and outcomes(found)[1:3] == ["wrong", "unparsed"]
    assert any(note.startswith("prompts have 1 to 3 samples") for note in found.notes)
    write_import(found, tmp_path / "probe.parquet")
    written_rows = pq.read_table(tmp_path / "probe.parquet").to_pylist()
    assert {(r["question"], r["n"], r["unparsed"], r["tier"]) for r in written_rows} == {
        ("2+2", 3, 1, "a"),
        ("1+3", 1, 0, "b"),
    }
    select(tmp_path / "probe.parquet", "hard", "1")
    assert pq.read_table(tmp_path / "subset.parquet")["tier"].to_pylist() == ["a"]
