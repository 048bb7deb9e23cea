"""Tables and texts of the pages that docs/generate.py writes."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from docs.source_code import signature
from orchestrator.cli.parser import Option
from policies.base import Requiring
from tasks.lookup import described

# Options that are described once for all tasks, or for all policies.
SHARED = ("marking", "prompt", "needs", "by", *Requiring.__annotations__)


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    names = [*head]
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(
        f"| {' | '.join(' '.join(str(c).split()).replace('|', chr(92) + '|') for c in row)} |"
        for row in lines
    )


def code(value: Any) -> str:
    """A value as code; nothing for an empty one."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if text else ""


def prose(value: Any) -> str:
    """The docstring of a class, function or module, or of its syntax."""
    if isinstance(value, ast.ClassDef | ast.FunctionDef):
        return ast.get_docstring(value) or ""
    return inspect.getdoc(value) or ""


def option_row(option: Option) -> tuple[str, str]:
    """How an option is written, and what it means."""
    own = option.settings
    names = ", ".join(map(code, option.names))
    value = own.get("metavar", "")
    if "choices" in own or own.get("action") == "store_true":
        value = ""
    elif not value and option.names[0].startswith("-"):
        value = option.names[-1].lstrip("-").upper()
    several = " …" if own.get("nargs") in ("+", "*") else ""
    meaning = own.get("help", "")
    if "choices" in own:
        meaning += f": {', '.join(map(code, own['choices']))}"
    if own.get("required"):
        meaning += "; required"
    return f"{names} {value}{several}".rstrip(), meaning


def kind_of(field: Mapping[str, Any]) -> str:
    """The type of a field of the JSON schema, with its limits."""
    if "anyOf" in field:
        return " or ".join(kind_of(f) for f in field["anyOf"] if f.get("type") != "null")
    if words := field.get("enum") or ([field["const"]] if "const" in field else None):
        return ", ".join(map(code, words))
    if "$ref" in field or "allOf" in field:
        return "a block"
    match field.get("type"):
        case "array":
            return f"list of {kind_of(field['items'])}" if field.get("items") else "list"
        case "object":
            return "mapping"
        case None:
            return "any"
        case kind:
            limits = {
                "minimum": "≥",
                "exclusiveMinimum": ">",
                "maximum": "≤",
                "exclusiveMaximum": "<",
            }
            bounds = (f"{sign} {field[name]:,}" for name, sign in limits.items() if name in field)
            return f"{kind} {', '.join(bounds)}".strip()


def field_rows(block: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The fields of a block of the JSON schema: name, type, default and meaning."""
    for name, field in block["properties"].items():
        kind, value = kind_of(field), field.get("default")
        shown = "" if value is None or kind == "a block" else code(value)
        if name in block.get("required", ()):
            shown = "required"
        yield code(name), kind, shown, field.get("description", "")


def parameters(cls: type) -> list[inspect.Parameter]:
    """The options of a class, but for those that are described once for all."""
    return [p for p in inspect.signature(cls).parameters.values() if p.name not in SHARED]


def option_texts(text: str) -> tuple[str, dict[str, str]]:
    """A docstring before its section `Options:`, and the text of each option in that section."""
    before, _, section = text.partition("\nOptions:\n")
    texts: dict[str, str] = {}
    for entry in filter(None, re.split(r"\n(?=\S)", textwrap.dedent(section).strip())):
        names, _, meaning = entry.partition(": ")
        texts |= dict.fromkeys(names.split(", "), meaning)
    return before.strip(), texts


def option_rows(cls: type, meanings: Mapping[str, str]) -> Iterator[list[str]]:
    """The options of a class: name, type, default and meaning; those of one meaning together."""
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for each in parameters(cls):
        row = (code(each.name), described(each.annotation), default(each))
        rows.setdefault(meanings[each.name], []).append(row)
    for meaning, together in rows.items():
        columns = (dict.fromkeys(filter(None, column)) for column in zip(*together, strict=True))
        yield [*map(", ".join, columns), meaning]


def described_options(*classes: type) -> str:
    """The options that these classes add to policies, from their sections `Options:`."""
    texts = [option_texts(prose(cls))[1] for cls in classes]
    return table(("option", "meaning"), ((code(n), t) for each in texts for n, t in each.items()))


def default(parameter: inspect.Parameter) -> str:
    """The default of an option as code; an empty text where it is None."""
    value = parameter.default
    if value is parameter.empty:
        return "required"
    if value is None or value == ():
        return ""
    return code([*value] if isinstance(value, tuple) else value)


def options(cls: type) -> Iterator[str]:
    """The docstring of a task, policy, gate or allocation, and the table of its options."""
    text, meanings = option_texts(prose(cls))
    yield text
    if parameters(cls):
        yield table(("option", "type", "default", "meaning"), option_rows(cls, meanings))


def section(name: str, node: ast.ClassDef | ast.FunctionDef, module: str) -> Iterator[str]:
    """A function of the Python API, or a class with its public methods."""
    own_trainer = module in ("decile.trl", "decile.verl")
    yield f"## `{module if own_trainer else 'decile'}.{name}`"
    if isinstance(node, ast.FunctionDef):
        yield f"```python\n{signature(name, node)}\n```"
    yield prose(node)
    rows = []
    methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
    for method in methods if isinstance(node, ast.ClassDef) else ():
        is_value = any("property" in ast.unparse(each) for each in method.decorator_list)
        called = method.name if is_value else signature(method.name, method)
        if method.name == "__init__" and own_trainer:
            yield f"```python\n{signature(name, method)}\n```"
        elif not method.name.startswith(("_", "on_")):  # `on_…` are a trainer's callbacks
            rows.append((code(called), prose(method)))
    if rows:
        yield table(("attribute", "meaning"), rows)
