"""Tasks with data files: counts, gold answers, tiers, dropped rows and refused options.

Small files are generated here; tests named `real` read the real data sets if they are available.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data import data
from remedies import refused

import tasks.sources.source
from tasks import Prompt, Task, TaskError
from tasks.aime2025 import Aime2025, whole_answer
from tasks.base import without_instructions
from tasks.competition_math import MATH500, SUBJECTS, CompetitionMath, is_numeric
from tasks.gsm8k import Gsm8k
from tasks.lookup import _wrong_option
from tasks.marking.golds import final_answer
from tasks.marking.text import mark_text
from tasks.prompts import Answer
from tasks.question_file import QuestionFile


def jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def lines(path: Path) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def numbers(notes: list[str]) -> list[list[str]]:
    """Each note's split or file, and its numbers."""
    return [re.findall(r"^[\w.]+|\d[\d,]*", note) for note in notes]


def pairs(prompts: list[Prompt]) -> list[tuple[str, str]]:
    return [(prompt.question, prompt.answer) for prompt in prompts]


# --- MATH ---


def problem(name: str, gold: str, level: str = "Level 1", kind: str = "Algebra") -> dict[str, str]:
    return {"problem": name, "level": level, "type": kind, "solution": f"So $\\boxed{{{gold}}}$."}


READ = (Gsm8k, CompetitionMath, Aime2025, QuestionFile)


def questions_of(prompts: list[Prompt]) -> list[str]:
    return [prompt.question for prompt in prompts]


# --- every task ---


def questions(folder: Path, count: int = 4) -> str:
    rows = [{"question": f"{i}+1?", "answer": i + 1} for i in range(count)]
    return jsonl(folder / "questions.jsonl", rows)


def test_files_are_read_once_by_an_instance_and_its_copies(tmp_path: Path) -> None:
    file = questions(tmp_path)
    task = QuestionFile(
        train=file, test=jsonl(tmp_path / "t.jsonl", [{"question": 1, "answer": 1}])
    )
    before = list(task.train())
    Path(file).unlink()
    assert task.train() == task.other_reading.train() == before
    task.train().clear()
    assert task.train() == before


