"""Limits on servers that answer slowly or endlessly.

The timeout of a socket restarts with each byte, so that a server that occasionally sends one is
waited for endlessly. docs/running.md lists the limits, and tests/real/test_deadlines.py tests every
network client with such servers.
"""

import ctypes
import errno
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
MAX_REPLY = 64 << 20  # bytes of a reply that is kept in memory
abandoned = threading.Event()  # set once a late action may still be running


class EndlessReply(ConnectionError):
    """A server sends more than the largest possible reply."""


def within(
    seconds: float, action: Callable[[], T], advances: Callable[[], bool] = lambda: False
) -> T:
    """The result of `action`. Raises TimeoutError if it takes longer.

    The time starts again whenever `advances` is true. The action runs in its own thread. A late
    action is abandoned: its thread ends at its next Python instruction, or with the process while
    inside a library's C++ code.
    """
    result: Future[T] = Future()

    def run() -> None:
        with suppress(SystemExit):  # raised below, at any point of the action
            try:
                result.set_result(action())
            except BaseException as error:  # noqa: BLE001 (raised by the caller)
                result.set_exception(error)

    thread = threading.Thread(target=run, name="within a deadline", daemon=True)
    thread.start()
    while True:
        try:
            return result.result(seconds)
        except FutureTimeout:
            if result.done():  # the action's own TimeoutError
                raise
            if not advances():
                break
    abandoned.set()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
    )
    raise TimeoutError(errno.ETIMEDOUT, f"no complete answer in {seconds:g} s")


def limit_body(
    response: "httpx2.Response",
    most: int = MAX_REPLY,
    received: Callable[[int], None] = lambda size: None,
) -> None:
    """Make a response of httpx raise EndlessReply beyond `most` bytes; a hook for its clients.

    `received` is called with the size of each part, and with 0 at the end.
    """
    import httpx2

    class Limited(httpx2.SyncByteStream):
        def __init__(self, stream: httpx2.SyncByteStream) -> None:
            self.stream = stream

        def __iter__(self) -> Iterator[bytes]:
            left = most
            for part in self.stream:
                left = _left(left, part)
                received(len(part))
                yield part

        def close(self) -> None:
            self.stream.close()
            received(0)

    response.stream = Limited(response.stream)  # type: ignore[arg-type]


async def limit_body_async(response: "httpx2.Response") -> None:
    """As `limit_body`, for asynchronous clients."""
    import httpx2

    class Limited(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self.stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_REPLY
            async for part in self.stream:
                left = _left(left, part)
                yield part

        async def aclose(self) -> None:
            await self.stream.aclose()

    response.stream = Limited(response.stream)  # type: ignore[arg-type]


def _left(left: int, part: bytes) -> int:
    if len(part) > left:
        raise EndlessReply("the reply has no end")
    return left - len(part)
