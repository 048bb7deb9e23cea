"""Runs inside a sandbox: a program on inputs, calls of its functions, or asserts about them.

A bare interpreter runs this file once per completion, so it imports few modules, only from the
standard library. It gets its job by `marshal` and replies with JSON: the reader of a reply gets
plain data, never an object with methods of its own. The program does not get the expected values.
"""

from __future__ import annotations

import builtins
import fcntl
import marshal
import math
import operator
import os
import resource
import sys
from _collections_abc import Mapping  # collections.abc would import all of collections
from _thread import start_new_thread

try:
    from _json import encode_basestring_ascii as quoted
except ImportError:
    from json.encoder import encode_basestring_ascii as quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType
    from typing import Any, BinaryIO, NoReturn

FILES = 64 * 2**20  # bytes of a file that a program writes
PROGRAM = 2**24  # bytes of a compiled program
ENTRIES = 10_000  # files and folders of /tmp
THREADS = 4096
LARGE = 1 << 4096  # larger integers are written in hex, which is read in linear time
RAISED = 200  # characters of an exception's message
SIGKILL, SIGXCPU = 9, 24


# --- Values as JSON ---


def encode(value: Any, keep: Callable[[Any], int]) -> str:
    """A value as JSON, with tags for the types that JSON does not have.

    A value of a subclass is written as its base class. Any other object is written as the number
    that `keep` gives it.
    """
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return quoted(str.__str__(value))
    if isinstance(value, int):
        number = int(value)
        return str(number) if -LARGE < number < LARGE else f'{{"int": "{number:x}"}}'
    if isinstance(value, float):
        real = float(value)
        return float.__repr__(real) if math.isfinite(real) else f'{{"float": "{real}"}}'
    if isinstance(value, complex):
        return f'{{"complex": [{encode(value.real, keep)}, {encode(value.imag, keep)}]}}'
    if isinstance(value, bytes | bytearray):
        return f'{{"bytes": "{value.hex()}"}}'
    if isinstance(value, Mapping):
        pairs = (f"[{encode(k, keep)}, {encode(v, keep)}]" for k, v in value.items())
        return f'{{"dict": [{", ".join(pairs)}]}}'
    for kind in (list, tuple, set, frozenset, range):
        if isinstance(value, kind):
            items = ", ".join([encode(item, keep) for item in value])
            return f"[{items}]" if kind is list else f'{{"{kind.__name__}": [{items}]}}'
    return f'{{"object": {keep(value)}}}'


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "complex": lambda parts: complex(*map(decode, parts)),
    "bytes": bytes.fromhex,
    "range": list,
}


def decode(value: Any, known: Callable[[int], Any] | None = None) -> Any:
    """The value of `encode`'s text, read as JSON; `known` returns the object of a number.

    Raises ValueError or TypeError for anything else.
    """
    if isinstance(value, list):
        return [decode(item, known) for item in value]
    if not isinstance(value, dict):
        return value
    [(tag, content)] = value.items()
    if tag == "dict":
        return {decode(k, known): decode(v, known) for k, v in content}
    if tag in ("tuple", "set", "frozenset"):
        return getattr(builtins, tag)([decode(item, known) for item in content])
    if tag in _KINDS:
        return _KINDS[tag](content)
    if tag != "object" or known is None:
        raise ValueError(f"{tag} is not plain data")
    return known(content)


NAN = '{"float": "nan"}'  # within a reply; quotation marks of text are escaped


def raised(error: BaseException) -> str:
    """The reply to a request that raised: the builtin class of the exception, and its message."""
    try:
        classes = type(error).__mro__
        name = next(c.__name__ for c in classes if c.__module__ == "builtins")
        text = str(error)[:RAISED]
    except Exception:  # from a class of the program
        name, text = "Exception", ""
    return f'{{"raised": [{quoted(name)}, {quoted(text)}]}}'


# --- Limits of a program's process ---

