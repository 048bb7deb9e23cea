"""Unexpected errors as one sentence, which has the path of a log file with the traceback."""

import errno
import importlib
import os
import re
import socket
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path

from cluster.ray_internals import low_memory
from cluster.redaction import redact
from cluster.terminal import PlainError
from orchestrator.plugins.project_modules import PACKAGES
from orchestrator.storage.store import Store

FULL = (errno.ENOSPC, errno.EDQUOT)
_MEMORY = "free memory, or raise the limits of ulimit -v and ulimit -u"
_REMEDIES = {
    **dict.fromkeys(FULL, "free some"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit of ulimit -n"),
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN), _MEMORY),
}
# Messages of errors without a number about missing memory, address space or threads.
_NO_MEMORY = re.compile(
    "MemoryError|can't start new thread|can't allocate memory|failed to map seg"
)
_DIED = re.compile("(actor|worker) died unexpectedly|worker process has died")  # Ray's words
_STORE_FULL = re.compile("local object store is full")  # Ray's words
_MODULE = re.compile(r"^(\w+\.)+(?=\w+: )")  # module of an error's class
REASON_LENGTH = 300


def fault_text(error: BaseException, store: Store | None = None) -> str:
    """What happened, where, and what to do; writes the traceback to a log file."""
    cause = root_cause(error)
    text = "".join(traceback.format_exception(error))
    file = write_log(text, store)
    note = f"traceback: {file}" if file else "no traceback: its log could not be written"
    return f"{_sentence(cause)} ({note})"


def root_cause(error: BaseException) -> BaseException:
    """The first error of a chain, also across Ray's processes, or a self-contained one.

    An error of a remote function has its cause as an attribute.
    """
    seen: set[int] = set()
    while id(error) not in seen and not isinstance(error, PlainError):
        seen.add(id(error))
        remote = getattr(error, "cause", None)
        cause = remote if isinstance(remote, BaseException) else error.__cause__
        error = cause or error
    return error


def _sentence(error: BaseException) -> str:
    place = f" (node {socket.gethostname()})"
    plain = str(error) if isinstance(error, PlainError) else _plain_text(str(error))
    if plain:
        return f"{' '.join(plain.split())}{place}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    if isinstance(error, OSError) and error.errno:
        number, file = error.errno, error.filename2 or error.filename  # a rename has two
        own = error.strerror
    else:  # Tune only has the text of an error
        match = re.match(r"\w*Error: \[Errno (\d+)\] (.*?)(?:: (?:'.+' -> )?'(.+)')?$", lines[-1])
        number, own, file = (int(match[1]), match[2], match[3]) if match else (0, "", None)
    if number:
        # An error without a file name may have it in its text, as in pyarrow.
        problem = own if own and not file else os.strerror(number)
        if number in FULL:
            problem = "no space left on the device"
        what = f"{file}: {problem}" if file else problem
        remedy = _REMEDIES.get(number, "correct this")
        return f"{what}{place}: {remedy}, then rerun the same command to resume"
    if _STORE_FULL.search(str(error)):
        problem = f"Ray's object store is full, and so is the disk that it spills to{place}"
        return f"{problem}: free some space below TMPDIR, then rerun the same command to resume"
    # The text of an error from another process is its traceback, which ends with the error.
    reason = lines[-1] if len(lines) > 1 else f"{type(error).__name__}: {lines[0]}"
    died = low_memory(str(error))
    if not died and _DIED.search(str(error)):
        died = "a Ray worker died (killed, or out of memory)"
    reason = died or reason[:REASON_LENGTH]
    if died or _NO_MEMORY.search(reason):
        return f"{reason}{place}: {_MEMORY}, then rerun the same command to resume"
    return f"unexpected error: {reason}{place}: please report it; rerun the same command to resume"


def _plain_text(text: str) -> str:
    """The message of a PlainError of another process, from the last line of its traceback."""
    *_, last = text.strip().splitlines() or [""]
    name, _, message = last.partition(": ")
    module, _, kind = name.rpartition(".")
    if module.partition(".")[0] not in PACKAGES:
        return ""
    error_class: object = None
    with suppress(ImportError):
        error_class = getattr(importlib.import_module(module), kind, None)
    is_plain = isinstance(error_class, type) and issubclass(error_class, PlainError)
    return message if is_plain else ""


def remote_fault(text: str, store: Store) -> str:
    """One sentence on a trial's failure; longer texts go to a log file.

    Ray puts the process and the node at the top of a traceback, and the error on its last line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return text.strip()
    node = re.search(r"\bip[=:] ?([\w.:]*\w)", text)
    process = re.search(r"\bpid[=:] ?(\d+)", text)
    reason = _MODULE.sub("", lines[-1])[:REASON_LENGTH]
    if _DIED.search(text):
        reason = "its process died (killed, or out of memory)"
    if memory := low_memory(text):
        reason = f"its process was ended, because {memory}"
    if any(os.strerror(number) in text for number in FULL):
        reason += ": free space"
    place = [f"node {node[1]}"] if node else []
    place += [f"process {process[1]}"] if process else []
    return f"{reason} ({', '.join([*place, f'traceback: {write_log(text, store)}'])})"


def write_log(text: str, store: Store | None = None) -> str:
    """Write a log file and return its path, in the store or else in the folder of TMPDIR.

    Returns an empty string if neither can be written.
    """
    name = (
        f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}-{time.monotonic_ns()}.log"
    )
    if store is not None and (not store.local or Path(store.root).is_dir()):
        with suppress(Exception):  # the storage may be what failed
            store.write_bytes(redact(text).encode(), "logs", name)
            return store.path("logs", name)
    with suppress(OSError):
        file = Path(tempfile.gettempdir(), f"decile-{name}")
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as log:
            log.write(redact(text))
        return str(file)
    return ""
