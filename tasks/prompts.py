"""Prompts of a pool, and answers to them."""

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple, Self

TEST_SHARE = 5  # one generated prompt in five is a test question


@dataclass(frozen=True, slots=True)  # a dict per prompt would double the memory of large pools
class Prompt:
    """One question of a pool.

    `prompt_id` is a content hash of (task, question, answer), so order never matters. `answer` is
    "" if there is no gold answer. `tier` is the task's own level of difficulty (objects, steps,
    level), as text. `info` is other data for marking, as JSON text; it is part of the hash only if
    the task says so. `group`: test questions of one group are related, and count as one in
    comparisons; "" for a group of its own. `source` is the data set or domain that a question comes
    from. `place` is its row in the user's file, `FILE:LINE` or `FILE row NUMBER`, and `kept` the
    columns of that row which travel with it, as JSON text. The last three are not part of the hash.
    """

    prompt_id: str
    question: str
    answer: str
    tier: str
    info: str = ""
    group: str = ""
    source: str = field(default="", compare=False)
    place: str = field(default="", compare=False)
    kept: str = field(default="", compare=False)


def in_test_split(prompt: Prompt) -> bool:
    """Whether a generated prompt is a test question: one in TEST_SHARE, chosen by content.

    Therefore no seed's training pool contains a question of any seed's test set.
    """
    return int(prompt.prompt_id, 16) % TEST_SHARE == 0


def make_prompt(
    task: str,
    question: str,
    answer: str,
    tier: str,
    info: str = "",
    *,
    info_in_id: bool = False,
    group: str = "",
) -> Prompt:
    """A prompt with its content-hash id (16 hex digits); `info_in_id`: including its info."""
    content = (task, question, answer, *([info] if info_in_id else []))
    digest = hashlib.sha256("\x1f".join(content).encode()).hexdigest()
    return Prompt(digest[:16], question, answer, tier, info, group)


class Answer(NamedTuple):
    """An answer to mark: a completion, the gold answer, and whether generation was truncated.

    `question` and `info` are those of the prompt.
    """

    completion: str
    answer: str
    truncated: bool = False
    question: str = ""
    info: str = ""

    @classmethod
    def to(cls, prompt: Prompt, completion: str, truncated: bool = False) -> Self:
        """A completion of a prompt."""
        return cls(completion, prompt.answer, truncated, prompt.question, prompt.info)
