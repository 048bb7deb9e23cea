"""How a command ends, unless a signal ends it. docs/running.md has the remedies."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `decile`.

    A signal N ends a command with 128 + N: 129 for SIGHUP, 130 for SIGINT (Ctrl-C), 138 for
    SIGUSR1, 143 for SIGTERM.
    """

    DONE = 0
    """Nothing is left to do."""
    FAILED = 1
    """A cell, a check, Ray or the machine failed, or another driver is running. A rerun resumes."""
    INVALID = 2
    """The input is wrong. The message says what, where, and what to write instead."""
    CAPPED = 3
    """A cap (`max_gpu_hours`, `max_hours`) left cells out."""
    PROBLEM = 4
    """A run that `decile diagnose` has read has a problem."""
