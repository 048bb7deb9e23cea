"""The arithmetic task: well-formed questions, and gold answers that follow from the steps."""

import random
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from tasks import TaskError
from tasks.arithmetic import (
    COMMON,
    KINDS,
    MEN,
    OPENINGS,
    QUESTIONS,
    SCENES,
    WOMEN,
    Arithmetic,
    Scenario,
    draw,
    prompt_of,
)
from tasks.prompts import in_test_split

WORDS = {"twice": "2 times"}
SIGNS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: Fraction(a, b),
}
SCENARIOS = st.builds(
    lambda seed, steps, largest: (draw(random.Random(seed), [steps], largest), steps, largest),
    st.integers(0, 10**9),
    st.integers(1, 9),
    st.integers(10, 2000),
)
# What each sentence does, read from the text alone.
READINGS = (
    (r"{n} times as many", "*"),
    (r"into {n} (?:equal|baskets|cartons|envelopes|jars|bags|tins|cases|trays|boxes)", "/"),
    (r"{n} friends?\b", "share"),
    (r"{n} more", "+"),
    (r"{n} ", "-"),
)


def read(question: str) -> int:
    """The answer, computed from the text without the generator's own code."""
    first, *changes, _ = re.split(r"(?<=[.?]) ", question.replace("twice", WORDS["twice"]))
    value = Fraction(re.search(r"\d+", first)[0])
    for sentence in changes:
        number, sign = understood(sentence)
        value = SIGNS[sign](value, number)
    assert value.denominator == 1
    return int(value)


def understood(sentence: str) -> tuple[int, str]:
    for pattern, sign in READINGS:
        if match := re.search(pattern.replace("{n}", r"(\d+)"), sentence):
            number = int(match[1])
            return (number + 1, "/") if sign == "share" else (number, sign)
    raise AssertionError(f"no number in {sentence!r}")


def sentences() -> Iterator[str]:
    for phrases in COMMON.values():
        yield from phrases
    for scene in SCENES:
        yield from (*scene.starts, *scene.add, *scene.subtract, *scene.times)


@given(SCENARIOS)
def test_the_steps_and_the_text_alone_lead_to_the_gold_answer(
    drawn: tuple[Scenario, int, int],
) -> None:
    scenario, count, largest = drawn
    value, values, kinds = scenario.start, [scenario.start], []
    for step in scenario.steps():
        left, sign, right = step.operation.split()
        assert int(left) == value
        value = SIGNS[sign](value, int(right))
        assert value == step.value  # a division that is not even would show here
        values.append(step.value)
        kinds.append(step.kind)
    prompt = prompt_of(scenario)
    assert prompt.answer == str(value) == str(scenario.answer()) == str(read(prompt.question))
    assert prompt.tier == str(len(kinds)) == str(count)
    assert all(one != following for one, following in pairwise(kinds))
    written = [int(number) for number in re.findall(r"\d+", prompt.question)]
    assert all(1 <= number <= largest for number in [*written, *values])


@given(SCENARIOS)
def test_questions_are_well_formed(drawn: tuple[Scenario, int, int]) -> None:
    scenario, _, _ = drawn
    question, scene = scenario.question(), scenario.scene
    assert not set("{}") & set(question) and "  " not in question and question.endswith("?")
    assert all(s[0].isupper() for s in re.split(r"(?<=[.?]) ", question))
    assert not re.search(r"[,a-z] (?:A|The|She|He|Her|His)\b", question)
    for number, word in re.findall(rf"(\d+) (?:more )?({scene.one}s?|friends?)\b", question):
        assert word.endswith("s") == (number != "1"), question
    assert scenario.person.he != scenario.friend.he, "its pronouns are ambiguous"


def test_the_pool_is_varied() -> None:
    rng = random.Random(0)
    drawn = [draw(rng, (1, 2, 3, 4, 5), 100) for _ in range(3000)]
    assert {s.scene for s in drawn} == set(SCENES)
    assert {s.person for s in drawn} == {*WOMEN, *MEN}
    actions = [action for s in drawn for action in s.actions]
    assert {a.opening for a in actions} == set(OPENINGS)
    assert {s.last_sentence for s in drawn} == set(QUESTIONS)
    templates = {s.first_sentence for s in drawn} | {a.template for a in actions}
    assert templates == set(sentences())
    for kind in KINDS:
        assert all(len(scene.templates(kind)) >= 3 for scene in SCENES)
        assert sum(a.kind == kind for a in actions) > len(actions) / 8
    answers = [s.answer() for s in drawn]
    assert max(answers.count(n) for n in set(answers)) < len(answers) / 10  # no guess pays


def test_each_split_is_independent_of_the_size_of_the_other() -> None:
    small, large = Arithmetic(train=10, test=5), Arithmetic(train=300, test=90)
    assert small.train() == large.train()[:10]
    assert small.test() == large.test()[:5]
    assert Arithmetic(train=0).train() == []


@given(st.integers(0, 10**6))
def test_training_prompts_of_one_seed_are_never_test_prompts_of_another(seed: int) -> None:
    task = Arithmetic(seed=seed, train=20, test=20)
    assert all(map(in_test_split, task.test()))
    assert not any(map(in_test_split, task.train()))


def test_steps_and_the_bound_follow_the_options() -> None:
    task = Arithmetic(steps=[2, 7, 2], largest=20, train=200)
    assert {p.tier for p in task.train()} == {"2", "7"}
    assert max(int(p.answer) for p in task.train()) <= 20


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"steps": []}, ("steps", "1 to 9")),
        ({"steps": [0]}, ("0", "1 to 9")),
        ({"steps": [10]}, ("10", "1 to 9")),
        ({"steps": [True]}, ("True", "1 to 9")),
        ({"steps": "123"}, ("steps", "123")),
        ({"train": 1_000_001}, ("train 1000001", "1,000,000")),
        ({"seed": 2**32}, ("seed 4294967296", "4,294,967,295")),
        ({"test": -1}, ("test -1", "0")),
        ({"seed": "x"}, ("seed 'x'",)),
        ({"largest": 9}, ("largest 9", "10")),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], named: tuple[str, ...]) -> None:
    with refused(*named, by=TaskError):
        Arithmetic(**options)


def test_a_pool_larger_than_the_number_of_questions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = draw(random.Random(0), [1], 10)
    monkeypatch.setattr("tasks.arithmetic.draw", lambda *_: scenario)
    side = "test" if in_test_split(prompt_of(scenario)) else "train"
    task = Arithmetic(**{side: 2}, steps=[1], largest=10)
    with pytest.raises(TaskError, match=f"smaller {side}, .* steps .* largest"):
        getattr(task, side)()


def test_a_chat_is_the_question_and_the_form_of_the_answer() -> None:
    [message] = Arithmetic().messages("How many {many}?")
    assert message["role"] == "user"
    assert message["content"].startswith("How many {many}?\n") and "\\boxed{" in message["content"]


@pytest.mark.parametrize("marking", ["strict", "lenient"])
def test_numbers_are_compared(marking: str) -> None:
    task = Arithmetic(train=50, marking=marking)
    assert task.mark("12 + 5 = 17, so \\boxed{3} no, \\boxed{17}", "17").outcome == "correct"
    for prompt in task.train():
        assert task.mark(f"\\boxed{{{task.perturb(prompt)}}}", prompt.answer).outcome == "wrong"
