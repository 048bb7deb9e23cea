"""The error that every command turns into one message and exit code 2."""


class UserError(Exception):
    """The user's input is wrong: what, where, and what to write instead. Exit code 2."""
