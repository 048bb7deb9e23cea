"""Problems of a file of experiments: raised anywhere, located at a line in one place. Pure.

A check has its setting, not the file. `LoadedConfig.located` turns a Problem into a UserError.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

NO_AXES: Mapping[str, Any] = MappingProxyType({})


class Problem(ValueError):
    """A setting that cannot work, with what is wrong and what to write instead.

    code: the kind of mistake, for programs. path: from the block that is checked to the setting;
    the caller of the check adds the block's own path (see `below`). axes: the values of the
    combination that cannot work. It is a ValueError because pydantic collects ValueErrors of
    validators, with the path of the block.
    """

    def __init__(
        self, code: str, message: str, *path: str | int, axes: Mapping[str, Any] = NO_AXES
    ) -> None:
        super().__init__(code, message, *path)
        self.code, self.message, self.path, self.axes = code, message, path, dict(axes)

    def __str__(self) -> str:
        return self.message


@contextmanager
def below(*path: str | int, axes: Mapping[str, Any] = NO_AXES) -> Iterator[None]:
    """Problems raised in this block are at `path`, and apply to these values of axes."""
    try:
        yield
    except Problem as problem:
        problem.path = (*path, *problem.path)
        problem.axes = {**axes, **problem.axes}
        raise
