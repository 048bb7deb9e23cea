"""Watches the Ray of a command, and ends the command if its raylet or its GCS is lost.

Calls into Ray then do not return: `ray.wait` has no timeout in Tune, and Ray itself exits without a
message after a minute without a GCS. Nodes other than the driver's may come and go.
"""

import logging
import os
import select
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from cluster import ending
from cluster.ray_internals import (
    gcs_address,
    node_is_alive,
    process_state,
    raylet_socket,
    session_logs,
    started_processes,
)

GCS_PERIOD = 1.0  # seconds between two requests to the GCS server
CLOCK_SECONDS = 5.0  # least step back to report; clocks are adjusted by less
PERIOD = 0.1  # between two checks of the rest
REAP_SECONDS = 0.01  # a process ends a moment after its sockets
GONE_SECONDS = 20.0  # for a GCS that refuses connections; a fault-tolerant one may restart
SILENT_SECONDS = 45.0  # for a slow one; Ray ends the process after 60 s
ANSWER_SECONDS = 2.0
FULL_BYTES = 1_000_000  # free: with less, workers of a local Ray die or never start
LOG = logging.getLogger(__name__)
_NAMES = {"gcs_server": "the GCS server", "raylet": "the raylet"}


@contextmanager
def watched_start(explain: Callable[[str], str]) -> Iterator[None]:
    """End the command if a process of the local Ray dies in this block, which starts it.

    `ray.init` would wait for that process for up to a minute, and may then end this one without a
    message. `explain` turns the cause into the message.
    """
    stopped = threading.Event()

    def watch() -> None:
        names: dict[psutil.Process, str] = {}
        while not stopped.wait(PERIOD):
            alive = set()
            for child in psutil.Process().children():
                with suppress(psutil.Error):
                    if child.name() in _NAMES:
                        names[child] = _NAMES[child.name()]
                        if child.status() != psutil.STATUS_ZOMBIE:
                            alive.add(child)
            if dead := names.keys() - alive:
                process = min(dead, key=lambda each: each.pid)
                code = process.wait(0)  # None if another thread has reaped it
                state = "ended" if code is None else process_state(code)
                if not stopped.is_set():
                    cause = f"{names[process]} (process {process.pid}) {state}"
                    ending.end_process(1, explain(cause), kill_first=True)
                return

    thread = threading.Thread(target=watch, name="watched start", daemon=True)
    if ending.enabled():
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        if thread.is_alive():
            thread.join()  # forever, if it ends the command


class Watchdog:
    """One thread that checks Ray until `stop`; for a connected Ray, in a command only."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._raylet: socket.socket | None = None
        self._started = started_processes()
        self._socket, self._gcs, self._logs = raylet_socket(), gcs_address(), session_logs()
        self._answered_at = self._requested_at = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        if ending.enabled():
            self._raylet = _connect(self._socket)  # stays open: it ends with the raylet
            self._thread.start()

    def stop(self) -> None:
        """Stop watching, before Ray is shut down."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._raylet:
            self._raylet.close()

    def explain(self, seconds: float) -> None:
        """End the command if Ray is lost, which may be the cause of an error.

        Checks again after some seconds, because an error may arrive before its cause is visible.
        """
        if ending.enabled():
            self._end_if_lost()
            time.sleep(seconds)
            self._end_if_lost()

    def _watch(self) -> None:
        ahead = time.time() - time.monotonic()
        while not self._stopped.is_set():
            self._end_if_lost()
            before, ahead = ahead, time.time() - time.monotonic()
            if (step := before - ahead) > CLOCK_SECONDS:
                LOG.warning(
                    "the clock of this machine was set back by %.0f s: Ray may not start "
                    "anything until the clock has caught up; stopping and rerunning the same "
                    "command is faster",
                    step,
                )
            if self._raylet:
                select.select([self._raylet], [], [], PERIOD)  # returns when the raylet ends

    def _end_if_lost(self) -> None:
        """Report immediately: Ray may silently end this process when it calls the raylet."""
        if self._raylet is None or _is_closed(self._raylet):
            self._raylet = _connect(self._socket)
        if self._raylet is None:
            host = socket.gethostname()
            lost = f"the raylet of this node ({host}) is dead: {self._socket} refuses connections"
        else:
            lost = self._dead_process() or self._full_disk() or self._lost_gcs()
        if lost:
            time.sleep(REAP_SECONDS)
            lost = self._dead_process() or lost
            logs = f"; Ray's logs on this node: {self._logs}" if self._logs else ""
            text = f"{lost}; rerun the same command to resume{logs}"
            ending.end_process(1, text, kill_first=True)

    def _full_disk(self) -> str:
        """Why a local Ray cannot write its files any more; empty if it can."""
        with suppress(OSError):  # the folder is deleted at the end
            if self._started and shutil.disk_usage(self._logs).free < FULL_BYTES:
                return f"{self._logs}: no space left on the device: free some"
        return ""

    def _dead_process(self) -> str:
        """The process of a local Ray that has ended; empty if none has."""
        for name, process in self._started.items():
            if (code := process.poll()) is not None:
                place = f"{socket.gethostname()}, process {process.pid}"
                return f"{_NAMES[name]} of the local Ray ({place}) {process_state(code)}"
        return ""

    def _lost_gcs(self) -> str:
        """Why the GCS server is lost: no response, or it removed this node; empty if it is not."""
        now = time.monotonic()
        if now - self._requested_at < GCS_PERIOD:
            return ""
        self._requested_at = now
        try:
            alive = node_is_alive(ANSWER_SECONDS)
        except OSError:
            silent = time.monotonic() - self._answered_at
            listens = _connect(self._gcs)
            if listens:
                listens.close()
            if silent < (SILENT_SECONDS if listens else GONE_SECONDS):
                return ""
            return (
                f"the GCS server of the Ray cluster ({self._gcs}) did not answer for {silent:.0f} s"
            )
        self._answered_at = time.monotonic()
        host = socket.gethostname()
        return "" if alive else f"the Ray cluster at {self._gcs} has removed this node ({host})"


def _connect(address: str) -> socket.socket | None:
    """A connection to a path or to HOST:PORT, or None if nothing listens there."""
    host, _, port = address.rpartition(":")
    is_path = os.path.isabs(address)
    family = socket.AF_UNIX if is_path else socket.AF_INET6 if "[" in host else socket.AF_INET
    client = socket.socket(family)
    client.settimeout(ANSWER_SECONDS)
    try:
        client.connect(address if is_path else (host.strip("[]"), int(port)))
    except OSError:
        client.close()
        return None
    return client


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
