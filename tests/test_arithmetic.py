"""The arithmetic task: well-formed questions, and gold answers that follow from the steps."""

import random
import re
import string
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pools import pool_hash
from processes import loaded_libraries, output_of

from orchestrator.planning.overlap import find_overlap
from tasks import Prompt, TaskError
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
from tasks.base import in_test_split

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


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.prompt_id for prompt in prompts]


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
        yield from scene.starts
        yield from (*scene.add, *scene.subtract, *scene.times)


@given(SCENARIOS)
def test_the_steps_lead_from_the_start_to_the_gold_answer(
    drawn: tuple[Scenario, int, int],
) -> None:
    scenario, _, _ = drawn
    value = scenario.start
    for step in scenario.steps():
        left, sign, right = step.operation.split()
        assert int(left) == value
        value = SIGNS[sign](value, int(right))
        assert value == step.value  # a division that is not even would show here
    assert str(value) == prompt_of(scenario).answer == str(scenario.answer())


@given(SCENARIOS)
def test_the_text_alone_gives_the_gold_answer(drawn: tuple[Scenario, int, int]) -> None:
    scenario, _, _ = drawn
    assert read(scenario.question()) == scenario.answer()


@given(SCENARIOS)
def test_numbers_stay_within_the_bound_and_tiers_count_the_steps(
    drawn: tuple[Scenario, int, int],
) -> None:
    scenario, count, largest = drawn
    steps = list(scenario.steps())
    written = [int(number) for number in re.findall(r"\d+", scenario.question())]
    assert all(1 <= number <= largest for number in [*written, *(s.value for s in steps)])
    assert prompt_of(scenario).tier == str(len(steps)) == str(count)
    kinds = [step.kind for step in steps]
    assert all(a != b for a, b in zip(kinds, kinds[1:], strict=False))


@given(SCENARIOS)
def test_questions_are_well_formed(drawn: tuple[Scenario, int, int]) -> None:
    scenario, _, _ = drawn
    question, scene = scenario.question(), scenario.scene
    assert not set("{}") & set(question)
    assert "  " not in question
    assert question.endswith("?")
    assert all(s[0].isupper() for s in re.split(r"(?<=[.?]) ", question))
    assert not re.search(r"[,a-z] (?:A|The|She|He|Her|His)\b", question)
    for number, word in re.findall(rf"(\d+) (?:more )?({scene.one}s?|friends?)\b", question):
        assert word.endswith("s") == (number != "1"), question


def test_pronouns_are_unambiguous() -> None:
    rng = random.Random(0)
    for _ in range(200):
        scenario = draw(rng, [3], 100)
        assert scenario.person.he != scenario.friend.he


def test_sentences_avoid_plural_pronouns() -> None:
    for sentence in sentences():
        assert "them" not in sentence.replace("themselves", "") or "{parts}" in sentence, sentence


def test_every_sentence_has_one_number_and_known_fields() -> None:
    numbers = {"things", "more", "times", "friends", "parts"}
    others = {"who", "he", "him", "his", "himself", "friend", "many", "boxes"}
    for sentence in sentences():
        fields = [name for _, name, _, _ in string.Formatter().parse(sentence) if name]
        assert sum(name in numbers for name in fields) == 1, sentence
        assert set(fields) <= numbers | others, sentence
        assert sentence.endswith(".")
        assert sentence[0] == "{" or sentence[0].islower(), sentence


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


def test_defaults_are_800_and_200_with_no_duplicate_and_no_overlap() -> None:
    task = Arithmetic()
    train, test = task.train(), task.test()
    assert (len(train), len(test)) == (800, 200)
    assert len({*ids(train), *ids(test)}) == len({p.question for p in train + test}) == 1000
    assert {p.tier for p in train} == {p.tier for p in test} == set("12345")
    assert find_overlap(train, test) == []


def test_the_pool_is_determined_by_the_seed() -> None:
    assert Arithmetic().train() == Arithmetic().train()
    assert not set(ids(Arithmetic(seed=1).train())) & set(ids(Arithmetic().train()))


def test_the_default_pool_has_the_pinned_hash() -> None:
    """Stored probes name these ids; a change here must come with a new `version`."""
    code = "from pools import pool_hash; print(pool_hash('arithmetic'))"
    in_new_process = output_of(f"import sys; sys.path.insert(0, 'tests'); {code}").strip()
    assert in_new_process == pool_hash("arithmetic") == "f0c10999457941f9"


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
    numbers = [int(n) for p in task.train() for n in re.findall(r"\d+", p.question + p.answer)]
    assert max(int(p.answer) for p in task.train()) <= 20
    assert numbers


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"steps": []}, "from 1 to 9"),
        ({"steps": [0]}, "from 1 to 9"),
        ({"steps": [10]}, "from 1 to 9"),
        ({"steps": [True]}, "from 1 to 9"),
        ({"steps": [1.5]}, "from 1 to 9"),
        ({"steps": "123"}, "write a list"),
        ({"steps": 3}, "write a list"),
        ({"train": 10_000_000}, "invalid train 10000000: write at most 1,000,000"),
        ({"seed": 2**32}, "write at most 4,294,967,295"),
        ({"train": -1}, "invalid train -1: write an integer ≥ 0"),
        ({"test": 1.5}, "invalid test 1.5"),
        ({"train": True}, "invalid train True"),
        ({"seed": "x"}, "invalid seed 'x'"),
        ({"largest": 9}, "invalid largest 9: write an integer ≥ 10"),
        ({"marking": "kind"}, "strict or lenient"),
        ({"prompt": {"preset": "long"}}, "plain, paper"),
    ],
)
def test_errors_for_invalid_options_say_what_to_write(
    options: dict[str, object], advice: str
) -> None:
    with pytest.raises(TaskError, match=re.escape(advice)):
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


def test_both_presets_put_the_question_first_and_ask_for_a_box() -> None:
    for preset, kwargs in (("plain", {}), ("paper", {"enable_thinking": False})):
        task = Arithmetic(prompt={"preset": preset})
        [message] = task.messages("How many {many}?")
        assert message["role"] == "user"
        assert message["content"].startswith("How many {many}?\n")
        assert "\\boxed{" in message["content"]
        assert task.chat_template_kwargs == kwargs


@pytest.mark.parametrize(
    ("completion", "truncated", "outcome"),
    [
        ("12 + 5 = 17, so \\boxed{17}", False, "correct"),
        ("\\boxed{3} no, \\boxed{17}", False, "correct"),
        ("\\boxed{18}", False, "wrong"),
        ("Hmm, so many apples.", False, "unparsed"),
        ("Hmm, so many apples.", True, "truncated"),
    ],
)
@pytest.mark.parametrize("marking", ["strict", "lenient"])
def test_each_reading_marks_completions_as_expected(
    marking: str, completion: str, truncated: bool, outcome: str
) -> None:
    assert Arithmetic(marking=marking).mark(completion, "17", truncated).outcome == outcome


def test_a_perturbed_answer_is_marked_wrong() -> None:
    task = Arithmetic(train=50)
    for prompt in task.train():
        assert task.mark(f"\\boxed{{{prompt.answer}}}", prompt.answer).outcome == "correct"
        assert task.mark(f"\\boxed{{{task.perturb(prompt)}}}", prompt.answer).outcome == "wrong"


def test_the_task_imports_no_heavy_library() -> None:
    assert not loaded_libraries("import tasks.arithmetic") & {"torch", "datasets", "numpy"}