def test_notes_are_given_once_and_provenance_reads_the_file(tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", [{"question": "1?", "answer": 1}] * 3)
    task = QuestionFile(train=file)
    other = task.other_reading
    assert set(task.provenance) == set(other.provenance) == {"train"}
    assert re.fullmatch(r"a\.jsonl sha256:[0-9a-f]{64}", task.provenance["train"])
    assert task.notes == other.notes == ["train: 2 repeated prompts dropped"]


@pytest.mark.parametrize("task", [Gsm8k, CompetitionMath, Aime2025])
def test_presets_ask_for_a_box_and_paper_disables_thinking(task: type[Gsm8k]) -> None:
    [plain] = task().messages("What is {1}?")
    assert plain["content"].startswith("What is {1}?\nReason step by step")
    assert plain["content"].endswith("within \\boxed{}.")
    paper = task(prompt={"preset": "paper"})
    [message] = paper.messages("How many?")
    assert message["content"] == "How many?.\nPut the final answer within \\boxed{}."
    assert paper.chat_template_kwargs == {"enable_thinking": False}
    assert task().chat_template_kwargs == {}


@pytest.mark.parametrize("task", READ)
def test_an_invalid_preset_or_marking_is_refused(task: type[Gsm8k]) -> None:
    with refused("'short'", "plain", by=TaskError):
        task(prompt={"preset": "short"})
    with refused("strict", "lenient", by=TaskError):
        task(marking="kind")  # type: ignore[arg-type]


@pytest.mark.parametrize("marking", ["strict", "lenient"])
@pytest.mark.parametrize("kind", READ)
def test_marker_checks_need_no_data(kind: type[Task], marking: Any) -> None:
    marker_variants = [task.with_marking(marking) for task in kind.marker_variants()]
    assert len(marker_variants) == (4 if kind is QuestionFile else 1)
    for task in marker_variants:
        prompts = task.check_prompts()
        right = [Answer(task.format_answer(p.answer), p.answer) for p in prompts]
        wrong = [Answer(task.format_answer(task.perturb(p)), p.answer) for p in prompts]
        assert {mark.outcome for mark in task.mark_all(right)} == {"correct"}
        assert {mark.outcome for mark in task.mark_all(wrong)} == {"wrong"}


@pytest.mark.parametrize("kind", READ)
def test_whether_an_answer_is_read_does_not_depend_on_the_gold(kind: type[Task]) -> None:
    """So that the reward `format` needs no gold answer."""
    for task in kind.marker_variants():
        prompts = task.check_prompts()[:6]
        golds = [prompt.answer for prompt in prompts]
        for prompt in prompts:
            right, wrong = task.format_answer(prompt.answer), task.wrong_completion(prompt)
            for text in (right, wrong, "I do not know", f"The answer is {prompt.answer}", ""):
                answers = [Answer(text, gold, False, prompt.question) for gold in golds]
                read = {mark.outcome in ("correct", "wrong") for mark in task.mark_all(answers)}
                assert len(read) == 1, text


def test_options_that_change_marks_are_part_of_the_marker_id() -> None:
    assert Gsm8k().marker_id == "gsm8k/4/lenient"
    assert Gsm8k(last_number=True).marker_id == "gsm8k/4/lenient/last-number"
    names = {task.marker_id for task in QuestionFile.marker_variants()}
    assert len(names) == 4 and "file/4/lenient/text" in names


def annotated(
    *,
    size: int | None = None,
    share: float = 0.5,
    exact: bool = False,
    name: str = "",
    names: Sequence[str] = (),
    levels: list[int] | None = None,
    anything: list[Any] | tuple[Any, ...] = (),
    kind: Literal["a", "b", 3] = "a",
    columns: Mapping[str, str] | None = None,
    other: Path | None = None,
) -> None:
    """A constructor with every kind of option."""


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"size": 3, "share": 1, "exact": True, "name": "a"}, None),
        ({"size": None, "share": 0.25, "names": ["a"], "levels": [1]}, None),
        ({"names": [], "levels": None, "anything": [1, "a"], "kind": 3}, None),
        ({"columns": {"a": "b"}, "other": 7, "unknown": [object]}, None),
        ({"share": 1, "size": True}, ("size True", "integer")),
        ({"size": 1.0}, ("size 1.0", "integer")),
        ({"share": None}, ("share None", "number")),
        ({"exact": 1}, ("exact 1", "true", "false")),
        ({"names": "a"}, ("names 'a'", "list", "strings")),
        ({"names": ["a", 1]}, ("names ['a', 1]", "list", "strings")),
        ({"anything": 3}, ("anything 3", "list", "values")),
        ({"kind": "c"}, ("kind 'c'", "a, b, 3")),
        ({"kind": 3.0}, ("kind 3.0", "a, b, 3")),
        ({"columns": ["a"]}, ("columns ['a']", "mapping")),
        ({"name": [1] * 99}, (f"name {str([1] * 99)[:80]}:", "string")),
    ],
)
def test_an_option_has_the_type_of_its_annotation(
    options: dict[str, Any], values: tuple[str, ...] | None
) -> None:
    problem = _wrong_option(annotated, options)
    assert (problem is None) == (values is None)
    assert all(value in (problem or "") for value in values or ())


def test_annotations_that_cannot_be_resolved_refuse_nothing() -> None:
    def mine(*, size: "Absent") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert _wrong_option(mine, {"size": "large"}) is None


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [
        (Gsm8k(), "She has 3.\n#### 1,234", "1234"),
        (Gsm8k(), "-3.5", "-3.5"),
        (Gsm8k(), "one\n#### 5 apples", None),
        (CompetitionMath(), r"$\boxed{1}$, $x = \boxed{\frac{1}{\sqrt2}}$", r"\frac{1}{\sqrt2}"),
        (CompetitionMath(), r"\fbox{ 3 } or \boxed 5", "3"),
        (CompetitionMath(), r"It is $\boxed 5$", "5"),
        (CompetitionMath(), " x+1 ", "x+1"),
    ],
)
def test_the_answer_of_a_worked_solution_is_read(task: Task, text: str, answer: str | None) -> None:
    assert task.read_answer(text) == answer


