"""A file system on the network, whose calls end.

Arrow repeats what fails, and waits for a server as long as it sends a byte now and then.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from orchestrator.plugins.deadlines import within

CALL_SECONDS = 120.0
PART = 8 << 20  # bytes of a file that are copied by one call
_late: list[Any] = []  # whose destructors would wait, too


class Remote:
    """An Arrow file system, or a file of one: each call ends in time, or raises TimeoutError."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):  # of copy and pickle
            raise AttributeError(name)
        method = getattr(self._wrapped, name)

        def call(*args: Any, **options: Any) -> Any:
            try:
                value = within(CALL_SECONDS, lambda: method(*args, **options))
            except TimeoutError:
                _late.append(self._wrapped)
                raise
            return Remote(value) if isinstance(value, pa.NativeFile) else value

        return call

    def __reduce__(self) -> tuple[type["Remote"], tuple[Any]]:
        return Remote, (self._wrapped,)

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # closing completes an upload
            self.close()
