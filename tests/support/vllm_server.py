"""vLLM's own server on loopback."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from vllm_models import RANK

KEY = "sk-Secret0123456789"
START_SECONDS = 400
# Not `vllm serve`: the command looks for the distribution vllm, which a CPU build may not be.
SERVE = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
OPTIONS = [
    *("--served-model-name", "served", "--dtype", "float32", "--enforce-eager"),
    *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"),
    *("--enable-lora", "--max-lora-rank", str(RANK), "--api-key", KEY),
]


@contextmanager
def vllm_server(model: str | Path, log: Path) -> Iterator[str]:
    """Serve a model's folder under the name `served`, with KEY; yields its base URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*SERVE, "--port", port, "--model", str(model), *OPTIONS],
            env=os.environ | variables,
            stdout=out,
            stderr=out,
        )
    try:
        end = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < end:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail(f"the server did not start: {log.read_text()[-2000:]}")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()