@pytest.mark.parametrize("marking", ["strict", "lenient"])
def test_marks_of_one_and_of_many_answers_are_the_same(marking: Any) -> None:
    half = [Answer(r"\boxed{0.5}", r"\frac12"), Answer(r"\boxed{\frac{1}{2}}", r"\frac12")]
    for task, answers in (
        (CompetitionMath(marking=marking), [*half, Answer("1/2", r"\frac12", True)]),
        (Gsm8k(marking=marking), [Answer(r"\boxed{18.0}", "18"), Answer("18", "18", True)]),
    ):
        marks = task.mark_all(answers)
        assert marks == [task.mark_answer(answer) for answer in answers]
        outcomes = [mark.outcome for mark in marks]
        first = {"strict": {"math": "wrong", "gsm8k": "unparsed"}, "lenient": {}}[marking]
        assert outcomes[0] == first.get(task.name, "correct") and outcomes[-1] == "truncated"


# --- GSM8K ---


def gsm8k(folder: Path, train: Sequence[dict[str, Any]], test: Sequence[dict[str, Any]]) -> str:
    jsonl(folder / "train.jsonl", train)
    jsonl(folder / "test.jsonl", test)
    return str(folder)


def worked(question: str, gold: str, steps: int = 2) -> dict[str, str]:
    return {"question": question, "answer": "She counts.\n\n" * steps + f"#### {gold}"}


def test_gsm8k_reads_gold_and_steps_and_notes_dropped_rows(tmp_path: Path) -> None:
    train = [
        worked("a?", "1,200", 2),
        {"question": "b?", "answer": "one #### 3\n  \ntwo\nthree\n#### -3.5 "},
        worked("a?", "1200", 2),
        worked("c?", "many"),
        {"question": "d?", "answer": "No end."},
        {"question": "e?", "answer": "1,250"},
        worked("x?", "8"),
    ]
    path = gsm8k(tmp_path, train, [worked("x?", "9", 1), worked("y?", "7", 12)])
    task = Gsm8k(path=path, partial=True)
    assert [(p.question, p.answer, p.tier) for p in task.train()] == [
        ("a?", "1200", "2"),
        ("b?", "-3.5", "3"),
        ("e?", "1250", "all"),
    ]
    assert [p.tier for p in task.test()] == ["1", "12"]
    assert numbers(task.notes) == [
        ["train.jsonl", "7", "7,473"],
        ["train", "2"],  # without a number
        ["test.jsonl", "2", "1,319"],
        ["train", "1"],  # repeated
        ["train", "1"],  # in the test set, under another gold, too
    ]
    assert set(task.provenance) == {"train", "test"}
    small = Gsm8k(path=path, partial=True, train=1, test=0)
    assert (questions_of(small.train()), small.test()) == (["a?"], [])


def test_real_gsm8k_has_its_official_counts_golds_and_steps() -> None:
    task = Gsm8k(path=str(data("raw", "gsm8k")))
    assert (len(task.train()), len(task.test())) == (7473, 1319)
    assert not task.notes
    for split, pool in (("train.jsonl.gz", task.train()), ("test.jsonl", task.test())):
        rows = lines(data("gsm8k", split))
        assert [(p.question, p.answer, p.tier) for p in pool] == [
            (row["question"], row["answer"], str(row["n_steps"])) for row in rows
        ]


def test_gsm8k_marks_the_last_number_only_with_last_number() -> None:
    text = "I count 5 and 7"
    assert Gsm8k().mark(text, "7").outcome == "unparsed"
    assert Gsm8k(last_number=True).mark(text, "7").outcome == "correct"
    assert Gsm8k(last_number=True).mark(text, "7", True).outcome == "truncated"


def maths(folder: Path, **options: Any) -> CompetitionMath:
    train = [
        problem("p1", "1"),
        problem("p2", "\\frac{1}{2}", "Level 3", "Geometry"),
        problem("p3", "x^2", "Level 5"),
        problem("p4", "", "Level 2"),
        problem("p5", "7", "Level ?", "Geometry"),
        problem("q1", "2"),
    ]
    test = [problem("q1", "2"), problem("q2", "y", "Level 4", "Number Theory")]
    path = gsm8k(folder, train, test)
    return CompetitionMath(path=path, partial=True, **options)


