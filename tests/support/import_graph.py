"""The import graph of the source: which module imports which, and the layers of its packages.

`python tests/support/import_graph.py` prints nodes, layers and edges. Nodes are `tasks`,
`policies`, `cluster`, the packages of `orchestrator` and the modules at its root.
"""

import ast
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from paths import ROOT

TOPS = ("decile", "orchestrator", "tasks", "policies", "cluster")

LIBRARY_MODULES = {
    "ray": {
        "cluster.actors",
        "cluster.ray_internals",
        "cluster.session",
        "orchestrator.probing.probe",
        "orchestrator.training.tune_runner",
    },
    "trl": {
        "orchestrator.sampling.tool_calls",
        "orchestrator.training.trainer",
        "orchestrator.training.trl_internals",
    },
    "mlflow": {
        "orchestrator.tracking.client",
        "orchestrator.tracking.mlflow_internals",
        "orchestrator.tracking.runs",
    },
    "vllm": {"orchestrator.sampling.vllm"},
    "reasoning_gym": {"orchestrator.optional.reasoning_gym.library"},
    "peft": {
        "orchestrator.sampling.transformers",
        "orchestrator.training.settings_check",
        "orchestrator.training.trainer",
        "orchestrator.training.trl_internals",
    },
}
HEAVY = {*LIBRARY_MODULES, "torch", "transformers", "accelerate", "datasets", "matplotlib"}


class Import(NamedTuple):
    """One imported name: a module of the source, or the top-level name of a library."""

    module: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.name}"


@cache
def source_modules() -> Mapping[str, Path]:
    """Every module of the source by its dotted name; an `__init__` has its package's."""
    modules = {}
    for top in TOPS:
        for file in sorted((ROOT / top).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


def pure_modules() -> list[str]:
    """The modules that pyproject.toml lists as pure: mypy reads the same list."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [patterns] = [
        override["module"]
        for override in config["tool"]["mypy"]["overrides"]
        if "enable_error_code" in override
    ]
    modules = set()
    for pattern in patterns:
        base = pattern.removesuffix(".*")
        matching = {m for m in source_modules() if m == base or m.startswith(f"{base}.")}
        assert matching, f"pyproject.toml lists {pattern}, which is not a module"
        modules |= matching if pattern != base else {base}
    return sorted(modules)


@cache
def tree(file: Path) -> ast.Module:
    """A module of the source."""
    return ast.parse(file.read_text())


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module."""
    return tuple(ast.walk(tree(file)))


@cache
def all_imports() -> tuple[Import, ...]:
    """Every import of every module, those inside functions included."""
    return tuple(
        Import(module, name, node.lineno)
        for module, file in source_modules().items()
        for node in nodes(file)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported_names(node)
    )


def _imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, f"relative import: {ast.unparse(node)}"
        members = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in source_modules() else str(node.module) for name in members]
    for name in names:
        yield name if name in source_modules() else name.partition(".")[0]


def needed_by(*starts: str) -> set[str]:
    """The modules of the source that these import, in functions or not, and themselves.

    With a module come the packages that hold it. A name that a package loads on first use
    (`_MODULES`) counts as an import of the module that defines it. What only type checkers read
    does not count, nor what is loaded by a name: a task, a policy, the reader of cells.
    """
    modules: set[str] = set()
    open_modules = list(starts)
    while open_modules:
        module = open_modules.pop()
        if module not in modules:
            modules.add(module)
            open_modules += _needed(module)
    return modules


@cache
def _needed(module: str) -> frozenset[str]:
    """The modules that one imports, and the packages that hold it."""
    for_types = {
        node
        for test in nodes(source_modules()[module])
        if isinstance(test, ast.If) and ast.unparse(test.test) == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    names = {module.rpartition(".")[0]}
    for node in nodes(source_modules()[module]):
        if node in for_types or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names |= {*_imported_names(node)}
        if isinstance(node, ast.ImportFrom):
            defined = _defined_elsewhere(str(node.module))
            names |= {defined[alias.name] for alias in node.names if alias.name in defined}
    return frozenset(names & source_modules().keys())


def _defined_elsewhere(package: str) -> dict[str, str]:
    """Name -> module, of the names that a package loads on first use; none of another module."""
    if package not in source_modules():
        return {}
    for node in tree(source_modules()[package]).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES":
            return dict(ast.literal_eval(node.value))
    return {}


def source_lines(modules: Collection[str]) -> int:
    """The lines of these modules of the source."""
    return sum(len(source_modules()[module].read_text().splitlines()) for module in modules)


def below(package: str) -> list[str]:
    """The modules of a package, and itself."""
    return [m for m in source_modules() if m == package or m.startswith(f"{package}.")]


def package(module: str) -> str:
    """The node of a module: `orchestrator.x.y` belongs to `orchestrator.x`."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "orchestrator" else parts[0]


def module_graph(without: Collection[tuple[str, str]] = ()) -> dict[str, set[str]]:
    """For each module the modules of the source that it imports; `without` these pairs."""
    graph: dict[str, set[str]] = {module: set() for module in source_modules()}
    for module, name, _ in all_imports():
        if name in graph and name != module and (module, name) not in without:
            graph[module].add(name)
    return graph


def package_graph(without: Collection[tuple[str, str]] = ()) -> dict[str, set[str]]:
    """For each package the packages that it imports; `without` these pairs of modules."""
    graph: dict[str, set[str]] = {}
    for module, names in module_graph(without).items():
        node = package(module)
        graph[node] = graph.get(node, set()) | {package(name) for name in names} - {node}
    return graph


def layers(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The nodes by the longest chain of imports below them; ValueError names a cycle."""
    depth: dict[str, int] = {}

    def visit(node: str, path: tuple[str, ...]) -> int:
        if node in path:
            raise ValueError("import cycle: " + " -> ".join((*path[path.index(node) :], node)))
        if node not in depth:
            depth[node] = max((1 + visit(n, (*path, node)) for n in sorted(graph[node])), default=0)
        return depth[node]

    for node in graph:
        visit(node, ())
    return [[n for n in sorted(depth) if depth[n] == d] for d in range(max(depth.values()) + 1)]


def main() -> None:
    graph = package_graph()
    print(f"{len(graph)} nodes, {sum(map(len, graph.values()))} edges")
    try:
        for number, nodes in enumerate(layers(graph), start=1):
            print(f"layer {number}: {', '.join(nodes)}")
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    main()
# The only modules that may import these libraries, inside functions or not.
