"""A file system on the network with calls that always end.

Arrow retries failures, and waits for a server as long as it occasionally sends a byte.
"""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cluster.terminal import PlainError
from orchestrator.plugins.deadlines import within

CALL_SECONDS = 120.0
PART = 8 << 20  # bytes of a file that one call copies
_late: list[Any] = []  # objects with destructors that would also wait


class RemoteFails(PlainError, OSError):
    """A call of a network file system failed, after all of Arrow's own attempts.

    passes: whether the same call may work later.
    """

    passes = False


# Words of Arrow and of the clients of object stores.
_PASSING = re.compile(
    r"SLOW_?DOWN|SERVICE_UNAVAILABLE|THROTTL|INTERNAL_FAILURE|NETWORK_CONNECTION|REQUEST_TIME"
    r"|status:? 5\d\d|curlCode|timed? ?out",
    re.IGNORECASE,
)


def _failure(call: str, arguments: tuple[Any, ...], reason: str, *, passes: bool) -> RemoteFails:
    named = arguments[0] if arguments else ""
    path = named if isinstance(named, str) else getattr(named, "base_dir", "")
    remedy = "wait until it responds" if passes else "correct this"
    reason = " ".join(reason.split())[:300].rstrip(".")
    text = f"storage {path or 'stream'} ({call}): {reason}: {remedy}, then rerun the same command"
    error = RemoteFails(f"{text} to resume")
    error.passes = passes
    return error


class Remote:
    """An Arrow file system or file: each call ends in time or raises RemoteFails."""

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
                raise _failure(name, args, error.strerror or "", passes=True) from error
            except FileNotFoundError:
                raise
            except OSError as error:
                passes = bool(_PASSING.search(str(error)))
                raise _failure(name, args, str(error), passes=passes) from error
            return Remote(value) if isinstance(value, pa.NativeFile) else value

        return call

    def __reduce__(self) -> tuple[type["Remote"], tuple[Any]]:
        return Remote, (self._wrapped,)

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # closing completes an upload
            self.close()
