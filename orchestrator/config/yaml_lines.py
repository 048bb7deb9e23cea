"""Safe YAML that remembers the line of every key and value."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.storage.errors import UserError

Path_ = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-4 as text; every user means a number."""


_MERGE = "tag:yaml.org,2002:merge"

_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def load(file: Path) -> tuple[Any, dict[Path_, int]]:
    """The file's content, and the line (from 1) of every path of keys and indices in it."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"{file}: cannot be read: {reason}") from error
    try:
        root = yaml.compose(text, Loader=_Loader)
        lines: dict[Path_, int] = {(): 1}
        if root is not None:
            _walk(root, (), lines, file)
        return yaml.load(text, Loader=_Loader), lines  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{file}:{line}: not valid YAML: {error.reason}") from error
    except RecursionError as error:
        raise UserError(f"{file}:1: not valid YAML: an alias contains itself") from error
    except ValueError as error:
        raise UserError(f"{file}:1: not valid YAML: {error}: put it in quotes") from error


def _walk(node: yaml.Node, path: Path_, lines: dict[Path_, int], file: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        merged = [value for key, value in node.value if key.tag == _MERGE]
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            here = (*path, str(key.value))
            if here in lines:
                raise UserError(
                    f"{file}:{key.start_mark.line + 1}: {key.value!r} is written twice "
                    f"(first in line {lines[here]}): keep one"
                )
            lines[here] = key.start_mark.line + 1
            _walk(value, here, lines, file)
        for value in merged:
            _walk_merged(value, path, lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[(*path, index)] = value.start_mark.line + 1
            _walk(value, (*path, index), lines, file)


def _walk_merged(node: yaml.Node, path: Path_, lines: dict[Path_, int], file: Path) -> None:
    """What `<<: *anchor` brings in stands where the anchor does, unless a key is written here."""
    sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for source in sources:
        found: dict[Path_, int] = {}
        _walk(source, path, found, file)
        own = {place for place in lines if len(place) == len(path) + 1}
        for place, line in found.items():
            if place[: len(path) + 1] not in own:
                lines[place] = line


def named_values(pairs: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs of a command line, values read as YAML. Raises UserError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UserError(f"--option {pair!r} is of another form: write NAME=VALUE")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError(f"--option {pair!r}: the value is no YAML: {error}") from error
    return found


def line_of(path: Path_, lines: dict[Path_, int]) -> int:
    """The line of the longest prefix of `path` that stands in the file."""
    while path not in lines:
        path = path[:-1]
    return lines[path]