def test_math_reads_boxes_and_levels_and_notes_dropped_rows(tmp_path: Path) -> None:
    task = maths(tmp_path)
    assert [(p.question, p.answer, p.tier) for p in task.train()] == [
        ("p1", "1", "1"),
        ("p2", "\\frac{1}{2}", "3"),
        ("p3", "x^2", "5"),
        ("p5", "7", "?"),
    ]
    assert pairs(task.test()) == [("q1", "2"), ("q2", "y")]
    without_box, in_test_set = (note for note in numbers(task.notes) if note[0] == "train")
    assert without_box == in_test_set == ["train", "1"]


@pytest.mark.parametrize(
    ("options", "train", "test"),
    [
        ({"levels": [1, 3]}, ["p1", "p2"], ["q1"]),
        ({"train_levels": [1, 3]}, ["p1", "p2"], ["q1", "q2"]),
        ({"subjects": ["Geometry", "Number Theory"]}, ["p2", "p5"], ["q2"]),
        ({"numeric": True}, ["p1", "p2", "p5"], ["q1"]),
        ({"numeric": True, "levels": [3], "subjects": ["Geometry"]}, ["p2"], []),
    ],
)
def test_options_of_math_filter_its_problems(
    tmp_path: Path, options: dict[str, Any], train: list[str], test: list[str]
) -> None:
    task = maths(tmp_path, **options)
    assert (questions_of(task.train()), questions_of(task.test())) == (train, test)


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"levels": [6]}, ("levels [6]", "1 to 5")),
        ({"levels": 3}, ("levels 3",)),
        ({"train_levels": []}, ("train_levels []",)),
        ({"subjects": ["Maths"]}, ("subjects ['Maths']", *SUBJECTS)),
        ({"subjects": "Algebra"}, ("subjects 'Algebra'", *SUBJECTS)),
        ({"test_set": "small"}, ("test_set 'small'", "full", "math500")),
        ({"math500_path": "/x"}, ("math500_path", "test_set: math500")),
    ],
)
def test_errors_for_invalid_options_of_math_say_what_to_write(
    options: dict[str, Any], values: tuple[str, ...]
) -> None:
    with refused(*values, by=TaskError):
        CompetitionMath(**options)


@pytest.mark.parametrize(
    "gold",
    [
        "+5",
        "-\\$5",
        "\\$1,234.50",
        "11,\\! 111,\\!111",
        ".5",
        "3/4",
        "\\dfrac{-1}{2}",
        "\\tfrac{16}3",
        "50\\%",
        "60^{\\circ}",
        "25 \\, \\text{km}^2",
        "$7$",
        "\\text{13}",
        "-5^\\circ",
    ],
)
def test_numbers_are_numeric_golds(gold: str) -> None:
    assert is_numeric(gold)


@pytest.mark.parametrize(
    "gold",
    [
        "",
        "2x",
        "2\\pi",
        "\\sqrt{2}",
        "1,2",
        "x=5",
        "101_2",
        "\\frac{x}{2}",
        "1\\frac{1}{2}",
        "--1",
        "5+1",
        "60^\\circ, 120^\\circ",
        "1.2.3",
    ],
)
def test_other_golds_are_not_numeric(gold: str) -> None:
    assert not is_numeric(gold)


def test_math500_is_a_test_set_with_its_own_file(tmp_path: Path) -> None:
    row = {"problem": "p1", "answer": "1", "subject": "Algebra", "level": 1, "solution": "none"}
    file = jsonl(tmp_path / "five" / "math500.jsonl", [row, {**row, "problem": "z", "level": 4}])
    for path in (file, str(Path(file).parent)):
        task = maths(tmp_path, test_set="math500", math500_path=path)
        assert [(p.question, p.answer, p.tier) for p in task.test()] == [
            ("p1", "1", "1"),
            ("z", "1", "4"),
        ]
        assert questions_of(task.train()) == ["p2", "p3", "p5", "q1"]
    with refused("math500.jsonl", "2 rows;", "500:", by=TaskError):
        CompetitionMath(path=str(data("raw", "math")), test_set="math500", math500_path=file).test()


