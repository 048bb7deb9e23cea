"""A task of a user's own whose marker does what the completion says."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tasks import Mark, MarkLimits, Prompt, Task, make_prompt

RETURNED: dict[str, Any] = {
    "none": None,
    "a number": 0.5,
    "a tuple": ("correct", "1", "rule"),
    "another outcome": Mark("right", "1", "rule"),  # type: ignore[arg-type]
    "a number extracted": Mark("correct", 1, "rule"),  # type: ignore[arg-type]
    "a score above 1": Mark("wrong", "1", "rule", 1.5),
    "no number as score": Mark("wrong", "1", "rule", float("nan")),
    "half a character": Mark("correct", "\ud800", "rule"),
}


class Misbehaving(Task):
    """Marks "4" correct, and misbehaves when the completion names a way to."""

    name: ClassVar[str] = "misbehaving"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"
    mark_limits = MarkLimits(seconds=1.0, memory=0.5)

    def __init__(self, *, answer: str = "4", marking: Any = "lenient") -> None:
        super().__init__(marking=marking)
        self.answer = answer

    def train(self) -> list[Prompt]:
        return [make_prompt(self.name, f"2 + 2, question {i}", self.answer, "") for i in range(8)]

    def test(self) -> list[Prompt]:
        return [make_prompt(self.name, f"1 + 3, question {i}", self.answer, "") for i in range(4)]

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        if completion in RETURNED:
            return RETURNED[completion]  # type: ignore[no-any-return]
        if completion == "a score of NumPy":
            return Mark("wrong", "1", "rule", np.float32(0.5))  # type: ignore[arg-type]
        if completion in ACTIONS:
            ACTIONS[completion]()
            completion = answer
        here = f"in {os.getpid()} at {Path.cwd()}" if completion == "where" else completion
        right = completion == answer == self.answer
        return Mark("correct" if right else "wrong", here, f"{self.marking}:same")


class Moody(Task):
    """A marker of a user's own that fails for some answers, and returns wrong marks with `lies`."""

    name: ClassVar[str] = "moody"
    version: ClassVar[str] = "1"
    marker_version: ClassVar[str] = "1"

    def __init__(self, *, lies: bool = False) -> None:
        super().__init__()
        self.lies = lies

    def train(self) -> list[Prompt]:
        return self.test()

    def test(self) -> list[Prompt]:
        return [make_prompt("moody", f"q{i}", str(i), "") for i in range(4)]

    def mark(self, completion: str, answer: str, truncated: bool = False) -> Mark:
        if "fail" in completion:
            return Mark("error", None, "moody")
        right = self.lies or completion == self.format_answer(answer)
        return Mark("correct" if right else "wrong", completion, "same")


def close_output() -> None:
    os.close(1)
    sys.stdout.close()


def close_everything() -> None:
    os.closerange(3, 100)


def handle_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGIO):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # nobody waits for it: it would kill the process


ACTIONS: dict[str, Any] = {
    "raise": lambda: 1 / 0,
    "leave": sys.exit,
    "recurse": lambda: ACTIONS["recurse"](),
    "read input": input,
    "exit": lambda: os._exit(3),
    "segmentation fault": lambda: ctypes.string_at(0),
    "eat memory": lambda: bytearray(10**10),
    "hang": lambda: time.sleep(1000),
    "hang holding the interpreter": lambda: ctypes.PyDLL(None).sleep(1000),
    "hang below": lambda: subprocess.run(["sleep", "1000"], check=True),
    "close everything": close_everything,
    "print": lambda: print("[null, null]", file=sys.__stdout__, flush=True),
    "change folder": lambda: os.chdir("/"),
    "handle signals": handle_signals,
    "close output": close_output,
    "fork": os.fork,
}
