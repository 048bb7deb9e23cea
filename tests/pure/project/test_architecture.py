"""The architecture: which package may import which, how long code may get, generated files."""

import ast
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from import_graph import (
    HEAVY,
    LIBRARY_MODULES,
    ROOT,
    TOPS,
    all_imports,
    below,
    layers,
    module_graph,
    needed_by,
    nodes,
    package,
    package_graph,
    pure_modules,
    source_lines,
    source_modules,
    tree,
)

from orchestrator.plugins.counts import counted_label

# A package imports only packages further down (docs: the package layout).
ORDER = (
    "__main__",
    "cli",
    "optional",
    "pipeline",
    "tracking",
    "report",
    "training",
    "evaluation",
    "selection",
    "difficulty",
    "probing",
    "cost",
    "stats",
    "planning",
    "config",
    "sampling",
    "embedded",
    "storage",
    "plugins",
)
STORE = "orchestrator.storage.store"
MAX_FUNCTION_LINES = 60


@pytest.mark.parametrize("top", ["tasks", "policies", "cluster"])
def test_other_top_level_packages_are_independent(top: str) -> None:
    others = set(TOPS) - {top}
    for each in all_imports():
        if package(each.module) == top:
            bottom = package(each.name) == "orchestrator.plugins"
            assert bottom or each.name.partition(".")[0] not in others, each


def test_the_api_is_imported_by_no_other_package() -> None:
    for each in all_imports():
        assert package(each.name) != "decile" or package(each.module) == "decile", each


def test_no_import_points_upward() -> None:
    rank = {f"orchestrator.{name}": place for place, name in enumerate(ORDER)}
    packages = {package(m) for m in source_modules() if m.startswith("orchestrator.")}
    assert packages == set(rank), "a new package needs its place in ORDER"
    for each in all_imports():
        if each.name in source_modules():
            assert rank.get(package(each.name), 99) >= rank.get(package(each.module), -1), each


def test_imports_have_no_cycles() -> None:
    layers(package_graph())
    layers(module_graph())