# The system calls that a program may make, with their numbers on x86-64 and ARM64. All others fail:
# it cannot start processes, enter namespaces or open connections, and the kernel keeps no memory
# for it outside of its address space, /tmp and its few open files.
_CALLS = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
pwritev 296 70, lseek 8 62, open 2 -, openat 257 56, creat 85 -, close 3 57, close_range 436 436,
stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44,
access 21 -, faccessat 269 48, faccessat2 439 439, getdents64 217 61, readlink 89 -,
readlinkat 267 78, getcwd 79 17, chdir 80 49, fchdir 81 50, mkdir 83 -, mkdirat 258 34, rmdir 84 -,
unlink 87 -, unlinkat 263 35, rename 82 -, renameat 264 38, renameat2 316 276, link 86 -,
linkat 265 37, symlink 88 -, symlinkat 266 36,
umask 95 166, truncate 76 45, ftruncate 77 46, fallocate 285 47, fadvise64 221 223, fsync 74 82,
fdatasync 75 83, flock 73 32, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10,
listxattr 194 11, llistxattr 195 12, flistxattr 196 13, dup 32 23, dup2 33 -, dup3 292 24,
fcntl 72 25, ioctl 16 29, pipe 22 -, pipe2 293 59, eventfd2 290 19, poll 7 -, ppoll 271 73,
select 23 -, pselect6 270 72, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -,
epoll_pwait 281 22, socketpair 53 199, sendto 44 206, recvfrom 45 207, shutdown 48 210,
getsockname 51 204, getpeername 52 205, getsockopt 55 209, mmap 9 222, munmap 11 215,
mprotect 10 226, mremap 25 216, brk 12 214, madvise 28 233, msync 26 227, mincore 27 232,
clone 56 220, exit 60 93, exit_group 231 94, getpid 39 172, getppid 110 173, gettid 186 178,
getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getpgrp 111 -, getpgid 121 155,
getsid 124 156, wait4 61 260, waitid 247 95, kill 62 129, tkill 200 130, tgkill 234 131,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136,
rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132, restart_syscall 219 128,
alarm 37 -, setitimer 38 103, getitimer 36 102, pause 34 -, nanosleep 35 101,
clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169,
time 201 -, times 100 153, getrusage 98 165, getrlimit 97 163, setrlimit 160 164,
prlimit64 302 261, prctl 157 167, sysinfo 99 179, uname 63 160, getrandom 318 278,
set_tid_address 218 96, set_robust_list 273 99, rseq 334 293, futex 202 98, membarrier 324 283,
sched_yield 24 124, sched_getaffinity 204 123, getcpu 309 168, getgroups 115 158,
getresuid 118 148, getresgid 120 150, getpriority 140 141
"""
# These succeed without effect, because shutil.copy sets modes and times. If bubblewrap runs as
# root, they would change the mode of the machine's /dev/null.
_IGNORED = "chmod 90 -, fchmod 91 52, fchmodat 268 53, utimensat 280 88"
# All signals except those that stop a process, such as the one that watches a program.
_SIGNALS = (*range(19), *range(23, 65))
# For these calls, the argument of this number, masked, must have one of these values.
_ARGUMENTS = {
    "clone": (0, 0xFFFFFFFF, (0x3D0F00, 0x7D0F00)),  # threads, as glibc and musl start them
    **dict.fromkeys(("kill", "tkill"), (1, 0xFFFFFFFF, _SIGNALS)),
    "tgkill": (2, 0xFFFFFFFF, _SIGNALS),
    "fcntl": (1, 0xFFFFFFFF, (0, 1, 2, 3, 4, 1030)),  # not the size of a pipe, and no locks
    "ioctl": (1, 0xFFFFFFFF, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    "mmap": (
        3,
        0x21,
        (0, 0x01, 0x20),
    ),  # not shared without a file: partial unmapping keeps it
    "prctl": (0, 0xFFFFFFFF, (15, 16)),  # the name of a thread
    "socketpair": (0, 0xFFFFFFFF, (1,)),  # AF_UNIX
}
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH_…, column


def _filter(machine: str) -> bytes:
    """A seccomp program (classic BPF) that only allows `_CALLS`. Raises OSError if unknown."""
    if machine not in _MACHINES:
        raise OSError(f"no filter of system calls for {machine}")
    architecture, column = _MACHINES[machine]
    load, mask, equal, end = 0x20, 0x54, 0x15, 0x06
    refuse, allow = (end, 0, 0, 0x00050026), (end, 0, 0, 0x7FFF0000)  # with ENOSYS
    code = [(load, 0, 0, 4), (equal, 1, 0, architecture), refuse, (load, 0, 0, 0)]
    ignore = (end, 0, 0, 0x00050000)  # with 0
    ignored = {entry.split()[0] for entry in _IGNORED.split(",")}
    for name, *numbers in map(str.split, f"{_CALLS},{_IGNORED}".split(",")):
        checks = [ignore if name in ignored else allow]
        if name in _ARGUMENTS:
            argument, bits, values = _ARGUMENTS[name]
            checks = [(load, 0, 0, 16 + 8 * argument), (mask, 0, 0, bits)]
            for value in values:
                checks += [(equal, 0, 1, value), allow]
            checks.append(refuse)
        if numbers[column] != "-":
            code += [(equal, 0, len(checks), int(numbers[column])), *checks]
    return b"".join(
        operation.to_bytes(2, sys.byteorder) + bytes(jumps) + value.to_bytes(4, sys.byteorder)
        for operation, *jumps, value in [*code, refuse]
    )


def seccomp() -> Callable[[], None]:
    """A function that restricts this process to `_CALLS` from then on.

    Raises OSError if that is not possible.
    """
    try:
        import ctypes

        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, AttributeError) as error:
        raise OSError(f"no filter of system calls: {error}") from error
    program = _filter(os.uname().machine)
    content = ctypes.create_string_buffer(program, len(program))

    class Counted(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("content", ctypes.c_void_p))

    counted = Counted(len(program) // 8, ctypes.addressof(content))
    set_filter = 22, 2  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
    prctl(*set_filter, None)
    if ctypes.get_errno() != 14:  # EFAULT, as it cannot read the filter
        raise OSError("this kernel has no filters of system calls")

    def forbid() -> None:
        prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: unmapped parts of a huge page are not freed
        prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        if prctl(*set_filter, ctypes.byref(counted), content):
            raise OSError(ctypes.get_errno(), "the filter of system calls is rejected")

    return forbid


def limit_resources(seconds: float, memory: int) -> None:
    """Limit this process's CPU time, address space (bytes), files and threads."""
    limits = {
        resource.RLIMIT_CPU: max(1, math.ceil(seconds)),
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: THREADS,  # not for root; some kernels count all threads of the user
    }
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        # A program may ignore the signal of the first limit, but not of the second.
        hard = limit + (kind == resource.RLIMIT_CPU)
        try:
            resource.setrlimit(kind, (limit, hard))
        except (OSError, ValueError):  # macOS does not limit the address space
            pass


