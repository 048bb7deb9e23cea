"""Marks per second of Decile's markers, compared with a minimal implementation.

Baseline of the number marker: the rule of the paper's code, one regular expression over the whole
text and `int`. Baseline of the expression marker: the number marker on as many texts. Runs
alternate; the ratio is the result. The last rows mark degenerate texts of one length and of four
times that length: a linear reader takes four times as long.

Baseline of the number marker as a custom task in child processes: the same task in this process.

Agreement: the CPU time of comparing ten answers to each prompt with each other, and of marking
them. Pass rates are distributed as Beta(.3, .6); wrong answers are of twelve kinds.
"""

import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from benchmarks.command_line import benchmark_parser
from orchestrator.difficulty.answers import votes_of
from orchestrator.difficulty.table import difficulty
from orchestrator.probing.isolation import mark_answers
from tasks.base import MarkLimits
from tasks.gsm8k import Gsm8k
from tasks.marking.equivalence import mark_expressions
from tasks.marking.numbers import mark_number
from tasks.prompts import Answer
from tasks.question_file import QuestionFile

_PLAIN = re.compile(r"\\boxed\{(.*?)\}")
TEXT = "she sells 12 eggs each day and then gives 3 of the rest away so 9 are left"
DEGENERATE = ("\\boxed{", "{", "1,000,", "answer is ", "#### 1\n", "**1** ", "<think>", "(a) ")


class NumbersOfMyOwn(Gsm8k):
    """A task that does not ship with Decile."""


def main() -> None:
    """Measure and print a table."""
    parser = benchmark_parser("marking", __doc__)
    parser.add_argument(
        "--numbers", type=int, default=100_000, help="completions to mark (default 100000)"
    )
    parser.add_argument(
        "--expressions", type=int, default=20_000, help="pairs to compare (default 20000)"
    )
    parser.add_argument(
        "--prompts", type=int, default=5_000, help="prompts whose answers are compared (5000)"
    )
    parser.add_argument("--children", type=int, default=2, help="child processes (default 2)")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs (default 3)")
    arguments = parser.parse_args()
    texts = completions(arguments.numbers)
    for marking in ("strict", "lenient"):
        print_row(
            f"number, {marking}",
            len(texts),
            plain_numbers(texts),
            partial(mark_all, texts, marking),
            arguments.repeats,
        )
    own = NumbersOfMyOwn(marking="strict")
    answers = [Answer(text, "9") for text in texts]
    own.mark_limits = MarkLimits(processes=arguments.children)
    mark_answers(own, answers[:2])
    print_row(
        f"own task, {arguments.children} children",
        len(answers),
        partial(own.mark_all, answers),
        partial(mark_answers, own, answers),
        arguments.repeats,
    )
    pairs = expressions(arguments.expressions)
    given = [Answer(rf"\boxed{{{answer}}}", gold) for gold, answer in pairs]
    print_row(
        "expression, lenient",
        len(given),
        partial(mark_all, texts[: len(given)], "lenient"),
        partial(mark_expressions, given, "lenient"),
        arguments.repeats,
    )
    for marker in ("letter", "number", "expression"):
        print_agreement(marker, arguments.prompts)
    for piece in DEGENERATE:
        print(
            f"{piece!r:<24} time of 4 × the length ÷ time: {growth(piece, arguments.repeats):.1f}"
        )


def mark_all(texts: Sequence[str], marking: str) -> object:
    """Mark every text with the number marker."""
    return [mark_number(text, "9", marking, False) for text in texts]


def growth(piece: str, repeats: int) -> float:
    """How much longer four times as much degenerate text takes; 4 for a linear reader."""
    short, long = (r"\boxed{" + piece * (size // len(piece)) for size in (250_000, 1_000_000))
    return min(seconds(partial(mark_all, [long], "lenient")) for _ in range(repeats)) / min(
        seconds(partial(mark_all, [short], "lenient")) for _ in range(repeats)
    )


def completions(count: int) -> list[str]:
    """Texts of about 400 characters that end with a box."""
    rng = random.Random(0)
    return [
        " ".join(rng.choices(TEXT.split(), k=85)) + rf". So \boxed{{{rng.randrange(12)}}}."
        for _ in range(count)
    ]


def expressions(count: int) -> list[tuple[str, str]]:
    """Distinct pairs with different texts, half of them equal."""
    rng = random.Random(0)
    pairs = []
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
        pairs.append((gold, same if i % 2 else other))
    return pairs


def print_agreement(marker: str, prompts: int) -> None:
    """Print the CPU times of marking ten answers to each prompt, and of comparing them."""
    task, rng = QuestionFile(marker=marker), random.Random(0)
    texts, pairs, given = completions(prompts), expressions(5 * prompts), list[Answer]()
    for number in range(prompts):
        gold = right = "(A)" if marker == "letter" else str(number)
        wrong = ["(B)", "(C)", "(D)", "(E)"]
        if marker == "number":
            wrong = [str(rng.randrange(10**6)) for _ in range(12)]
        elif marker == "expression":
            (gold, right), *others = pairs[5 * number : 5 * number + 5]
            wrong = [text for pair in others for text in pair] + [f"{right}+{n}" for n in range(4)]
        rate, text = rng.betavariate(0.3, 0.6), texts[number].rpartition("\\boxed")[0]
        for _ in range(10):
            answer = rng.choice([gold, right] if rng.random() < rate else wrong)
            given.append(Answer(rf"{text}\boxed{{{answer}}}", gold))
    began = time.process_time()
    marks = task.mark_all(given)
    marked = time.process_time()
    samples = pa.table(
        {
            "prompt_id": [f"{row // 10:09}" for row in range(len(given))],
            "outcome": [mark.outcome for mark in marks],
            "extracted": [mark.extracted for mark in marks],
        }
    )
    table = difficulty(samples.select(["prompt_id", "outcome"]))
    compared = time.process_time()
    votes = votes_of(samples, table, task)
    ended = time.process_time()
    each = len(votes.row) / prompts
    print(
        f"agreement, {marker:<13} {each:.1f} answers to each of {prompts:,} prompts: marking "
        f"{marked - began:.2f} s, comparing {ended - compared:.2f} s of CPU"
    )


def plain_numbers(texts: Sequence[str]) -> Callable[[], object]:
    """The baseline: all boxes by one regular expression, the last one through `int`."""

    def read(text: str) -> int | None:
        boxes = _PLAIN.findall(text)
        try:
            return int(boxes[-1]) if boxes else None
        except ValueError:
            return None

    return lambda: [read(text) == 9 for text in texts]


def print_row(
    name: str,
    count: int,
    baseline: Callable[[], object],
    marker: Callable[[], object],
    repeats: int,
) -> None:
    """Print both rates and the median ratio of the pairs."""
    rates = [(count / seconds(baseline), count / seconds(marker)) for _ in range(repeats)]
    plain, measured = (statistics.median(r[i] for r in rates) for i in (0, 1))
    ratio = statistics.median(b / a for a, b in rates)
    print(f"{name:<24} baseline {plain:>11,.0f}/s  marker {measured:>11,.0f}/s  ratio {ratio:.2f}")


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    from benchmarks.marking import main as main_of_module  # children cannot import __main__

    main_of_module()
