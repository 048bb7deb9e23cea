"""`decile init`: every file that it writes loads and plans; what it cannot use it refuses."""

import gzip
import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import ROOT
from remedies import problems

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.config.experiment import Experiment
from orchestrator.config.yaml_lines import load
from orchestrator.cost.memory import HUB_MODELS
from orchestrator.cost.memory import SHAPES as REAL_SIZE
from orchestrator.difficulty.probe_table import difficulty_of
from orchestrator.embedded import EMBEDDED
from orchestrator.optional.exchange.imports import import_probe
from orchestrator.optional.exchange.mark import mark_file
from orchestrator.optional.exchange.records import Hints
from orchestrator.pipeline.own_data import choose_model, planned_probe
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import cells_of
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.pools import Pool
from orchestrator.probing.checks import check_dataset
from orchestrator.probing.probe_folder import write_part
from orchestrator.selection.stored import store_subset
from orchestrator.storage.errors import UserError
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from tasks import Answer, TaskError, get_task
from tasks.arithmetic import Arithmetic
from tasks.question_file import QuestionFile
from tasks.sources.choices import FROM_ONE, Choices
from tasks.sources.files import read_file
from tasks.sources.survey import survey_rows
from tasks.sources.texts import ANSWERS as SEVERAL

Row = dict[str, Any]


def rows_of(
    answers: Sequence[Any], question: str = "question", answer: str = "answer"
) -> list[Row]:
    return [
        {question: f"What is the value of number {i}?", answer: each}
        for i, each in enumerate(answers)
    ]


def jsonl(rows: Sequence[Row], name: str = "mine.jsonl") -> str:
    Path(name).write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return name


def dataset_options() -> dict[str, Any]:
    [entry] = load_config(Path("experiments.yaml")).config.datasets.values()
    return entry.options


