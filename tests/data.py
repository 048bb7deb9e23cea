"""The folder of real data sets: next to the repository, or the one that DECILE_DATA names."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("DECILE_DATA") or Path(__file__).parents[2] / "shared" / "data")


def data(*parts: str) -> Path:
    """The file or folder of that name; skips the test, with the reason, where it is absent."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)} in the data folder: set DECILE_DATA to try it")
    return path
