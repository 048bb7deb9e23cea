"""Names and texts with escape sequences: a terminal, a page and JSON show them spelled out."""

import json
import logging
import re
import sys
import unicodedata
from pathlib import Path

import pytest
import yaml
from factories import finished_sweep, small_plan
from sweeps import command
from terminal import FakeTerminal, Screen, run_in_terminal

from cluster.printable_streams import printable_streams
from cluster.terminal import echo, printable, printable_line
from orchestrator.cli.main import main
from orchestrator.pipeline import live_region
from orchestrator.pipeline.live_region import LiveRegion, styled
from orchestrator.report.html_pages import render

FORGED = "ok    cells: 9 files verified"
# An escape that sets the title, a C1 control, a style, a link, marks of order, and two lines.
HOSTILE = (
    "\x1b]0;owned\x07\x9b2J\x1b[31m\x1b]8;;u:\x1b\\\r\b\x7f\x85\u202e\u2066\u200e\u2028\ufeff"
    f"\udc80$\\frac$\n{FORGED}"
)
NAME = HOSTILE.replace("/", "").replace("\udc80", "")  # of a file
CONTROLS = [chr(code) for code in range(sys.maxunicode + 1)]
CONTROLS = [c for c in CONTROLS if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
CONTROLS += [*map(chr, (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))]


def raw_controls(text: str) -> set[str]:
    """The characters of a command's output that a terminal would obey."""
    return set(text) & set(CONTROLS) - {"\n"}


def questions(folder: Path) -> Path:
    """Questions under hostile column names, in a file with a hostile name."""
    rows = [
        {f"q{NAME}": f"What is {n} + 1? {NAME}", "answer": str(n + 1), "tier": NAME}
        for n in range(60)
    ]
    (file := folder / f"{NAME}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def catalogue(folder: Path) -> str:
    """An experiments file with hostile texts in every place that takes any text."""
    small_plan(folder)
    options = {"path": str(questions(folder)), "question": f"q{NAME}"}
    experiment = {
        "about": f"About {NAME}",
        "grid": {"model": ["stub"], "dataset": ["d"], "policy": ["hard"]},
        "budget": 8,
        "probe": {"samples": 4, "stop": [NAME]},
        "grpo": {"max_steps": 2, "num_generations": 4},
    }
    content = {
        "storage": f"{folder}/runs{NAME[:40]}",
        "models": {"stub": {"path": str(folder / "model")}},
        "datasets": {"d": {"task": "file", "options": options}},
        "experiments": {"e": experiment},
    }
    (file := folder / f"{NAME[:30]}.yaml").write_text(yaml.safe_dump(content))
    return str(file)


def storage(folder: Path) -> str:
    """A storage with strays of hostile names."""
    plan, store = finished_sweep(folder)
    probes, cells = folder / "runs" / "probes", folder / "runs" / "cells"
    for parent in (probes, cells):
        (parent / NAME).mkdir(parents=True)
    (probes / NAME / f"{NAME}.parquet").write_bytes(b"x")
    (probes / f"{NAME}.link").symlink_to(NAME)
    (probes / NAME / b"\xff\x1b".decode(errors="surrogateescape")).touch()
    (cells / plan.cells[0].cell_id / f"{NAME}.json").write_bytes(b"x")
    return store.uri


def commands(folder: Path) -> dict[str, list[str]]:
    """Commands whose output holds names and texts of a user."""
    (folder / "arms").mkdir()
    scores = "".join(f"{json.dumps({'id': n, 'correct': n % 2 == 1})}\n" for n in range(30))
    arms = [folder / "arms" / name for name in (f"{NAME}.jsonl", "b.jsonl")]
    for arm in arms:
        arm.write_text(scores)
    (marked := folder / "arms" / f"{NAME}.json").write_text(
        json.dumps([{"answer": "1", "completion": f"#### 1 {NAME}", "tier": NAME}])
    )
    file, out = catalogue(folder), str(folder / NAME[:40])
    compare = ["compare", str(arms[0]), f"arm{HOSTILE}={arms[1]}", "--id", "id"]
    log = folder / "arms" / f"{NAME} log.jsonl"
    log.write_text(json.dumps({"update": 1, "prompt": NAME, "reward": 1, "correct": True}) + "\n")
    init = ["--train", str(folder / f"{NAME}.jsonl"), "--model", str(folder / "model")]
    return {
        "compare": compare,
        "compare, a page": [*compare, "--out", f"{out}1.html"],
        "compare, as JSON": [*compare, "--json"],
        "diagnose": ["diagnose", str(log), "--out", f"{out}3.html"],
        "doctor": ["doctor", "--storage", storage(folder)],
        "plan": ["plan", file, "-e", "e"],
        "plan, as JSON": ["plan", file, "-e", "e", "--json"],
        "ls": ["ls", "experiments", file],
        "report": ["report", file, "-e", "e", "--out", f"{out}2.html"],
        "init": ["init", *init, "--out", f"{out}.yaml"],
        "mark": ["mark", "--task", "gsm8k", "--input", str(marked), "--output", f"{out}.jsonl"],
        "an unknown file": ["plan", str(folder / NAME), "-e", NAME],
        "an unknown option": ["plan", "-e", "e", f"--{NAME}"],
    }


class Raw(Screen):
    """A terminal that keeps every character that it gets."""

    def __init__(self) -> None:
        super().__init__(100, 40)
        self.text = ""

    def feed(self, text: str) -> None:
        self.text += text.replace("\r\n", "\n")


def test_a_terminal_gets_no_control_character(tmp_path: Path) -> None:
    lines = commands(tmp_path)
    for name in ("compare", "doctor"):
        assert run_in_terminal(command(*lines[name]), screen := Raw(), tmp_path) in (0, 1, 2)
        assert "u001b]0;owned" in screen.text and not raw_controls(screen.text)


def test_every_control_character_is_spelled_out_and_no_other() -> None:
    for control in sorted({*CONTROLS} - {"\n", "\t"}):
        assert printable(f"a{control}b") == f"a\\u{ord(control):04x}b"
    for kept in ("\n\t", "é 中文\u00a0\u3000 ", "👩\u200d🚀", "می\u200cخواهم", "−½∑"):
        assert printable(kept) == kept
    assert printable_line("a\nb\t") == "a\\nb\\t"
    assert printable(printable(HOSTILE)) == printable(HOSTILE)


def test_json_keeps_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"name": HOSTILE, "every": " ".join(CONTROLS)}
    echo(json.dumps(values, indent=2))
    out = capsys.readouterr().out
    assert json.loads(out) == values and not raw_controls(out)
    assert json.loads(printable(json.dumps(values, ensure_ascii=False))) == values


def test_commands_print_hostile_names_spelled_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, line in commands(tmp_path).items():
        main(line)
        printed = capsys.readouterr()
        text = printed.out + printed.err
        assert "u001b]0;owned" in text, name
        assert not raw_controls(text), name
        if name not in ("ls", "plan"):  # `about` may have several lines
            assert FORGED not in [part.strip() for part in text.split("\n")], name
        if "--json" in line:
            json.loads(printed.out)
    pages = [page.read_text() for page in tmp_path.glob("*.html")]
    assert len(pages) == 3 and not any(map(raw_controls, pages))


def test_logs_of_a_command_are_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    streams = sys.stdout, sys.stderr
    with printable_streams():
        logging.lastResort.emit(logging.makeLogRecord({"msg": HOSTILE, "levelno": 40}))
        logging.StreamHandler().emit(logging.makeLogRecord({"msg": HOSTILE}))
        sys.stdout.writelines([HOSTILE])
        print(HOSTILE, file=sys.stderr)
    assert (sys.stdout, sys.stderr) == streams
    printed = capsys.readouterr()
    assert not raw_controls(printed.out + printed.err)
    assert printed.err.count("u001b]0;owned") == 3 and printed.out.count("u001b]0;owned") == 1


def test_live_lines_obey_only_our_own_control_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen of the tests fails for an unknown sequence; a style of a name would be ours."""
    screen, line = Screen(200, 24), HOSTILE.partition("\n")[0]
    terminal = FakeTerminal(screen)
    monkeypatch.setattr(live_region, "REDRAWS", 1 / 60)
    monkeypatch.setattr(sys, "stdout", terminal)
    region = LiveRegion(terminal, lambda *_: styled(f"frame {line}"))
    region.start(refresh=True)
    region.print(f"said {line}")
    print(f"printed {line}")
    shown = screen.shown
    region.stop()
    assert sys.stdout is terminal
    begins = printable(line)[:60]
    for word in ("said", "printed", "frame"):
        assert [row for row in shown if row.startswith(f"{word} {begins}")], word


def test_pages_hold_no_control_character() -> None:
    from orchestrator.report.content import Section, Table

    section = Section("a", HOSTILE, blocks=[Table(HOSTILE, (HOSTILE,), [(HOSTILE,)], HOSTILE)])
    html = render("section.html", section=section)
    assert not raw_controls(re.sub(r"\s", " ", html)) and "u001b]0;owned" in html
