"""Blocks of a page that only a sweep has: samples, prompts, claims, commands."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.report.content import Block, Table


@dataclass(frozen=True)
class Claims(Table):
    """The claims of the experiment file; the third column is the verdict."""


class Message(NamedTuple):
    """A message of an episode, or its end. `failed`: it reports an error."""

    speaker: str
    text: str
    failed: bool = False


Chat = tuple[Message, ...]


@dataclass(frozen=True)
class Completions(Block):
    """One question with some completions, such as those of the base and the final models.

    prompt: the messages that several episodes begin with, in place of the question. about: a line
    about the question.
    """

    question: str
    answer: str
    answers: tuple[tuple[str, str, str | Chat], ...]  # where it is from, outcome, completion
    prompt: Chat = ()
    about: str = ""


@dataclass(frozen=True)
class PromptList(Block):
    """Questions, each with a line about it. `folded`: shown on request only."""

    title: str
    items: tuple[tuple[str, str], ...]
    folded: bool = True


@dataclass(frozen=True)
class AllPrompts(Block):
    """Every prompt of a pool in a table that a page sorts and filters; null where not known.

    policies: those that a row's last column may name. file: the difficulty table.
    """

    head: tuple[str, ...]
    rows: Sequence[Sequence[str | float | None]]
    policies: tuple[str, ...]
    file: str
    caption: str

    @property
    def json(self) -> str:
        """Head and rows for a script element, which no text in them can end."""
        text = json.dumps({"head": self.head, "rows": self.rows}, allow_nan=False)
        return text.replace("<", "\\u003c")


@dataclass(frozen=True)
class Details(Block):
    """Preformatted text, shown on request."""

    title: str
    text: str


@dataclass(frozen=True)
class Command(Block):
    """A command line."""

    text: str