def test_the_root_of_the_orchestrator_contains_no_modules() -> None:
    assert {f.name for f in (ROOT / "orchestrator").glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("library", LIBRARY_MODULES)
def test_a_heavy_library_is_imported_in_few_modules(library: str) -> None:
    modules = {each.module for each in all_imports() if each.name == library}
    assert modules == LIBRARY_MODULES[library]


def test_pure_modules_import_neither_the_store_nor_a_heavy_library() -> None:
    pure = pure_modules()
    for each in all_imports():
        if each.module in pure:
            assert each.name not in {STORE, *HEAVY}, each


# What answers a question without a sweep, and how many lines of source it may need: what a reader
# has to know of it. A sweep needs some 50,000.
LEAVES = {
    "statistics": (below("orchestrator.stats"), 2_500),
    "decile.compare": (["decile.comparison"], 6_750),
    "decile.diagnose": (["decile.diagnosis"], 6_450),
    "decile.replay": (["decile.recordings"], 9_950),
    "a subset of a difficulty table": (["orchestrator.selection.from_file", "policies"], 6_600),
    "marks": (below("tasks.marking"), 4_000),
}


@pytest.mark.parametrize("leaf", LEAVES)
def test_what_needs_no_sweep_imports_none(leaf: str) -> None:
    starts, most = LEAVES[leaf]
    modules = needed_by(*starts)
    largest = sorted(modules, key=lambda module: -source_lines([module]))[:10]
    assert source_lines(modules) <= most, f"{leaf} needs {source_lines(modules)} lines: {largest}"
    assert "orchestrator.planning.cells" not in modules
    libraries = {each.name for each in all_imports() if each.module in modules}
    assert not libraries & {"torch", "ray", "transformers", "trl", "mlflow", "datasets"}


def test_functions_stay_short() -> None:
    for module, file in source_modules().items():
        for node in nodes(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= MAX_FUNCTION_LINES, f"{module}:{node.lineno} {node.name}: {lines}"


# Modules that name standard output or error for more than flush(), isatty() and echo(…, stream):
# a default for a stream that they pass to echo, or another stream in its place.
STREAMS = {
    "cluster.printable_streams",
    "cluster.terminal",
    "orchestrator.cli.fetch",
    "orchestrator.cli.main",
    "orchestrator.pipeline.live_region",
    "orchestrator.pipeline.progress",
}
DESCRIPTORS = {  # that write to descriptors: a terminal (printable text), a lock, a pipe
    "cluster.ending",
    "orchestrator.storage.lease",
    "orchestrator.optional.code.sandbox_guest",
}


def printing(module: str, tree: ast.AST) -> Iterator[str]:
    """The places at which a module prints by itself."""
    streams = {f"sys.{name}" for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
    harmless, printable = set(), False  # mentions of a stream; the first argument of a call
    for node in ast.walk(tree):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Attribute) and node.attr in ("flush", "isatty"):
            harmless.add(node.value)
        if isinstance(node, ast.Call):
            harmless |= {*node.args[1:]} if name == "echo" else set()
            printable = bool(node.args) and ast.unparse(node.args[0]).startswith("printable(")
        own = name.rpartition(".")[2]
        if (
            name in ("print", "input")
            or own in ("StreamHandler", "basicConfig", "showwarning", "pprint", "print_exc")
            or (own == "Console" and module != "orchestrator.pipeline.live_region")
            or (name == "Text" and not printable)
            or (name == "warnings.warn" and not printable)
            or (name == "os.write" and module not in DESCRIPTORS)
        ):
            yield f"{module}:{node.lineno} {name}"
    for node in ast.walk(tree):
        stream = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if stream in streams and node not in harmless and module not in STREAMS:
            yield f"{module} {stream}"


def test_one_module_prints() -> None:
    """What a file or a user names may hold escape sequences, and is made printable there."""
    for module, file in source_modules().items():
        if module != "cluster.terminal":
            assert [*printing(module, tree(file))] == [], "use cluster.terminal"


@pytest.mark.parametrize(
    ("label", "one"),
    [
        ("rows dropped: why", "1 row dropped: why"),
        ("system messages dropped", "1 system message dropped"),
        ("numbers with a unit", "1 number with a unit"),
        ("answers differ", "1 answer differs"),
        ("LaTeX or formulas", "1 LaTeX or formulas"),
    ],
)
def test_a_label_agrees_with_its_count(label: str, one: str) -> None:
    assert (counted_label(1, label), counted_label(2, label)) == (one, f"2 {label}")


OPENING = {  # functions that open a path
    *("open", "read_text", "read_bytes", "read_table", "read_schema", "read_metadata", "ZipFile"),
    *("ParquetFile", "ParquetDataset", "open_json", "GzipFile", "memory_map"),
}
# What opens other files than those that a user names: modules, and the text of calls.
OWN_FILES = {
    "orchestrator.config.library_settings",  # sources of installed libraries
    "orchestrator.probing.checks",  # Decile's own sources
    "orchestrator.pipeline.own_data",  # a reference in the hub's cache
    "orchestrator.tracking.client",  # the lock of a database
    "orchestrator.training.tune_runner",  # Ray's own log
    "orchestrator.optional.code.sandbox",  # the source of the guest
    "tasks.shuffled_objects",  # a file of the package
    "cluster.ray_internals",  # logs of Ray
    "cluster.resources",  # control groups
    "cluster.session",  # what Linux knows of a GPU
}
HARMLESS = re.compile(
    r"store|os\.devnull|BufferReader|regular\(|'/proc/|os\.open\('\.'|\(raw\)|\(member\)"
)


def openings(module: str, tree: ast.AST) -> Iterator[str]:
    """The places at which a module opens a path by itself."""
    storage = module.startswith("orchestrator.storage.")  # it opens what Decile has written
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not storage and module not in OWN_FILES:
            own = getattr(node.func, "attr", getattr(node.func, "id", ""))
            imported = isinstance(node.func, ast.Name) and own in ("read_bytes", "open_json")
            if own in OPENING and not imported and not HARMLESS.search(text := ast.unparse(node)):
                yield f"{module}:{node.lineno} {text}"


def test_one_module_opens_the_files_that_users_name() -> None:
    """A pipe would block, a device never ends, and a small .gz file may expand to any size."""
    for module, file in source_modules().items():
        if module != "tasks.sources.user_files":
            assert [*openings(module, tree(file))] == [], "use user_files"


def cell_paths(tree: ast.AST) -> Iterator[str]:
    """Literals that name the folder of all cells in a storage, or a path below it."""
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        path = isinstance(node, ast.Constant) and re.search(r"\bcells/", str(node.value))
        if path and node not in docstrings:
            yield ast.unparse(node)
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):  # of a store, where "cells" is a part of a path
            parts = (
                node.args if re.search(r"(store|\bPath|\.join)\b", ast.unparse(node.func)) else []
            )
        elif isinstance(node, ast.Tuple):  # such a path, or the kinds of units that a storage has
            first = [e.value for e in node.elts[:1] if isinstance(e, ast.Constant)]
            parts = node.elts if first and first[0] in ("cells", "probes", "subsets") else []
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.BinOp | ast.Assign | ast.AnnAssign):
            parts = [*filter(None, [getattr(node, "right", None), getattr(node, "value", None)])]
        if any(isinstance(part, ast.Constant) and part.value == "cells" for part in parts):
            yield ast.unparse(node)


