"""How much a test tries: a part of its cases in `make test`, and all of them in `make test-all`."""

from collections.abc import Sequence
from typing import Any

import pytest


def some(cases: Sequence[Any], count: int) -> list[Any]:
    """Cases for `parametrize`: all but the first `count` are exhaustive."""
    rest = [case if isinstance(case, tuple) else (case,) for case in cases[count:]]
    return [*cases[:count], *(pytest.param(*c, marks=pytest.mark.exhaustive) for c in rest)]
