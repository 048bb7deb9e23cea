"""Lists of one thing in two files, which differ one day: only those with a reason below."""

import ast
from collections.abc import Iterator
from itertools import combinations

from import_graph import source_modules, tree

LEAST = 4  # names that two collections have in common, and half of the smaller one
MOST = 26  # pairs in all: lower it with each that goes
# Why two modules each name the same things -> the pairs of modules.
REASONS = {
    "a schema, and the one place that fills its rows from values of other names": (
        ("orchestrator.probing.samples", "orchestrator.storage.schema"),
        ("orchestrator.optional.exchange.imports", "orchestrator.storage.schema"),
    ),
    "a setting that Decile sets, with its value; and refused, with what to write instead": (
        ("orchestrator.config.library_settings", "orchestrator.training.trainer"),
        ("orchestrator.sampling.engine_args", "orchestrator.sampling.vllm"),
    ),
    "the first file of a new user, which shows some settings and policies": (
        ("orchestrator.config.library_settings", "orchestrator.config.starter"),
        ("orchestrator.config.experiment", "orchestrator.config.starter"),
        ("orchestrator.config.starter", "policies.registry"),
    ),
    "columns of what users read, each in an order and a selection of its own": (
        ("orchestrator.report.analysis", "orchestrator.report.sections.tables"),
        ("orchestrator.report.analysis", "orchestrator.tracking.views"),
        ("orchestrator.optional.exchange.exports", "orchestrator.optional.exchange.imports"),
        ("orchestrator.tracking.views", "tasks.prompt_table"),
        ("orchestrator.cli.doctor", "orchestrator.training.record"),
    ),
    "words that users write for costs": (
        ("orchestrator.config.experiment", "orchestrator.report.sections.tables"),
        ("orchestrator.config.experiment", "orchestrator.report.analysis"),
    ),
    "the same words for other things: kinds of groups, and numbers that TRL logs": (
        ("orchestrator.evaluation.run_facts", "orchestrator.report.sections.tables"),
        ("orchestrator.cli.gpu_checks", "orchestrator.evaluation.run_log"),
        ("orchestrator.evaluation.diagnosis", "orchestrator.evaluation.run_log"),
    ),
    "the signs of comparison: of a claim, in words; and of a marked inequality, computed": (
        ("orchestrator.config.claims", "tasks.marking.tokens"),
    ),
    "forms of other tools: how a file is recognized and read; and how it is written": (
        ("orchestrator.optional.exchange.exports", "orchestrator.optional.exchange.layouts"),
    ),
    "roles of columns in users' files, which have the names of Decile's own columns": (
        ("orchestrator.evaluation.run_log", "tasks.sources.roles"),
        ("orchestrator.evaluation.metrics", "tasks.sources.roles"),
        ("orchestrator.probing.samples", "tasks.sources.roles"),
        ("orchestrator.evaluation.item_columns", "tasks.sources.roles"),
        ("orchestrator.storage.schema", "tasks.sources.roles"),
    ),
}


# What names mean, for the reference; test_reference.py compares them with the code.
DESCRIBED = {
    "orchestrator.cli.json_output",
    "orchestrator.evaluation.check_meanings",
    "orchestrator.optional.exchange.log_formats",
    "orchestrator.tracking.metric_names",
}


def names_of(node: ast.AST) -> set[str]:
    """The names that a list, a tuple, a set, the keys of a dict, or "a b c".split() consist of."""
    nodes: list[ast.expr | None] = []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        nodes = [*node.elts]
    elif isinstance(node, ast.Dict):
        nodes = node.keys
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text = node.func.value
        if node.func.attr == "split" and isinstance(text, ast.Constant):
            return {*text.value.split()} if isinstance(text.value, str) else set()
    constants = [each.value for each in nodes if isinstance(each, ast.Constant)]
    return {value for value in constants if isinstance(value, str)}


def pairs() -> Iterator[tuple[str, str]]:
    """The modules of each two collections that share LEAST names and half of the smaller one."""
    listed = [
        (module, names)
        for module, file in source_modules().items()
        if module not in DESCRIBED
        for names in map(names_of, ast.walk(tree(file)))
        if len(names) >= LEAST
    ]
    for (a, of_a), (b, of_b) in combinations(listed, 2):
        shared = len(of_a & of_b)
        if a != b and shared >= LEAST and 2 * shared >= min(len(of_a), len(of_b)):
            yield min(a, b), max(a, b)


def test_a_thing_is_listed_in_one_place() -> None:
    found = list(pairs())
    reasons = {pair for each in REASONS.values() for pair in each}
    assert {*found} - reasons == set(), (
        "import or derive one of both, or give the reason why they stand twice"
    )
    assert reasons - {*found} == set(), "these are gone: remove their reason"
    assert len(found) <= MOST