# --- A program in a process of its own ---

_HEADER = {
    "typing": "Any Callable DefaultDict Deque Dict FrozenSet Generator Iterable Iterator List "
    "NamedTuple Optional Sequence Set Tuple Type Union",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "itertools": "accumulate chain combinations count cycle groupby islice pairwise permutations "
    "product repeat zip_longest",
    "math": "ceil comb factorial floor gcd inf isqrt lcm log log2 sqrt",
}
_MODULES = "bisect collections copy functools heapq itertools math operator random re string sys"


def _header_names(program: CodeType) -> dict[str, Any]:
    """The names that a LeetCode method may use without an import and that the program uses."""
    used: set[str] = set()
    remaining = [program]
    while remaining:
        code = remaining.pop()
        used.update(code.co_names)
        remaining += [const for const in code.co_consts if isinstance(const, type(program))]
    names = {name: __import__(name) for name in _MODULES.split() if name in used}
    for module, members in _HEADER.items():
        for name in used.intersection(members.split()) - names.keys():
            names[name] = getattr(__import__(module), name)
    return names


def _execute(program: CodeType, name: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Run a program as the module of that name; returns its namespace."""
    module = type(sys)(name)
    sys.modules[name] = module
    vars(module).update(names)
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # the interpreter runs without `site`
    exec(program, vars(module))
    return vars(module)


def _run_as_script(program: CodeType) -> NoReturn:
    """Run a program to its end as Python does: with its threads and its exit code."""
    status = 0
    try:
        _execute(program, "__main__", {})
    except SystemExit as end:
        status = 0 if end.code in (None, 0) else 1
    except BaseException:
        status = 1
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        sys.stdout.flush()
    finally:
        os._exit(status)


class _Names:
    """A program's definitions, and the objects that its caller knows by number."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names
        self.objects: list[Any] = []

    def keep(self, value: Any) -> int:
        self.objects.append(value)
        return len(self.objects) - 1

    def value(self, kind: str, content: Any) -> Any:
        """An argument; a method of `Solution` counts as a function."""
        if kind == "object":
            return self.objects[content]
        if kind in ("list", "tuple", "set", "frozenset"):
            return getattr(builtins, kind)([self.value(*item) for item in content])
        if kind == "dict":
            return {self.value(*key): self.value(*value) for key, value in content}
        if kind == "range":
            return range(*content)
        if kind != "name":
            return content
        if content in self.names:
            return self.names[content]
        if "Solution" in self.names and hasattr(self.names["Solution"], content):
            return getattr(self.names["Solution"](), content)
        raise NameError(f"name {content!r} is not defined")

    def perform(self, operation: str, arguments: Any, named: Any) -> str:
        values = [self.value(*argument) for argument in arguments]
        options = {key: self.value(*argument) for key, argument in named.items()}
        if operation == "call":
            result = values[0](*values[1:], **options)
        elif operation == "value":
            result = values[0]
        else:
            function = getattr(builtins, operation, None) or getattr(operator, operation)
            result = function(*values)
        try:
            return f'{{"value": {encode(result, self.keep)}}}'
        except BaseException:  # such as a list that contains itself
            return LOST


def _serve_calls(program: CodeType, header: bool, requests: int, replies: int) -> NoReturn:
    """Run a program as a module, and then carry out the requests about its definitions."""
    error: BaseException | None = None
    defined = _Names({})
    try:
        names = _header_names(program) if header else {}
        defined = _Names(_execute(program, "solution", names))
    except BaseException as failure:
        error = failure
    with os.fdopen(requests, "rb") as stream:
        while (request := _request(stream)) is not None:
            try:
                if error is not None:
                    raise error
                reply = defined.perform(*request)
            except BaseException as failure:
                reply = raised(failure)
            _write(replies, reply.encode() + b"\n")
    os._exit(0)


def _request(stream: BinaryIO) -> Any:
    """The next request; None at the end."""
    try:
        return marshal.load(stream)
    except EOFError:
        return None


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def file_of(content: bytes) -> int:
    """A temporary file with this content, open at its beginning; on Linux, it cannot change."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        import tempfile

        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    _write(file, content)
    if hasattr(fcntl, "F_ADD_SEALS"):
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    os.lseek(file, 0, os.SEEK_SET)
    return file


class _Process:
    """A forked process of a program; it writes to `output` and reads from `input`."""

    def __init__(self, budget: Budget, run: Callable[[int, int], None], stdin: int) -> None:
        inner_in, self.input = os.pipe()
        self.output, inner_out = os.pipe()
        self.budget = budget
        self.pid = os.fork()
        if self.pid:
            os.close(inner_in)
            os.close(inner_out)
            return
        try:
            os.dup2(stdin, 0)
            first, last = sorted((inner_in, inner_out))
            os.closerange(3, first)
            os.closerange(first + 1, last)
            os.closerange(last + 1, 256)
            limit_resources(budget.left, budget.memory)
            budget.forbid()
            run(inner_in, inner_out)
        finally:
            os._exit(1)

    def read(self, limit: int, *, line: bool) -> bytes | None:
        """The next line, or everything until the end; None for more than `limit` bytes."""
        parts, size = [], 0
        while data := os.read(self.output, 1 << 16):
            parts.append(data)
            size += len(data)
            if size > limit:
                return None
            if line and data.endswith(b"\n"):
                break
        return b"".join(parts)

    def end(self) -> int:
        """Kill it, charge its CPU time to the budget, and return its wait status."""
        os.close(self.input)
        os.close(self.output)
        os.kill(self.pid, SIGKILL)  # it has not been waited for, so the id is not reused
        return self.wait()

    def wait(self) -> int:
        _, status, usage = os.wait4(self.pid, 0)
        self.budget.left -= usage.ru_utime + usage.ru_stime
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == SIGXCPU:
            self.budget.left = 0
        return status


class Budget:
    """The remaining budget of a program: CPU time in seconds, and memory in bytes."""

    def __init__(self, seconds: float, memory: int, forbid: Callable[[], None]) -> None:
        self.left, self.memory, self.forbid = seconds, memory, forbid


COMPILED = '{"value": null}'
OUT_OF_TIME = '{"failed": "time-limit"}'
LOST = '{"lost": null}'  # a value that cannot be sent back
PASSED, FAILED = '{"value": true}', '{"value": false}'


def _failure(reason: str) -> bytes:
    return f'{{"failed": "{reason}"}}\n'.encode()


def _ended(budget: Budget) -> bytes:
    return f"{OUT_OF_TIME}\n".encode() if budget.left <= 0 else _failure("crashed")


def _compiled(code: str, budget: Budget) -> CodeType | None:
    """The compiled program; None if it is not a program, or takes too much to compile.

    A few nested blocks may become a program of any size, so it is compiled in a limited process.
    """

    def run(_: int, output: int) -> None:
        program = compile(code, "<completion>", "exec", dont_inherit=True)
        _write(output, marshal.dumps(program) + b"\n")

    nothing = os.open(os.devnull, os.O_RDONLY)
    process = _Process(budget, run, nothing)
    os.close(nothing)
    output = process.read(PROGRAM, line=False)
    process.end()
    return marshal.loads(output) if output and output.endswith(b"\n") else None


def _script(program: CodeType, budget: Budget, text: str, limit: int) -> bytes:
    """A program's output for an input, and whether it ended without an error."""

    def run(_: int, output: int) -> None:
        os.dup2(output, 1)
        os.close(output)
        _run_as_script(program)

    stdin = file_of(text.encode("utf-8", "surrogatepass"))
    process = _Process(budget, run, stdin)
    os.close(stdin)
    output = process.read(limit, line=False)
    if output is None:
        process.end()
        return _failure("output-limit")
    os.close(process.input)
    os.close(process.output)
    status = process.wait()
    if os.WIFSIGNALED(status):
        return _ended(budget)
    text = quoted(output.decode("utf-8", "replace"))
    return f'{{"output": {text}, "status": {os.WEXITSTATUS(status)}}}\n'.encode()


class _Session:
    """A process that has run a program and answers requests about its definitions."""

    def __init__(self, program: CodeType, budget: Budget, header: bool) -> None:
        def run(requests: int, replies: int) -> None:
            os.dup2(2, 1)  # the program's output is not a reply
            _serve_calls(program, header, requests, replies)

        nothing = os.open(os.devnull, os.O_RDONLY)
        self.process: _Process | None = _Process(budget, run, nothing)
        self.budget = budget
        os.close(nothing)

    def ask(self, request: list[Any], limit: int) -> bytes:
        """The reply to a request, a line of JSON."""
        if self.process is None:
            return _ended(self.budget)
        try:
            _write(self.process.input, marshal.dumps(request))
        except BrokenPipeError:  # it has ended, which `read` reports
            pass
        reply = self.process.read(limit, line=True)
        if reply is not None and reply.endswith(b"\n"):
            return reply.partition(b"\n")[0] + b"\n"
        self.end()
        return _failure("output-limit") if reply is None else _ended(self.budget)

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
            self.process = None


def serve_program(
    job: Mapping[str, Any], forbid: Callable[[], None], requests: BinaryIO, replies: int
) -> None:
    """Reply to each request about a program with one line; first report whether it compiles."""
    budget = Budget(job["seconds"], job["memory"], forbid)
    program = _compiled(job["code"], budget)
    if program is None:
        _write(1, _failure("syntax-error"))
        return
    _write(1, f"{COMPILED}\n".encode())
    session: _Session | None = None
    while (request := _request(requests)) is not None:
        kind, limit, *content = request
        if budget.left <= 0:
            _write(replies, _ended(budget))
        elif kind == "script":
            _write(replies, _script(program, budget, content[0], limit))
        else:
            if kind == "new" and session is not None:
                session.end()
            if kind == "new" or session is None:
                session = _Session(program, budget, job["header"])
            _write(replies, session.ask(content, limit))
    if session is not None:
        session.end()


# --- Asserts, in another sandbox than the program ---


class Remote:
    """An object of the program, known only by its number.

    Comparisons with plain data are False and arithmetic with plain data fails, so that operators of
    the program's own classes cannot decide an assert about a value. Between two objects of the
    program, its operators are used.
    """

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        self.__dict__["_remote"] = ask, number

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _asked("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _asked("setattr", self, name, value)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _asked("call", self, *arguments, **named)

    def __iter__(self) -> Iterator[Any]:
        return iter(_asked("list", self))

    def __contains__(self, value: object) -> bool:
        return any(value is item or value == item for item in self)

    __hash__ = object.__hash__


def _asked(operation: str, remote: Remote, *arguments: Any, **named: Any) -> Any:
    return remote.__dict__["_remote"][0](operation, (remote, *arguments), named)


def _remote_operator(name: str, binary: bool) -> Callable[..., Any]:
    def method(self: Remote, *others: Any) -> Any:
        if binary and not isinstance(others[0], Remote):
            return NotImplemented
        return _asked(name, self, *others)

    return method


for _name in ("len", "bool", "str", "repr", "next", "int", "float", "abs", "getitem", "setitem"):
    setattr(Remote, f"__{_name}__", _remote_operator(_name, binary=False))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "mod"):
    setattr(Remote, f"__{_name}__", _remote_operator(_name, binary=True))


class _Name(str):
    """The name of a definition of the program."""


# Exceptions that the language itself catches: in loops, next(), close() and `except*`.
_CAUGHT = (StopIteration, StopAsyncIteration, GeneratorExit, BaseExceptionGroup)


def _exception(name: str, text: str, operation: str) -> BaseException:
    """The exception of a request if the program raised the builtin exception `name`.

    A function that raises StopIteration would end the loop of a test that calls it, and pass.
    Therefore exceptions that the language itself catches become errors, as in generators (PEP 479).
    """
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return RuntimeError(text)
    if issubclass(kind, _CAUGHT) and (kind, operation) != (StopIteration, "next"):
        return RuntimeError(f"{name} {text}")
    try:
        return kind(text)
    except TypeError:  # Unicode errors take five arguments
        return kind.__new__(kind, text)


class _Asker:
    """Asks the sandbox of the program, over two pipes.

    `lost`: a reply did not arrive, so that the test fails, whatever it catches. `unsent`: the type
    of an argument that cannot be sent, so that the test has no result. `nan`: a reply has NaN, for
    which all comparisons are false: `not abs(value - 3) > 1e-6` would pass.
    """

    def __init__(self, replies: int, requests: int, limit: int) -> None:
        from json import loads

        self.loads = loads
        self.replies, self.requests = os.fdopen(replies, "rb"), requests
        self.limit = limit
        self.begin()

    def begin(self) -> None:
        """The next request goes to a new process of the program."""
        self.kind, self.lost, self.unsent, self.nan = "new", False, "", False

    def __call__(self, operation: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        try:
            passed = [self._argument(value) for value in arguments]
            options = {key: self._argument(value) for key, value in named.items()}
            request = marshal.dumps([self.kind, self.limit, operation, passed, options])
        except (RecursionError, ValueError):  # it contains itself
            self.unsent = "a value that is nested too deeply"
            raise
        self.kind = "same"
        try:
            _write(self.requests, request)
            line = self.replies.readline(self.limit + 2)
            reply = self.loads(line)
            self.nan = self.nan or NAN.encode() in line
            if "value" in reply:
                return decode(reply["value"], lambda number: Remote(self, number))
            name, text = reply["raised"]  # a KeyError for LOST
            error = _exception(name, text, operation)
        except Exception:
            self.lost = True  # the program has ended, or wrote other text
            raise
        raise error

    def _argument(self, value: Any) -> tuple[str, Any]:
        """An argument as marshal takes it, with its kind."""
        if isinstance(value, Remote):
            return "object", value.__dict__["_remote"][1]
        if isinstance(value, _Name):
            return "name", str(value)
        kind = type(value)
        if kind in (list, tuple, set, frozenset):
            return kind.__name__, [self._argument(item) for item in value]
        if kind is dict:
            return "dict", [(self._argument(k), self._argument(v)) for k, v in value.items()]
        if kind is range:
            return "range", (value.start, value.stop, value.step)
        if value is None or value is ... or kind in (bool, int, float, complex, str, bytes):
            return "value", value
        self.unsent = self.unsent or kind.__name__
        raise TypeError(f"an argument of type {kind.__name__} cannot be sent")


def expects_nan(test: str) -> bool:
    """Whether a test has the word nan or isnan."""
    words = "".join(c if c.isalnum() else " " for c in test.lower()).split()
    return "nan" in words or "isnan" in words


def serve_asserts(job: Mapping[str, Any], forbid: Callable[[], None]) -> None:
    """Write for each test whether it ends without an exception."""
    replies, requests = job["channel"]
    ask = _Asker(replies, requests, job["limit"])
    output = os.dup(1)
    os.dup2(2, 1)  # a test's output is not a result
    limit_resources(job["seconds"], job["memory"])
    forbid()
    for test, names, modules in job["tests"]:
        ask.begin()
        try:
            values: dict[str, Any] = {name: __import__(name) for name in modules}
            for name in names:
                try:
                    values[name] = ask("value", [_Name(name)], {})
                except NameError:  # raised in the test if it needs that name
                    pass
            exec(compile(test, "<tests>", "exec", dont_inherit=True), values)
            passed = not ask.lost and (not ask.nan or expects_nan(test))
        except BaseException:
            passed = False
        unsent = f'{{"unsent": {quoted(ask.unsent)}}}'
        _write(output, f"{unsent if ask.unsent else PASSED if passed else FAILED}\n".encode())


def _watch_files() -> NoReturn:
    """End the sandbox when /tmp has too many entries: its size only counts their contents."""
    from time import sleep

    while True:
        status = os.statvfs(".")  # /tmp
        if status.f_files - status.f_ffree > ENTRIES:
            os._exit(1)
        sleep(0.05)


def _restriction(isolated: bool) -> Callable[[], None]:
    """`seccomp`; if it does not work, an isolated program is not run at all."""
    try:
        forbid = seccomp()
    except OSError as error:
        if isolated:
            sys.exit(str(error))
        return lambda: None
    if isolated:
        start_new_thread(_watch_files, ())
    return forbid


def main() -> None:
    """Read a job, report that the sandbox works, and do the job."""
    requests = os.fdopen(os.dup(0), "rb")
    job = marshal.load(requests)
    forbid = _restriction(job["isolated"])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _write(1, b'{"value": "ready"}\n')
    if "tests" in job:
        serve_asserts(job, forbid)
    elif job["channel"]:
        serve_program(job, forbid, os.fdopen(job["channel"][0], "rb"), job["channel"][1])
    else:
        serve_program(job, forbid, requests, 1)


if __name__ == "__main__":
    main()
