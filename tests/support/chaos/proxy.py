"""An HTTP proxy on loopback that delays calls, fails them, or tears uploads."""

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length"}


@contextmanager
def flaky_proxy(
    address: str,
    *,
    delay: float = 0.0,
    failures: float = 0.0,
    rng: random.Random | None = None,
    changed: Callable[[str], None] = lambda request: None,
) -> Iterator[tuple[str, list[str]]]:
    """Forward to `address` (http://HOST:PORT); yields the proxy's own address and failed requests.

    A share `failures` of the calls fails: one half is answered by 503, of the other half the
    connection is closed in the middle of the body. `changed` is called with each request that has
    written or deleted something, before its reply is passed on.
    """
    upstream, random_numbers, lock = (
        address.removeprefix("http://"),
        rng or random.Random(0),
        threading.Lock(),
    )

    failed: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            time.sleep(delay)
            with lock:
                draw = random_numbers.random()
            length = int(self.headers.get("Content-Length") or 0)
            if draw < failures:
                failed.append(f"{self.command} {self.path}")
            if draw < failures / 2:  # torn: half of the body is read, nothing is forwarded
                self.rfile.read(length // 2)
                self.close_connection = True
                return
            body = self.rfile.read(length) if length else self._chunks()
            if draw < failures:
                self.send_error(503, "Slow Down")
                return
            try:
                connection = http.client.HTTPConnection(upstream, timeout=60)
                connection.request(self.command, self.path, body, dict(self.headers))
                reply = connection.getresponse()
                data = reply.read()
                if self.command in ("PUT", "POST", "DELETE") and reply.status < 300:
                    with lock:
                        changed(f"{self.command} {self.path}")
            except OSError:  # the server is down
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            size = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", size or "0")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = forward

        def _chunks(self) -> bytes:
            """The body of a request in chunks, as it came."""
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return b""
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            del self.headers["Transfer-Encoding"]
            return data

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was killed is no error of the proxy."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", failed
    finally:
        server.shutdown()
        server.server_close()
