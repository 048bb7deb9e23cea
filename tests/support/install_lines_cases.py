"""What the tests of install lines share."""

import re
from pathlib import Path

from paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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
