"""Safe YAML with the line of every key and value.

Keys are strings. Of YAML 1.1's types only those of JSON remain: 2001-01-01 and 1:30 are strings, as
in YAML 1.2, and tags such as !!binary are refused.

Where a file does not parse, the parser's words ("did not find expected key") describe its own
state. Each is mapped to its usual cause here; the line is the one to edit, such as that of the
bracket which is not closed.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.storage.errors import UserError, one_line, shortened
from tasks import TaskError
from tasks.sources.user_files import MAX_SETTINGS, read_bytes

_INDENT = "indent all keys of a block equally, with spaces, and write each as KEY: VALUE"
MAX_DIGITS = 1_000  # of a whole number; Python prints and reads at most 4,300
_QUOTE = "put the text in quotes"
# (pattern of the parser's context and problem, what is wrong, what to write)
_CAUSES = (
    (
        "flow mapping.*expected ',' or '}'",
        "the { of this line is not closed, or a comma is missing",
        "write {KEY: VALUE, KEY: VALUE}",
    ),
    (
        "flow sequence.*expected ',' or '\\]'",
        "the [ of this line is not closed, or a comma is missing",
        "write [VALUE, VALUE]",
    ),
    (
        "quoted scalar.*(end of stream|document indicator)",
        "the quote of this line is not closed",
        "write the closing quote",
    ),
    (
        "quoted scalar.*(escape|hexdec)",
        "a backslash starts an escape in double quotes",
        "write \\\\ for a backslash, or use single quotes",
    ),
    (
        "mapping values are not allowed",
        "a second ': ' in one value, or a line that is indented too deep",
        "indent the line like its neighbours, or put a text with ': ' in quotes",
    ),
    ("(mapping keys are not|block key)", "the line does not fit its block", _INDENT),
    (
        "sequence entries are not allowed",
        "a list cannot start in the line of its key",
        "write it as [VALUE, VALUE], or one '- VALUE' in each of the next lines",
    ),
    (
        "expected '-' indicator",
        "the line is no item of the list around it",
        "write '- ' before every item, with the same indentation",
    ),
    ("expected ':'", "a key without a colon", "write KEY: VALUE, with a space after the colon"),
    ("undefined alias", "no value has the anchor of this alias", f"write &NAME there, or {_QUOTE}"),
    (
        "(scanning an? (anchor|alias)|duplicate anchor)",
        "& and * start an anchor and an alias",
        f"write a name of its own after & or *, or {_QUOTE}",
    ),
    (
        "(tag|directive|%YAML|URI)",
        "tags (!) and directives (%) are not used",
        f"remove it, or {_QUOTE}",
    ),
    ("merging", "<< merges mappings only", "write <<: *NAME of a mapping, or remove the line"),
    ("(expected a single document|document start)", "text outside the mapping", _INDENT),
    (
        "node content",
        "a value is missing, or starts with a character of YAML's own",
        f"write the value, or {_QUOTE}",
    ),
    (
        "block scalar",
        "the text after | or > is not valid",
        f"write it in the next lines, indented with spaces, or {_QUOTE}",
    ),
    ("expected key", "the line does not fit the block around it", _INDENT),
    ("too many digits", f"the number has more than {MAX_DIGITS} digits", "write a smaller one"),
)
_OTHER = ("the line is not valid", f"{_INDENT}; put texts that hold any of :#[]{{}} in quotes")


def syntax_error(text: str, error: yaml.YAMLError) -> tuple[int, str]:
    """The line (from 1) to edit, and what is wrong with it and what to write instead."""
    if isinstance(error, yaml.reader.ReaderError):
        # `position` counts bytes or characters, depending on the loader.
        line = text.count("\n", 0, text.find(chr(error.character))) + 1
        return line, f"it contains the control character U+{error.character:04X}: remove it"
    if not isinstance(error, yaml.MarkedYAMLError):
        return 1, ": ".join(_OTHER)
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    row = [*text.split("\n"), ""][line]
    if "\t" in row[: len(row) - len(row.lstrip())]:
        return line + 1, "the line is indented with a tab: write spaces"
    words = f"{error.context}: {error.problem}"
    if "cannot start any token" in words:
        start = row[column : column + 1]
        return line + 1, f"a value cannot start with {start!r}: {_QUOTE}"
    causes = (each[1:] for each in _CAUSES if re.search(each[0], words))
    cause, fix = next(causes, _OTHER)
    if ("not closed" in cause or "without" in cause) and error.context_mark:
        line = error.context_mark.line
    return line + 1, f"{cause}: {fix}"


YamlPath = tuple[str | int, ...]
MAX_VALUES = 100_000  # of a file with its aliases expanded; nested aliases grow exponentially
MAX_DEPTH = 100  # of nesting; libyaml's parser overflows the stack at some thousands
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_NUMBERS = {  # YAML 1.1's, without base 60 and octal numbers that look decimal
    f"{_TAG}int": r"[-+]?(?:0x[0-9a-fA-F]+|0b[01]+|0|[1-9][0-9_]*)",
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


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    """A whole number; one of very many digits can neither be printed nor stored."""
    if len(node.value) <= 4 * MAX_DIGITS:  # those of a binary number are more
        number = int(loader.construct_yaml_int(node))
        if abs(number) < 10**MAX_DIGITS:
            return number
    mark = node.start_mark
    raise yaml.constructor.ConstructorError(problem="too many digits", problem_mark=mark)


_Loader.add_constructor(f"{_TAG}int", _construct_int)
for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), list("-+.0123456789"))


def load(file: Path) -> tuple[Any, dict[YamlPath, int]]:
    """The file's content, and the line (from 1) of every path of keys and indices in it.

    Raises UserError where it cannot be read, and with the line of what is not valid YAML, or of a
    duplicate key.
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
        if deep := _first_deep_line(text):
            raise _too_deep(f"{file}:{deep}")
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


def parsed(text: str) -> Any:
    """The content of a valid text, as `load` reads it from a file."""
    return _Loader(text).get_single_data()


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
        except yaml.YAMLError as error:
            message = syntax_error(value, error)[1]
            raise UserError(f"--option {name}: the value is not valid YAML: {message}") from error
        except ValueError as error:  # of a tag, such as !!float
            raise UserError(f"--option {name}: the value is not valid YAML: {_QUOTE}") from error
    return values


def line_of(path: YamlPath, lines: dict[YamlPath, int]) -> int:
    """The line of the longest prefix of `path` that the file contains."""
    while path not in lines:
        path = path[:-1]
    return lines[path]
