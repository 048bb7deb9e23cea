"""What the tests of report share."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from factories import (
    finished_sweep,
    sample_row,
    store_samples,
)

from orchestrator.planning.plan import Plan
from orchestrator.report.rows import Row, read_rows
from orchestrator.storage.store import Store

POLICIES = ("hard", "easy", "middle", "random")
CLAIMS = (
    "hard > random on small by 3",
    "learnable easy < hard on small by 10",
    "hard = middle on small within 2 for stub",
)


def full_sweep(folder: Path) -> tuple[Plan, Store]:
    return finished_sweep(folder, policies=POLICIES, seeds=(0, 1), claims=list(CLAIMS))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Store]:
    """One small finished sweep; tests only read it."""
    return full_sweep(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def plan(sweep: tuple[Plan, Store]) -> Plan:
    return sweep[0]


@pytest.fixture(scope="module")
def store(sweep: tuple[Plan, Store]) -> Store:
    return sweep[1]


@pytest.fixture(scope="module")
def rows(plan: Plan, store: Store) -> list[Row]:
    return read_rows(store, plan.cells)


class Reader(HTMLParser):
    """Headings, text, and attributes that would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag in ("script", "link", "img", "iframe", "object", "embed"):
            self.loads.append(tag)
        self.loads += [
            str(value)
            for name, value in attrs
            if name in ("src", "srcset", "href", "xlink:href", "action")
            and not str(value).startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
            self.open.pop()


def read(page: Path) -> tuple[str, Reader]:
    reader, text = Reader(), page.read_text()
    reader.feed(text)
    return text, reader


def probed(plan: Plan, store: Store) -> None:
    """Store all samples of the probes; every second sample is correct."""
    for spec in (spec for spec in plan.probes if spec.split == "train"):
        rows = [
            sample_row(prompt.prompt_id, i, outcome="correct" if i % 2 else "wrong")
            for prompt in plan.pool(spec).train
            for i in range(spec.settings.samples)
        ]
        store_samples(store, spec, rows)