def test_math_loads_seven_subjects_from_the_hub_and_math500_its_pinned_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    datasets = pytest.importorskip("datasets")

    def load(folder: str, config: str | None, *, split: str, **_: object) -> list[dict[str, Any]]:
        name = f"{folder} {config} {split}"
        return [{**problem(name, "3"), "answer": "3", "subject": "Algebra"}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(
        tasks.sources.source, "downloaded_folder", lambda repository: Path(str(repository))
    )
    task = CompetitionMath(test_set="math500", revision="a" * 40, partial=True)
    whole = f"EleutherAI/hendrycks_math@{'a' * 40}"
    five_hundred = f"HuggingFaceH4/MATH-500@{MATH500.revision}"
    assert questions_of(task.train()) == [f"{whole} {name} train" for name in SUBJECTS.values()]
    assert questions_of(task.test()) == [f"{five_hundred} None test"]
    assert task.provenance == {"train": whole, "test": five_hundred}
    assert [str(each) for each in task.downloads] == [*task.provenance.values()]


# --- AIME ---


def test_aime_is_for_evaluation_only_and_its_tier_is_the_part(tmp_path: Path) -> None:
    jsonl(tmp_path / "I.jsonl", [{"question": f"i{n}", "answer": n} for n in range(15)])
    jsonl(tmp_path / "aime2025-II.jsonl", [{"question": f"j{n}", "answer": "7"} for n in range(15)])
    task = Aime2025(path=str(tmp_path))
    assert task.train() == []
    assert Counter(p.tier for p in task.test()) == {"I": 15, "II": 15}
    assert set(task.provenance) == {"test I", "test II"}
    alone = Aime2025(part="I", path=str(tmp_path / "I.jsonl"))
    assert alone.test() == task.test()[:15]
    with refused(tmp_path / "I.jsonl", "path: FOLDER", "II.jsonl", by=TaskError):
        Aime2025(path=str(tmp_path / "I.jsonl")).test()


@pytest.mark.parametrize(
    ("answer", "gold"), [("033", "33"), (0, "0"), ("336^\\circ", "336"), ("336^{\\circ}", "336")]
)
def test_aime_answers_are_normalized(answer: object, gold: str) -> None:
    assert whole_answer(answer) == gold


@pytest.mark.parametrize("answer", ["1000", "-1", "3.0", "", "x", "²"])
def test_invalid_aime_answers_are_refused(answer: str) -> None:
    with refused(repr(answer), "0 to 999", by=TaskError):
        whole_answer(answer)


def test_an_unknown_part_of_aime_is_refused() -> None:
    with refused("'III'", "both", by=TaskError):
        Aime2025(part="III")  # type: ignore[arg-type]


def test_real_aime_has_fifteen_problems_in_each_part() -> None:
    path = str(data("aime2025"))
    first, second = Aime2025(part="I", path=path).test(), Aime2025(part="II", path=path).test()
    assert len(first) == len(second) == 15
    assert Aime2025(path=path).test() == first + second
    assert pairs(first) == [(r["question"], r["answer"]) for r in lines(data("aime2025/I.jsonl"))]


# --- the user's own file ---


def test_a_file_is_split_by_content_and_not_by_order(tmp_path: Path) -> None:
    task = QuestionFile(path=questions(tmp_path, 500))
    back = QuestionFile(path=jsonl(tmp_path / "b.jsonl", lines(tmp_path / "questions.jsonl")[::-1]))
    assert 60 < len(task.test()) < 140
    assert len(task.train()) + len(task.test()) == 500
    assert set(task.test()) == set(back.test())
    wider = QuestionFile(path=str(tmp_path / "questions.jsonl"), test_share=0.5)
    assert set(task.test()) < set(wider.test())
    assert set(task.provenance) == {"all"}


def test_columns_can_be_renamed_and_parquet_is_read(tmp_path: Path) -> None:
    rows = {"ask": ["1+1?", "2+2?"], "gold": [2.0, 4.5], "grade": [1, 2]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    columns = {"question": "ask", "answer": "gold", "tier": "grade"}
    task = QuestionFile(test=str(tmp_path / "a.parquet"), **columns)
    assert [(p.question, p.answer, p.tier) for p in task.test()] == [
        ("1+1?", "2", "1"),
        ("2+2?", "4.5", "2"),
    ]
    assert task.train() == []
    assert QuestionFile(path=questions(tmp_path)).train()[0].tier == "all"


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": [{"type": "text", "text": "2+2?"}]},
]
REPLY = [{"role": "assistant", "content": "It is \\boxed{4}."}]
SHARED = [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "#### 4"}]
BOX = "Put the final answer within \\boxed{}."


