"""A small OpenAI-compatible server on loopback that answers as a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODELS = {"data": [{"id": "served", "max_model_len": 64}]}


@dataclass
class Answer:
    """One HTTP response: JSON, or bytes as they are; `promised` is a false Content-Length."""

    content: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None
    kind: str = "application/json"

    def send(self, handler: BaseHTTPRequestHandler) -> None:
        """Write it, then close the connection where it was torn."""
        data = (
            self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()
        )
        handler.send_response(self.status)
        length = self.promised or len(data)
        for name, value in {"Content-Type": self.kind, "Content-Length": length}.items():
            handler.send_header(name, str(value))
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = self.promised is not None


def completion(body: dict[str, Any], text: str | None = None, **changes: Any) -> Answer:
    """A completion that repeats its seed, in the form of the interface that was called."""
    text = f"seed {body['seed']}" if text is None else text
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    choice |= {"message": {"content": text}} if "messages" in body else {"text": text}
    usage = {"prompt_tokens": len(body.get("prompt", "")), "completion_tokens": 3}
    return Answer({"choices": [choice], "usage": usage} | changes)


def failure(status: int, message: str = "out of order", **headers: str) -> Answer:
    """An error in OpenAI's form; underscores in the names of headers stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer({"error": {"message": message}}, status, named)


# Called with the path and the body of each POST, and its number from 0; None never answers.
Behaviour = Callable[[str, dict[str, Any], int], Answer | None]


@dataclass
class Adapters:
    """A behaviour like vLLM 0.30's; `loaded`: name -> folder. Adapters are folders, or missing.

    What `never_ends` is true of is not answered.
    """

    server: "FakeServer"
    loaded: dict[str, str] = field(default_factory=dict)
    sampled: list[str] = field(default_factory=list)
    never_ends: Callable[[str], bool] = lambda name: False

    def __call__(self, path: str, body: dict[str, Any], number: int) -> Answer | None:
        if path.endswith("completions"):
            return self.complete(body)
        name = body["lora_name"]
        if path.endswith("/unload_lora_adapter"):
            if self.loaded.pop(name, None) is None:
                return failure(404, f"The lora adapter '{name}' cannot be found.")
        elif name in self.loaded:
            return failure(400, f"The lora adapter '{name}' has already been loaded.")
        elif not Path(body["lora_path"]).is_dir():
            return failure(404, f"No adapter found for {body['lora_path']}")
        else:
            self.loaded[name] = body["lora_path"]
        self.list_models()
        return Answer(b"Success", kind="text/plain")

    def complete(self, body: dict[str, Any]) -> Answer | None:
        """A completion of a model that is loaded."""
        model = body["model"]
        if model not in {"served", *self.loaded}:
            return failure(404, f"The model `{model}` does not exist.")
        self.sampled.append(model)
        return None if self.never_ends(model) else completion(body)

    def list_models(self) -> None:
        """What GET /models answers from now on."""
        cards = [{"id": n, "root": f, "parent": "served"} for n, f in self.loaded.items()]
        self.server.models = Answer({"data": [self.server.models.content["data"][0], *cards]})


@dataclass
class FakeServer:
    """The address of a running server, and what it received."""

    base_url: str = ""
    behaviour: Behaviour = lambda path, body, number: completion(body)
    models: Answer = field(default_factory=lambda: Answer(MODELS))
    posts: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of all POSTs."""
        return [body for _, body, _ in self.posts]


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    """A server that listens on a free port of loopback."""
    state = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            state.models.send(self)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with state.lock:
                number = len(state.posts)
                headers = {name.lower(): value for name, value in self.headers.items()}
                state.posts.append((self.path, body, headers))
                state.at_once += 1
                state.most_at_once = max(state.most_at_once, state.at_once)
            answer = state.behaviour(self.path, body, number)
            with state.lock:
                state.at_once -= 1
            if answer is None:
                state.ended.wait()
                self.close_connection = True
            else:
                answer.send(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