EXAMPLE = ROOT / "docs" / "examples" / "word-problems.jsonl"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user runs it, without a network and without the repository's own experiments.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def written(*arguments: str, model: str = "tiny-arithmetic") -> Experiment:
    """The experiment in the file that these arguments give."""
    assert main(["init", "--model", model, *arguments]) == 0
    [experiment] = load_config(Path("experiments.yaml")).config.experiments.values()
    return experiment


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which init refuses; no file is written."""
    assert main(["init", *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("decile: ")
    assert not Path("experiments.yaml").exists()
    return line


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_embedded_model_gets_the_updates_that_it_learns_in(name: str) -> None:
    written("--train", jsonl([{"question": f"Q{i}", "answer": i} for i in range(60)]), model=name)
    grpo = load_config(Path("experiments.yaml")).experiment("mine").grpo
    assert grpo["max_steps"] <= 50 and grpo["learning_rate"] >= 3e-4


WORDS = ("red", "green", "blue", "black")
SHAPES: dict[str, tuple[Callable[[int], Any], str]] = {
    "integers": (lambda i: i, "number"),
    "thousands": (lambda i: f"{i + 1},000", "number"),
    "decimals": (lambda i: i + 0.25, "number"),
    "fractions": (lambda i: f"{i}/7", "number"),
    "gsm8k": (lambda i: f"1 + {i}\n#### {i + 1}", "number"),
    "boxed": (lambda i: rf"so \boxed{{\frac{{1}}{{{i + 2}}}}}.", "expression"),
    "latex": (lambda i: rf"\frac{{{i}}}{{3}}", "expression"),
    "formulas": (lambda i: f"{i}x + 2", "expression"),
    "units": (lambda i: f"${i}", "expression"),
    "mixed maths": (lambda i: i if i % 2 else rf"\pi^{i}", "expression"),
    "letters": (lambda i: "ABCDE"[i % 5], "letter"),
    "brackets": (lambda i: f"({'ABCDE'[i % 5]})", "letter"),
    "words": (lambda i: WORDS[i % 4], "text"),
    "free text": (lambda i: f"the {WORDS[i % 4]} one, number {i}", "text"),
    "JSON lists": (lambda i: json.dumps([str(i)]), "number"),
    "Python lists": (lambda i: f"['{i}']", "number"),
    "lists": (lambda i: [str(i)], "number"),
    "delimiters": (lambda i: rf"\({i}\)", "number"),
    "sentences": (lambda i: f"We add. The answer is {i}.", "number"),
    "minus signs": (lambda i: f"\N{MINUS SIGN}{i}", "number"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_form_of_answers_gets_its_marker(
    shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, marker = SHAPES[shape]
    written("--train", jsonl(rows_of([answer(i) for i in range(60)])))
    assert f"{marker}: 60 of 60 " in " ".join(capsys.readouterr().out.split())
    assert dataset_options()["marker"] == marker
    assert "skip_invalid" not in dataset_options()


@pytest.mark.parametrize("name", ["lists", "JSON lists", "delimiters", "sentences", "minus signs"])
def test_a_form_of_answers_is_read_alike_by_every_command(tmp_path: Path, name: str) -> None:
    """By init, plan and probe (columns or rows), mark and import: one gold, and the same id."""
    answer = SHAPES[name][0]
    rows = rows_of([answer(i) for i in range(1, 41)])
    file = jsonl(rows)
    written("--train", file)
    [plan_pool] = make_plan(load_config(Path("experiments.yaml")), "mine").pools.values()
    sign = "-" if name == "minus signs" else ""
    golds = [f"{sign}{i}" for i in range(1, 41)]
    read = {prompt.answer for prompt in [*plan_pool.train, *plan_pool.test]}
    assert read == {*golds}
    completed = [
        row | {"completion": rf"\boxed{{{g}}}"} for row, g in zip(rows, golds, strict=True)
    ]
    source = jsonl(completed, "completed.jsonl")
    assert (
        mark_file("file", {"marker": "number"}, Path(source), Path("out.jsonl")).outcomes["correct"]
        == 40
    )
    imported = import_probe(source, None, get_task("file", marker="number"))
    assert {p.prompt_id for p in imported.prompts} == {
        p.prompt_id for p in [*plan_pool.train, *plan_pool.test]
    }


@pytest.mark.parametrize("word", ["proof", "notfound", "N/A", "None"])
def test_placeholders_among_mathematical_answers_are_dropped_by_line(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [word if i % 3 == 0 else rf"\frac{{{i}}}{{7}}" for i in range(60)]
    written("--train", jsonl(rows_of(answers)))
    text = " ".join(capsys.readouterr().out.split())
    assert "marker expression: 40 of 60" in text and f"mine.jsonl:1, answer '{word}'" in text
    assert dataset_options()["skip_invalid"] is True
    [pool] = make_plan(load_config(Path("experiments.yaml")), "mine").pools.values()
    assert len(pool.train) + len(pool.test) == 40


TEXTS = ("red", "7", "a+b (c)")
# Layouts of choices; each row's answer is that of choice `i`.
CHOICES: dict[str, Callable[[int], Row]] = {
    "mmlu": lambda i: {"choices": [*TEXTS], "answer": i},
    "arc": lambda i: {"choices": {"text": [*TEXTS], "label": [*"ABC"]}, "answerKey": "ABC"[i]},
    "arc numbers": lambda i: {
        "choices": {"text": [*TEXTS], "label": [*"123"]},
        "answerKey": "123"[i],
    },
    "letters": lambda i: {
        "A": TEXTS[0],
        "B": TEXTS[1],
        "C": TEXTS[2],
        "D": None,
        "answer": "ABC"[i],
    },
    "medmcqa": lambda i: {"opa": TEXTS[0], "opb": TEXTS[1], "opc": TEXTS[2], "answer": i},
    "columns": lambda i: {f"option_{'abc'[n]}": TEXTS[n] for n in range(3)} | {"answer": TEXTS[i]},
    "object": lambda i: {
        "options": dict(zip("ABC", TEXTS, strict=True)),
        "answer": f"({'ABC'[i]})",
    },
    "json": lambda i: {"options": json.dumps(TEXTS), "answer": f"{'ABC'[i]}."},
    "labelled": lambda i: {
        "choices": [{"label": a, "text": t} for a, t in zip("ABC", TEXTS, strict=True)],
        "answerKey": "ABC"[i],
    },
    "numbers from 1": lambda i: {"choices": [*TEXTS], "answer": i + 1},
    "unsorted object": lambda i: {
        "options": {"C": TEXTS[2], "A": TEXTS[0], "B": TEXTS[1]},
        "answer": "ABC"[i],
    },
    "numbered object": lambda i: {
        "options": {str(n + 1): TEXTS[n] for n in (1, 0, 2)},
        "answer": str(i + 1),
    },
    "one text": lambda i: {"options": "(A) red (B) 7 (C) a+b (c)", "answer": "ABC"[i]},
    "mathqa": lambda i: {"options": "a ) red , b ) 7 , c ) a+b (c)", "answer": "abc"[i]},
    "lines": lambda i: {"options": "A. red\nB. 7\nC. a+b (c)", "answer": "ABC"[i]},
    "python": lambda i: {"choices": repr([*TEXTS]), "answer": i},
    "numpy": lambda i: {"choices": "['red' '7'\n 'a+b (c)']", "answer": i},
    "siqa": lambda i: (
        dict(zip(("answerA", "answerB", "answerC"), TEXTS, strict=True)) | {"label": str(i + 1)}
    ),
    "numbered columns": lambda i: (
        {f"option{n + 1}": TEXTS[n] for n in range(3)} | {"answer": str(i + 1)}
    ),
    "piqa": lambda i: {f"sol{n + 1}": TEXTS[n] for n in range(3)} | {"label": i},
    "floats": lambda i: {"choices": [*TEXTS], "answer": float(i)},
}


NUMBERED_FROM_1 = ("numbers from 1", "siqa", "numbered columns")


@pytest.mark.parametrize("layout", CHOICES)
def test_choices_in_columns_of_their_own_are_asked_with_letters_by_every_command(
    layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": f"Which is {i}?"} | CHOICES[layout](i % 3) for i in range(60)]
    file, golds = jsonl(rows), {f"Which is {i}?": f"({'ABC'[i % 3]})" for i in range(60)}
    written("--train", file)
    out, from_one = capsys.readouterr().out, layout in NUMBERED_FROM_1
    assert "60 of 60 gold answers" in out and (FROM_ONE in out) == from_one
    [pool] = make_plan(load_config(Path("experiments.yaml")), "mine").pools.values()
    prompts = [*pool.train, *pool.test]
    assert len(prompts) == 60
    asked = "\n(A) red\n(B) 7\n(C) a+b (c)"
    assert {p.question.removesuffix(asked): p.answer for p in prompts} == golds
    answer = next(name for name in ("answerKey", "answer", "label") if name in rows[0])
    letter = get_task("file", marker="letter")
    drawn, notes = [row | {"completion": r"\boxed{B}"} for row in rows], list[str]()
    source = jsonl(drawn, "d.jsonl")
    counts = mark_file(
        "file", {"marker": "letter"}, source, "m.jsonl", answer=answer, notes=notes
    ).outcomes
    assert counts["correct"] == 20 and counts["wrong"] == 40
    assert (FROM_ONE in notes) == from_one
    imported = import_probe("d.jsonl", None, letter, hints=Hints(answer=answer), pool=pool.train)
    assert imported.samples is not None and imported.samples.num_rows == len(pool.train)
    assert imported.samples["outcome"].to_pylist().count("correct") == sum(
        p.answer == "(B)" for p in pool.train
    )
    own = import_probe("d.jsonl", None, letter, hints=Hints(answer=answer))
    assert (FROM_ONE in own.notes) == from_one
    assert {p.prompt_id for p in own.prompts} == {p.prompt_id for p in prompts}


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        (["x", "y"], 2),
        (["x", "y"], -1),
        (["x", "x"], "x"),
        (["1", "0"], "1"),  # the text of the first, and the number of the second
        (["x", "y"], None),
        (["x", None], "A"),
        ([*map(str, range(27))], "A"),
    ],
)
def test_an_answer_that_names_no_choice_is_refused_with_its_line(
    choices: Any, answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": f"Q{i}?", "choices": ["x", "y"], "answer": i % 2} for i in range(40)]
    rows[6] |= {"choices": choices, "answer": answer}
    file = jsonl([row | {"completion": "(A)"} for row in rows])
    with pytest.raises(TaskError, match=r"mine\.jsonl:7"):
        QuestionFile(path=file, marker="letter").train()
    if answer is not None:  # a row without an answer is dropped, and counted
        with pytest.raises(TaskError, match=r"mine\.jsonl:7"):
            import_probe(file, None, get_task("file", marker="letter"))
    with pytest.raises(TaskError, match=r"mine\.jsonl:7"):
        mark_file("file", {"marker": "letter"}, file, "m.jsonl")
    written("--train", file)
    assert "39 of 40" in capsys.readouterr().out and dataset_options()["skip_invalid"]


def refused_everywhere(
    rows: list[Row], match: str, capsys: pytest.CaptureFixture[str], marker: str = "letter"
) -> None:
    """The file is refused by init, plan, import and mark."""
    file = jsonl([row | {"completion": r"\boxed{B}"} for row in rows])
    assert re.search(match, refused(capsys, "--train", file, "--model", "tiny"))
    with pytest.raises(TaskError, match=match):
        QuestionFile(path=file, marker=marker).train()
    with pytest.raises(TaskError, match=match):
        import_probe(file, None, get_task("file", marker=marker))
    with pytest.raises(TaskError, match=match):
        mark_file("file", {"marker": marker}, file, "m.jsonl")


@pytest.mark.parametrize(
    "options",
    [
        {"first": "x", "second": "y"},
        {"A": "x", "C": "y"},
        "x or y",
        "(A) x (C) y",
        "A) x B) y A) z",
        [{"name": "x"}, {"name": "y"}],
        7,
    ],
)
def test_choices_that_cannot_be_read_are_refused_by_every_command(
    options: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": f"Q{i}?", "options": options, "answer": "AB"[i % 2]} for i in range(40)]
    refused_everywhere(rows, r"mine\.jsonl:1.*'options'", capsys)


def test_numbers_of_choices_that_fit_both_readings_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"question": f"Q{i}?", "choices": [*"wxyz"], "answer": 1 + i % 3} for i in range(40)]
    refused_everywhere(rows, "from 0 .* or from 1", capsys)
    for i in range(20):  # neither reading
        rows[i]["answer"] = 0 if i % 2 else 4
    refused_everywhere(rows, "from 0 .* or from 1", capsys)


@pytest.mark.parametrize(
    ("values", "answer", "letter"),
    [
        (["$5$", "$7$"], "5", "A"),
        (["30 km", "40 km"], 30, "A"),
        (["30", "40"], "40 km", "B"),
        (["3.0", "9"], "3", "A"),
        (["$x$", "y"], "X", "A"),
        (["1 m", "1 km"], "1 km", "B"),
        (["0.0", "5"], 0, "A"),  # both readings give the same letter
        (["$1$", "$0$"], "1", None),
        (["1 km", "2 km", "3 km"], 1, None),
        (["3", "4", "1.0"], 1, None),
    ],
)
def test_the_text_of_a_choice_is_not_read_as_a_number(
    values: list[str], answer: Any, letter: str | None
) -> None:
    choices = Choices(values, "ABC"[: len(values)])
    if letter:
        assert choices.letter(answer) == letter
    else:
        with pytest.raises(TaskError, match="several"):
            choices.letter(answer)


def test_choices_are_never_left_out_under_another_marker() -> None:
    rows = [{"question": f"Q{i}?", "choices": ["x", "y"], "answer": "xy"[i % 2]} for i in range(40)]
    for suffix in (".jsonl", ".parquet"):
        file = "mine" + suffix
        jsonl(rows) if suffix == ".jsonl" else pq.write_table(pa.Table.from_pylist(rows), file)
        with pytest.raises(TaskError, match="marker: letter"):
            QuestionFile(path=file, marker="text").train()
    for row in rows:
        row["question"] += " Is it x?"  # has one of them only
    with pytest.raises(TaskError, match="marker: letter"):
        QuestionFile(path=jsonl(rows), marker="text").train()
    for row in rows:
        row["question"] += " x or y"
    assert QuestionFile(path=jsonl(rows), marker="text").train()


def test_choices_of_a_minority_of_rows_are_asked_too(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"Q{i}? A. x B. y", "answer": "AB"[i % 2]} for i in range(40)]
    for row in rows[::4]:
        row |= {"question": "Which? " + row["question"][:3], "options": ["x", "y"]}
    written("--train", jsonl(rows))
    assert "40 of 40" in capsys.readouterr().out
    [pool] = make_plan(load_config(Path("experiments.yaml")), "mine").pools.values()
    prompts = [*pool.train, *pool.test]
    assert sum("(B) y" in prompt.question for prompt in prompts) == 10


@pytest.mark.parametrize(
    ("with_choices", "marker"), [(4, "number"), (5, "mix"), (35, "mix"), (36, "letter")]
)
def test_choices_of_most_rows_decide_the_marker(with_choices: int, marker: str) -> None:
    choices = [{"question": f"Which {i}?", "options": ["x", "y"], "answer": "A"} for i in range(40)]
    rows = [*choices[:with_choices], *rows_of(range(40 - with_choices))]
    assert survey_rows(read_file(jsonl(rows), [])).marker == marker


def mixed_rows(count: int = 30) -> list[Row]:
    """Numbers, letters of choices in a column, LaTeX, words, and a row without an answer."""
    asked = "What is the value of number"
    answers: list[Callable[[int], Row]] = [
        lambda i: {"answer": str(i)},
        lambda i: {"options": ["red", "green"], "answer": "AB"[i % 2]},
        lambda i: {"answer": rf"\frac{{{i + 1}}}{{7}}"},
        lambda i: {"answer": ["Yes", "No", "Ann Lee"][i % 3]},
    ]
    rows = [
        {"question": f"{asked} {i}, {kind}?"} | answer(i)
        for kind, answer in enumerate(answers)
        for i in range(count)
    ]
    return [*rows, {"question": f"{asked} 0?", "answer": "TODO"}]


def the_pool(name: str = "mine") -> Pool:
    """The pool of the written file."""
    return make_plan(load_config(Path("experiments.yaml")), name).pools[name]


def test_answers_of_several_kinds_are_a_mix_of_data_sets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("--train", jsonl(mixed_rows()), "--problems", "problems.jsonl")
    text = " ".join(capsys.readouterr().out.split())
    for marker in ("number: 30 of 31", "letter: 30 of 30", "expression: 30 of 30", "text: 30 of"):
        assert f"marker {marker}" in text
    assert "mine.jsonl:121, answer 'TODO'" in text
    datasets = load_config(Path("experiments.yaml")).config.datasets
    parts = ["mine-number", "mine-letter", "mine-expression", "mine-text"]
    assert datasets["mine"].task == "mix" and datasets["mine"].options == {"parts": parts}
    options = [datasets[name].options for name in parts]
    kinds = [each["kinds"] for each in options]
    assert kinds == [["number", "none"], ["letter"], ["expression"], ["text"]]
    assert [each.get("skip_invalid") for each in options] == [True] * 4
    pool = the_pool()
    prompts = [*pool.train, *pool.test]
    places = sorted(prompt.place for prompt in prompts)
    assert places == sorted(f"mine.jsonl:{line}" for line in range(1, 121))
    right = [Answer.to(p, pool.task.own(p)[0].format_answer(p.answer)) for p in prompts]
    assert {mark.outcome for mark in pool.task.mark_all(right)} == {"correct"}
    [problem] = map(json.loads, Path("problems.jsonl").read_text().splitlines())
    assert problem["place"] == "mine.jsonl:121"


def test_a_corrected_answer_is_in_the_part_of_its_kind() -> None:
    file = jsonl(mixed_rows())
    written("--train", file, "--problems", "problems.jsonl")
    problem = json.loads(Path("problems.jsonl").read_text()) | {"answer": r"\frac{3}{11}"}
    Path("problems.jsonl").write_text(json.dumps(problem))
    written("--train", file, "--corrections", "problems.jsonl", "--force")
    pool = the_pool()
    [corrected] = [p for p in [*pool.train, *pool.test] if p.place == "mine.jsonl:121"]
    assert (corrected.source, corrected.answer) == ("mine-expression", r"\frac{3}{11}")


@pytest.mark.parametrize(("reply", "task"), [("", "mix"), ("text", "file")])
def test_a_mix_is_proposed_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, reply: str, task: str
) -> None:
    replies = [jsonl(mixed_rows()), "", "", "", reply, "tiny"]
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(replies) + "\n"))
    assert main(["init"]) == 0
    assert load_config(Path("experiments.yaml")).config.datasets["mine"].task == task


def test_a_test_file_may_have_kinds_of_its_own() -> None:
    train = jsonl([row for row in mixed_rows() if "options" not in row], "train.jsonl")
    rows = [{**row, "question": f"test {row['question']}"} for row in mixed_rows(6)]
    written("--train", train, "--test", jsonl(rows, "test.jsonl"))
    pool = the_pool(next(iter(load_config(Path("experiments.yaml")).config.experiments)))
    assert len(pool.train) == 90 and len(pool.test) == 24
    kinds = [{p.source.rpartition("-")[2] for p in split} for split in (pool.train, pool.test)]
    assert kinds[1] - kinds[0] == {"letter"} and len(kinds[1]) == 4


def test_ids_under_other_names_in_the_test_file_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    train = jsonl([row | {"id": i} for i, row in enumerate(rows_of(range(40)))], "train.jsonl")
    rows = [row | {"uid": i} for i, row in enumerate(rows_of(range(8)))]
    for row in rows:
        row["question"] += " Really?"
    written("--train", train, "--test", jsonl(rows, "test.jsonl"))
    text = " ".join(capsys.readouterr().out.split())
    assert "'id' (train.jsonl:1), 'uid' (test.jsonl:1)" in text and "is kept" not in text
    assert "keep" not in dataset_options()


def test_a_rendered_question_is_unwrapped_in_the_written_file() -> None:
    rows = [
        {"prompt": f"### Instruction:\nWhat is {i}?\n\n### Response:\n", "answer": i}
        for i in range(40)
    ]
    written("--train", jsonl(rows))
    assert dataset_options()["unwrap"] is True
    pool = the_pool()
    asked = {prompt.question for prompt in [*pool.train, *pool.test]}
    assert asked == {f"What is {i}?" for i in range(40)}


def test_the_share_of_possible_answers_is_told_by_form(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"Which is it, {i}?", "answer": "AB"[i % 2]} for i in range(40)]
    rows[3]["question"] += " (A) red (B) green"
    written("--train", jsonl(rows))
    text = " ".join(capsys.readouterr().out.split())
    assert "1 of 40 letters" in text and "mine.jsonl:1, the question has no option (A)" in text


def test_a_dropped_row_is_listed_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"Q{i}?", "choices": ["x", "y"], "answer": "xy"[i % 2]} for i in range(40)]
    rows[3]["answer"], rows[5]["choices"] = "z", ["x", "x"]
    rows[5]["answer"], rows[7]["question"] = "x", ""
    written("--train", jsonl(rows))
    text = " ".join(capsys.readouterr().out.split())
    assert "mine.jsonl:4, the answer 'z' matches none" in text
    assert "mine.jsonl:6, the answer 'x' matches several" in text
    assert "mine.jsonl:8, no question" in text


@pytest.mark.parametrize("marker", ["expression", "text", "number"])
@pytest.mark.parametrize("answer", [["1", "3"], '["1","3"]', ' [ "1", "3" ]'])
def test_of_several_answers_every_command_takes_the_first(answer: Any, marker: str) -> None:
    rows = [{"question": f"Q{i}?", "answer": answer, "completion": "is 1"} for i in range(40)]
    file = jsonl([row | {"completion": r"\boxed{1}"} for row in rows])
    task = QuestionFile(path=file, marker=marker)
    assert {prompt.answer for prompt in task.train()} == {"1"}
    assert any(SEVERAL in note for note in task.notes)
    imported = import_probe(file, None, get_task("file", marker=marker))
    assert {prompt.answer for prompt in imported.prompts} == {"1"}
    assert mark_file("file", {"marker": marker}, file, "m.jsonl").outcomes["correct"] == 40
    assert QuestionFile(path=jsonl(rows_of(["[1, 3]"] * 40)), marker="text").train()[0].answer == (
        "[1, 3]"
    )


@pytest.mark.parametrize("name", ["article", "passage", "context"])
def test_a_text_that_questions_are_about_is_named(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{name: f"Text {i}.", "question": f"Why {i}?", "answer": str(i)} for i in range(40)]
    written("--train", jsonl(rows))
    assert f"'{name}' is not used" in capsys.readouterr().out
    for row in rows:
        row["question"] = f"{row[name]} {row['question']}"
    written("--train", jsonl(rows), "--force")
    assert "is not used" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_instruction_goes_on_with_its_input(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"instruction": "Add.", "input": f"{i} + 1", "output": str(i + 1)} for i in range(40)]
    rows[0]["input"] = ""
    file = jsonl(rows)
    if kind == "parquet":
        file = "mine.parquet"
        pq.write_table(pa.Table.from_pylist(rows), file)
    written("--train", file)
    assert "'input' is appended" in capsys.readouterr().out
    [pool] = make_plan(load_config(Path("experiments.yaml")), "mine").pools.values()
    asked = {prompt.question for prompt in (*pool.train, *pool.test)}
    assert asked == {"Add."} | {f"Add.\n\n{i} + 1" for i in range(1, 40)}


@pytest.mark.parametrize("marker", ["number", "expression", "text"])
def test_a_solution_without_an_answer_at_its_end_has_none(
    marker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of([f"So it is.\n#### {i}" for i in range(40)])
    rows[4]["answer"] = "So it is.\n#### "
    file = jsonl([row | {"completion": "1"} for row in rows])
    with pytest.raises(TaskError, match=r"mine\.jsonl:5.*answer"):
        QuestionFile(path=file, marker=marker).train()
    with pytest.raises(TaskError, match=r"mine\.jsonl:5"):
        mark_file("file", {"marker": marker}, file, "m.jsonl")
    assert len(import_probe(file, None, get_task("file", marker=marker)).prompts) == 39
    written("--train", file)
    assert "mine.jsonl:5, no answer" in capsys.readouterr().out


def test_choices_that_a_question_has_already_are_not_asked_twice() -> None:
    rows = [
        {"question": f"Q{i}?\nA. x\nB. y", "options": ["x", "y"], "answer": "AB"[i % 2]}
        for i in range(40)
    ]
    prompts = QuestionFile(path=jsonl(rows), marker="letter").train()
    assert all("(A)" not in prompt.question for prompt in prompts)


def test_a_json_object_is_a_gold_only_where_one_field_is_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    golds: list[Any] = [{"ground_truth": str(i), "style": "rule"} for i in range(40)]
    for answers in (golds, [json.dumps(gold) for gold in golds]):
        file = jsonl(rows_of(answers))
        written("--train", file, "--force")
        assert "40 integers" in capsys.readouterr().out
        prompts = QuestionFile(path=file).train()
        assert {p.answer for p in prompts} <= {str(i) for i in range(40)}
        drawn = jsonl([row | {"completion": r"\boxed{3}"} for row in rows_of(answers)], "d.jsonl")
        assert mark_file("file", {}, drawn, "m.jsonl").outcomes["correct"] == 1
    answers = [json.dumps({"x": 1, "y": i}) if i < 5 else "owl" for i in range(40)]
    file = jsonl(rows_of(answers))
    written("--train", file, "--force")
    text = " ".join(capsys.readouterr().out.split())
    assert "5 JSON objects" in text and "35 of 40" in text and "mine.jsonl:1," in text
    for marker in ("text", "number", "letter", "expression"):
        with pytest.raises(TaskError, match=r"mine\.jsonl:1.*JSON object"):
            QuestionFile(path=file, marker=marker).train()


def test_chat_messages_as_json_text_are_questions() -> None:
    chats = [
        row | {"question": json.dumps([{"role": "user", "content": row["question"]}])}
        for row in rows_of(range(60))
    ]
    written("--train", jsonl(chats))
    [pool] = make_plan(load_config(Path("experiments.yaml")), "mine").pools.values()
    assert not any("role" in p.question for p in [*pool.train, *pool.test])


def test_rows_that_cannot_be_used_are_shown_and_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = rows_of([*range(60), "many", "", None, "9" * 5_000])
    rows += [{"question": " ", "answer": 1}, rows[0], {"answer": 3}]
    rows += [rows[1] | {"answer": 77}, rows[2] | {"answer": None}, rows[3] | {"answer": "many"}]
    written("--train", jsonl(rows))
    text = " ".join(capsys.readouterr().out.split())
    assert "4 repeated, 1 with" in text and "conflicts: 2 of" in text
    assert "62 of 70 " in text
    assert "invalid: mine.jsonl:61, answer 'many'" in text
    assert "invalid: mine.jsonl:62, no answer" in text
    assert "invalid: 5 more" in text
    assert "skip_invalid: true" in Path("experiments.yaml").read_text()
    [cell, *_] = make_plan(load_config(Path("experiments.yaml")), "mine").cells
    assert check_dataset(cell.probe.dataset).startswith("61 ")


def test_a_test_file_is_used_and_nothing_is_held_out() -> None:
    rows = rows_of(range(50))
    train, test = jsonl(rows[:40]), jsonl(rows[40:], "t.jsonl")
    written("--train", train, "--test", test)
    options = dataset_options()
    assert (options["train"], options["test"]) == ("mine.jsonl", "t.jsonl")
    assert "test_share" not in options
    task = QuestionFile(**options)
    assert (len(task.train()), len(task.test())) == (40, 10)


@pytest.mark.parametrize("shared", [0, 1])
def test_a_file_that_is_too_short_says_how_many_questions_are_test_questions(
    shared: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(range(20))
    train, test = jsonl(rows[: 8 + shared]), jsonl(rows[8:], "t.jsonl")
    line = refused(capsys, "--train", train, "--test", test, "--model", "tiny")
    assert "8 training prompts" in line and ("without 1 test question" in line) == bool(shared)


def test_a_folder_of_both_splits_is_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    Path("set").mkdir()
    jsonl(rows_of(range(40)), "set/train.jsonl")
    with gzip.open("set/test.json.gz", "wt") as file:
        json.dump(rows_of(range(50, 60)), file)
    written("--train", "set")
    assert dataset_options()["test"] == "set/test.json.gz"
    assert list(load_config(Path("experiments.yaml")).config.datasets) == ["set"]


def test_the_held_out_part_is_the_same_whatever_the_order() -> None:
    rows = rows_of(range(100))
    parts = []
    for name, ordered in (("a.jsonl", rows), ("b.jsonl", rows[::-1])):
        written("--train", jsonl(ordered, name), "--force")
        parts.append({p.question for p in QuestionFile(**dataset_options()).test()})
    assert parts[0] == parts[1]
    assert 5 < len(parts[0]) < 40


@pytest.mark.parametrize(
    "columns",
    [("Problem", "Solution"), ("prompt", "Final Answer"), ("vraag", "antwoord"), ("text", "y")],
)
def test_columns_are_recognized(columns: tuple[str, str]) -> None:
    written("--train", jsonl(rows_of(range(40), *columns)))
    options = dataset_options()
    assert (options["question"], options["answer"]) == columns


def test_messages_and_values_inside_objects_are_columns() -> None:
    rows = [
        {
            "prompt": [{"role": "user", "content": f"What is {i} + {i}?"}],
            "reward_model": {"ground_truth": str(2 * i), "style": "rule"},
        }
        for i in range(40)
    ]
    written("--train", jsonl(rows))
    assert dataset_options()["answer"] == "reward_model.ground_truth"
    for row in rows:
        row["messages"] = [*row.pop("prompt"), {"role": "assistant", "content": "4"}]
        del row["reward_model"]
    written("--train", jsonl(rows), "--force")
    assert (dataset_options()["question"], dataset_options()["answer"]) == ("messages", "messages")


def test_a_known_instruction_is_not_repeated_and_an_unknown_one_is_kept() -> None:
    rows = [{"question": f"{i} + 1? Box it: \\boxed{{N}}.", "answer": i + 1} for i in range(40)]
    written("--train", jsonl(rows))
    assert "preset: bare" in Path("experiments.yaml").read_text()
    for row in rows:
        row["question"] = row["question"].replace(
            "Box it: \\boxed{N}.", "Put your final answer within \\boxed{}."
        )
    written("--train", jsonl(rows), "--force")
    assert "preset" not in Path("experiments.yaml").read_text()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "has no rows"),
    "one row": (b'{"question": "1?", "answer": 1}', "are too few"),
    "not a row": (b"[1]\n", "is not a row"),
    "no text columns": (b'{"a": [1], "b": {"c": []}}\n' * 40, "no column is recognized"),
    "only questions": (b'{"question": "why?"}\n' * 40, "no column is recognized as the column of"),
    "binary": (bytes(range(256)) * 10, "write it as UTF-8 text"),
    "not JSON": (b"question,answer\n1,2\n", ":1: invalid JSON"),
    "surrogate": (b'{"question": "\\ud800", "answer": 1}', "surrogate"),
    "deep": (b'{"question": ' + b"[" * 100_000, "nested too deep"),
    "all the same": (b'{"question": "why?", "answer": 1}\n' * 40, "are too few"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_that_cannot_be_used_is_refused(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, words = HOSTILE[case]
    Path("mine.jsonl").write_bytes(content)
    line = refused(capsys, "--train", "mine.jsonl", "--model", "tiny")
    assert words in line and "mine.jsonl" in line
    assert len(line) < 500


def test_a_hundred_columns_need_names(capsys: pytest.CaptureFixture[str]) -> None:
    train = jsonl([{f"c{n}": f"{n} {i}" for n in range(100)} for i in range(40)])
    line = refused(capsys, "--train", train, "--model", "tiny")
    assert "'c11' and 88 more" in line and "--question COLUMN" in line
    written("--train", train, "--question", "c7", "--answer", "c9")
    assert "92 more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--question", "nope"), r"'nope'.*'question', 'answer'"),
        (("--question", "answer", "--answer", "answer"), "both 'answer'"),
        (("--answer", "list"), "'list'"),
        (("--marker", "letter"), "mine.jsonl:1: .*'0'"),
        (("--test", "mine.jsonl"), "--test .*mine.jsonl"),
        (("--test", "a\0b"), "a.u0000b"),
        (("--test", "x" * 5_000 + ".jsonl"), "xxx…"),
        (("--test", "\udcff.jsonl"), "jsonl"),
        (("--test", "."), "test.jsonl"),
        (("--output", "x.txt"), "x.txt.*.yaml"),
        (("--model", "no model"), "'no model'.*Qwen/"),
        (("--model", "."), "config.json"),
        (("--model", "owner/unknown"), "owner/unknown@COMMIT"),
        (("--model", "owner/unknown@main"), "'owner/unknown@main'"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row | {"list": [[1]]} for row in rows_of(range(40))]
    line = refused(capsys, "--train", jsonl(rows), "--model", "tiny", *arguments)
    assert re.search(words, line) and problems(line) == []
    assert len(line) < 500


def test_an_existing_file_is_kept_unless_forced(capsys: pytest.CaptureFixture[str]) -> None:
    train, file = jsonl(rows_of(range(40))), Path("experiments.yaml")
    file.write_text("mine")
    assert main(["init", "--train", train, "--model", "tiny"]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main(["init", "--train", "none.jsonl", "--model", "tiny", "--force"]) == 2
    assert file.read_text() == "mine"
    written("--train", train, "--force")
    file.unlink()
    file.symlink_to("elsewhere")  # a link that leads nowhere is also somebody's
    assert main(["init", "--train", train, "--model", "tiny"]) == 2


class Terminal(io.StringIO):
    """A standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_is_missing_is_said_where_nobody_replies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert "training file: no reply" in refused(capsys)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert "--train FILE and --model NAME missing" in refused(capsys)
    assert "--train FILE missing: pass it" in refused(capsys, "--yes")
    train = jsonl(rows_of(range(40)))
    assert "--model NAME missing" in refused(capsys, "--train", train)
    assert main(["init", "--train", train, "--yes"]) == 0


