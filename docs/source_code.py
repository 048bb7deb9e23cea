"""What docs/generate.py reads from the source text of modules that are heavy to import."""

import ast
import copy
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cluster", "decile", "orchestrator", "policies", "tasks")
# Errors that carry a code: the place of the code among the first two arguments.
CODED = {"Problem": 0, "UserError": 1}


@cache
def sources() -> dict[str, str]:
    """The text of every module of the packages, by name."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {
        ".".join(f.relative_to(ROOT).with_suffix("").parts): f.read_text("utf-8") for f in files
    }


@cache
def tree(module: str) -> ast.Module:
    """The syntax of a module."""
    return ast.parse(sources()[module])


def class_node(module: str, name: str) -> ast.ClassDef:
    """The class statement of a module that is heavy to import."""
    nodes = (node for node in tree(module).body if isinstance(node, ast.ClassDef))
    return next(node for node in nodes if node.name == name)


def attributes(node: ast.ClassDef) -> dict[str, str]:
    """The attributes of a class, with the docstring after each."""
    texts: dict[str, str] = {}
    for line in node.body:
        if isinstance(line, ast.AnnAssign):
            texts[ast.unparse(line.target)] = ""
        elif isinstance(line, ast.Assign):
            texts[ast.unparse(line.targets[0])] = ""
        elif texts and isinstance(line, ast.Expr):
            texts[[*texts][-1]] = inspect.cleandoc(ast.literal_eval(line.value))
    return texts


def described_keys(function: str) -> dict[str, str]:
    """The keys that `module:function` sets, with the comment at the end of the line, or above it.

    Keys without one are left out.
    """
    module, _, name = function.partition(":")
    of_class, _, name = name.rpartition(".")
    scope = class_node(module, of_class) if of_class else tree(module)
    [node] = [n for n in scope.body if isinstance(n, ast.FunctionDef) and n.name == name]
    lines = sources()[module].splitlines()[node.lineno : node.end_lineno]
    texts: dict[str, str] = {}
    above: list[str] = []
    for line in map(str.strip, lines):
        key = re.match(r'(?:\w+\[)?"(.+?)"(?:: |\] = )', line)
        text = line.partition("  # ")[2] or " ".join(above)
        if key and text:
            texts[key[1]] = text
        above = [*above, line.removeprefix("# ")] if line.startswith("# ") else []
    return texts


def message(node: ast.expr, scope: ast.AST) -> str:
    """The text of an expression, with `…` for what it inserts; `scope` assigns its names."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                message(v, scope) if isinstance(v, ast.Constant) else "…" for v in values
            )
        case ast.BinOp(left=left, right=right):
            return message(left, scope) + message(right, scope)
        case ast.Name(id=name):
            values = [
                each.value
                for each in ast.walk(scope)
                if isinstance(each, ast.Assign) and each.lineno < node.lineno
                if name in map(ast.unparse, each.targets)
            ]
            if values:
                return message(max(values, key=lambda value: value.lineno), ast.Module([], []))
    return "…"


def coded() -> Iterator[tuple[str, str, str]]:
    """Code, message and module of every error that carries a code."""
    for module in (name for name, text in sources().items() if any(f"{c}(" in text for c in CODED)):
        for scope in (n for n in ast.walk(tree(module)) if isinstance(n, ast.FunctionDef)):
            for call in (n for n in ast.walk(scope) if isinstance(n, ast.Call) and len(n.args) > 1):
                place = CODED.get(ast.unparse(call.func))
                if place is not None and isinstance(call.args[place], ast.Constant):
                    text = message(call.args[1 - place], scope)
                    yield ast.literal_eval(call.args[place]), text, module
    for node in ast.walk(tree("orchestrator.training.guards")):
        text = message(node, node) if isinstance(node, ast.JoinedStr) else ""
        if match := re.match(r"(unsound-\w+): (.*)", text):
            yield match[1], match[2], "orchestrator.training.guards"


def definition(module: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    """The class or function that a module defines, or imports from another of the packages."""
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in {a.asname or a.name for a in node.names}:
            return definition(str(node.module), name)
    raise LookupError(f"{module} does not define {name}")


def signature(name: str, node: ast.FunctionDef) -> str:
    """How a function is called, without its own object."""
    own = copy.deepcopy(node)
    for each in ast.walk(own):
        if isinstance(each, ast.arg) and isinstance(each.annotation, ast.Constant):
            each.annotation = ast.Name(str(each.annotation.value))
    arguments = re.sub(r"^(self|cls)(, |$)", "", ast.unparse(own.args))
    returns = f" -> {ast.unparse(own.returns)}".replace("'", "") if own.returns else ""
    return f"{name}({arguments}){returns}"
