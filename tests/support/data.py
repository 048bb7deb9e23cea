"""The folder of real data sets: next to the repository, or the one that DECILE_DATA names."""

import os
from pathlib import Path

import pytest
from paths import ROOT

FOLDER = Path(os.environ.get("DECILE_DATA") or ROOT.parent / "shared" / "data")


def data(*parts: str) -> Path:
    """The file or folder of that name; skips the test, with the reason, where it is absent."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip("no real data set: set DECILE_DATA to a folder with them")
    return path
