"""A file system on the network, whose calls end.

Arrow repeats what fails, and waits for a server as long as it sends a byte now and then.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cluster.terminal import PlainError
from orchestrator.plugins.deadlines import within

CALL_SECONDS = 120.0
PART = 8 << 20  # bytes of a file that are copied by one call
_late: list[Any] = []  # whose destructors would wait, too


class RemoteFails(PlainError, OSError):
    """A call of a file system on the network has failed, after all of Arrow's own attempts."""


def _sentence(call: str, arguments: tuple[Any, ...], reason: str) -> str:
    named = arguments[0] if arguments else ""
    path = named if isinstance(named, str) else getattr(named, "base_dir", "")
    return (
        f"storage {path or 'stream'} ({call}): {' '.join(reason.split())[:300]}: wait until it "
        "answers, then rerun the same command to resume"
    )


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
            except TimeoutError as error:
                _late.append(self._wrapped)
                raise RemoteFails(_sentence(name, args, error.strerror or "")) from error
            except FileNotFoundError:
                raise
            except OSError as error:
                raise RemoteFails(_sentence(name, args, str(error))) from error
            return Remote(value) if isinstance(value, pa.NativeFile) else value

        return call

    def __reduce__(self) -> tuple[type["Remote"], tuple[Any]]:
        return Remote, (self._wrapped,)

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # closing completes an upload
            self.close()
