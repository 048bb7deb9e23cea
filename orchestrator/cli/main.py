"""`decile …`: the command line. What each command does is in `commands`.

docs/running.md describes signals, exit codes and faults.
"""

import atexit
import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from cluster.ending import INTERRUPTED, signals_end_process
from cluster.printable_streams import printable_streams, unfiltered
from cluster.redaction import redact
from cluster.terminal import echo
from orchestrator.cli import commands
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.parser import build_parser
from orchestrator.plugins.deadlines import abandoned
from orchestrator.plugins.extras import missing_library
from orchestrator.plugins.name_clashes import name_clash
from orchestrator.plugins.project_modules import add_project
from orchestrator.storage.errors import UserError, one_line

if TYPE_CHECKING:
    from orchestrator.storage.store import Store


def process() -> None:
    """`decile …` as a process of its own, which ends without finalizing the interpreter.

    A C++ thread of Arrow or Ray that drops a Python object while the interpreter is finalized
    aborts the process (apache/arrow#49942 narrows that window and leaves some of it open).
    """
    gc.set_threshold(100_000)  # objects, not 700: imports leave no garbage; saves half a second
    _open_closed_streams()
    exit_codes: list[int] = []

    @atexit.register
    def end() -> None:  # registered before all others, so that it runs after them
        if exit_codes:
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):  # closed or full
                    stream.flush()
            os._exit(exit_codes[0])

    exit_codes.append(main())
    if abandoned.is_set():  # libraries would wait for the calls that were abandoned
        end()
    sys.exit(exit_codes[0])


def _open_closed_streams() -> None:
    """Open streams that the shell has closed (`>&-`) on the null device.

    Otherwise the next file that this process or a child opens takes the descriptor of the stream,
    and receives what C++ code prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every error becomes one message and an exit code."""
    add_project([os.getcwd()])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # its encoding may be ASCII
            stream.reconfigure(errors="backslashreplace")
    with printable_streams():
        return _run_command(argv)


def _run_command(argv: Sequence[str] | None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
    except UserError as error:
        echo(f"decile: {redact(one_line(str(error)))}", sys.stderr)
        return ExitCode.INVALID
    # `ui` replaces this process; a call from Python keeps its caller's signal handlers.
    own_process = argv is None and arguments.command is not commands.ui
    with signals_end_process() if own_process else nullcontext():
        try:
            commands.check_outputs_are_new(arguments)
            exit_code = int(arguments.command(arguments))
            sys.stdout.flush()
            return exit_code
        except BrokenPipeError:  # `decile ls policies | head`
            _discard_output()
            return 128 + signal.SIGPIPE
        except KeyboardInterrupt:
            echo(f"decile: {INTERRUPTED}", sys.stderr)
            return 128 + signal.SIGINT
        except Exception as error:  # noqa: BLE001 (the last resort: no traceback reaches the user)
            exit_code, text = _explained(error, getattr(arguments, "store", None))
            if isinstance(error, OSError) and error.filename is None:
                _discard_output()
            echo(f"decile: {redact(one_line(text))}", sys.stderr)
            return exit_code


def _discard_output() -> None:
    """Keep Python from writing buffered output again, and failing again, when it exits."""
    if sys.__stdout__ is not None and unfiltered(sys.stdout) is sys.__stdout__:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())


def _explained(error: Exception, store: "Store | None") -> tuple[int, str]:
    """As `_failure`; code 2 if an import failed because of a name clash or a missing library."""
    unimported = error if isinstance(error, ImportError | AttributeError) else None
    if unimported is None:
        try:
            return _failure(error, store)
        except (ImportError, AttributeError) as failed:  # it imports further modules
            unimported = failed
    if clash := name_clash(unimported):
        return ExitCode.INVALID, f"{type(unimported).__name__}: {unimported}: {clash}"
    if missing := missing_library(unimported):
        return ExitCode.INVALID, missing
    return _failure(error, store)


def _failure(error: Exception, store: "Store | None") -> tuple[int, str]:
    """The exit code and the message of an error; a bug's traceback goes to a log file."""
    from cluster.resources import ResourceError
    from cluster.session import RayFails
    from orchestrator.probing.checks import MarkerFails
    from orchestrator.probing.samples import ProbeError
    from orchestrator.sampling.base import SamplingError
    from orchestrator.storage.errors import StoreError
    from orchestrator.storage.faults import fault_text
    from orchestrator.storage.lease import LeaseHeld
    from orchestrator.storage.proof import Unsound
    from orchestrator.storage.remote import RemoteFails
    from policies import PolicyError
    from tasks import TaskError
    from tasks.sources.hub import HubFails

    if isinstance(error, HubFails | RemoteFails):
        return ExitCode.FAILED, str(error)
    if isinstance(error, UserError | StoreError | ResourceError | PolicyError | TaskError):
        return ExitCode.INVALID, str(error)
    if isinstance(error, MarkerFails | ProbeError | SamplingError | LeaseHeld | RayFails | Unsound):
        return ExitCode.FAILED, str(error)
    return ExitCode.FAILED, fault_text(error, store)
