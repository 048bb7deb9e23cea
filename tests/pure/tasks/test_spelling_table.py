r"""A font, a wrapper or a space never changes a mark: over the whole table, and all golds."""

import gzip
import json
import re
from collections.abc import Iterator

import pytest
from data import data
from hypothesis import given
from hypothesis import strategies as st

from tasks.marking.comparison import same
from tasks.marking.equivalence import is_readable, mark_expression
from tasks.marking.golds import final_answer
from tasks.marking.letters import mark_letter
from tasks.marking.numbers import mark_number
from tasks.marking.spelling import FONTS
from tasks.marking.text import mark_text

FONT = re.compile(r"\\(?:" + "|".join(re.escape(f) for f in sorted(FONTS)) + r")(?=\s*\{)")
WRAPPERS = [rf"\{font}{{%s}}" for font in sorted(FONTS)] + [
    *("{%s}", "$%s$", r"\(%s\)", " %s ", r"\, %s \;", "~%s", r"\displaystyle %s", "**%s**", "%s."),
    r"\color{red}{%s}",
]
ANSWERS = [
    *("5", r"5\text{ cm}", "-3", "x = 5", r"\frac{1}{2}", r"\$5", "(1, 2]", r"x^2 + 1", "even"),
    *("New York", "no", "ATG", r"2^{10}", r"10\text{ m/s}", r"50\%", "B,E", r"3\frac12", "(C)"),
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_never_changes_a_mark(wrapper: str) -> None:
    for gold in ANSWERS:
        for answer in ANSWERS:
            plain = mark_expression(rf"\boxed{{{answer}}}", gold, "lenient", False)
            for one, two in ((wrapper % answer, gold), (answer, wrapper % gold)):
                mark = mark_expression(rf"\boxed{{{one}}}", two, "lenient", False)
                assert mark.outcome == plain.outcome, (one, two)
    assert mark_number(rf"\boxed{{{wrapper % 5}}}", "5", "lenient", False).outcome == "correct"
    assert mark_number(rf"\boxed{{{wrapper % 6}}}", "5", "lenient", False).outcome == "wrong"
    assert mark_letter(rf"\boxed{{{wrapper % '(C)'}}}", "C", "lenient", False).outcome == "correct"


@pytest.mark.parametrize("font", sorted(FONTS))
def test_a_font_never_changes_a_text(font: str) -> None:
    mark = mark_text(rf"\boxed{{\{font}{{New York}}}}", "New York", "lenient", False)
    assert mark.outcome == "correct"


@pytest.fixture(scope="module")
def golds() -> list[str]:
    def texts() -> Iterator[str]:
        for split in ("train", "test"):
            with gzip.open(
                data("raw", "math", f"{split}.jsonl.gz"), "rt", encoding="utf-8"
            ) as file:
                yield from (final_answer(json.loads(line)["solution"]) for line in file)

    return sorted({text for text in texts() if len(text) < 100})


@given(drawn=st.data())
def test_a_font_never_changes_how_a_gold_of_math_is_read(
    golds: list[str], drawn: st.DataObject
) -> None:
    gold = golds[drawn.draw(st.integers(0, len(golds) - 1))]
    if not is_readable(gold):
        return
    font = drawn.draw(st.sampled_from(sorted(FONTS)))
    swapped = FONT.sub(lambda m: "\\" + font, gold)
    spaced = re.sub(r"(?<=[-+*/=()])(?=[^\\{}_^]*$)", " ", gold)
    for other in (swapped, spaced, *(wrapper % gold for wrapper in WRAPPERS)):
        assert same(gold, other) and same(other, gold), other
