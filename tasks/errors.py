"""The error of a task that its user can correct."""


class TaskError(ValueError):
    """The user's task, option or data file is wrong; the message says what to write instead."""
