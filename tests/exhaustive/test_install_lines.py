"""Every documented `pip install` is resolved against the package index; nothing is installed."""

import shlex
import subprocess
import sys
from functools import cache

import pytest
from install_lines_cases import LINES, implied
from paths import ROOT
from processes import LIMIT

OPTIONS = ("--dry-run", "--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=30")


def resolve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", *OPTIONS, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@cache
def index_problem() -> str:
    """Why pip cannot find a small package that no environment here has; empty if it can."""
    process = resolve("--no-deps", "--ignore-installed", "six")
    return process.stderr.strip().splitlines()[-1] if process.returncode else ""


@pytest.mark.parametrize("line", [line for line in LINES if not implied(line)])
def test_pip_resolves_every_documented_line(line: str) -> None:
    if problem := index_problem():
        pytest.skip(f"no package index answers: {problem}")
    process = resolve(*shlex.split(line))
    assert process.returncode == 0, process.stderr
