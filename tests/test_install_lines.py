"""Every documented `pip install` is resolved against the package index; nothing is installed."""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OPTIONS = ("--dry-run", "--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=30")


def install_lines(page: Path) -> list[str]:
    """The arguments of `pip install` in a page's code blocks and inline code."""
    text = page.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [" ".join(code.split()) for code in inline]
    return [match[1].strip() for line in lines if (match := re.search(INSTALL, line))]


INSTALL = r"\bpip install ([^&|#]+)"


def image_lines() -> list[str]:
    """The arguments of `pip install` in the image, for each documented build."""
    text = (ROOT / "cluster" / "Dockerfile").read_text()
    comment = re.sub(r" \\\n#", "", text)
    builds = re.findall(r"^# +docker build (.*)$", comment, re.M)
    [command] = re.findall(r"^RUN pip install (.*?) \\$", text, re.M)
    defaults = dict(re.findall(r"^ARG (\w+)=(.*)$", text, re.M))
    lines = []
    for build in builds:
        values = defaults | dict(re.findall(r"--build-arg (\w+)=(\S+)", build))
        lines.append(re.sub(r"\$\{(\w+)\}", lambda name: values[name[1]], command))  # noqa: B023
    return lines


LINES = sorted({line for page in PAGES for line in install_lines(page)} | {*image_lines()})


def resolve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", *OPTIONS, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )


@cache
def index_problem() -> str:
    """Why pip cannot find a small package that no environment here has; empty if it can."""
    process = resolve("--no-deps", "--ignore-installed", "six")
    return process.stderr.strip().splitlines()[-1] if process.returncode else ""


def test_lines_are_found_on_the_pages_that_have_them() -> None:
    assert any("constraints-vllm.txt" in line and "vllm" in line for line in LINES)
    assert any("decile[4bit]" in line for line in LINES), "in the middle of a sentence"
    assert len(image_lines()) == 2 and "auth,4bit,vllm" in image_lines()[1]


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_pip_resolves_every_documented_line(line: str) -> None:
    if problem := index_problem():
        pytest.skip(f"no package index answers: {problem}")
    process = resolve(*shlex.split(line))
    assert process.returncode == 0, process.stderr


def test_both_constraint_files_agree_but_for_what_vllm_pins() -> None:
    pins, for_vllm = (
        dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / name).read_text(), re.M))
        for name in ("constraints.txt", "constraints-vllm.txt")
    )
    assert pins.keys() <= for_vllm.keys()
    assert {name for name in pins if pins[name] != for_vllm[name]} == {
        "fastapi",
        "numpy",
        "protobuf",
    }
