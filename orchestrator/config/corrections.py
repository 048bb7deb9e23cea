"""What to write if a value does not fit its setting, from the file's JSON schema. Pure."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from orchestrator.config.problems import Problem
from orchestrator.config.wording import as_yaml, shown
from orchestrator.plugins.registry import suggest
from orchestrator.storage.errors import shortened

Schema = dict[str, Any]
Path = Sequence[str | int]
_MAX_EXAMPLE = 40  # characters of a wrong value that is shown in its correct form
_ARTICLES = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "a list",
    "object": "a mapping",
}


def first_problem(error: ValidationError, model: type[BaseModel]) -> Problem:
    """The first problem of a validation, at its path below the model."""
    first = error.errors(include_url=False)[0]
    path = first["loc"]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Problem):
        return Problem(cause.code, cause.message, *path, *cause.path, axes=cause.axes)
    message = correction(model.model_json_schema(), path, first["type"], first["input"])
    return Problem(first["type"].replace("_", "-"), message, *path)


def correction(root: Schema, path: Path, kind: str, value: Any) -> str:
    """What is wrong with the value at `path` and what to write instead.

    root: the file's JSON schema. kind: the validator's error type; only `missing` matters, since
    everything else follows from the schema and the value.
    """
    schema, optional = root, False  # of the path; optional: it may be left out
    for part in path:
        if isinstance(part, int):
            schema, optional = _resolved(root, schema["items"]), False
            continue
        named = schema.get("properties", {}).get(part)
        optional = named is not None and part not in schema.get("required", ())
        schema = _resolved(root, schema["additionalProperties"] if named is None else named)
    name = next((part for part in reversed(path) if isinstance(part, str)), "the file")
    if kind == "missing":
        return f"{name} is missing: write {name}: {as_yaml(_example(root, schema))}"
    if name == "policy" and isinstance(value, dict):
        entry = "near-half: {policy: band, options: {low: 0.4, high: 0.6}}"
        return f"policy is a mapping: write it in policies, such as {entry}, and its name here"
    verb = "holds" if path and isinstance(path[-1], int) else "is"
    leave_out = ", or leave it out" if value is None and optional else ""
    return f"{name} {verb} {shown(value)}: write {_expected(root, schema, value)}{leave_out}"


def _resolved(root: Schema, schema: Schema) -> Schema:
    """The schema without references and without the alternative null."""
    if "anyOf" in schema:
        schema = next(one for one in schema["anyOf"] if one.get("type") != "null")
    if "$ref" in schema:
        schema = {**root["$defs"][schema["$ref"].rpartition("/")[2]], **schema}
    return schema


def _expected(root: Schema, schema: Schema, value: Any) -> str:
    """The values that a schema allows, in words, with an example."""
    kind = schema.get("type")
    words = [str(word) for word in schema.get("enum", [schema.get("const")]) if word is not None]
    if words:
        return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words) + suggest(
            str(value), words
        )
    if kind == "boolean":
        return "true or false"
    if kind == "string" and isinstance(value, bool):
        return "a string (no, yes, on and off need quotes)"
    if kind == "string" and isinstance(value, int | float):
        return f"a string, such as '{shortened(value)}', in quotes"
    example = as_yaml(_example(root, schema, value))
    return f"{_ARTICLES[schema['type']]}{_limits(schema)}, such as {example}"


def _limits(schema: Schema) -> str:
    """The bounds of a number, or of the length of a text, list or mapping."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if (below := schema.get("exclusiveMaximum")) is not None:
        high = below - 1
    if (above := schema.get("exclusiveMinimum")) is not None:
        return f" above {above:,}" + ("" if high is None else f" and at most {high:,}")
    if low is not None:
        return f" of at least {low:,}" if high is None else f" from {low:,} to {high:,}"
    least = next((schema[n] for n in ("minItems", "minLength", "minProperties") if n in schema), 0)
    most = schema.get("maxItems")
    unit = "characters" if schema["type"] == "string" else "values"
    if most is not None:
        return f" of {least} to {most:,} {unit}"
    return " that is not empty" if least else ""


def _example(root: Schema, schema: Schema, value: Any = None) -> Any:
    """A valid value: the given one if only its form is wrong, an example, or the default.

    For a block, its required settings or the first one; for named entries, one entry.
    """
    schema = _resolved(root, schema)
    kind = schema.get("type")
    short = isinstance(value, str) and 0 < len(value) <= _MAX_EXAMPLE and value.isprintable()
    if kind == "array" and short and _resolved(root, schema["items"]).get("type") == "string":
        return [value]
    if "examples" in schema:
        return schema["examples"][0]
    if kind != "object" and schema.get("default") not in (None, "", [], {}):
        return schema["default"]
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if kind == "array":
        return [_example(root, schema["items"])]
    if kind == "object" and (settings := schema.get("properties")):
        names = schema.get("required") or [*settings][:1]
        return {name: _example(root, settings[name]) for name in names}
    if kind == "object":  # of named entries
        inner = schema["additionalProperties"]
        return {"name": _example(root, inner if isinstance(inner, dict) else {"type": "integer"})}
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    return {"string": "text", "boolean": True}.get(str(kind), low)