def test_numbers_are_written_without_an_exponent(tmp_path: Path) -> None:
    answers = [2.5, 1e3, 1e16, 1e-7]
    rows = [{"question": f"Number {i}?", "answer": answer} for i, answer in enumerate(answers)]
    prompts = QuestionFile(train=jsonl(tmp_path / "a.jsonl", rows)).train()
    assert [p.answer for p in prompts] == ["2.5", "1000", "10000000000000000", "0.0000001"]
    decimals = pa.table({"question": ["a"], "answer": pa.array([Decimal(0)], pa.decimal128(9, 7))})
    pq.write_table(decimals, tmp_path / "a.parquet")
    assert QuestionFile(train=str(tmp_path / "a.parquet")).train()[0].answer == "0.0000000"


@pytest.mark.parametrize(
    ("row", "columns", "notes"),
    [
        ({"input": "2+2?", "label": 4}, ("input", "label"), 0),
        ({"problem": "2+2?", "solution": "2+2 = 4\n#### 4"}, ("problem", "solution"), 1),
        ({"prompt": CHAT, "reward_model": {"ground_truth": "4"}}, ("prompt", "a.b"), 2),
        ({"prompt": CHAT, "completion": REPLY}, ("prompt", "completion"), 3),
        ({"messages": CHAT + REPLY}, ("messages", "messages"), 3),
        ({"conversations": SHARED}, ("conversations", "conversations"), 1),
        ({"context_messages": CHAT[1:2] + CHAT[3:], "label": ["4", "4.0"]}, (), 2),
        ({"doc": {"turns": ["2+2?"]}, "a.b": 4}, ("doc.turns.-1", "a.b"), 0),
        ({"question": f"2+2?\n{BOX}", "answer": "4"}, ("question", "answer"), 1),
        ({"question": f"2+2? Please reason step by step, and {BOX.lower()}", "answer": 4}, (), 1),
    ],
)
def test_columns_may_be_nested_values_and_chat_messages(
    tmp_path: Path, row: dict[str, Any], columns: tuple[str, ...], notes: int
) -> None:
    question, answer = columns or tuple(row)
    answer = "reward_model.ground_truth" if "reward_model" in row else answer
    task = QuestionFile(train=jsonl(tmp_path / "a.jsonl", [row]), question=question, answer=answer)
    assert pairs(task.train()) == [("2+2?", "4")]
    assert len(task.notes) == notes and all(re.match("train: [12] ", n) for n in task.notes)


@pytest.mark.parametrize(
    ("question", "answer", "values"),
    [
        ("prompt", "label", ("'label'", "object", "label.truth")),
        ("label.no", "label.truth", ("'label.no'", "one of prompt, label")),
        ("prompt.5.content", "label.truth", ("'prompt.5.content'", "one of prompt, label")),
        ("prompt.0", "label.truth", ("'prompt.0'", "object")),
    ],
)
def test_a_column_of_another_form_is_named(
    tmp_path: Path, question: str, answer: str, values: tuple[str, ...]
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("\n" + json.dumps({"prompt": CHAT, "label": {"truth": "4"}}))
    with refused(f"{file}:2", *values, by=TaskError):
        QuestionFile(train=str(file), question=question, answer=answer).train()


def test_a_solution_without_a_readable_end_is_named(tmp_path: Path) -> None:
    rows = [{"question": "a", "answer": "so \\boxed{B}"}, {"question": "b", "answer": "so B"}]
    with refused("a.jsonl:2", "'so B'", "letter", by=TaskError):
        QuestionFile(train=jsonl(tmp_path / "a.jsonl", rows), marker="letter").train()
    task = QuestionFile(train=jsonl(tmp_path / "a.jsonl", rows), marker="text")
    assert [p.answer for p in task.train()] == ["B", "so B"]


def test_test_questions_are_dropped_from_the_pool(tmp_path: Path) -> None:
    task = QuestionFile(train=questions(tmp_path, 4), test=questions(tmp_path / "t", 1))
    assert questions_of(task.train()) == ["1+1?", "2+1?", "3+1?"]
    assert numbers(task.notes) == [["train", "1"]]


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, ("train: PATH", "test: PATH", "path")),
        ({"path": "a", "train": "b"}, ("path", "train", "test")),
        ({"train": "b", "test_share": 0.5}, ("test_share", "path")),
        ({"path": "a", "test_share": 1}, ("test_share 1", "between 0 and 1")),
        ({"path": "a", "test_share": "half"}, ("test_share 'half'",)),
        ({"path": "a", "marker": "math"}, ("'math'", "number, letter, expression, text")),
    ],
)
def test_errors_for_invalid_options_of_a_file_say_what_to_write(
    options: dict[str, Any], values: tuple[str, ...]
) -> None:
    with refused(*values, by=TaskError):
        QuestionFile(**options).train()


