"""Safe YAML with the line of every key and value."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.storage.errors import UserError

YamlPath = tuple[str | int, ...]
MAX_NODES = 100_000  # of a file with its aliases expanded; nested aliases grow exponentially
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
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"{file}: cannot be read: {reason}") from error
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None, {(): 1}
        lines = {(): 1, **_lines_below(root, (), file, itertools.count())}
        return loader.construct_document(root), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        # `position` counts bytes or characters, depending on the loader.
        line = text.count("\n", 0, text.find(chr(error.character))) + 1
        raise UserError(f"{file}:{line}: not valid YAML: {error.reason}") from error
    except RecursionError as error:
        raise UserError(f"{file}:1: not valid YAML: an alias contains itself") from error
    except ValueError as error:
        raise UserError(f"{file}:1: not valid YAML: {error}: put it in quotes") from error


def _lines_below(
    node: yaml.Node, path: YamlPath, file: Path, visited: Iterator[int]
) -> dict[YamlPath, int]:
    """The lines of all paths below a node; those of merged keys (`<<`) are the anchor's."""
    if next(visited) == MAX_NODES:
        line = node.start_mark.line + 1
        raise UserError(f"{file}:{line}: aliases expand to more than {MAX_NODES:,} values")
    lines: dict[YamlPath, int] = {}
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            here = (*path, index)
            lines[here] = value.start_mark.line + 1
            lines |= _lines_below(value, here, file, visited)
    elif isinstance(node, yaml.MappingNode):
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            here = (*path, str(key.value))
            if here in lines:
                raise UserError(
                    f"{file}:{key.start_mark.line + 1}: {key.value!r} appears twice "
                    f"(first in line {lines[here]}): remove one"
                )
            lines[here] = key.start_mark.line + 1
            lines |= _lines_below(value, here, file, visited)
        depth = len(path) + 1
        for source in merged:  # keys of the mapping override merged ones, earlier sources later
            present = {place[:depth] for place in lines}
            below = _lines_below(source, path, file, visited)
            lines |= {p: line for p, line in below.items() if p[:depth] not in present}
    return lines


def named_values(pairs: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs of a command line, values read as in the file. Raises UserError."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UserError(f"invalid option {pair!r}: write --option NAME=VALUE")
        try:
            values[name] = yaml.load(value, Loader=_Loader)  # noqa: S506 (a SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UserError(f"--option {pair!r}: the value is not valid YAML: {error}") from error
    return values


def line_of(path: YamlPath, lines: dict[YamlPath, int]) -> int:
    """The line of the longest prefix of `path` that the file contains."""
    while path not in lines:
        path = path[:-1]
    return lines[path]
