"""Trying a marker on its own answers before anything rests on it."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.planning.pools import Dataset, load_pool
from tasks import Answer, Mark, Prompt, Task

PERTURBED = 200
PATIENCE = 60.0  # seconds for answers that are made to hang, a verifier's start included
# Towers of powers, factorials, and unclosed or deep braces: what hung or crashed verifiers.
BOMBS = (
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{10^{10^{10}}!}",
    "\\boxed{" * 50_000,
    r"\boxed{" + "{" * 50_000 + "1" + "}" * 50_000 + "}",
)


class MarkerFails(RuntimeError):
    """A marker judges its own answers wrongly; the message names the answer and the rule."""


class Tried(NamedTuple):
    """How many answers were tried: golds, perturbed golds, bombs."""

    golds: int
    perturbed: int
    bombs: int

    def __str__(self) -> str:
        return (
            f"{self.golds} golds correct, {self.perturbed} perturbed ones wrong, "
            f"{self.bombs} bombs survived"
        )


def check_marker(task: Task, prompts: Sequence[Prompt]) -> Tried:
    """Every gold must mark correct, a perturbed gold wrong, and a bomb not correct, in time.

    Perturbed golds are up to PERTURBED, evenly spread. Raises MarkerFails otherwise.
    """
    if not prompts:
        raise MarkerFails(f"task {task.name} has no prompt to try its marker on")
    golds = [p.answer for p in prompts]
    _expect(golds, task.mark_all([Answer(task.answering(g), g) for g in golds]), "correct")
    some = prompts[:: -(-len(prompts) // PERTURBED)]
    others = [Answer(task.answering(task.perturb(p)), p.answer) for p in some]
    _expect([o.completion for o in others], task.mark_all(others), "wrong")
    _check_bombs(task, golds[0])
    return Tried(len(golds), len(others), len(BOMBS))


def try_dataset(dataset: Dataset) -> str:
    """A dataset's marker on every answer of both its splits. Raises MarkerFails."""
    pool = load_pool(dataset)
    return str(check_marker(pool.task, [*pool.test, *pool.train]))


def _expect(texts: Sequence[str], marks: Sequence[Mark], outcome: str) -> None:
    for text, mark in zip(texts, marks, strict=True):
        if mark.outcome != outcome:
            raise MarkerFails(
                f"{text!r} should be {outcome}, but marks {mark.outcome} by "
                f"{mark.rule}: its marker or this answer is wrong"
            )


def _check_bombs(task: Task, gold: str) -> None:
    started = time.monotonic()
    marks = task.mark_all([Answer(bomb, gold) for bomb in BOMBS])
    took = time.monotonic() - started
    for bomb, mark in zip(BOMBS, marks, strict=True):
        if mark.outcome == "correct":
            raise MarkerFails(f"{bomb[:30]!r} for {gold!r} marks correct by {mark.rule}")
    if took > PATIENCE:
        raise MarkerFails(f"{len(BOMBS)} answers made to hang took {took:.0f} s to mark")
