"""Compares a program's replies with the values that its tests expect. Only for child processes.

A program's replies may take very long to read or to compare, such as a set of integers with equal
hashes. The calling process never reads them.
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

NUMBER = 100  # the most characters of a number in an output that is compared as a number
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
TOLERANCE = 1e-6  # between numbers if one is a float
RELATIVE = 1e-9  # the same, relative to the larger number: it is the larger tolerance above 1000


def count_passed(answer: str, replies: Sequence[str], seconds: float) -> int:
    """How many replies are as the tests of a canonical text expect.

    SIGPROF ends this process if that takes more than `seconds` of its CPU time.
    """
    tests = compiled(answer)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    passed = 0
    for reply, expected in zip(replies, tests.expected, strict=False):
        if tests.kind == "checks" and NAN in reply:  # literals cannot be NaN, and bool(NaN) is true
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
    # Decimal also reads 1_000, digits of all scripts, and the word infinity.
    numbers = _NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)
    return bool(numbers) and Decimal(word) == Decimal(expected)


def _as_json(value: Any) -> Any:
    """A value as after a round trip through JSON: tuples as lists, keys as text.

    Raises ValueError if two keys become equal.
    """
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        items = {_key(k): _as_json(v) for k, v in value.items()}
        if len(items) < len(value):
            raise ValueError("two keys are equal in JSON")
        return items
    return value


def _key(key: Any) -> str:
    """A key of an object as JSON writes it: true, null and 1 become text."""
    return key if isinstance(key, str) else json.dumps(key)


def _close(value: Any, expected: Any) -> bool:
    """Whether values are equal; numbers only approximately if one is a float.

    They may differ by TOLERANCE or by RELATIVE times the larger one, whichever is more. Integers
    are compared exactly. True and False are not numbers.
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
