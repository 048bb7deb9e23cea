"""docs/reference/: the pages are those that the code makes, and describe all that they name."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from damaged_store import example
from factories import finished_sweep
from paths import ROOT

from docs import generate
from docs.page_parts import option_texts, parameters, prose
from docs.source_code import attributes, class_node
from orchestrator.cli.json_output import FORMS
from orchestrator.cli.parser import COMMANDS
from orchestrator.cli.plan_summary import PlanSummary
from orchestrator.evaluation.check_meanings import MEANINGS
from orchestrator.evaluation.diagnosis import CHECKS
from orchestrator.pipeline.stored_files import FILES
from orchestrator.plugins.difficulty_table import DIFFICULTY
from orchestrator.report.analysis import analyse
from orchestrator.tracking import metric_names
from orchestrator.tracking.views import read_view, sweep_view
from orchestrator.training import cell_folder
from orchestrator.training.record import LedgerEntries
from policies.gates import GATES
from policies.registry import ALLOCATIONS, POLICIES
from tasks.lookup import TASKS
from tasks.marking import marks
from tasks.sources.roles import NEEDS, ROLES

DOCS = ROOT / "docs"


@cache
def pages() -> Mapping[str, str]:
    return generate.pages()


def test_the_pages_are_current() -> None:
    stored = {f"reference/{page.name}" for page in (DOCS / "reference").glob("*.md")}
    assert {*pages()} == {*stored, "experiments.schema.json"}
    old = [name for name, text in pages().items() if (DOCS / name).read_text("utf-8") != text]
    assert old == [], "run `make docs`"


RULES = [
    registry.find(n) for registry in (TASKS, POLICIES, GATES, ALLOCATIONS) for n in registry.builtin
]


@pytest.mark.parametrize("cls", RULES, ids=lambda cls: cls.__name__)
def test_every_option_of_a_task_or_policy_is_described(cls: type) -> None:
    assert {*option_texts(prose(cls))[1]} == {each.name for each in parameters(cls)}


def test_every_command_of_json_is_described() -> None:
    with_json = {c.name for c in COMMANDS if any("--json" in o.names for o in c.options)}
    assert {form.split()[0] for form in FORMS} == with_json
    assert {*FORMS["plan"]} == {*PlanSummary.__dataclass_fields__}


def test_every_check_has_a_text() -> None:
    assert [*MEANINGS] == [check.code for check in CHECKS]
    assert all(map(any, MEANINGS.values()))


def test_every_file_of_a_cell_is_listed() -> None:
    page = pages()["reference/store.md"].replace("`", "/")
    names = {name for name, value in vars(cell_folder).items() if isinstance(value, str)}
    files = {getattr(cell_folder, name) for name in names if name.isupper()}
    files |= {*cell_folder.TABLES}
    assert [name for name in files if f"/{name}" not in page] == []


def test_what_commands_need_are_roles() -> None:
    assert {role for groups in NEEDS.values() for roles in groups for role in roles} <= {*ROLES}


WORDS = {
    "OUTCOME": "|".join(marks.OUTCOMES),
    "FACTOR": "|".join(metric_names.FACTORS),
    "K": r"\d+",
}


def pattern(name: str) -> str:
    """What a described name stands for: words in capitals are names of a sweep."""
    parts = re.split("([A-Z]+)", name)
    return "".join(f"({WORDS.get(p, '.+')})" if p.isupper() else re.escape(p) for p in parts)


def test_every_metric_of_a_cell_is_described(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=["hard"])
    cell = plan.cells[0]
    points = read_view(store, cell, plan.pool(cell.baseline).prompts("test")).points
    names = {name for metrics in points.values() for name in metrics}
    names = {name for name in names if not name.startswith("ledger/")}
    described = [*generate.metrics_by_update(), *generate.metrics_of_cell()]
    assert len(names) > 25
    assert [n for n in names if not any(re.fullmatch(pattern(d), n) for d in described)] == []


def test_every_metric_of_a_sweep_is_described(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, policies=["hard", "random", "full"])
    names = {*sweep_view(analyse(plan, store)).metrics}
    assert len(names) > 20
    described = [*map(pattern, metric_names.PER_SWEEP)]
    assert [n for n in names if not any(re.fullmatch(d, n) for d in described)] == []


def test_every_tag_is_described() -> None:
    files = (ROOT / "orchestrator" / "tracking").glob("*.py")
    source = "\n".join(file.read_text() for file in files if file.stem != "metric_names")
    texts = re.findall(r'"(decile\.[^"]+)"', source)
    written = {re.sub(r"{.*?}", "one/two and three", text) for text in texts}
    described = [*map(pattern, metric_names.TAGS)]
    assert {"decile.cell_id", "decile.grid.one/two and three"} <= written
    assert [tag for tag in written if not any(re.fullmatch(d, tag) for d in described)] == []


def test_every_entry_of_a_ledger_is_described() -> None:
    assert {*attributes(class_node("orchestrator.training.record", "LedgerEntries"))} == {
        *LedgerEntries.__annotations__
    }


def test_every_outcome_is_described_and_counted_in_the_difficulty_table() -> None:
    assert [*marks.MEANINGS] == [*marks.OUTCOMES]
    assert [name for name in DIFFICULTY.names if name in marks.OUTCOMES] == [*marks.OUTCOMES[1:]]


def test_every_file_of_a_storage_is_listed(tmp_path: Path) -> None:
    """Of a store with every kind of file, those of the tests of damage."""
    store = example(tmp_path).store
    files = [file for file in Path(store.uri).rglob("*") if file.is_file()]
    names = [str(file.relative_to(store.uri)) for file in files]
    described = [pattern(file.path) for file in FILES]
    assert len(names) > 30
    assert [n for n in names if not any(re.fullmatch(d, n) for d in described)] == []
