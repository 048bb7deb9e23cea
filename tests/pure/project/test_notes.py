"""docs/notes/: each note has the one form, and the table of all notes is that of their heads."""

import importlib.util
import re
import shlex
from datetime import date

import pytest
import yaml
from paths import ROOT

from docs.generate_notes import INDEX, KEYS, NOTES, TOPICS, index_page, read_head, read_notes
from orchestrator.cli.parser import build_parser

TEXTS = read_notes()
SECTIONS = ["Results", "Verdicts", "Reading"]
# A sweep: its name, and where it is not one of experiments.yaml, its file, or that it is gone.
SWEEP = re.compile(r"`(\w+)`(?: of ([\w/.]+\.yaml)| \((no longer in experiments\.yaml)\))?")


def experiments(file: str) -> set[str]:
    return set(yaml.safe_load((ROOT / file).read_text("utf-8"))["experiments"])


def sweeps(head: dict[str, str]) -> list[tuple[str, str, str]]:
    """Name, file and whether it is gone of each sweep of a note."""
    found = SWEEP.findall(head["Sweeps"])
    assert head["Sweeps"] == "–" or SWEEP.sub("", head["Sweeps"]).strip(", ") == ""
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_a_note_has_the_one_form(name: str) -> None:
    text = TEXTS[name]
    head = read_head(text)
    assert tuple(head) == ("Title", *KEYS) and all(head.values())
    lines = [f"# {head['Title']}", "", *(f"* {key}: {head[key]}" for key in KEYS), "", "## Results"]
    assert text.startswith("\n".join(lines) + "\n")
    assert head["Topic"] in TOPICS
    assert date.fromisoformat(head["Date"]) and re.fullmatch(r"[0-9a-f]{8}", head["Commit"])
    assert head["Question"].endswith("?") and head["Finding"].endswith(".")
    titles = re.findall(r"^##? (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)[1:]
    assert titles == [title for title in SECTIONS if title in titles]
    assert ("Verdicts" in titles) or not sweeps(head)


@pytest.mark.parametrize("name", TEXTS)
def test_the_sweeps_of_a_note_exist_or_are_said_to_be_gone(name: str) -> None:
    for sweep, file, gone in sweeps(read_head(TEXTS[name])):
        assert (sweep in experiments(file or "experiments.yaml")) == (not gone), sweep


@pytest.mark.parametrize("name", TEXTS)
def test_the_commands_of_a_note_exist(name: str) -> None:
    command = read_head(TEXTS[name])["Command"]
    for words in map(shlex.split, re.findall(r"`([^`]+)`", command)):
        match words:
            case ["decile", *arguments]:
                build_parser().parse_args(arguments)
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module), module
            case ["pytest", file]:
                assert (ROOT / file).exists()
            case _:
                assert words == ["make", "gpu-figures"]


def test_the_table_of_all_notes_is_current() -> None:
    assert (NOTES / INDEX).read_text("utf-8") == index_page(TEXTS)
