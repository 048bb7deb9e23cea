"""Safe YAML with the line of every key and value.

Keys are strings. Of YAML 1.1's types only those of JSON remain: 2001-01-01 and 1:30 are strings, as
in YAML 1.2, and tags such as !!binary are refused.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.config.yaml_errors import syntax_error
from orchestrator.storage.errors import UserError, one_line, shortened

YamlPath = tuple[str | int, ...]
MAX_VALUES = 100_000  # of a file with its aliases expanded; nested aliases grow exponentially
MAX_DEPTH = 100  # of nesting; libyaml's parser overflows the stack at some thousands
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_NUMBERS = {  # YAML 1.1's, without base 60 and octal numbers that look decimal
    f"{_TAG}int": r"[-+]?(?:0x[0-9a-fA-F]+|0b[01]+|0|[1-9][0-9_]{0,999})",
    f"{_TAG}float": r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_RESOLVED = (f"{_TAG}null", f"{_TAG}bool", _MERGE)
_CONSTRUCTED = ("null", "bool", "int", "float", "str", "seq", "map")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML with the types of JSON, and numbers such as 1e-4 as in YAML 1.2."""

    yaml_implicit_resolvers = {
        first: [(tag, regex) for tag, regex in pairs if tag in _RESOLVED]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(_TAG) in _CONSTRUCTED
    }


for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), list("-+.0123456789"))


def load(file: Path) -> tuple[Any, dict[YamlPath, int]]:
    """The file's content, and the line (from 1) of every path of keys and indices in it.

    Raises UserError with the line of what is not valid YAML, or of a duplicate key.
    """
    text = _read(file)
    try:
        if line := _first_deep_line(text):
            raise _too_deep(f"{file}:{line}")
        loader = _Loader(text)
        root = loader.get_single_node()
        index = _LineIndex(file, loader)
        if root is None:
            return None, index.lines
        index.add(root, ())
        return loader.construct_document(root), index.lines
    except yaml.YAMLError as error:
        line, message = syntax_error(text, error)
        raise UserError(f"{file}:{line}: not valid YAML: {message}") from error


def _read(file: Path) -> str:
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or "its name is not valid"
        raise UserError(
            f"{one_line(str(file))}: cannot be read ({reason}): "
            "write the path of a file such as experiments.yaml"
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{file}:{line}: byte 0x{data[error.start]:02x} is not UTF-8 text: "
            "remove it, or save the file as UTF-8"
        ) from error


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

    def __init__(self, file: Path, loader: _Loader) -> None:
        self.lines: dict[YamlPath, int] = {(): 1}
        self.visited = 0  # values, an alias's as often as it is used
        self._file, self._loader = file, loader
        self._open: list[int] = []  # ids of the nodes that contain the current one

    def add(self, node: yaml.Node, path: YamlPath) -> None:
        """Add the paths below a node, which is at `path`."""
        place = self._count(node)
        if id(node) in self._open:
            raise UserError(f"{place}: an alias contains itself: write its value, or another alias")
        if len(self._open) > MAX_DEPTH:
            raise _too_deep(place)
        self._open.append(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.lines[*path, index] = value.start_mark.line + 1
                self.add(value, (*path, index))
        elif isinstance(node, yaml.MappingNode):
            self._add_keys(node, path)
        elif node.tag.removeprefix(_TAG) in ("null", "bool", "int", "float"):
            implied = self._loader.resolve(yaml.ScalarNode, node.value, (True, False))
            if node.tag != implied:
                tag = node.tag.replace(_TAG, "!!")
                raise UserError(f"{place}: {shortened(node.value)} is no {tag}: remove the tag")
        self._open.pop()

    def _add_keys(self, node: yaml.MappingNode, path: YamlPath) -> None:
        """Keys of a mapping override merged ones, and earlier merged mappings later ones."""
        own: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            line = key.start_mark.line + 1
            if key.tag != f"{_TAG}str":
                text = shortened(str(key.value) if isinstance(key, yaml.ScalarNode) else "KEY")
                raise UserError(
                    f"{self._file}:{line}: a key must be a string: write {text}, in quotes"
                )
            name = str(key.value)
            if name in own:
                raise UserError(
                    f"{self._file}:{line}: {shortened(name)} appears twice "
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
            raise UserError(
                f"{place}: aliases expand to more than {MAX_VALUES:,} values: remove some"
            )
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
