"""Watches the Ray that a command uses, and ends the command when its raylet or its GCS is lost.

Calls into Ray do not return then: `ray.wait` has no timeout under Tune, and Ray itself exits
without a word after a minute without a GCS. Nodes other than the driver's may come and go.
"""

import os
import socket
import threading
import time

from cluster import ending
from cluster.ray_internals import (
    gcs_address,
    node_is_alive,
    raylet_socket,
    session_logs,
    started_processes,
)

PERIOD = 1.0  # seconds between two checks
SIGNAL_SECONDS = 0.5  # a signal to the whole process group reaches Ray as well: it has precedence
GONE_SECONDS = 20.0  # of a GCS that refuses connections; a fault-tolerant one may restart
SILENT_SECONDS = 45.0  # of one that is only slow; Ray ends the process after 60 s
ANSWER_SECONDS = 2.0


class Watchdog:
    """One thread that checks Ray until `stop`; for a connected Ray, in a command only."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._started = started_processes()
        self._socket, self._gcs, self._logs = raylet_socket(), gcs_address(), session_logs()
        self._answered = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        if ending.enabled():
            self._thread.start()

    def stop(self) -> None:
        """Stop watching, before Ray is shut down."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def explain(self, seconds: float) -> None:
        """End the command if Ray is lost, which may be the cause of an error.

        Looks again after some seconds, because an error may arrive before its cause can be seen.
        """
        if ending.enabled():
            self._end_if_lost()
            time.sleep(seconds)
            self._end_if_lost()

    def _watch(self) -> None:
        while not self._stopped.wait(PERIOD):
            self._end_if_lost()

    def _end_if_lost(self) -> None:
        if lost := self.lost():
            time.sleep(SIGNAL_SECONDS)
            logs = f"; Ray's logs on this node: {self._logs}" if self._logs else ""
            ending.end_process(1, f"{lost}; rerun the same command to resume{logs}")

    def lost(self) -> str:
        """What is lost, and where; empty if nothing is."""
        host = socket.gethostname()
        names = {"raylet": "the raylet", "gcs_server": "the GCS server"}
        for name, process in self._started.items():
            if (code := process.poll()) is not None:
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                return f"{names[name]} of the local Ray ({host}, process {process.pid}) {how}"
        if not _accepts(self._socket):
            return f"the raylet of this node ({host}) is dead: {self._socket} refuses connections"
        try:
            alive = node_is_alive(ANSWER_SECONDS)
        except OSError:
            silent = time.monotonic() - self._answered
            limit = SILENT_SECONDS if _accepts(self._gcs) else GONE_SECONDS
            if silent < limit:
                return ""
            return (
                f"the GCS server of the Ray cluster ({self._gcs}) did not answer for {silent:.0f} s"
            )
        self._answered = time.monotonic()
        return "" if alive else f"the Ray cluster at {self._gcs} has removed this node ({host})"


def _accepts(address: str) -> bool:
    """Whether something listens at a path or at HOST:PORT."""
    host, _, port = address.rpartition(":")
    is_path = os.path.isabs(address)
    family = socket.AF_UNIX if is_path else socket.AF_INET6 if "[" in host else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            client.connect(address if is_path else (host.strip("[]"), int(port)))
        except OSError:
            return False
    return True
