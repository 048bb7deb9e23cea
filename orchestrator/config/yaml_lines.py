"""Safe YAML with the line of every key and value.

Keys are strings. Only JSON's types are read: 2001-01-01 and 1:30 are strings, as in YAML 1.2, and
tags such as !!binary are refused.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.storage.errors import UserError, one_line, shortened
from tasks import TaskError
from tasks.sources.user_files import MAX_SETTINGS, read_bytes

YamlPath = tuple[str | int, ...]
MAX_VALUES = 100_000  # in a file with its aliases expanded; nested aliases grow exponentially
MAX_DEPTH = 100  # of nesting; libyaml's parser overflows the stack at a few thousand
MAX_DIGITS = 1_000  # of a whole number; longer ones are text; Python converts at most 4,300
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_NUMBERS = {  # YAML 1.1's, without base 60 and octal numbers that look decimal
    f"{_TAG}int": rf"(?!.{{{MAX_DIGITS + 1}}})"
    r"[-+]?(?:0x[0-9a-fA-F]+|0b[01]+|0|[1-9][0-9_]*)",
    f"{_TAG}float": r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_INDENT = "indent all keys of a block equally, with spaces, and write each as KEY: VALUE"
# The parser's messages ("did not find expected key") describe its state; these are usual causes.
_CAUSES = {
    "flow mapping.*expected ',' or '}'": "the { of this line is not closed, or a comma is missing: "
    "write {KEY: VALUE, KEY: VALUE}",
    "flow sequence.*expected ',' or '\\]'": "the [ of this line is not closed, or a comma is "
    "missing: write [VALUE, VALUE]",
    "quoted scalar.*(end of stream|document indicator)": "the quote of this line is not closed: "
    "write the closing quote",
    "quoted scalar.*(escape|hexdec)": "a backslash starts an escape in double quotes: write \\\\ "
    "for a backslash, or use single quotes",
    "mapping values are not allowed": "a second ': ' in one value, or a line that is indented too "
    "far: indent the line like its neighbours, or put a text with ': ' in quotes",
    "expected ':'": "a key without a colon: write KEY: VALUE, with a space after the colon",
    "sequence entries|'-' indicator": "a list starts below its key: write '- ' before every item, "
    "with the same indentation, or [VALUE, VALUE]",
    "expected key|block key|document": f"the line does not fit the block around it: {_INDENT}",
}
_OTHER = f"put texts that contain any of :#[]{{}}&*!|>%@` in quotes; {_INDENT}"


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that Decile does not accept, for the reason in `problem`."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


def _too_deep(mark: Any) -> _Refused:
    problem = f"values are nested more than {MAX_DEPTH} levels deep"
    return _Refused(f"{problem}: write fewer levels, and no alias that contains itself", mark)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Values with the types of JSON, and numbers such as 1e-4 as in YAML 1.2."""

    yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] in (f"{_TAG}null", f"{_TAG}bool", _MERGE)]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines: dict[YamlPath, int] = {(): 1}  # from 1; of merged keys (`<<`), the anchor's
        self._visited = 0  # values; those of an alias count at each use

    def value(self, node: yaml.Node, path: YamlPath, depth: int = 0) -> Any:
        """The value of a node, which is at `path`; adds the lines of all paths below it."""
        self._count(node, depth)
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Any] = {}
            self._add_keys(mapping, node, path, depth)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[*path, index] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index), depth + 1))
            return items
        return self.construct_object(node)

    def _add_keys(
        self, mapping: dict[str, Any], node: yaml.MappingNode, path: YamlPath, depth: int
    ) -> None:
        """Keys of a mapping override merged ones, and earlier merged mappings later ones."""
        own: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            if key.tag != f"{_TAG}str":
                text = shortened(str(key.value)) if isinstance(key, yaml.ScalarNode) else "KEY"
                problem = f"a key must be a string: write {text}, in quotes"
                raise _Refused(problem, key.start_mark)
            name, line = str(key.value), key.start_mark.line + 1
            if name in own:
                first = f"(first in line {own[name]})"
                problem = f"{shortened(name)} appears twice {first}: remove one"
                raise _Refused(problem, key.start_mark)
            own[name] = line
            if name in mapping:
                self._count(value, depth)
            else:
                self.lines[*path, name] = line
                mapping[name] = self.value(value, (*path, name), depth + 1)
        for source in merged:
            self._count(source, depth)
            if not isinstance(source, yaml.MappingNode):
                problem = "<< merges mappings only: write <<: *NAME of a mapping"
                raise _Refused(problem, source.start_mark)
            self._add_keys(mapping, source, path, depth + 1)

    def _count(self, node: yaml.Node, depth: int) -> None:
        self._visited += 1
        if depth > MAX_DEPTH:
            raise _too_deep(node.start_mark)
        if self._visited > MAX_VALUES:
            problem = f"aliases expand to more than {MAX_VALUES:,} values: remove some"
            raise _Refused(problem, node.start_mark)


