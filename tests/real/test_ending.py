"""Signals end a command with one line and leave no process, whatever its main thread is doing."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from processes import LIMIT, output_of, wait_until

from benchmarks.local_cluster import environment
from cluster.ending import INTERRUPTED

# A command with a child and an orphaned grandchild. A library has replaced its signal handlers.
COMMAND = """
import os, signal, subprocess, sys, threading
from pathlib import Path
from cluster.ending import at_end, signals_end_process

folder = Path(sys.argv[1])
sleep = "import time; time.sleep(600)"
sleeps = f"[sys.executable, '-c', {sleep!r}], stdout=subprocess.DEVNULL"
parent = f"import subprocess, sys; print(subprocess.Popen({sleeps}).pid)"
with signals_end_process():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: os._exit(77))
    child = subprocess.Popen([sys.executable, "-c", sleep], preexec_fn=lambda: None)
    status = Path(f"/proc/{child.pid}/status").read_text()
    orphan = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    with at_end(lambda: (folder / "action").write_text("done")):
        (folder / "blocked").write_text(status.partition("SigBlk:")[2].split()[0])
        (folder / "ready").write_text(f"{child.pid} {orphan.stdout.decode()}")
        threading.Event().wait()
"""


def start(folder: Path, *prefix: str) -> tuple[subprocess.Popen[str], list[int]]:
    """The command once it is ready, and the processes that it has started."""
    script = folder / "command.py"
    script.write_text(COMMAND)
    process = subprocess.Popen(
        [*prefix, sys.executable, str(script), str(folder)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    ready = folder / "ready"
    wait_until(lambda: ready.exists() and ready.read_text(), lambda: process.poll() is None)
    return process, [int(pid) for pid in ready.read_text().split()]


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("number", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGUSR1", 138)]
)
def test_a_signal_ends_the_command_and_all_that_it_started(
    number: str, code: int, tmp_path: Path
) -> None:
    process, started = start(tmp_path)
    for _ in range(3):  # a second signal changes nothing
        process.send_signal(getattr(signal, number))
    _, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (code, f"decile: {INTERRUPTED}\n")
    assert len(started) == 2
    wait_until(lambda: all(map(ended, started)))
    assert (tmp_path / "action").read_text() == "done"
    assert int((tmp_path / "blocked").read_text(), 16) == 0, "children start with blocked signals"


@pytest.mark.parametrize(("ignored", "other"), [("HUP", "TERM"), ("INT", "TERM"), ("TERM", "INT")])
def test_a_signal_that_is_ignored_at_the_start_stays_ignored(
    ignored: str, other: str, tmp_path: Path
) -> None:
    process, started = start(tmp_path, "sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh")
    process.send_signal(getattr(signal, f"SIG{ignored}"))
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=1)
    child = psutil.Process(started[0])
    child.send_signal(getattr(signal, f"SIG{ignored}"))
    assert not ended(child.pid), "what it starts ignores the signal, too"
    process.send_signal(getattr(signal, f"SIG{other}"))
    process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + getattr(signal, f"SIG{other}")
    wait_until(lambda: all(map(ended, started)))


def test_an_ignored_signal_does_not_end_a_command_at_its_end() -> None:
    code = """
import os, signal
from cluster.ending import signals_end_process
signal.signal(signal.SIGINT, signal.SIG_IGN)
with signals_end_process():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
print("done")
"""
    assert output_of(code) == "done\n"


def test_a_library_call_does_not_end_its_process(caplog: pytest.LogCaptureFixture) -> None:
    from cluster.ending import end_process

    end_process(1, "Ray is lost")
    assert "Ray is lost" in caplog.text
