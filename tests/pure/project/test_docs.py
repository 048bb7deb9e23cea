"""The documentation: links, the index, and the commands in its examples."""

import re
import shlex
from pathlib import Path

import pytest
from paths import ROOT

from orchestrator.cli.parser import build_parser

DOCS = sorted((ROOT / "docs").glob("*.md"))
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md")),
    *(ROOT / "llms.txt", ROOT / "docs" / "skill" / "SKILL.md"),
    *DOCS,
    *REFERENCE,
    *NOTES,
]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub forms them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        if target.startswith("http"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {target for target, _ in LINK.findall(index.read_text())}
    assert {page.name for page in DOCS} - linked == {"README.md"}


def commands(page: Path) -> list[str]:
    """The `decile` commands in a page's code blocks; those with placeholders left out."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S)
    text = "\n".join(block for kind, block in blocks if not kind).replace("\\\n", " ")
    matches = re.findall(r"^(?:ray job submit .*-- )?decile (\w.*?)(?: +#.*)?$", text, re.M)
    return [command for command in matches if not set(command) & set("…|[")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_parser_accepts_every_documented_command(page: Path) -> None:
    for command in commands(page):
        build_parser().parse_args(shlex.split(command))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_of_the_source_that_a_page_names_exists(page: Path) -> None:
    names = r"`((?:orchestrator|tasks|policies|cluster|tests|benchmarks)/[\w./]*)`"
    files = re.findall(names, page.read_text())
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert files or page.name not in ("architecture.md", "CONTRIBUTING.md")


SOURCES = ("orchestrator", "tasks", "policies", "cluster", "decile", "docs", "tests")
OF_OTHERS = {
    "MLFLOW_TRACKING_URI",  # which Decile does not read, as the page says
    "working_dir",  # of Ray's runtime environments
}


def test_every_option_and_name_that_a_page_mentions_exists() -> None:
    """Options of commands, and names with an underscore, in the text of the pages by hand."""
    files = [file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")]
    files += [ROOT / "pyproject.toml", ROOT / "experiments.yaml"]
    source = "\n".join(file.read_text() for file in files)
    known = {*re.findall(r"\w+", source), *re.findall(r"--[a-z][a-z-]+", source), *OF_OTHERS}
    known |= {file.stem for file in files} | {
        folder.name for file in files for folder in file.parents
    }
    for page in [ROOT / "README.md", ROOT / "docs" / "skill" / "SKILL.md", *DOCS]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        spans = " ".join(re.findall(r"`([^`]+)`", text))
        names = re.findall(r"(?<![\w.-])--[a-z][a-z-]+|\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b", spans)
        assert sorted({*names} - known) == [], page.name
