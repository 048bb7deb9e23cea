"""Downloads from the hub: the hub's real client and `decile fetch`, against a hub on loopback."""

import subprocess
from pathlib import Path

from hub_cases import Decile, client, decile, file, hub, large, start, sums  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)  # noqa: F401 (fixtures)
from hub_server import Hub
from processes import LIMIT, free_port
from sweeps import ONE_CPU, command


def test_a_sweep_runs_without_a_network_on_what_was_fetched(
    file: Path, tmp_path: Path, hub: Hub
) -> None:
    assert start(file, hub).wait(120) == 0
    hub.requests.clear()
    environment = client(file, hub) | {"HF_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    environment["HF_HUB_OFFLINE"] = "1"
    done = subprocess.run(
        command("run", file.name, "-e", "small"),
        cwd=tmp_path,
        env=environment | ONE_CPU,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1/1] far/sums/hard/s0: accuracy" in done.stderr
    assert not hub.requests


def test_two_downloads_at_once_receive_every_file_once(
    file: Path, hub: Hub, decile: Decile
) -> None:
    weights = large(hub)
    hub.delay = 0.005
    both = [start(file, hub) for _ in range(2)]
    errors = [process.communicate(timeout=LIMIT)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert sum(r.sent for r in hub.bodies("model.safetensors")) == len(weights)
