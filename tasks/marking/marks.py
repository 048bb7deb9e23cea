"""Marks, and the rules that decided them. Nothing here reads a text."""

from importlib import import_module
from typing import Any, Literal, NamedTuple, Self, get_args

Outcome = Literal["correct", "wrong", "unparsed", "truncated", "error", "unlabelled"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
MEANINGS: dict[Outcome, str] = {
    "correct": "the answer is right",
    "wrong": "an answer was read, but it is not right",
    "unparsed": "no answer was read",
    "truncated": "no answer was read, and generation reached the token limit",
    "error": "the marker or the environment failed; the score is null, never 0",
    "unlabelled": "an answer was read, but the prompt has no gold answer yet",
}
UNSCORED: tuple[Outcome, ...] = ("error", "unlabelled")  # outcomes without a score
UNSCORED_BY = {"wrong": UNSCORED, "exclude": (*UNSCORED, "truncated")}  # by count_truncated
UNREAD: tuple[Outcome, ...] = ("unparsed", "truncated", "error")  # without an answer
PARSED: tuple[Outcome, ...] = ("correct", "wrong")
FINISHED: tuple[Outcome, ...] = (*PARSED, "unparsed")
MARKED: tuple[Outcome, ...] = (*FINISHED, "truncated")
FAILED: tuple[Outcome, ...] = MARKED[1:]
# The shares whose product is the accuracy of marked samples, as reports and claims name them.
FACTORS = ("finished", "parsed-where-finished", "correct-where-parsed")


class _Mark(NamedTuple):
    outcome: Outcome
    extracted: str | None
    rule: str
    score: float | None


class Mark(_Mark):
    """One mark: the outcome, the extracted answer (None without one), the rule, and the score.

    The score is from 0 to 1: 1.0 for a correct answer and 0.0 for any other, unless the marker
    gives a different score. It is None if marking failed (`error`), or if an answer was read but
    there is no gold answer (`unlabelled`).
    """

    __slots__ = ()

    def __new__(
        cls, outcome: Outcome, extracted: str | None, rule: str, score: float | None = None
    ) -> Self:
        if outcome in UNSCORED:
            score = None
        elif score is None:
            score = 1.0 if outcome == "correct" else 0.0
        return super().__new__(cls, outcome, extracted, rule, score)

    @property
    def reward(self) -> float | None:
        """The score: the reward in training unless the experiment sets a different one."""
        return self.score


def score_mark(score: float, extracted: str | None, rule: str, threshold: float = 1.0) -> Mark:
    """The mark of an answer with a score from 0 to 1: correct from the threshold on, else wrong."""
    return Mark("correct" if score >= threshold else "wrong", extracted, rule, float(score))


def answer_mark(correct: bool, extracted: str, rule: str) -> Mark:
    """The mark of an extracted answer."""
    return Mark("correct" if correct else "wrong", extracted, rule)


def no_answer_mark(truncated: bool) -> Mark:
    """The mark of a text without an answer: truncated by the token limit, or unparsed."""
    return Mark("truncated" if truncated else "unparsed", None, "no-answer")


def __getattr__(name: str) -> Any:
    """Custom tasks may import two functions from their former place."""
    modules = {"mark_number": "numbers", "mark_letter": "letters"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tasks.marking.{modules[name]}"), name)
