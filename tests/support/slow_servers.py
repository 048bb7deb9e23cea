"""Servers on loopback that never finish an answer."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PROMISED = HEAD + b"Content-Length: 1000000000000\r\n\r\n"
# What is sent first, what is sent again and again, and the seconds between.
SERVERS = {
    "silent": (b"", b"", 0.05),
    "a header now and then": (HEAD, b"X: y\r\n", 0.1),
    "a byte now and then": (PROMISED, b" ", 0.05),
    "a chunk now and then": (CHUNKED, b"1\r\n \r\n", 0.05),
    "an endless body": (HEAD + b"\r\n", b" " * 65536, 0.0),
    "endless chunks": (CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n", 0.0),
}


@contextmanager
def slow_server(kind: str) -> Iterator[int]:
    """The port of a server that answers every request like this."""
    first, again, pause = SERVERS[kind]
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(first)
            while not ended.is_set():
                connection.sendall(again)
                time.sleep(pause)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=answer, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
