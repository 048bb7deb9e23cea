"""What TRL, PEFT and vLLM declare about their settings, read from their source as text.

`site` is the folder of another environment's libraries; None reads this process's own.

Importing the libraries takes seconds and loads torch. Their source gives the names, types and
accepted words of the settings in milliseconds, and always matches the installed version.
"""

import ast
import importlib.util
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

# Where each setting is declared: package, file inside it, class. Later classes override earlier.
_CLASSES = {
    "grpo": (
        ("transformers", "training_args.py", "TrainingArguments"),
        ("trl", "trainer/base_config.py", "_BaseConfig"),
        ("trl", "trainer/grpo_config.py", "GRPOConfig"),
    ),
    "lora": (
        ("peft", "config.py", "PeftConfigMixin"),
        ("peft", "config.py", "PeftConfig"),
        ("peft", "tuners/lora/config.py", "LoraConfig"),
    ),
    "vllm": (("vllm", "engine/arg_utils.py", "EngineArgs"),),
}
_ENUM_FILES = (("transformers", "trainer_utils.py"), ("transformers", "training_args.py"))
# vLLM annotates with names such as CacheDType, which these files define as Literal[...].
_ALIAS_FILES = tuple(
    ("vllm", f"config/{name}.py")
    for name in ("cache", "kernel", "load", "mamba", "model", "parallel", "scheduler")
)
# TRL annotates its words as `str` and compares them in the trainer.
_TRAINER = ("trl", "trainer/grpo_trainer.py")
_COMPARISON = r"\b(?:self|args)\.{}\s+(?:==|!=|in|not in)\s+(\[[^\]]*\]|\"[^\"]*\")"
_DOCUMENTED = {"fsdp": "bool | str | None"}  # where an annotation leaves out what is documented
_NOUNS = {  # of the types in annotations that YAML can write
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "str": "a string",
    "list": "a list",
    "set": "a list",
    "tuple": "a list",
    "list[str]": "a list of strings",
    **dict.fromkeys(("list[int]", "list[float]"), "a list of numbers"),
    "dict": "a mapping",
    "dict[str, bool]": "a mapping to true or false",
}
_MANY = ("list", "set", "tuple", "dict")
_YAML_TYPES = {"float": ("int", "float"), "set": ("list",), "tuple": ("list",)}


@cache
def declared(section: str, site: Path | None = None) -> dict[str, str]:
    """Setting name -> annotation text, for the section `grpo`, `lora` or `vllm`."""
    fields: dict[str, str] = {}
    for package, file, name in _CLASSES[section]:
        for node in _class_body(package, file, name, site):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                setting = node.target.id
                fields[setting] = _DOCUMENTED.get(setting) or ast.unparse(node.annotation)
    return fields


def is_installed(section: str, site: Path | None = None) -> bool:
    """Whether the libraries that declare a section's settings are installed."""
    return all(_folder(package, site) for package, _, _ in _CLASSES[section])


def site_packages(python: str) -> Path:
    """The folder of the libraries of an environment, from the path of its interpreter."""
    environment = Path(os.path.abspath(Path(python).expanduser())).parent.parent
    folders = sorted(environment.glob("lib/python3*/site-packages"))
    return folders[0] if folders else environment


@cache
def accepted_words(section: str, name: str, site: Path | None = None) -> tuple[str, ...]:
    """The only strings that a setting accepts; empty if it accepts any string, or none."""
    annotation = declared(section, site)[name]
    if annotation == "str" and section == "grpo":
        text = _source(*_TRAINER)
        compared = re.findall(_COMPARISON.format(re.escape(name)), text)
        return tuple(sorted({word for part in compared for word in re.findall(r'"(\w+)"', part)}))
    kinds: ast.AST = ast.parse(annotation, mode="eval")
    names = {node.id for node in ast.walk(kinds) if isinstance(node, ast.Name)}
    aliases = _literal_aliases(site) if section == "vllm" else {}
    if names & aliases.keys() and names <= aliases.keys() | {"None"}:
        kinds, names = aliases[(names - {"None"}).pop()], {"Literal"}
    for enum in sorted(names - {"Literal"}):
        for package, file in _ENUM_FILES:
            if words := tuple(_enum_values(package, file, enum)):
                return words
    if "Literal" in names and "str" not in names:
        constants = [node.value for node in ast.walk(kinds) if isinstance(node, ast.Constant)]
        return tuple(value for value in constants if isinstance(value, str))
    return ()


