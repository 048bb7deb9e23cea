"""Rows of a file with their places and values, and notes on unread content."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from orchestrator.plugins.counts import counted_label
from tasks.sources.files import SYSTEM, TURNS

PLACES_SHOWN = 3  # places that a note lists before it only counts
Row = Mapping[str, Any]


class PlacedRow(NamedTuple):
    """A row and its place in the file, such as "line 3" or "row 3"."""

    place: str
    row: Row


class Notes:
    """Dropped rows and other remarks, counted, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = {}

    def add(self, text: str) -> None:
        """A remark on the whole source; repeated ones are kept once."""
        self._places.setdefault(text, [])

    def count(self, text: str, place: str) -> None:
        """One more occurrence of `text`, such as "rows dropped: no solve rate"."""
        self._places.setdefault(text, []).append(place)

    def rows_left_out(self) -> dict[str, int]:
        """Reason -> number of dropped rows; each row counts for its first reason."""
        left_out: dict[str, int] = {}
        counted_places = set[str]()
        for text, places in self._places.items():
            kind, _, why = text.partition(" dropped: ")
            if kind in ("rows", "items"):
                new = {*places} - counted_places
                left_out[why] = len(new)
                counted_places |= new
        return left_out

    def lines(self) -> tuple[str, ...]:
        """One line per remark, with the number of occurrences and the first places."""
        lines = []
        for text, places in self._places.items():
            different = list(dict.fromkeys(places))
            more = ", …" if len(different) > PLACES_SHOWN else ""
            shown = f"{', '.join(different[:PLACES_SHOWN])}{more}"
            lines.append(f"{counted_label(len(places), text)} ({shown})" if places else text)
        return tuple(lines)


def count_dropped(system: int, turns: int, place: str, notes: Notes) -> None:
    """Note the system messages and the other messages of a chat that were left out."""
    for label in [SYSTEM] * system + [TURNS] * turns:
        notes.count(label, place)


def objects(value: Any) -> list[Row]:
    """The objects in a list; an empty list for any other value."""
    entries = value if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def json_object(value: Any) -> Row:
    """The value if it is an object, or the object in its JSON text; else an empty one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def nested(row: Row, *names: str) -> Row:
    """The object at a path of keys in a row; an empty one if it is absent."""
    for name in names:
        value = row.get(name)
        row = value if isinstance(value, Mapping) else {}
    return row