def test_one_module_knows_where_cells_are_stored() -> None:
    found = {m: [*cell_paths(tree(f))] for m, f in source_modules().items()}
    own = {"orchestrator.training.cell_paths": ["CELLS = 'cells'"]}
    assert {module: literals for module, literals in found.items() if literals} == own, (
        "use CellFolder"
    )


def test_ray_accepts_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((ROOT / "cluster" / "ray-cluster.yaml").read_text())
    validate_config(prepare_config(config))


def packed(tree: ast.AST) -> Iterator[ast.AST]:
    """A text or a sequence times a condition, and arguments in a tuple that is unpacked at once."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = node.left, node.right
            texts = [isinstance(side, ast.JoinedStr | ast.Constant) for side in sides]
            conditions = [isinstance(side, ast.Compare | ast.BoolOp) for side in sides]
            lists = [isinstance(side, ast.List | ast.Tuple) for side in sides]
            if (any(texts) or any(lists)) and any(conditions):
                yield node
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.BinOp):
            left, right = node.value.left, node.value.right
            flag = isinstance(right, ast.Name | ast.Attribute)  # counts are written `len(…)`
            if isinstance(left, ast.List | ast.Tuple) and flag:
                yield node
        if isinstance(node, ast.Call):
            starred = [each.value for each in node.args if isinstance(each, ast.Starred)]
            yield from (value for value in starred if isinstance(value, ast.Tuple))


def test_nothing_is_packed_to_fit() -> None:
    for module, file in source_modules().items():
        lines = [ast.unparse(node) for node in packed(tree(file))]
        assert not lines, f"{module}: write a conditional expression, or name the arguments"


NOTICED = {
    "print(name)": printing,
    "sys.stderr.write(name)": printing,
    "warnings.warn(name)": printing,
    "console.print(Text(name))": printing,
    "rich.console.Console()": printing,
    "os.write(2, name)": printing,
    "open(file)": openings,
    "Path(file).open('rb')": openings,
    "pq.ParquetFile(file)": openings,
}
PACKED = ("f(*(a, b), c=1)", "'s' * (n > 1)", "[a] * (n > 1)", "f(*[a] * shown)")
CELL_PATHS = (
    "store.read_json('cells', cell_id, 'result.json')",
    "KINDS = ('probes', 'cells')",
    "f'cells/{cell_id}'",
    "folder.parent.name == 'cells'",
    "folder / 'cells'",
)


def test_what_these_rules_forbid_is_noticed() -> None:
    for code, rule in NOTICED.items():
        assert [*rule("orchestrator.cli.commands", ast.parse(code))], code
    for code in PACKED:
        assert [*packed(ast.parse(code))], code
    for code in CELL_PATHS:
        assert [*cell_paths(ast.parse(code))], code


def exceptions() -> Iterator[type[BaseException]]:
    """Every exception of the packages that takes arguments of its own."""
    for name, path in source_modules().items():
        for node in tree(path).body:
            if not isinstance(node, ast.ClassDef):
                continue
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            bases = " ".join(map(ast.unparse, node.bases))
            if "__init__" in methods and re.search(r"Error|Exception", bases):
                yield getattr(import_module(name), node.name)


def test_exceptions_survive_copies_and_pickles() -> None:
    """Ray copies what a trial raises, which calls the class with the exception's `args`."""
    kinds = [*exceptions()]
    assert len(kinds) >= 3
    for kind in kinds:
        names = [*inspect.signature(kind).parameters]
        error = kind(*(f"the {name}" for name in names))
        for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(other) is kind and str(other) == str(error)
            assert vars(other) == vars(error)


PAGE = ROOT / "docs" / "running.md"


def texts(file: Path) -> set[str]:
    """The texts of a module; what an f-string inserts is written as `…`."""
    texts = set()
    for node in nodes(file):
        if isinstance(node, ast.JoinedStr):
            parts = (str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
            texts.add("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
    return texts


def test_the_messages_are_those_of_the_code() -> None:
    code = "\n".join(text for file in source_modules().values() for text in texts(file))
    table = PAGE.read_text().split("## Faults")[1]
    messages = re.findall(r"^\| `([^`]{12,})` \| [^|]+ \|$", table, re.M)
    assert len(messages) > 10
    for message in messages:
        for fragment in re.split(
            r"…|; (?=rerun|Ray)|: (?=rename|set)|, and (?=rerun)|, then ", message
        ):
            assert fragment.strip(" ,;:()") in code, f"{message}: {fragment!r}"


def test_tests_do_not_run_where_sweeps_of_the_repository_are() -> None:
    """With a folder `runs`, which `make demo` leaves, files would be read from there."""
    assert not Path.cwd().is_relative_to(ROOT)
