"""Marks per second, of the house's markers beside the plainest thing that could do the same.

Baseline of the number marker: the rule of the paper's code as one regular expression over the whole
text and `int`. Baseline of math-verify in children: math-verify in this process, without any limit.
Pairs of runs, one after the other; what counts is the ratio.
"""

import argparse
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence

from tasks.children import Children
from tasks.marking import mark_number

_PLAIN = re.compile(r"\\boxed\{(.*?)\}")
WORDS = [
    "she",
    "sells",
    "12",
    "eggs",
    "each",
    "day",
    "and",
    "then",
    "gives",
    "3",
    "of",
    "the",
    "rest",
    "away",
    "so",
    "9",
    "are",
    "left",
]


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.marking", description=__doc__)
    parser.add_argument("--numbers", type=int, default=100_000, help="completions to mark")
    parser.add_argument("--expressions", type=int, default=3_000, help="pairs to compare")
    parser.add_argument("--children", type=int, default=2, help="processes of math-verify")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs")
    wanted = parser.parse_args()
    texts = completions(wanted.numbers)
    for marking in ("strict", "lenient"):
        ours = [lambda m=marking: [mark_number(t, "9", m, False) for t in texts]]
        show(f"number, {marking}", len(texts), plain_numbers(texts), *ours, wanted.repeats)
    pairs = expressions(wanted.expressions)
    children = Children("tasks.math_verifier:equivalent", wanted.children, 30.0)
    children.map(pairs[:50])
    show(
        f"math-verify, {wanted.children} children",
        len(pairs),
        in_this_process(pairs),
        lambda: children.map(pairs),
        wanted.repeats,
    )
    children.close()


def completions(count: int) -> list[str]:
    """Texts of about 400 characters that end in a box."""
    rng = random.Random(0)
    return [
        " ".join(rng.choices(WORDS, k=85)) + rf". So \boxed{{{rng.randrange(12)}}}."
        for _ in range(count)
    ]


def expressions(count: int) -> list[tuple[str, str]]:
    """Pairs that text does not decide; half of them equal, no two alike, so no cache helps."""
    rng = random.Random(0)
    made = []
    for i in range(count):
        a, b, c = i + 2, rng.randrange(2, 50), rng.randrange(2, 9)
        gold, same, other = rng.choice(
            [
                (rf"\frac{{{a}}}{{{b}}}", rf"\frac{{{a * c}}}{{{b * c}}}", rf"\frac{{{a}}}{{{c}}}"),
                (rf"{a}x+{b}", rf"{b}+{a}x", rf"{a}x-{b}"),
                (rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{b}}}\cdot {a}", rf"{a}\sqrt{{{b + 1}}}"),
                (rf"({a},{b})", rf"({a}, {b * c}/{c})", rf"({b},{a + 1})"),
                (rf"[{-a},{b})", rf"[-{a}, {b})", rf"(-{a},{b})"),
                (rf"{a}+{b}i", rf"{b}i+{a}", rf"{a}-{b}i"),
                (rf"x^2-{a}", rf"-{a}+x^2", rf"x^2+{a}"),
            ]
        )
        made.append((gold, same if i % 2 else other))
    return made


def plain_numbers(texts: Sequence[str]) -> Callable[[], object]:
    """The baseline: every box of the text by one expression, the last one through `int`."""

    def read(text: str) -> int | None:
        found = _PLAIN.findall(text)
        try:
            return int(found[-1]) if found else None
        except ValueError:
            return None

    return lambda: [read(text) == 9 for text in texts]


def in_this_process(pairs: Sequence[tuple[str, str]]) -> Callable[[], object]:
    """The baseline: what a child does, without a child; caches emptied before each run."""
    from tasks import math_verifier

    def run() -> object:
        math_verifier._parsed.cache_clear()
        return [math_verifier.equivalent(*pair) for pair in pairs]

    return run


def show(
    name: str, count: int, base: Callable[[], object], ours: Callable[[], object], repeats: int
) -> None:
    """One line: both rates and the median ratio of the pairs."""
    rates = [(count / seconds(base), count / seconds(ours)) for _ in range(repeats)]
    plain, house = (statistics.median(r[i] for r in rates) for i in (0, 1))
    ratio = statistics.median(o / b for b, o in rates)
    print(f"{name:<24} baseline {plain:>11,.0f}/s  ours {house:>11,.0f}/s  ratio {ratio:.2f}")


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
