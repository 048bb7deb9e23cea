"""Nouns agree with their numbers: `1 prompt`, never `1 prompts`."""

import ast
import re

from import_graph import nodes, source_modules

NOUNS = (
    "prompts rows questions samples cells labels groups completions updates seeds runs files logs"
)
NOUNS += " policies answers columns tests hours seconds models claims probes parts checks"
PLURAL = re.compile(rf" ({'|'.join(NOUNS.split())})\b")

# Verbs after a name, and numbers that are never one.
OTHERS = {
    "self._experiment",  # `NAME runs`
    "constants.ENDPOINT",  # `URL answers with status …`
    "kind",  # `longer completions have the higher reward`
    "used[1]",  # `node ADDRESS runs out of memory`
    *("self._shared", "shared"),  # updates of a generation, where an update may be in its middle
    *("k", "cells", "self.updates", "ties.pool", "fewest", "most", "len(BOMBS)"),
    "range_text(least.seeds, most.seeds, most_seeds)",
    "int(parts.contents())",
    "seconds",
}


def test_a_noun_in_the_plural_follows_no_number_that_may_be_one() -> None:
    """Where it does, `counted(number, "prompt")` writes both; constants are above one."""
    wrong = []
    for module, file in source_modules().items():
        for text in (node for node in nodes(file) if isinstance(node, ast.JoinedStr)):
            for value, after in zip(text.values, text.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                    continue
                written = ast.unparse(value.value)
                if (
                    PLURAL.match(str(after.value))
                    and written not in OTHERS
                    and not written.isupper()
                ):
                    wrong.append(f"{module}:{text.lineno}: {written}{after.value:.20}")
    assert wrong == []