@pytest.mark.parametrize(
    ("row", "options", "values"),
    [
        ({"question": "a", "answer": "two"}, {}, ("'two'", "letter, expression, text")),
        ({"question": "a", "answer": "2"}, {"marker": "letter"}, ("'2'", "such as B")),
        ({"question": " ", "answer": "2"}, {}, ("'question'",)),
        ({"question": "a", "answer": " "}, {"marker": "text"}, ("'answer'",)),
        ({"question": "a"}, {}, ("'answer'", "one of question")),
        ({"question": "a", "answer": 1}, {"tier": "t"}, ("'t'", "one of question")),
    ],
)
def test_invalid_rows_of_a_file_are_named(
    tmp_path: Path, row: dict[str, Any], options: dict[str, Any], values: tuple[str, ...]
) -> None:
    with refused("a.jsonl:1", *values, by=TaskError):
        QuestionFile(train=jsonl(tmp_path / "a.jsonl", [row]), **options).train()


@pytest.mark.parametrize("marker", ["number", "expression"])
def test_the_answer_of_a_worked_solution_is_its_last_line_or_box(
    tmp_path: Path, marker: Any
) -> None:
    answers = ["2 + 2 = 4\n#### 4", "so \\boxed{1} or rather \\boxed{1,005}.", "7"]
    answers += ["It is 5. #### 5", "So it is <answer>6</answer>"]
    rows = [{"question": f"{i}?", "answer": answer} for i, answer in enumerate(answers)]
    task = QuestionFile(train=jsonl(tmp_path / "a.jsonl", rows), marker=marker)
    golds = {"number": ["4", "1005", "7", "5", "6"], "expression": ["4", "1,005", "7", "5", "6"]}
    assert [p.answer for p in task.train()] == golds[marker]


def test_a_heading_is_not_the_last_line_of_a_solution() -> None:
    assert final_answer("#### 1. Add\nIt is 5.") == "#### 1. Add\nIt is 5."
    assert final_answer("#### 1. Add\n#### 5") == "5"


def test_invalid_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    good = [{"question": f"{i}?", "answer": str(i)} for i in range(3)]
    bad = [
        {"question": "a?", "answer": "two"},
        {"question": "", "answer": "2"},
        {"question": None, "answer": "2"},
        {"answer": "2"},
        {"question": "b?", "answer": "9" * 5_000},  # no marker parses it
    ]
    file = jsonl(tmp_path / "a.jsonl", bad + good)
    task = QuestionFile(train=file, skip_invalid=True)
    assert [p.question for p in task.train()] == ["0?", "1?", "2?"]
    assert task.notes == ["train: 5 of 8 rows dropped as invalid"]
    with refused("b.jsonl", by=TaskError):
        QuestionFile(train=jsonl(tmp_path / "b.jsonl", bad), skip_invalid=True).train()
    with refused("skip_invalid", "true", "false", by=TaskError):
        QuestionFile(train=file, skip_invalid=1)  # type: ignore[arg-type]


def test_an_answer_that_a_box_cannot_hold_is_dropped(tmp_path: Path) -> None:
    rows = [{"question": f"{i}?", "answer": answer} for i, answer in enumerate(["a}", "{b", "c"])]
    file = jsonl(tmp_path / "a.jsonl", rows)
    task = QuestionFile(train=file, marker="text", skip_invalid=True)
    assert [p.answer for p in task.train()] == ["c"]


def test_the_bare_preset_is_the_question_alone() -> None:
    [message] = QuestionFile(prompt={"preset": "bare"}).messages("1 + 1? \\boxed{}")
    assert message["content"] == "1 + 1? \\boxed{}"


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    with refused("a.jsonl", by=TaskError):
        QuestionFile(path=jsonl(tmp_path / "a.jsonl", [])).test()


