"""A sweep in a real terminal: what its bars show, and that nothing but messages remains."""

import re
from pathlib import Path

from sweeps import NAME, ONE_CPU, command, experiments
from terminal import Screen, run_in_terminal

GRPO = {
    "max_steps": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 16,
    "max_completion_length": 48,
}


def test_a_sweep_fits_a_small_terminal_and_leaves_only_its_messages(tmp_path: Path) -> None:
    file = experiments(tmp_path, grpo=GRPO, evaluate={"every": 2, "samples": 2})
    screen, frames = Screen(80, 24), set[str]()

    def watch(*_: object) -> tuple[int, int] | None:
        frames.update(re.sub(r"[━╸╺]+", "━", line) for line in screen.shown)
        training = any(line.startswith("training") for line in screen.shown)
        return (100, 30) if screen.columns == 80 and training else None

    run = command("run", str(file), "-e", NAME)
    assert run_in_terminal(run, screen, tmp_path, watch, **ONE_CPU) == 0
    assert screen.columns == 100, "was resized while it trained"
    # Its time left is known from the second report on, before which a small probe may end.
    probe = re.compile(r"probe tiny/few train  ━  \d+/256 samples(, ETA .*)?$")
    assert any(map(probe.match, frames))
    assert any(re.match(r"hard/s0 .* [34]/4 +\d+\.\d +0\.\d{3} +\d:\d\d$", f) for f in frames)
    assert any(re.match(r"1/2 cells finished, ETA \d:\d\d$", f) for f in frames)
    lines = screen.printed.split("\n")
    assert not [line for line in lines if "━" in line or "cells finished" in line]
    assert lines[0] == "few" and lines[1].strip().startswith("rows: ")
    assert lines[2].startswith("marker of few: "), "Ray prints nothing when it starts"
    assert "core_worker.cc" not in screen.printed
