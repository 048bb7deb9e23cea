"""What cannot work in a file of experiments: raised anywhere, given its line in one place. Pure.

A check knows its setting, not the file. `LoadedConfig.located` turns a Problem into a UserError.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

NO_AXES: Mapping[str, Any] = MappingProxyType({})


class Problem(ValueError):
    """A setting that cannot work: what is wrong, and what to write instead.

    `code` names the kind of mistake for programs. `path` leads to the setting from the block whose
    check raises it; what calls the check adds where that block is (see `below`). `axes` are the
    values of the combination that cannot work. A ValueError, because pydantic collects those of
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
    """What is raised in this block is at `path`, and holds for these values of axes."""
    try:
        yield
    except Problem as problem:
        problem.path = (*path, *problem.path)
        problem.axes = {**axes, **problem.axes}
        raise
