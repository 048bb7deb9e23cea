"""Bars at the bottom of a terminal: they never hide what is printed."""

import io

import pytest
from live_region_cases import region  # noqa: F401 (fixtures)
from rich.text import Text
from terminal import FakeTerminal, Screen

from orchestrator.pipeline.live_region import LiveRegion, can_redraw


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


@pytest.mark.parametrize("name", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = FakeTerminal(Screen(80, 24))
    monkeypatch.setenv("TERM", "xterm")
    assert can_redraw(terminal) and not can_redraw(io.StringIO())
    monkeypatch.setenv("TERM", name)
    assert not can_redraw(terminal)