_Loader.add_constructor(_MERGE, yaml.SafeLoader.construct_yaml_str)  # << that is not a key
for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), list("-+.0123456789"))


def load(file: Path) -> tuple[Any, dict[YamlPath, int]]:
    """The file's content, and the line (from 1) of every path of keys and indices in it.

    Raises UserError if it cannot be read, and with the line of invalid YAML or of a duplicate key.
    """
    try:
        data = read_bytes(file, MAX_SETTINGS)
    except TaskError as error:
        raise UserError(str(error)) from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or "its name is not valid"
        raise UserError(
            f"{one_line(str(file))}: cannot be read ({reason}): "
            "write the path of a file such as experiments.yaml"
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{file}:{line}: byte 0x{data[error.start]:02x} is not UTF-8 text: "
            "remove it, or save the file as UTF-8"
        ) from error
    try:
        return parsed(text)
    except yaml.YAMLError as error:
        line, message = _explained(text, error)
        raise UserError(f"{file}:{line}: {message}") from error


def parsed(text: str) -> tuple[Any, dict[YamlPath, int]]:
    """The content of a text and its lines, as `load` reads them. Raises yaml.YAMLError."""
    if half := re.search("[\ud800-\udfff]", text):  # from a command line that is not UTF-8
        raise yaml.reader.ReaderError("", half.start(), ord(half[0]), "utf-8", "half a character")
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):  # without recursion
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _too_deep(event.start_mark)
        if getattr(event, "tag", None):
            problem = "tags (!) are not supported: remove it, or put the text in quotes"
            raise _Refused(problem, event.start_mark)
    loader = _Loader(text)
    root = loader.get_single_node()
    return None if root is None else loader.value(root, ()), loader.lines


def _explained(text: str, error: yaml.YAMLError) -> tuple[int, str]:
    """The line (from 1) to edit, and what is wrong with it and what to write instead."""
    if isinstance(error, yaml.reader.ReaderError):
        # `position` counts bytes or characters, depending on the loader.
        line = text.count("\n", 0, text.find(chr(error.character))) + 1
        return line, f"it contains the control character U+{error.character:04X}: remove it"
    assert isinstance(error, yaml.MarkedYAMLError)
    assert error.problem_mark
    line = error.problem_mark.line
    if isinstance(error, _Refused):
        return line + 1, str(error.problem)
    row = [*text.splitlines(), ""][line]
    if "\t" in row[: len(row) - len(row.lstrip())]:
        return line + 1, "not valid YAML: the line is indented with a tab: write spaces"
    words = f"{error.context}: {error.problem}"
    causes = (cause for pattern, cause in _CAUSES.items() if re.search(pattern, words))
    cause = next(causes, _OTHER)
    if error.context_mark and ("not closed" in cause or "without" in cause):
        line = error.context_mark.line
    return line + 1, f"not valid YAML: {cause}"


def named_values(pairs: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs of a command line, values read as in the file. Raises UserError."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UserError(f"invalid option {pair!r}: write --option NAME=VALUE")
        values[name] = option_value(value, f"--option {name}")
    return values


def option_value(text: str, option: str) -> Any:
    """The value of an option, read as in the file. Raises UserError."""
    try:
        return parsed(text)[0]
    except yaml.YAMLError as error:
        raise UserError(f"{option}: {_explained(text, error)[1]}") from error


def line_of(path: YamlPath, lines: dict[YamlPath, int]) -> int:
    """The line of the longest prefix of `path` that the file contains."""
    while path not in lines:
        path = path[:-1]
    return lines[path]
