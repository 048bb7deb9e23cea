"""The error of the Python API."""

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.plugins.extras import missing_library
from orchestrator.storage.errors import StoreError, UserError, one_line
from tasks import TaskError

__all__ = ["UserError", "as_user_error"]


@contextmanager
def as_user_error(*more: type[Exception]) -> Iterator[None]:
    """Raise every error that the user can correct as UserError; usable as a decorator.

    These are StoreError, TaskError, missing libraries, and `more`: other errors that the call may
    raise.
    """
    kinds: tuple[type[Exception], ...] = (StoreError, TaskError, *more)
    try:
        yield
    except kinds as error:
        raise UserError(one_line(str(error))) from None
    except ModuleNotFoundError as error:
        if missing := missing_library(error):
            raise UserError(missing) from error
        raise
