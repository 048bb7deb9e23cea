"""The error that every command turns into one message and exit code 2."""

from typing import Any


class UserError(Exception):
    """Invalid input: the message says what is wrong, where, and what to write instead."""


def shortened(value: Any, limit: int = 80) -> str:
    """The value as Python writes it, cut at `limit` characters, for error messages."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
