"""A stand-in of the Hugging Face Hub's HTTP interface on loopback, for its real client.

It serves repositories from memory: listings in pages, files with the hub's headers, redirects of
large files to another port (as to the hub's CDN), byte ranges, gated repositories, and faults.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = Mapping[str, bytes]
PAGE = 3  # entries of a listing's page
CHUNK = 1 << 14
LARGE = (".safetensors", ".parquet", ".bin", ".pt", ".gguf")  # in git LFS


def commit(text: str) -> str:
    """A commit's hash."""
    return hashlib.sha1(text.encode()).hexdigest()


def etag(path: str, content: bytes) -> str:
    """The hub's ETag: SHA-256 of a large file, git's hash of another."""
    if path.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Request:
    """A request as it came in."""

    method: str
    path: str
    start: int  # of the byte range
    token: str
    port: int
    sent: int = 0  # bytes of a body


@dataclass
class Hub:
    """The repositories by kind, id and commit; what to do wrong; and the requests so far."""

    repositories: dict[tuple[str, str], dict[str, Files]] = field(default_factory=dict)
    gated: dict[str, str] = field(default_factory=dict)  # id -> the token that may read it
    cut: dict[str, int] = field(default_factory=dict)  # path -> bytes until the connection ends
    short: dict[str, int] = field(default_factory=dict)  # path -> bytes of the whole body
    changed: set[str] = field(default_factory=set)  # paths whose body has other bytes
    failing: dict[str, list[int]] = field(default_factory=dict)  # path -> statuses to answer first
    delay: float = 0.0  # seconds after each chunk of a body
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    cdn: str = ""

    def add(self, kind: str, name: str, files: Files, revision: str = "") -> str:
        """Add a repository's commit; returns its hash."""
        revision = revision or commit(f"{kind}/{name}")
        self.repositories.setdefault((kind, name), {})[revision] = files
        return revision

    def add_folder(self, kind: str, name: str, folder: Path, **more: bytes) -> str:
        """Add the files of a folder as a commit; returns its hash."""
        files = {f.name: f.read_bytes() for f in sorted(folder.iterdir()) if f.is_file()}
        return self.add(kind, name, files | more)

    def bodies(self, path: str) -> list[Request]:
        """The requests for a file's content."""
        return [r for r in self.requests if r.method == "GET" and r.path == path and r.sent]


