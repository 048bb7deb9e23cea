"""Compares what a program replied with what its tests expect. Imported by child processes only.

A program may reply with values that take very long to read or to compare, such as a set of integers
with equal hashes. The calling process never reads them.
"""

import json
import math
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from orchestrator.optional.code.code_tests import Kind, compiled
from orchestrator.optional.code.sandbox_guest import NAN, decode

NUMBER = 100  # characters of a number in an output that is compared as a number
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
TOLERANCE = 1e-6  # between numbers of which one is a float
RELATIVE = 1e-9  # the same, as a share of the larger one: above 1000, where it is more


def count_passed(answer: str, replies: Sequence[str], seconds: float) -> int:
    """How many replies are what the tests of a canonical text expect.

    This process ends by SIGPROF where that takes more than `seconds` of its CPU time.
    """
    tests = compiled(answer)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    passed = 0
    for reply, expected in zip(replies, tests.expected, strict=False):
        if tests.kind == "checks" and NAN in reply:  # no literal is NaN, and bool() of it is true
            continue
        with suppress(Exception):  # a value that cannot be compared is not the expected one
            passed += _passes(tests.kind, json.loads(reply), expected)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return passed


def _passes(kind: Kind, reply: Any, expected: Any) -> bool:
    """Whether a reply has the expected output or value, or passes the expected check."""
    if kind == "outputs":
        return reply.get("status") == 0 and same_output(reply["output"], expected)
    if kind == "checks":
        return bool(expected(decode(reply["value"], lambda _: object())))
    value = _as_json(decode(reply["value"]))
    if _close(value, expected):
        return True
    return isinstance(expected, list) and len(expected) == 1 and _close(value, expected[0])


def same_output(output: str, expected: str) -> bool:
    """Whether two outputs have the same words in each line, numbers compared by value.

    Empty lines at the beginning and at the end are ignored.
    """
    lines, others = output.strip().split("\n"), expected.strip().split("\n")
    if len(lines) != len(others):
        return False
    for line, other in zip(lines, others, strict=True):
        words, expected_words = line.split(), other.split()
        if len(words) != len(expected_words):
            return False
        if not all(map(_same_word, words, expected_words)):
            return False
    return True


def _same_word(word: str, expected: str) -> bool:
    if word == expected:
        return True
    if max(len(word), len(expected)) > NUMBER:
        return False
    # Decimal reads 1_000, digits of all scripts, and the word infinity, too.
    numbers = _NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)
    return bool(numbers) and Decimal(word) == Decimal(expected)


def _as_json(value: Any) -> Any:
    """A value as JSON would have it: tuples as lists, keys as texts.

    Raises ValueError where two keys become one.
    """
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        items = {_key(k): _as_json(v) for k, v in value.items()}
        if len(items) < len(value):
            raise ValueError("two keys are one in JSON")
        return items
    return value


def _key(key: Any) -> str:
    """A key of an object as JSON writes it: true, null and 1 are texts."""
    return key if isinstance(key, str) else json.dumps(key)


def _close(value: Any, expected: Any) -> bool:
    """Whether values are equal; numbers of which one is a float, nearly.

    They may differ by TOLERANCE or by RELATIVE times the larger one, whichever is more. Two
    integers are equal or not. True and False are no numbers.
    """
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_close, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_close(value[k], expected[k]) for k in value)
    if isinstance(value, float) or isinstance(expected, float):
        number = isinstance(value, int | float) and isinstance(expected, int | float)
        return number and math.isclose(value, expected, rel_tol=RELATIVE, abs_tol=TOLERANCE)
    return bool(value == expected)
