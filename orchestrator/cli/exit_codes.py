"""How a command ends, unless a signal ends it. docs/running.md has the remedies."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `decile`; a signal N ends it with 128 + N."""

    DONE = 0
    FAILED = 1  # a cell, a check, Ray or the machine; or another driver is running
    INVALID = 2  # the user's input
    CAPPED = 3  # a cap (`max_gpu_hours`, `max_hours`) left cells out
    PROBLEM = 4  # a diagnosed run has a problem