@pytest.mark.parametrize(
    ("marker", "gold", "right"),
    [
        ("number", "1,200", "1200.0"),
        ("letter", "B", "(B)"),
        ("letter", "(B)", "b"),
        ("expression", "\\frac{1}{2}", "\\dfrac12"),
        ("text", "New York", "\\text{new  york}."),
    ],
)
def test_each_marker_distinguishes_correct_from_wrong(
    tmp_path: Path, marker: Any, gold: str, right: str
) -> None:
    file = jsonl(tmp_path / "a.jsonl", [{"question": "?", "answer": gold}])
    task = QuestionFile(test=file, marker=marker)
    [prompt] = task.test()
    given = [(f"\\boxed{{{right}}}", False), (task.format_answer(task.perturb(prompt)), False)]
    given.append(("no", True))
    answers = [Answer(text, prompt.answer, cut) for text, cut in given]
    assert [mark.outcome for mark in task.mark_all(answers)] == ["correct", "wrong", "truncated"]


def test_strict_text_marking_compares_characters_exactly() -> None:
    assert mark_text("\\boxed{ Rome }", "Rome", "strict", False).outcome == "correct"
    assert mark_text("\\boxed{rome}", "Rome", "strict", False).outcome == "wrong"
    assert mark_text("\\boxed{rome.}", "Rome", "lenient", False).outcome == "correct"
    assert mark_text("\\boxed{Paris}", "Rome", "lenient", False).outcome == "wrong"
    assert mark_text("Rome", "Rome", "lenient", False).outcome == "unparsed"


INSTRUCTED = [
    "Put the final answer within \\boxed{}.",
    "please put your final answer in \\boxed{}",
    "Please reason step by step, and put your final answer within \\boxed{}.",
    'Let\'s think step by step and output the final answer after "####".',
]


@pytest.mark.parametrize("instruction", INSTRUCTED)
def test_an_instruction_is_removed_as_a_whole_sentence_or_not_at_all(instruction: str) -> None:
    sentences = ["What is 0+1?", "Find x.", "Is it $2.$", "Compute 3 + 12.", 'He said "no."']
    parts = ["Out", "Please out", "Find l, and out", "Simplify and", "Simplify, i.e.", "(so"]
    for before in sentences:
        for gap in (" ", "\n", "\n\n"):
            assert without_instructions(f"{before}{gap}{instruction}") == before
            assert without_instructions(f"{before}{gap}({instruction})") == before
    for part in parts:
        for gap in ("", " ", "\n" if instruction.islower() else " "):
            for text in (f"{part}{gap}{instruction}", f"What is 1? {part}{gap}{instruction}"):
                assert without_instructions(text) == text
    listed = f"Rules:\n1. Show it.\n2. {instruction}"
    assert without_instructions(listed) == listed
    assert without_instructions(instruction) == instruction


def test_real_math_has_its_official_counts_golds_and_levels() -> None:
    task = CompetitionMath(path=str(data("raw", "math")))
    assert (len(task.train()), len(task.test())) == (7498, 5000)
    assert numbers(task.notes) == [["train", "2"]]
    assert Counter(p.tier for p in task.train()) == {
        "1": 564,
        "2": 1348,
        "3": 1592,
        "4": 1690,
        "5": 2302,
        "?": 2,
    }
    for split, pool in (("train.jsonl.gz", task.train()), ("test.jsonl", task.test())):
        rows = [row for row in lines(data("math", split)) if row["answer"]]
        assert pairs(pool) == [(row["question"], row["answer"].strip()) for row in rows]


def test_real_math_has_a_numeric_subset() -> None:
    task = CompetitionMath(path=str(data("raw", "math")), numeric=True)
    assert (len(task.train()), len(task.test())) == (6097, 4042)


def test_real_math500_is_part_of_the_test_set(tmp_path: Path) -> None:
    rows = lines(data("math500", "test.jsonl"))
    jsonl(tmp_path / "test.jsonl", [{**row, "problem": row["question"]} for row in rows])
    path = str(data("raw", "math"))
    full = CompetitionMath(path=path)
    task = CompetitionMath(path=path, test_set="math500", math500_path=str(tmp_path))
    assert len(task.test()) == 500
    assert set(task.test()) <= set(full.test())
    assert task.train() == full.train()