def expected_type(annotation: str, value: Any) -> str | None:
    """The types that a setting takes, if the value is of none of them.

    A type that YAML does not have, such as a class of the library's own, takes any value.
    """
    kinds = _alternatives(ast.parse(annotation, mode="eval").body)
    if any(_takes(kind, value) for kind in kinds):
        return None
    types = [ast.unparse(kind) for kind in kinds]
    if isinstance(value, list | dict) and not any(text.startswith(_MANY) for text in types):
        return "one value"
    if isinstance(value, float) and "int" in types:
        return "a whole number"
    nouns = [_NOUNS.get(text) or _NOUNS.get(text.partition("[")[0]) for text in types]
    return " or ".join(dict.fromkeys(filter(None, nouns)))


def _alternatives(annotation: ast.expr) -> list[ast.expr]:
    """The types of a union, and the constants of a Literal."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return [*_alternatives(left), *_alternatives(right)]
        case ast.Subscript(
            value=ast.Name(id="Optional" | "Union" | "Literal" as name), slice=inner
        ):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            none = [ast.Constant(None)] if name == "Optional" else []
            return [kind for part in [*parts, *none] for kind in _alternatives(part)]
    return [annotation]


def _takes(kind: ast.expr, value: Any) -> bool:
    """Whether a type that is no union takes a value of YAML, with all of a list or mapping."""
    match kind:
        case ast.Constant():  # None, or of a Literal, whose words are checked on their own
            return type(value) is type(kind.value)
        case ast.Name(id=name) if name in _NOUNS:
            return type(value).__name__ in _YAML_TYPES.get(name, (name,))
        case ast.Subscript(value=ast.Name(id=name), slice=inner) if name in _NOUNS:
            of = inner.elts[-1] if isinstance(inner, ast.Tuple) else inner  # of a dict's values
            elements = value.values() if isinstance(value, dict) else value
            return _takes(ast.Name(name), value) and all(
                any(_takes(kind, element) for kind in _alternatives(of)) for element in elements
            )
    return True


@cache
def _literal_aliases(site: Path | None) -> dict[str, ast.expr]:
    """The names that vLLM defines as Literal[...] of constants."""
    aliases: dict[str, ast.expr] = {}
    for package, file in _ALIAS_FILES:
        for node in _tree(package, file, site).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", 0)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and isinstance(value, ast.Subscript):
                names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
                if names == ["Literal"]:
                    aliases[target.id] = value
    return aliases


def _enum_values(package: str, file: str, name: str) -> Iterator[str]:
    for node in _class_body(package, file, name):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def _class_body(package: str, file: str, name: str, site: Path | None = None) -> list[ast.stmt]:
    """The statements of a class at the top of a file; none if the file has no such class."""
    tree = _tree(package, file, site)
    return next((n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), [])


@cache
def _tree(package: str, file: str, site: Path | None = None) -> ast.Module:
    return ast.parse(_source(package, file, site))


@cache
def _source(package: str, file: str, site: Path | None = None) -> str:
    folder = _folder(package, site)
    if folder is None:
        raise ModuleNotFoundError(f"{package} is not installed: pip install -e .")
    return (folder / file).read_text(encoding="utf-8")


def _folder(package: str, site: Path | None) -> Path | None:
    """Where a package is installed; None if it is not."""
    if site is not None:
        return site / package if (site / package / "__init__.py").is_file() else None
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None
