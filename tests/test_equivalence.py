r"""Expressions: equal by text, by value, or by math-verify; and whoever asks, from wherever."""

import gzip
import json
import threading

import pytest
from data import data

from orchestrator.marker_check import BOMBS
from tasks import Answer, get_task
from tasks.children import Children
from tasks.equivalence import mark_expression, mark_expressions, spelled

SAME = [
    (r"\frac{1}{2}", r"\dfrac12"),
    (r"\frac{1}{2}", r"\tfrac{1}{2}"),
    ("(1,2)", "(1, 2)"),
    (r"\left(1,2\right)", "(1,2)"),
    ("12", r"12\text{ cm}"),
    ("12", r"12^\circ"),
    ("5", "x = 5"),
    (r"\text{Evelyn}", "Evelyn"),
    (r"\sqrt2", r"\sqrt{2}"),
    ("1000", "1,000"),
    (r"\text{(C)}", "C"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_spellings_of_one_expression(one: str, two: str) -> None:
    assert spelled(one) == spelled(two)
    assert mark_expression(rf"\boxed{{{two}}}", one, "strict", truncated=False).outcome == "correct"


@pytest.mark.parametrize(
    ("gold", "answer", "outcome"),
    [
        (r"\frac{1}{2}", "0.5", "correct"),
        ("8+4i", "4i+8", "correct"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", "correct"),
        ("x^2-1", "(x-1)(x+1)", "correct"),
        ("[1,2)", "[1,2]", "wrong"),
        ("(1,2)", "(2,1)", "wrong"),
        (r"\sqrt{2}", "1.41", "wrong"),
        ("8", "-8", "wrong"),
    ],
)
def test_meaning_decides_where_text_does_not(gold: str, answer: str, outcome: str) -> None:
    mark = mark_expression(rf"So it is \boxed{{{answer}}}.", gold, "lenient", truncated=False)
    assert (mark.outcome, mark.extracted) == (outcome, answer)


def test_bombs_are_errors_and_the_next_answer_is_marked() -> None:
    answers = [Answer(bomb, "7") for bomb in BOMBS] + [Answer(r"\boxed{x+7}", "7+x")]
    *bombs, last = mark_expressions(answers, "lenient")
    assert {mark.outcome for mark in bombs} <= {"error", "unparsed", "wrong"}
    assert [m.rule for m in bombs[:2]] == ["lenient:boxed-time-limit"] * 2
    assert last.outcome == "correct"


def test_a_thread_may_ask() -> None:
    found: list[str] = []
    ask = threading.Thread(
        target=lambda: found.append(
            mark_expression(r"\boxed{4i+8}", "8+4i", "lenient", truncated=False).outcome
        )
    )
    ask.start()
    ask.join()
    assert found == ["correct"]


def test_only_the_completion_is_marked() -> None:
    task = get_task("math", prompt={"preset": "paper"})
    [turn] = task.messages(r"What is $1+1$? For example \boxed{2}.")
    assert r"\boxed{2}" in turn["content"]
    assert task.mark("I do not know.", "2").outcome == "unparsed"


@pytest.fixture(scope="module")
def golds() -> list[str]:
    from tasks.reading import last_box

    found = []
    for split in ("train", "test"):
        with gzip.open(data("raw", "math", f"{split}.jsonl.gz"), "rt", encoding="utf-8") as file:
            boxes = [last_box(json.loads(line)["solution"], ("boxed", "fbox")) for line in file]
            found += [box for box in boxes if box]
    return found


@pytest.mark.parametrize("marking", ["strict", "lenient"])
def test_every_gold_of_math_is_correct(golds: list[str], marking: str) -> None:
    assert len(golds) == 12_498
    answers = [Answer(rf"\boxed{{{gold}}}", gold) for gold in golds]
    assert {mark.outcome for mark in mark_expressions(answers, marking)} == {"correct"}


def test_math_verify_itself_knows_every_tenth_gold(golds: list[str]) -> None:
    verifiers = Children("tasks.math_verifier:equivalent", 2, 10.0)
    some = golds[::10]
    replies = verifiers.map([(gold, gold) for gold in some])
    verifiers.close()
    assert [g for g, reply in zip(some, replies, strict=True) if reply.value is not True] == []
