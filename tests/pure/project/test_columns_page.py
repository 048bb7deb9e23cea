"""docs/columns.md: its tables are those of the code."""

from paths import ROOT

from tasks.sources.files import SUFFIXES
from tasks.sources.roles import NEEDS, ROLES

TEXT = (ROOT / "docs" / "columns.md").read_text("utf-8")


def table_after(head: str) -> list[str]:
    """The rows of the table with this first line."""
    lines = TEXT[TEXT.index(head) :].splitlines()[2:]
    return lines[: lines.index("")]


def code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_the_table_of_roles() -> None:
    rows = [f"| {name} | {code(role.names)} | {role.holds} |" for name, role in ROLES.items()]
    assert table_after("| role | names | values |") == rows


def test_the_table_of_what_commands_need() -> None:
    rows = [
        f"| `{command}` | {'; '.join(' or '.join(roles) for roles in groups)} |"
        for command, groups in NEEDS.items()
    ]
    assert table_after("| command | a file needs |") == rows
    assert {role for groups in NEEDS.values() for roles in groups for role in roles} <= {*ROLES}


def test_every_ending_is_named() -> None:
    endings = {suffix.removesuffix(".gz") for suffix in SUFFIXES}
    assert [ending for ending in endings if f"`{ending}`" not in TEXT] == []
