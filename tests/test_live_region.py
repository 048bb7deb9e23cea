"""Bars at the bottom of a terminal: they never hide what is printed."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.file_proxy import FileProxy
from rich.text import Text
from terminal import FakeTerminal, Screen, run_in_terminal

from orchestrator.pipeline import live_region
from orchestrator.pipeline.live_region import LiveRegion, can_redraw

DEMO = """
import logging, sys, time, warnings
from rich.text import Text
from orchestrator.pipeline.live_region import LiveRegion
region = LiveRegion(sys.stderr, lambda columns, lines: Text("\\n".join(["bar " * 90] * lines)))
region.start()
try:
    print("to stdout")
    logging.getLogger("decile").warning("a log line")
    warnings.warn("a warning")
    print("no end", end="")
    time.sleep(float(sys.argv[1]))
finally:
    region.stop()
print("after")
"""


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LiveRegion, Screen]]:
    """A region that is redrawn only when something is printed."""
    screen = Screen(80, 24)
    monkeypatch.setattr(live_region, "REDRAWS", 1 / 60)
    region = LiveRegion(FakeTerminal(screen), lambda *_: Text("one\ntwo"))
    region.start(refresh=True)
    yield region, screen
    region.stop()


def test_only_what_is_printed_remains(region: tuple[LiveRegion, Screen]) -> None:
    live, screen = region
    long = "word " * 40
    for text in ("a message", "", long):
        live.print(text)
        assert screen.shown[-2:] == ["one", "two"]
    live.stop()
    live.print("after")
    assert screen.printed == f"a message\n\n{long.rstrip()}\nafter"


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (200, 50), (10, 3)])
def test_a_frame_that_is_too_large_is_cut_to_the_terminal(
    columns: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    screen = Screen(columns, lines)
    frame = "\n".join(f"{number} " * 100 for number in range(60, 100))
    region = LiveRegion(FakeTerminal(screen), lambda *_: Text(frame, no_wrap=True))
    region.start()
    for _ in range(3):
        region.refresh()  # a frame that is higher than the screen would move above it
    assert len(screen.rows) <= lines
    assert screen.shown[0].startswith("60 60")


def test_incomplete_lines_wait_and_a_forked_process_writes_directly(
    region: tuple[LiveRegion, Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, screen = region
    above = FileProxy(live.console, FakeTerminal(screen))
    above.write("one ")
    assert screen.printed == "one\ntwo"
    above.write("line\nand ")
    assert screen.printed == "one line\none\ntwo"
    streams = sys.stdout, sys.stderr
    monkeypatch.setattr(sys, "stdout", above)
    if not (child := os.fork()):
        os._exit((sys.stdout, sys.stderr) != streams)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("name", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = FakeTerminal(Screen(80, 24))
    monkeypatch.setenv("TERM", "xterm")
    assert can_redraw(terminal) and not can_redraw(io.StringIO())
    monkeypatch.setenv("TERM", name)
    assert not can_redraw(terminal)


@pytest.mark.slow
def test_messages_print_above_the_bars_in_a_real_terminal(tmp_path: Path) -> None:
    screen = Screen(80, 24)
    assert run_in_terminal([sys.executable, "-c", DEMO, "2"], screen, tmp_path) == 0
    lines = screen.printed.split("\n")
    assert lines[:2] == ["to stdout", "a log line"]
    assert "a warning" in lines[2]
    assert lines[-2:] == ["no end", "after"]


@pytest.mark.slow
def test_an_interrupt_leaves_a_clean_terminal(tmp_path: Path) -> None:
    screen, signals = Screen(80, 24), [signal.SIGINT]

    def interrupt(_: Screen, process: subprocess.Popen[bytes]) -> None:
        if signals and "a warning" in screen.printed:
            process.send_signal(signals.pop())

    command = [sys.executable, "-c", DEMO, "60"]
    assert run_in_terminal(command, screen, tmp_path, interrupt) == -signal.SIGINT
    assert "bar " not in screen.printed  # and no control sequence hid the cursor
    assert screen.printed.endswith("KeyboardInterrupt")
