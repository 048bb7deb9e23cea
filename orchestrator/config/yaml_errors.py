"""What to write instead of YAML that does not parse.

The parser's words ("did not find expected key") describe its own state. Each is mapped to its usual
cause here; the line is the one to edit, such as that of the bracket which is not closed.
"""

import re

import yaml

_INDENT = "indent all keys of a block equally, with spaces, and write each as KEY: VALUE"
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
