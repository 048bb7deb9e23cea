"""Misbehaving verifiers for tests: run in a child process only."""

import ctypes
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any


def do(what: str, argument: Any) -> Any:
    if what == "hang":
        time.sleep(1000)
    if what == "hang holding the interpreter":
        return 9**9**9
    if what == "hang without the processor":
        subprocess.Popen(["sleep", "1000"])
        ctypes.PyDLL(None).sleep(1000)
    if what == "work":  # 0.6 seconds of this processor
        os.sched_setaffinity(0, {argument})
        until = time.process_time() + 0.6
        while time.process_time() < until:
            pass
    if what == "crash":
        os.abort()
    if what == "exit":
        os._exit(0)
    if what == "raise":
        return 1 / 0
    if what == "recurse":
        return do(what, do(what, argument))
    if what == "eat memory":
        return len(bytearray(10**10))
    if what == "print":
        print("not a reply", flush=True)
        sys.stdout.write("nor this\n")
    if what == "long":
        return "x" * argument
    if what == "write":  # over its own replies
        for fd in range(3, 64):
            with suppress(OSError):
                os.write(fd, argument.encode())
    return os.getpid() if what == "pid" else argument
