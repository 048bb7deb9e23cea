"""Every documented `pip install` is resolved against the package index; nothing is installed."""

import re
import shlex
import subprocess
import sys
import tomllib
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


OWN = re.compile(
    r"""^(?:--no-cache-dir )?(?:-c|--constraint) "?([\w.-]+)"? (?:-e )?"?\.(?:\[(.*)\])?"?$"""
)


def implied(line: str) -> bool:
    """Whether another line installs this checkout with the same constraints and more extras.

    Versions that satisfy that line satisfy this one.
    """

    def parsed(line: str) -> tuple[str, set[str]]:
        match = OWN.match(line)
        return (match[1], {*(match[2] or "").split(",")} - {""}) if match else ("", set())

    constraints, extras = parsed(line)
    others = [parsed(other) for other in LINES if other != line]
    return any(constraints == c and extras < more for c, more in others if constraints)


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
    assert any("decile[4bit]" in line for line in LINES), "inside a sentence"
    assert len(image_lines()) == 2 and "auth,4bit,vllm" in image_lines()[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        extra
        for line in LINES
        for each in re.findall(r"\[(.*?)\]", line)
        for extra in each.split(",")
    ]
    assert {*named} <= {*project["optional-dependencies"]}, (
        "pip only warns of an extra it does not know"
    )
    assert implied("-c constraints.txt -e .") and implied('-c constraints.txt -e ".[4bit]"')
    assert not implied("-c constraints.txt 'decile[server]'") and not implied(image_lines()[0])


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in LINES if not implied(line)])
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
