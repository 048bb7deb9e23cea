"""The error of the Python API."""

from collections.abc import Iterator
from contextlib import contextmanager

from cluster.resources import ResourceError
from orchestrator.storage.errors import UserError, one_line
from orchestrator.storage.lease import LeaseHeld
from orchestrator.storage.store import StoreError
from policies import PolicyError
from tasks import TaskError

__all__ = ["UserError", "as_user_error"]


@contextmanager
def as_user_error() -> Iterator[None]:
    """Raise every error that the user can correct as UserError; usable as a decorator."""
    try:
        yield
    except (StoreError, ResourceError, PolicyError, TaskError, LeaseHeld) as error:
        raise UserError(one_line(str(error))) from None
