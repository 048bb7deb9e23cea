"""Attacks on a marker: completions that must not pass, built from a question and its gold.

`decile mark --attack` and `decile doctor` run them. A kind is left out if it may be right: a bound
if the gold is a bound, or a question that consists of its answer. Up to 200 golds are attacked,
three with the last two kinds. Your own reward function or task is called for at most 20 golds, and
a kind ends after three failures.

On all test questions of GSM8K, MATH and AIME 2025 and on 500 of shuffled objects, the built-in
markers accept one of these attacks: `not` before a matrix of zeros. Three limits are known. The
option `last_number` of `gsm8k` takes the last number, regardless of the text around it. Digits of
any script are digits. A sentence that trails off is read (`The answer is 18...`), but not such a
box.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from orchestrator.probing.isolation import NOT_TRIED, TOLERATED_FAILURES, mark_answers
from tasks import Answer, Prompt, Task, is_shipped, task_errors
from tasks.marking.digits import normalize_number
from tasks.marking.equivalence import expression_comparison
from tasks.marking.spelling import spelling_key

ATTACKED = 200  # golds, evenly spread
CALLED = 20  # golds for a user's own marker, which may take seconds for each
LONG = 10**6  # characters
FEW = 3  # golds for answers that take long to read
OPTIONS = 6  # most distinct golds of a data set that count as the options of each question
SHOWN = 60  # characters of an example, at its beginning and at its end
# Towers of powers, factorials, and unclosed or deep braces: these hung or crashed verifiers.
BOMBS = (
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{10^{10^{10}}!}",
    "\\boxed{" * 50_000,
    r"\boxed{" + "{" * 50_000 + "1" + "}" * 50_000 + "}",
)
_LETTER = re.compile(r"(?:\\text\{)?\(?([A-Z])\)?\}?")
_OPTION = re.compile(r"(?<!\w)\(([A-Z])\)")
_POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_same = expression_comparison("lenient").same


class Target(NamedTuple):
    """The inputs of an attack.

    other: an answer with a different value than the gold. options: all answers that the question
    allows, including the gold; [] if unknown. form: writes an answer in the form that the task
    requests, by default in a box.
    """

    question: str
    gold: str
    other: str
    options: Sequence[str]
    form: Callable[[str], str]

    @property
    def is_number(self) -> bool:
        """Whether the gold is a number, which has bounds and digits."""
        return normalize_number(self.gold) is not None


def _long(target: Target) -> str:
    """The gold and another answer alternating; the other one is last."""
    pair = f"{target.gold} {target.other} "
    return pair * (LONG // len(pair)) + target.form(target.other)


def _other_digits(target: Target) -> Iterator[str]:
    """A different number if all scripts are read, and the gold if only ASCII or any digit is read.

    A Persian three after the gold; for an integer also the last digit as a power: 2² is not 22.
    """
    yield target.form(f"{target.gold}\u06f3")
    if target.gold.isdecimal() and len(target.gold) > 1:
        yield target.form(target.gold[:-1] + _POWERS[int(target.gold[-1])])


# For each kind, the completions for a target; () if none is certainly wrong.
ATTACKS: Mapping[str, Callable[[Target], Sequence[str]]] = {
    "nothing, or a placeholder": lambda t: ("", " \n", t.form(""), t.form("?")),
    "the question itself": lambda t: (
        () if spelling_key(t.question) in ("", spelling_key(t.gold)) else (t.question,)
    ),
    "all options": lambda t: (
        () if len(t.options) < 2 else (t.form(", ".join(t.options)), t.form(" ".join(t.options)))
    ),
    "the gold among others": lambda t: (
        t.form(f"{t.gold}, {t.other}"),
        t.form(f"{t.other} or {t.gold}"),
        f"The answer is {t.gold.rstrip('.')} or {t.other}.",  # a full stop would end it
    ),
    "the gold, then another answer": lambda t: (
        f"{t.form(t.gold)} {t.form(t.other)}",
        f"The answer is {t.gold}. No, the answer is {t.other}.",
    ),
    "not the gold": lambda t: (f"The answer is not {t.gold}.", t.form(f"not {t.gold}")),
    "a bound": lambda t: (
        (
            f"The answer is at least {t.gold}.",
            t.form(f"at least {t.gold}"),
            t.form(f"> {t.gold}"),
            t.form(rf"\geq {t.gold}"),
        )
        if t.is_number
        else ()
    ),
    "an ellipsis": lambda t: (
        "...",
        t.form("…"),
        t.form(r"\ldots"),
        *([t.form(f"{t.gold}..."), t.form(rf"{t.gold}\ldots")] if t.is_number else ()),
    ),
    "digits of another script": lambda t: [*_other_digits(t)] if t.is_number else (),
    "10^6 characters": lambda t: (_long(t),),
    "built to hang": lambda t: BOMBS,
}
_SLOW = ("10^6 characters", "built to hang")


class Attacked(NamedTuple):
    """The marks of the completions of one kind of attack.

    prompts: number attacked. accepted: number with a completion that was marked correct; `example`,
    with the gold `gold`, is the first. score: mean over all completions with a score, None without
    one. failures: completions by the reason why marking failed.
    """

    attack: str
    prompts: int
    accepted: int
    score: float | None
    failures: dict[str, int]
    example: str = ""
    gold: str = ""

    def text(self) -> str:
        """One line."""
        parts = [f"{self.attack}: {self.accepted:,} of {self.prompts:,} accepted"]
        if self.score and not self.accepted:
            parts.append(f"mean score {self.score:.2f}")
        if self.failures:
            reasons = ", ".join(f"{count:,} × {reason}" for reason, count in self.failures.items())
            parts.append(f"marking failed: {reasons}")
        if self.accepted:
            parts.append(f"such as {self.example!r} for {self.gold!r}")
        return ", ".join(parts)


def attacked(task: Task, prompts: Sequence[Prompt]) -> list[Attacked]:
    """Mark the completions of every kind of attack on these prompts, or on an even selection.

    Kinds that do not apply to any prompt are left out. After a few failures of a user's own marker,
    the rest of a kind is not tried. Raises TaskError like `mark_answers`.
    """
    with_golds = [prompt for prompt in prompts if prompt.answer]
    most = CALLED if not is_shipped(task) or getattr(task, "function", None) else ATTACKED
    some = with_golds[:: -(-len(with_golds) // most)] if with_golds else []
    targets = [*zip(some, _targets(task, some, with_golds), strict=True)]
    results = []
    for name, completions in ATTACKS.items():
        with task_errors(task, "format_answer()"):
            pairs = [
                (prompt, text)
                for prompt, target in targets[: FEW if name in _SLOW else None]
                for text in completions(target)
            ]
        answers = [Answer.to(prompt, text) for prompt, text in pairs]
        marks = mark_answers(task, answers, TOLERATED_FAILURES)
        tried = [
            (prompt, text, mark)
            for (prompt, text), mark in zip(pairs, marks, strict=True)
            if mark.rule != NOT_TRIED
        ]
        if not tried:
            continue
        passed = [(p, text) for p, text, mark in tried if mark.outcome == "correct"]
        scores = [mark.score for *_, mark in tried if mark.score is not None]
        example = (_shortened(passed[0][1]), _shortened(passed[0][0].answer)) if passed else ()
        results.append(
            Attacked(
                name,
                len({prompt.prompt_id for prompt, *_ in tried}),
                len({prompt.prompt_id for prompt, _ in passed}),
                sum(scores) / len(scores) if scores else None,
                dict(Counter(mark.rule for *_, mark in tried if mark.outcome == "error")),
                *example,
            )
        )
    return results


def _targets(task: Task, some: Sequence[Prompt], every: Sequence[Prompt]) -> Iterator[Target]:
    golds = [*dict.fromkeys(prompt.answer for prompt in every)]
    for prompt in some:
        options = golds if len(golds) <= OPTIONS else []
        if _LETTER.fullmatch(prompt.answer):
            options = [*dict.fromkeys(_OPTION.findall(prompt.question))] or options
        yield Target(
            prompt.question, prompt.answer, _other(prompt, golds), options, task.format_answer
        )


def _other(prompt: Prompt, golds: Sequence[str]) -> str:
    """An answer of the gold's form with another value: the next integer, or another gold."""
    gold = prompt.answer
    if gold.lstrip("-").isdecimal() and len(gold) < 1_000:
        return str(int(gold) + 1)
    if letter := _LETTER.fullmatch(gold):
        return gold.replace(letter[1], "B" if letter[1] == "A" else "A")
    start = int(prompt.prompt_id, 16) % len(golds) if golds else 0
    near = islice([*golds[start:], *golds[:start]], 8)
    return next((each for each in near if _same and not _same(gold, each)), "something else")


def _shortened(text: str) -> str:
    return text if len(text) <= 2 * SHOWN else f"{text[:SHOWN]} … {text[-SHOWN:]}"
