"""Bars at the bottom of a terminal: they never smear, scroll or hide what is printed."""

import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text
from terminal import FakeTerminal, Screen, run_in_terminal

from orchestrator.pipeline import live_region
from orchestrator.pipeline.live_region import LinesAbove, LiveRegion, can_redraw

DEMO = """
import logging, sys, time, warnings
from rich.text import Text
from orchestrator.pipeline.live_region import LiveRegion
region = LiveRegion(sys.stderr, lambda columns, lines: Text("\\n".join(["bar " * 90] * 30)))
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


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.integers(2, 160),  # a new width
            st.text("ab c", max_size=120),  # a line
            st.integers(0, 40).map(lambda count: ["x" * 3 * count] * count),  # a frame
        ),
        max_size=20,
    )
)
@pytest.mark.slow
def test_only_what_is_printed_remains_at_any_width(events: list[object]) -> None:
    screen = Screen(80, 10_000)  # high enough that nothing scrolls out before it is erased
    frame = ["one", "two"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_region, "terminal_size", lambda out: (screen.columns, screen.lines))
        region = LiveRegion(FakeTerminal(screen), lambda columns, lines: Text("\n".join(frame)))
        printed = []
        region.print("")
        for event in events:
            if isinstance(event, int):
                screen.resize(event, screen.lines)
            elif isinstance(event, list):
                frame = event
            else:
                printed.append(event)
                region.print(f"{event}\n")
        region.print("last\n")
        shown = [line for line in screen.printed.split("\n") if line]
        assert len(shown) >= min(1, len(frame))
        region._thread.start()  # `start` would also redirect pytest's own streams
        region.stop()
    printed = [line.rstrip() for line in [*printed, "last"]]
    assert screen.printed == "\n".join(printed)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (200, 50), (10, 2), (1, 1)])
@pytest.mark.slow
def test_a_frame_that_is_too_large_is_cut_to_the_terminal(
    columns: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_region, "terminal_size", lambda out: (columns, lines))
    screen = Screen(columns, lines)
    frame = "\n".join(f"{number} " * 100 for number in range(60, 100))
    region = LiveRegion(FakeTerminal(screen), lambda *_: Text(frame, no_wrap=True))
    for _ in range(3):
        region.print("")  # a frame that is higher than the screen would move above it
    if lines > 1:
        assert len(screen.rows) <= lines
        assert screen.shown[-2].startswith("9")


def test_incomplete_lines_wait_and_a_forked_process_writes_directly() -> None:
    screen = Screen(80, 24)
    terminal = FakeTerminal(screen)
    region = LiveRegion(terminal, lambda *_: Text("bars"))
    region.print("")
    above = LinesAbove(terminal, region)
    above.write("one ")
    assert screen.printed == "bars"
    above.write("line\nand ")
    assert screen.printed == "one line\nbars"
    above._process = -1
    above.write("child")
    assert screen.printed.endswith("child")


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
    screen, sizes = Screen(80, 24), [(40, 24), (200, 50)]

    def resize(*_: object) -> tuple[int, int] | None:
        return sizes.pop(0) if sizes and "a warning" in screen.printed else None

    command = [sys.executable, "-c", DEMO, "2"]
    assert run_in_terminal(command, screen, tmp_path, resize) == 0
    lines = screen.printed.split("\n")
    assert not sizes
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
