"""Writes docs/notes/README.md, the table of all notes: `python -m docs.generate_notes`."""

import re
from collections.abc import Mapping
from pathlib import Path

NOTES = Path(__file__).parent / "notes"
INDEX = "README.md"
KEYS = ("Question", "Topic", "Setting", "Sweeps", "Command", "Date", "Commit", "Finding")
TOPICS = (
    "choosing a subset",
    "choosing before labelling",
    "probes",
    "gold answers",
    "rewards",
    "online selection",
    "reliability of the statistics",
    "speed and memory",
    "diagnosis and replay",
    "models",
)
INTRODUCTION = """\
# Notes

One page for each sweep or measurement. All pages have one form: a question, the setting, the
command, the date, the commit that added the figures, the finding, then results, verdicts and how to
read them. `python -m docs.generate_notes` writes this page from the heads of the notes.

* Intervals, p values and verdicts were computed by the version of each sweep's date. Since 28
  November 2026 each policy is judged by the [scatter of its own
  seeds](statistics-equal-policies.md), and all claims of a sweep share a level of 5 %: verdicts of
  earlier dates that rest on two or three seeds may be inconclusive now.
* Sweeps ran on two CPU cores. On another machine, or with another number of threads, the last
  digits differ, because rounding depends on the order of operations.
* Speeds were measured on two cores of an Intel Xeon with AVX-512, torch 2.13.0 and transformers
  5.23.0, unless a note names another machine. Compare ratios, not absolute speeds.
* `a / b / c` are values by seed or by number of samples, in the order that the column names;
  `[a, b]` is an interval."""


def read_head(text: str) -> dict[str, str]:
    """The title and the lines `* Key: value` at the beginning of a note."""
    head, _, _ = text.partition("\n## ")
    title, _, lines = head.partition("\n")
    return {"Title": title.removeprefix("# ")} | dict(
        re.findall(r"^\* (\w+): (.+)$", lines, re.MULTILINE)
    )


def index_page(notes: Mapping[str, str]) -> str:
    """The table of all notes (text by file name): by topic, the oldest first."""
    heads = {name: read_head(text) for name, text in notes.items()}
    blocks = [INTRODUCTION]
    for topic in TOPICS:
        rows = sorted(
            (head["Date"], name) for name, head in heads.items() if head["Topic"] == topic
        )
        blocks.append(f"## {topic[0].upper()}{topic[1:]}")
        lines = [
            f"| {date} | [{heads[name]['Question']}]({name}) | {heads[name]['Finding']} |"
            for date, name in rows
        ]
        blocks.append("\n".join(["| date | question | finding |", "|---|---|---|", *lines]))
    return "\n\n".join(blocks) + "\n"


def read_notes(folder: Path = NOTES) -> dict[str, str]:
    """The text of every note by file name."""
    return {
        file.name: file.read_text("utf-8")
        for file in sorted(folder.glob("*.md"))
        if file.name != INDEX
    }


if __name__ == "__main__":
    (NOTES / INDEX).write_text(index_page(read_notes()), "utf-8")
