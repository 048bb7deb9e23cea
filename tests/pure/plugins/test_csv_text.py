"""CSV that no spreadsheet runs, and that comes back as it was."""

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from orchestrator.plugins.csv_text import csv_text, original, shown_as_text
from orchestrator.report.content import Table
from orchestrator.selection.labelling import write_to_label
from tasks.sources.files import read_file

FORMULAS = ['=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''@x"]
PLAIN = ["-5", "+1.5e-3", "-12.5 %", "text", "'quoted'", "", "a=b", "1,234"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_becomes_text_and_comes_back(text: str) -> None:
    assert shown_as_text(text) == f"'{text}" and original(f"'{text}") == text


@pytest.mark.parametrize("text", PLAIN)
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert shown_as_text(text) == text and original(text) == text


@given(st.text(alphabet="'=+-@\t\ra1., "))
def test_every_text_comes_back(text: str) -> None:
    assert original(shown_as_text(text)) == text
    [_, [cell]] = csv.reader(io.StringIO(csv_text(["x"], [[text]]), newline=""))
    assert not re.match(r"[=@\t\r]", cell)


def test_files_of_prompts_to_label_and_tables_of_reports_hold_no_formula(tmp_path: Path) -> None:
    evil = FORMULAS[0]
    row = {"prompt_id": "p", evil: evil, "question": evil, "answer": "-5"}
    row["answers"] = [{"answer": evil, "count": 2}]
    write_to_label(tmp_path / "x.csv", [row])
    header, cells = csv.reader((tmp_path / "x.csv").read_text().splitlines())
    assert not any(cell.startswith("=") for cell in header + cells)
    [read] = read_file(str(tmp_path / "x.csv"), ()).rows
    assert (read["question"], read["answer"], read[evil]) == (evil, "-5", evil)
    table = Table("", (evil,), [(evil,), ("-0.5",)])
    assert [r[0] for r in csv.reader(table.csv.splitlines())] == [f"'{evil}", f"'{evil}", "-0.5"]


def test_one_module_writes_csv() -> None:
    writers = [
        str(file.relative_to(ROOT))
        for folder in ("orchestrator", "tasks", "decile", "policies", "cluster")
        for file in (ROOT / folder).rglob("*.py")
        if re.search(r"csv\.(?:Dict)?[Ww]riter|\.to_csv\(|write_csv\(", file.read_text("utf-8"))
    ]
    assert writers == ["orchestrator/plugins/csv_text.py"]