class Handler(BaseHTTPRequestHandler):
    """Answers one connection. The second port, the CDN, serves only content by hash."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        start = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or ["", "0"])[1])
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        port = self.server.server_address[1]
        name = path.rpartition("/resolve/")[2].partition("/")[2] or path
        self.request_record = Request(self.command, name, start, token, port)
        self.hub.requests.append(self.request_record)
        if self.command == "GET" and (statuses := self.hub.failing.get(name)):
            return self.refuse(statuses.pop(0), "", "a fault")
        if content := re.fullmatch("/cdn/([^/]+)/([0-9a-f]{40})/(.+)", path):
            return self.stored(content[1].replace("--", "/"), content[2], content[3])
        if api := re.fullmatch("/api/(model|dataset)s/([^/]+/[^/]+)/(.+)", path):
            return self.interface(api[1], api[2], api[3], parse_qs(parts.query))
        if file := re.fullmatch("/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            kind = "dataset" if file[1] else "model"
            return self.file(kind, file[2], file[3], file[4])
        return self.send(200, b"a hub")

    def commit_of(self, kind: str, name: str, revision: str) -> Files | None:
        """The files of a commit; answers and returns None where there is none."""
        commits = self.hub.repositories.get((kind, name))
        if commits is None:
            self.refuse(401, "RepoNotFound", "Invalid username or password.")
        elif revision not in commits:
            self.refuse(404, "RevisionNotFound", "Invalid rev id")
        return (commits or {}).get(revision)

    def readable(self, name: str) -> bool:
        """Whether the request may read a repository's content; answers where it may not."""
        needed = self.hub.gated.get(name)
        if needed and self.request_record.token != needed:
            self.refuse(403 if self.request_record.token else 401, "GatedRepo", "Access is gated")
            return False
        return True

    def interface(self, kind: str, name: str, action: str, query: dict[str, list[str]]) -> None:
        if action == "auth-check":
            if (kind, name) not in self.hub.repositories:
                return self.refuse(401, "RepoNotFound", "Invalid username or password.")
            return self.send(200, b"") if self.readable(name) else None
        verb, _, revision = action.partition("/")
        files = self.commit_of(kind, name, revision)
        if files is None:
            return None
        if verb == "revision":
            siblings = [{"rfilename": path} for path in files]
            return self.send_json({"id": name, "sha": revision, "siblings": siblings})
        first = int(query.get("cursor", ["0"])[0])
        entries = [self.entry(path, files[path]) for path in sorted(files)]
        link = {}
        if len(entries) > first + PAGE:
            page = f"{self.hub.url}{urlsplit(self.path).path}?recursive=True&cursor={first + PAGE}"
            link = {"Link": f'<{page}>; rel="next"'}
        return self.send_json(entries[first : first + PAGE], link)

    def entry(self, path: str, content: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "type": "file",
            "path": path,
            "size": len(content),
            "oid": hashlib.sha1(content).hexdigest()
            if path.endswith(LARGE)
            else etag(path, content),
        }
        if path.endswith(LARGE):
            digest = etag(path, content)
            entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
        return entry

    def file(self, kind: str, name: str, revision: str, path: str) -> None:
        files = self.commit_of(kind, name, revision)
        if files is None or not self.readable(name):
            return None
        if path not in files:
            return self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": revision})
        headers = {"X-Repo-Commit": revision}
        if path.endswith(LARGE):
            stored = f"{kind}--{name.replace('/', '--')}"
            headers |= {
                "Location": f"{self.hub.cdn}/cdn/{stored}/{revision}/{path}",
                "X-Linked-ETag": f'"{etag(path, files[path])}"',
                "X-Linked-Size": str(len(files[path])),
            }
            return self.send(302, b"", headers)
        return self.content(path, files[path], headers)

    def stored(self, repository: str, revision: str, path: str) -> None:
        kind, _, name = repository.partition("/")
        self.request_record.path = path
        if self.command == "GET" and (statuses := self.hub.failing.get(path)):
            return self.refuse(statuses.pop(0), "", "a fault")
        return self.content(path, self.hub.repositories[(kind, name)][revision][path], {})

    def content(self, path: str, content: bytes, headers: dict[str, str]) -> None:
        headers = headers | {"ETag": f'"{etag(path, content)}"', "Accept-Ranges": "bytes"}
        start = self.request_record.start
        if self.command == "HEAD":
            return self.send(200, content, headers)
        if path in self.hub.changed:
            content = bytes(255 - byte for byte in content)
        content = content[: self.hub.short.get(path)]
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        return self.send(206 if start else 200, content[start:], headers, self.hub.cut.get(path))

    def refuse(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        more = {"X-Error-Code": code, "X-Error-Message": message}
        self.send(status, json.dumps({"error": message}).encode(), more | dict(headers or {}))

    def send_json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self.send(200, json.dumps(value).encode(), headers)

    def send(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        for header, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        for first in range(0, len(body), CHUNK):
            chunk = body[first : first + CHUNK]
            if cut is not None and self.request_record.sent + len(chunk) > cut:
                self.close_connection = True
                return
            try:
                self.wfile.write(chunk)
            except OSError:  # the client is gone
                self.close_connection = True
                return
            self.request_record.sent += len(chunk)
            time.sleep(self.hub.delay)


class QuietServer(ThreadingHTTPServer):
    """Prints nothing about clients that were killed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing."""


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A hub without repositories, while the block runs."""
    hub = Hub()
    handler = type("BoundHandler", (Handler,), {"hub": hub})
    servers = [QuietServer(("127.0.0.1", 0), handler) for _ in range(2)]
    hub.url, hub.cdn = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    hub.cdn = hub.cdn.replace("127.0.0.1", "localhost")  # another host: gets no token
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
