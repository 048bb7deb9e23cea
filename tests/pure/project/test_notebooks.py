"""In a Jupyter kernel: errors without tracebacks, one display of the progress, PNG figures."""

import pytest

from cluster.terminal import PlainError
from decile.errors import as_user_error
from decile.sweep_errors import SWEEP_ERRORS
from orchestrator.cli.main import _failure
from policies import PolicyError
from tasks import TaskError


def subclasses(kind: type) -> set[type]:
    return {kind, *(each for sub in kind.__subclasses__() for each in subclasses(sub))}


def test_what_a_command_says_in_one_message_a_notebook_does_too() -> None:
    """Those of tasks and policies, which know no notebook, become a UserError."""
    _failure(RuntimeError("x"), None)  # imports the classes that it knows
    imported = [names for names in _failure.__code__.co_consts if isinstance(names, tuple)]
    names = {name for names in imported for name in names if name[:1].isupper()}
    known = {each.__name__ for each in subclasses(PlainError)}
    for error in (TaskError("x"), PolicyError("x")):
        with pytest.raises(PlainError), as_user_error(*SWEEP_ERRORS):
            raise error
    assert len(names) >= 9 and names <= known | {"PolicyError", "TaskError", "HubFails"}
