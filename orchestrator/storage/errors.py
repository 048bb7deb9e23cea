"""The error that every command turns into one message and exit code 2."""


class UserError(Exception):
    """Invalid input: the message says what is wrong, where, and what to write instead."""
