"""100,000 random and mutated completions: one outcome each, no exception, and no hang."""

import json
import random
from collections.abc import Iterator

from paths import SUPPORT
from processes import hang_limit

from tasks import OUTCOMES, Answer
from tasks.marking.equivalence import mark_expressions
from tasks.marking.letters import mark_letter
from tasks.marking.marks import Mark
from tasks.marking.numbers import mark_number

CASES = [
    json.loads(line) for line in (SUPPORT / "completions.jsonl").read_text("utf-8").splitlines()
]
PIECES = [
    *(r"\boxed{", "}", "{", r"\frac{1}{2}", r"\text{", r"\left(", "^", "_", "$", "**", "####"),
    *("\n", "the answer is ", "(A)", "B", "12", "1,234", "-", ".", "/", "%", "=", "<think>"),
    *("</think>", "\\", r"\\", "9**9**9", "\u00b2", "\u0665", "\u2212", "\u202e", "\U0001f600"),
    *("\x00", "\ud7ff"),
]
COUNT = 100_000
EXPRESSIONS = 3_000


def fuzzed(rng: random.Random) -> str:
    """Random pieces, or a real completion with a few characters removed, repeated or replaced."""
    if rng.random() < 0.4:
        return "".join(rng.choices(PIECES, k=rng.randrange(30)))
    text = rng.choice(CASES)["completion"][:2_000]
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(text) + 1)
        what = rng.random()
        if what < 0.3:
            text = text[:place] + text[place + rng.randrange(1, 4) :]
        elif what < 0.9:
            text = text[:place] + rng.choice(PIECES) + text[place:]
        else:
            text = text[:place] + text[place : place + 20] * rng.randrange(2, 50) + text[place:]
    return text


def texts(count: int, seed: int) -> Iterator[tuple[str, bool]]:
    rng = random.Random(seed)
    for _ in range(count):
        yield fuzzed(rng), rng.random() < 0.3


def sound(mark: Mark, truncated: bool) -> bool:
    none = mark.outcome in ("unparsed", "truncated", "error")
    fits = (mark.outcome == "truncated") <= truncated and (mark.outcome == "unparsed") <= (
        not truncated
    )
    return (
        mark.outcome in OUTCOMES and bool(mark.rule) and fits and none >= (mark.extracted is None)
    )


def test_any_text_gets_a_consistent_mark_for_numbers_and_letters() -> None:
    for text, truncated in texts(COUNT, seed=0):
        with hang_limit():  # a reader that is not linear needs hours for some of these
            for marking in ("strict", "lenient"):
                number = mark_number(text, "12", marking, truncated, last_number=True)
                letter = mark_letter(text, "(B)", marking, truncated)
                assert sound(number, truncated), (text, number)
                assert sound(letter, truncated), (text, letter)


def test_any_text_gets_a_consistent_mark_for_expressions() -> None:
    rng = random.Random(1)
    golds = [case["answer"] for case in CASES if case["marker"] == "expression"]
    answers = [Answer(t, rng.choice(golds), cut) for t, cut in texts(EXPRESSIONS, seed=2)]
    for marking in ("strict", "lenient"):
        with hang_limit():
            marks = mark_expressions(answers, marking)
        for answer, mark in zip(answers, marks, strict=True):
            assert sound(mark, answer.truncated), (answer, mark)
