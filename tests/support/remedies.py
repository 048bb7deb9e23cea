"""The rule for messages: one line that says what to write instead, in our words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.storage.errors import UserError

# An instruction starts the message's clause, or the valid values are listed.
VERBS = (
    "write|use|remove|put|set|add|leave|rename|correct|define|export|install|pip install|run|pass|"
    "choose|give|return|close|name|indent|probe|start|copy|make|check|import|"
    "change|compress|raise|free|delete|wait|rerun|save"
)
REMEDY = re.compile(
    rf"(?:[:;,.(] |\b(?:or|and|to continue,) )(?:{VERBS})\b|did you mean '|\bone of \S|"
    r"\bit takes \w|\(known: "
)
# What pydantic, YAML, argparse, json and Arrow say, which is no help to a user.
FOREIGN = re.compile(
    r"input should|valid (?:integer|number|string|boolean|list|dictionary|tuple)|field required|"
    r"at (?:least|most) \d+ items?|should have|is not allowed|are not allowed|could not find|"
    r"did not find|found character|expected (?:one|at least one) argument|invalid choice|"
    r"usage:|Expecting|Extra data|Traceback|<class |ArrowInvalid|Errno|unrecognized arguments",
    re.I,
)
MAX_CHARACTERS = 600


def problems(message: str) -> list[str]:
    """What is wrong with a message of the command line; empty where it is as it should be."""
    text = message.rstrip("\n")
    problems = []
    if not REMEDY.search(text):
        problems.append("no remedy")
    if "\n" in text:
        problems.append("several lines")
    if len(text) > MAX_CHARACTERS:
        problems.append(f"{len(text)} characters")
    if words := FOREIGN.search(text):
        problems.append(f"a library's words: {words[0]}")
    if not text.isprintable():
        problems.append("control characters")
    return problems


@contextmanager
def refused(
    *values: object, by: type[Exception] = UserError, code: str = ""
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """An error of this code that names the values and says what to write instead."""
    with pytest.raises(by) as caught:
        yield caught
    message = str(caught.value)
    assert [value for value in values if str(value) not in message] == [], message
    assert problems(message) == [], message
    assert not code or getattr(caught.value, "code", None) == code, message


def place(file: Path, text: str) -> str:
    """FILE:LINE of the only line of a file that holds this text, as messages begin."""
    [line] = [n for n, each in enumerate(file.read_text().splitlines(), 1) if text in each]
    return f"{file}:{line}: "
