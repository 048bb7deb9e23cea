"""Names the policy of the user's own that raised an error, and where."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from policies import PolicyError
from tasks.user_code import describe


@contextmanager
def policy_errors(policy: object, name: str) -> Iterator[None]:
    """Turn what a policy of the user's own raises into a PolicyError with the place.

    A bug of a built-in policy keeps its traceback.
    """
    try:
        yield
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        function: Any = policy.func if isinstance(policy, partial) else policy
        owner = function if hasattr(function, "__qualname__") else type(function)
        if owner.__module__.startswith("policies."):
            raise
        raise PolicyError(f"policy {name!r} raised {describe(error)}") from error