def test_a_terminal_is_asked_and_a_wrong_reply_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jsonl(rows_of(range(40), "vraag", "antwoord"))
    replies = ["none.jsonl", "mine.jsonl", "", "nope", "vraag", "", "digits", "expression", "tiny"]
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(replies) + "\n"))
    assert main(["init"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("none.jsonl", "'nope'", "'digits'"))
    assert dataset_options()["marker"] == "expression"


@pytest.mark.parametrize(
    "name",
    [
        "a b.jsonl",
        'it\'s "quoted".jsonl',
        "{a}, [b] & *c !d.jsonl",
        "новые данные 🦉.jsonl",
        "line\nbreak.jsonl",
        "null.jsonl",
        "gsm8k.jsonl",
        "..jsonl",
        "-x+1.jsonl",
        "a..b.jsonl",
        f"{'x' * 90}.jsonl",
        "%TAG.jsonl",
    ],
)
def test_any_name_of_a_file_can_be_written(name: str) -> None:
    written(f"--train={jsonl(rows_of(range(40)), name)}")
    [dataset] = load_config(Path("experiments.yaml")).config.datasets
    assert main(["plan", "experiments.yaml", "-e", dataset]) == 0
    assert dataset_options()["path"] == name
    assert dataset != "gsm8k"


def test_a_column_may_have_the_name_that_ends_a_document() -> None:
    rows = rows_of(range(40), question="...")
    written("--train", jsonl(rows), "--question=...")
    assert dataset_options()["question"] == "..."


def test_a_hub_model_plans_offline(capsys: pytest.CaptureFixture[str]) -> None:
    train = jsonl(rows_of(range(200)))
    experiment = written("--train", train, model="Qwen/Qwen3-4B")
    assert main(["plan", "experiments.yaml", "-e", "mine"]) == 0
    assert experiment.resources.gpus == 1
    text = Path("experiments.yaml").read_text()
    assert "enable_thinking: false" in text and "load_in_4bit" not in text
    assert "GiB estimated" in text
    commit = "0123456789abcdef0123456789abcdef01234567"
    capsys.readouterr()
    written("--train", train, "--force", model=f"owner/unknown@{commit}")
    assert "GiB" not in capsys.readouterr().out
    reference = Path("hub") / "models--owner--cached" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text(commit)
    assert choose_model("owner/cached").entry.revision == commit
    reference.write_text("main")
    with pytest.raises(UserError, match="owner/cached"):
        choose_model("owner/cached")


@pytest.mark.parametrize(
    ("gpu", "assumed"),
    [("NVIDIA H100 80GB HBM3", False), ("NVIDIA L40S", False), ("NVIDIA Unheard Of", True)],
)
def test_the_plan_fits_the_gpus_of_the_machine(
    gpu: str,
    assumed: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = {"CPU": 6.0, "GPU": 2.0, gpu: 0.0}
    monkeypatch.setattr("orchestrator.cli.init.this_machine", lambda: machine)
    experiment = written("--train", jsonl(rows_of(range(200))), model="Qwen/Qwen3-4B")
    assert (experiment.resources.cpus, experiment.resources.gpus) == (3, 1)
    text = " ".join(capsys.readouterr().out.split())
    assert "6 CPUs, 2 GPUs" in text and ("H100" in text) == assumed
    assert main(["plan", "experiments.yaml", "-e", "mine", "--gpu", "h100", "--json"]) == 0
    [fit] = json.loads(capsys.readouterr().out)["memory"].values()
    assert f"about {fit['peak_gib']:.0f} GiB" in text  # the estimate of the plan


def real_size_model(folder: Path) -> str:
    """The configuration of a model of 135 million parameters."""
    shape = REAL_SIZE["HuggingFaceTB/SmolLM2-135M-Instruct"]
    config = {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    }
    (folder / "real").mkdir()
    (folder / "real" / "config.json").write_text(json.dumps(config))
    return str(folder / "real")


@pytest.mark.parametrize(
    ("cpus", "gib", "per_trial", "gpus"),
    [
        (1, 16, 1, 0),
        (2, 18, 1, 0),
        (8, 16, 4, 0),  # two trials at once
        (8, 24, 3, 0),  # two at once, as eight CPUs are not divisible by three
        (8, 8, 8, 0),
        (8, 4, 4, 1),  # too little for one
    ],
)
def test_without_a_gpu_a_trial_takes_a_core_where_the_memory_allows_it(
    tmp_path: Path,
    cpus: int,
    gib: int,
    per_trial: int,
    gpus: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = {"CPU": float(cpus), "GPU": 0.0}
    monkeypatch.setattr("orchestrator.cli.init.this_machine", lambda: machine)
    monkeypatch.setattr("orchestrator.pipeline.timetable.this_machine", lambda: machine)
    monkeypatch.setattr("orchestrator.pipeline.own_data.free_memory", lambda: gib * 2**30)
    model = real_size_model(tmp_path)
    experiment = written("--train", jsonl(rows_of(range(200))), model=model)
    assert (experiment.resources.cpus, experiment.resources.gpus) == (per_trial, gpus)
    text = " ".join(capsys.readouterr().out.split())
    entry = load_config(Path("experiments.yaml")).config.models["real"]
    if gpus:
        assert entry.dtype == "auto"
        return
    assert entry.dtype == "float32" and not entry.load_in_4bit
    need = re.search(r"([\d.]+) GiB", text)
    assert need and float(need[1]) * (cpus // per_trial) <= gib
    assert main(["plan", "experiments.yaml", "-e", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["eta_seconds"] is None
    assert "forecast not measured (" in text and "--pilot" in text


@pytest.mark.parametrize("gpus", [0, 1])
def test_the_api_plans_the_probe_that_init_writes(
    tmp_path: Path, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a learning rate that is written as 1e-05."""
    machine = {"CPU": 2.0, "GPU": float(gpus)}
    monkeypatch.setattr("orchestrator.cli.init.this_machine", lambda: machine)
    monkeypatch.setattr("orchestrator.pipeline.own_data.this_machine", lambda: machine)
    monkeypatch.setattr("orchestrator.pipeline.own_data.free_memory", lambda: 2**34)
    model, train = real_size_model(tmp_path), jsonl(rows_of(range(200)))
    assert written("--train", train, model=model).resources.gpus == gpus
    [own, *_] = make_plan(load_config(Path("experiments.yaml")), "mine").cells
    assert planned_probe(train, model).cells[0].probe.key == own.probe.key


def test_a_model_that_fits_no_gpu_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = {"CPU": 8.0, "GPU": 1.0, "NVIDIA L40S": 0.0}
    monkeypatch.setattr("orchestrator.cli.init.this_machine", lambda: machine)
    rows = [row | {"question": f"{row['question']} {'x ' * 9_000}"} for row in rows_of(range(200))]
    written("--train", jsonl(rows), model="microsoft/phi-4")
    assert "load_in_4bit: true" in Path("experiments.yaml").read_text()
    assert "L40S 48GB" in capsys.readouterr().out


def test_a_local_file_never_stands_for_a_hub_model(capsys: pytest.CaptureFixture[str]) -> None:
    Path("Qwen").mkdir()
    Path("Qwen/Qwen3-4B").touch()
    train = jsonl(rows_of(range(40)))
    assert "Qwen/Qwen3-4B" in refused(capsys, "--train", train, "--model", "Qwen/Qwen3-4B")


def test_a_folder_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "my..model: #1"
    folder.mkdir()
    config = json.loads((ROOT / "orchestrator/embedded/tiny/config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    experiment = written("--train", jsonl(rows_of(range(40))), model=str(folder))
    assert experiment.grid.model == ["my-model-1"]
    assert experiment.resources.gpus == 0  # half a million parameters train on a CPU


@pytest.mark.parametrize("rows", [24, 25, 30, 40, 81, 160, 400])
def test_small_pools_get_a_larger_share(rows: int) -> None:
    experiment = written("--train", jsonl(rows_of(range(rows))))
    size = make_plan(load_config(Path("experiments.yaml")), "mine").cells[0].size
    assert size >= 8
    assert len(QuestionFile(**dataset_options()).test()) >= 4
    assert experiment.budget == (0.1 if rows >= 200 else experiment.budget)


def test_the_pinned_commits_are_those_of_the_catalogue() -> None:
    models, _ = load(ROOT / "experiments.yaml")
    pinned = {m["hub"]: m["revision"] for m in models["models"].values() if "hub" in m}
    assert pinned == {name: model.revision for name, model in HUB_MODELS.items()}


def test_the_shipped_example_holds_no_test_question_of_its_model() -> None:
    task, ending = Arithmetic(seed=2026, train=200), "\nWork it out, end with \\boxed{N}."
    rows = [json.loads(line) for line in EXAMPLE.read_text("utf-8").splitlines()]
    questions = [row["question"].removesuffix(ending) for row in rows]
    assert questions == [prompt.question for prompt in task.train()]  # how it was generated
    assert [str(row["answer"]) for row in rows] == [prompt.answer for prompt in task.train()]
    assert not set(questions) & {prompt.question for prompt in Arithmetic().test()}


def test_the_shipped_example_needs_no_options() -> None:
    experiment = written("--train", str(EXAMPLE))
    options = dataset_options()
    assert (options["marker"], options["tier"]) == ("number", "level")
    assert (experiment.budget, experiment.probe.max_completion_length) == (0.1, 96)


NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
ANSWERS = st.one_of(
    st.none(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    st.sampled_from(
        ["A", "(B)", r"\frac{1}{2}", "#### 4", r"\boxed{", "}", "1/0", "\n#### 5", "%"]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(NAMES, min_size=2, max_size=2, unique=True),
    values=st.lists(ANSWERS, min_size=1, max_size=5),
    usual=st.booleans(),
)
def test_a_written_file_always_loads_and_plans(
    names: list[str], values: list[Any], usual: bool
) -> None:
    Path("experiments.yaml").unlink(missing_ok=True)
    question, answer = names
    train = jsonl(rows_of(values * (40 // len(values)), question, answer))
    arguments = [] if usual else [f"--question={question}", f"--answer={answer}"]
    code = main(["init", "--train", train, "--model", "tiny", *arguments])
    assert code == 0 if Path("experiments.yaml").exists() else code == 2
    if code == 0:
        assert main(["plan", "experiments.yaml", "-e", "mine"]) == 0
        pool = the_pool()
        golds = [Answer.to(p, pool.task.format_answer(p.answer)) for p in pool.train]
        assert {mark.outcome for mark in pool.task.mark_all(golds)} == {"correct"}
        entry = next(iter(load_config(Path("experiments.yaml")).config.datasets.values()))
        assert {entry.options["question"], entry.options["answer"]} == set(names)


def test_the_printed_export_command_takes_prompts_of_its_own_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both datasets have the same name, and one folder holds the samples of both."""
    commands = {}
    for name in ("a", "b"):
        Path(name).mkdir()
        file = jsonl(rows_of([f"{i} {name}" for i in range(60)]), f"{name}/mine.jsonl")
        arguments = ["--train", file, "--model", "tiny-arithmetic", "--output", f"{name}.yaml"]
        assert main(["init", *arguments]) == 0
        lines = capsys.readouterr().out.replace("\\\n", "")
        [commands[name]] = [line for line in lines.split("\n") if "decile export" in line]
    plans = {name: make_plan(load_config(Path(f"{name}.yaml")), "mine") for name in commands}
    assert len({plan.cells[0].probe.key for plan in plans.values()}) == 1
    for name, plan in plans.items():
        store_probes(plan, Store("runs"))
        assert main(["probe", f"{name}.yaml", "-e", "mine"]) == 0
    for name, command in commands.items():
        assert main([*shlex.split(command)[1:], "--force"]) == 0  # of the other one's file
        pool = plans[name].pools["mine"].train
        rows = [json.loads(line) for line in Path("hard.jsonl").read_text().splitlines()]
        assert len(rows) == plans[name].cells[0].size
        assert (pool.rows_of(pa.array([row["prompt_id"] for row in rows])) >= 0).all()


def store_probes(plan: Plan, store: Store) -> None:
    """Every sample and subset of a plan, as `decile probe` stores them."""
    for spec in plan.probes:
        pool, columns = plan.pool(spec), dict.fromkeys(SAMPLES.names[:-2], "")
        columns |= {"finish": "stop", "outcome": "wrong", "marker": spec.marker}
        rows = [
            columns | {"prompt_id": p.prompt_id, "sample": i, "tokens": 1}
            for p in pool.prompts(spec.split)
            for i in range(spec.settings.samples)
        ]
        write_part(store, spec.key, spec.split, pa.Table.from_pylist(rows, schema=SAMPLES))
        outcomes = Run.of(plan, store).folder(spec).outcomes()
        for cell in cells_of(plan.cells, spec):
            store_subset(store, cell, difficulty_of(plan, spec, outcomes))
