"""Bars at the bottom of a terminal: they never hide what is printed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live_region_cases import region  # noqa: F401 (fixtures)
from rich.file_proxy import FileProxy
from terminal import FakeTerminal, Screen, run_in_terminal

from orchestrator.pipeline.live_region import LiveRegion

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


def test_messages_print_above_the_bars_in_a_real_terminal(tmp_path: Path) -> None:
    screen = Screen(80, 24)
    assert run_in_terminal([sys.executable, "-c", DEMO, "2"], screen, tmp_path) == 0
    lines = screen.printed.split("\n")
    assert lines[:2] == ["to stdout", "a log line"]
    assert "a warning" in lines[2]
    assert lines[-2:] == ["no end", "after"]


def test_an_interrupt_leaves_a_clean_terminal(tmp_path: Path) -> None:
    screen, signals = Screen(80, 24), [signal.SIGINT]

    def interrupt(_: Screen, process: subprocess.Popen[bytes]) -> None:
        if signals and "a warning" in screen.printed:
            process.send_signal(signals.pop())

    command = [sys.executable, "-c", DEMO, "60"]
    assert run_in_terminal(command, screen, tmp_path, interrupt) == -signal.SIGINT
    assert "bar " not in screen.printed  # and no control sequence hid the cursor
    assert screen.printed.endswith("KeyboardInterrupt")


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
