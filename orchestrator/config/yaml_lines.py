"""Safe YAML with the line of every key and value."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.storage.errors import UserError

YamlPath = tuple[str | int, ...]
MAX_VALUES = 100_000  # of a file with its aliases expanded; nested aliases grow exponentially
MAX_DEPTH = 100  # of nesting; libyaml's parser overflows the stack at some thousands
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML 1.1, but numbers such as 1e-4 are floats, as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def load(file: Path) -> tuple[Any, dict[YamlPath, int]]:
    """The file's content, and the line (from 1) of every path of keys and indices in it.

    Raises UserError with the line of what is not valid YAML, or of a duplicate key.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null byte in the name
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"{file}: cannot be read: {reason}") from error
    try:
        if line := _first_deep_line(text):
            raise _too_deep(f"{file}:{line}")
        loader = _Loader(text)
        root = loader.get_single_node()
        index = _LineIndex(file)
        if root is None:
            return None, index.lines
        index.add(root, ())
        return loader.construct_document(root), index.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        # `position` counts bytes or characters, depending on the loader.
        line = text.count("\n", 0, text.find(chr(error.character))) + 1
        raise UserError(f"{file}:{line}: not valid YAML: {error.reason}") from error
    except ValueError as error:
        raise UserError(f"{file}:1: not valid YAML: {error}: put it in quotes") from error


def _first_deep_line(text: str) -> int | None:
    """Where values nest deeper than MAX_DEPTH, found without recursion; None if nowhere."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH and event.start_mark:
            return int(event.start_mark.line) + 1
    return None


def _too_deep(place: str) -> UserError:
    return UserError(
        f"{place}: values are nested more than {MAX_DEPTH} levels deep: write fewer levels"
    )


class _LineIndex:
    """The lines of all paths below a node; those of merged keys (`<<`) are the anchor's."""

    def __init__(self, file: Path) -> None:
        self.lines: dict[YamlPath, int] = {(): 1}
        self.visited = 0  # values, an alias's as often as it is used
        self._file = file
        self._open: list[int] = []  # ids of the nodes that contain the current one

    def add(self, node: yaml.Node, path: YamlPath) -> None:
        """Add the paths below a node, which is at `path`."""
        place = self._count(node)
        if id(node) in self._open:
            raise UserError(f"{place}: not valid YAML: an alias contains itself")
        if len(self._open) > MAX_DEPTH:
            raise _too_deep(place)
        self._open.append(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.lines[*path, index] = value.start_mark.line + 1
                self.add(value, (*path, index))
        elif isinstance(node, yaml.MappingNode):
            self._add_keys(node, path)
        self._open.pop()

    def _add_keys(self, node: yaml.MappingNode, path: YamlPath) -> None:
        """Keys of a mapping override merged ones, and earlier merged mappings later ones."""
        own: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            name, line = str(key.value), key.start_mark.line + 1
            if name in own:
                raise UserError(
                    f"{self._file}:{line}: {key.value!r} appears twice "
                    f"(first in line {own[name]}): remove one"
                )
            own[name] = line
            if (*path, name) in self.lines:
                self._count(value)  # the YAML loader constructs it too
            else:
                self.lines[*path, name] = line
                self.add(value, (*path, name))
        for source in merged:
            self.add(source, path)

    def _count(self, node: yaml.Node) -> str:
        """Count a value against the limit; returns its file and line."""
        place = f"{self._file}:{node.start_mark.line + 1}"
        self.visited += 1
        if self.visited > MAX_VALUES:
            raise UserError(f"{place}: aliases expand to more than {MAX_VALUES:,} values")
        return place


def named_values(pairs: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs of a command line, values read as in the file. Raises UserError."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UserError(f"invalid option {pair!r}: write --option NAME=VALUE")
        try:
            if _first_deep_line(value):
                raise _too_deep(f"--option {name}")
            values[name] = yaml.load(value, Loader=_Loader)  # noqa: S506 (a SafeLoader)
        except (yaml.YAMLError, ValueError) as error:
            raise UserError(f"--option {pair!r}: the value is not valid YAML: {error}") from error
    return values


def line_of(path: YamlPath, lines: dict[YamlPath, int]) -> int:
    """The line of the longest prefix of `path` that the file contains."""
    while path not in lines:
        path = path[:-1]
    return lines[path]
