"""What the tests of extending share."""

import re
from pathlib import Path

import pytest
from paths import ROOT

TEXT = (ROOT / "docs" / "extending.md").read_text()


def files() -> dict[str, str]:
    """Name -> content of each code block that begins with a file's name."""
    return dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    return tmp_path
