"""How messages name a value, the valid ones, and the nearest to a wrong one. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from orchestrator.plugins.registry import suggest
from orchestrator.storage.errors import shortened

_MAX_WORDS = 20  # of the valid values that a message lists


def shown(value: Any) -> str:
    """A value as it would stand in the file, shortened; for error messages."""
    if isinstance(value, dict | list | tuple):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if isinstance(value, str) or isinstance(value, int) and not isinstance(value, bool):
        return shortened(value)
    return as_yaml(value)


def as_yaml(value: Any) -> str:
    """A value in one line of YAML."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=1_000, allow_unicode=True
    )
    return str(text).removesuffix("...\n").strip()


def one_of(words: Sequence[str], name: str) -> str:
    """`one of a, b, …; did you mean 'a'?`, with the first words if there are many."""
    more = ", …" if len(words) > _MAX_WORDS else ""
    return f"one of {', '.join(words[:_MAX_WORDS])}{more}{suggest(name, words)}"


def replacement(name: str, known: Iterable[str]) -> str:
    """What to do with an unknown name: `did you mean 'x'?`, or to remove it."""
    return suggest(name, known).removeprefix("; ") or "remove it"
