"""Escapes from the sandbox of the task `code`, forged results, and programs that must pass."""

import builtins
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from effort import some

from orchestrator.optional.code import sandbox
from orchestrator.optional.code.code_tests import compiled, read_tests, run_tests
from orchestrator.optional.code.sandbox import (
    Limits,
    SandboxError,
    problem,
    run_asserts,
    run_program,
)
from orchestrator.optional.code.sandbox_guest import (
    _CALLS,
    _IGNORED,
    _MACHINES,
    PASSED,
    THREADS,
    _filter,
    _restriction,
)
from orchestrator.optional.code.task import Code
from tasks import Answer

pytestmark = [pytest.mark.skipif(bool(problem()), reason=problem())]

LIMITS = Limits(seconds=1)
SECRET = "424242"
ASSERTS = [
    f"assert f(1) == {SECRET}",
    "assert abs(f(2) - 42.4242) < 1e-6",
    "assert sorted(f(3)) == [2, 4242]",
]
# None of these compares one call with a literal, so they run in a second sandbox.
SCRIPTS = [
    f"assert f(1) + 0 == {SECRET}",
    "import math\nassert math.isclose(f(2) * 1, 42.4242)",
    "assert [v for v in sorted(f(3))] == [4, 2]",
    f"assert {SECRET} in f(4) and len(f(4)) == 1",
    "assert isinstance(f(5), list) and str(f(5)) == '[42]'",
]
FORMS: dict[str, Any] = {
    "asserts": ASSERTS,
    "scripts": SCRIPTS,
    "stdin": {"inputs": ["1\n"], "outputs": [f"{SECRET}\n"]},
    "calls": {"fn_name": "f", "inputs": ["[1]"], "outputs": [SECRET]},
}
EQUAL = """
class Always:
    def __init__(self, *a): pass
    def __getattr__(self, name): return Always()
    def __call__(self, *a, **k): return Always()
    def __bool__(self): return True
    def __len__(self): return 1
    def __iter__(self): return iter([Always()])
    def __contains__(self, other): return True
    def __float__(self): return 1.0
    def __hash__(self): return 0
    def __str__(self): return "x"
for name in "eq ne lt le gt ge".split():
    setattr(Always, f"__{name}__", lambda self, other: True)
for name in "add radd sub rsub mul rmul abs neg getitem".split():
    setattr(Always, f"__{name}__", lambda self, *others: self)
def f(x): return Always()
"""
SEARCH = """
import gc, os, re, sys
def texts():
    frame = sys._getframe()
    while frame:
        yield repr(frame.f_locals) + repr(frame.f_globals)
        frame = frame.f_back
    yield from (repr(o) for o in gc.get_objects() if isinstance(o, (dict, list, tuple, str, bytes)))
    yield repr(sys.argv) + repr(os.environ)
    for folder, _, names in os.walk("/"):
        if folder.startswith(("/usr", "/root", "/opt", "/sys", "/lib", "/bin")): continue
        for name in names:
            try: yield open(os.path.join(folder, name), "rb").read(10**6).decode("latin-1")
            except Exception: pass
    for fd in range(256):
        try: os.lseek(fd, 0, 0); yield os.read(fd, 10**6).decode("latin-1")
        except Exception: pass
def f(x):
    for text in texts():
        if found := re.search("(?:42){3}", text): return int(found[0])
    return None
print(f(0))
"""
REPORTS = """
import os
for fd in range(3, 256):
    for text in (b'{"value": true}\\n', b'{"output": "1", "status": 0}\\n'):
        try: os.write(fd, text * 9)
        except OSError: pass
os._exit(0)
"""
PATCHES = """
import builtins, sys, json, math, operator
def f(x): return 0
main = sys.modules["__main__"]
for name in ("encode", "raised", "_write", "quoted", "decode"):
    setattr(main, name, lambda *a, **k: "true")
for module in (json, math, operator):
    for name in ("dumps", "loads", "isclose", "eq"):
        setattr(module, name, lambda *a, **k: True)
for name in ("abs", "sorted", "str", "isinstance", "len", "set", "list"):
    setattr(builtins, name, lambda *a, **k: True)
builtins.AssertionError = type("Quiet", (BaseException,), {})
"""
FORGERIES = {
    "os._exit(0)": "import os\nos._exit(0)",
    "sys.exit(0)": "import sys\nsys.exit(0)",
    "exit in the call": "import os\ndef f(x): os._exit(0)",
    "equal to everything": EQUAL,
    "equal to everything and a list": EQUAL.replace("class Always:", "class Always(list):"),
    "equal to everything and called a list": f"{EQUAL}\nAlways.__class__ = list",
    "int with its own __eq__": (
        "class I(int):\n    __eq__ = __le__ = __lt__ = lambda s, o: True\n"
        "    __add__ = __mul__ = __sub__ = lambda s, o: s\n    __hash__ = int.__hash__\n"
        "    __contains__ = lambda s, o: True\n    __len__ = lambda s: 1\n"
        "    __abs__ = lambda s: s\n    __iter__ = lambda s: iter([s])\ndef f(x): return I(7)"
    ),
    "list with its own __eq__": (
        "class L(list):\n    __eq__ = lambda s, o: True\n    __contains__ = lambda s, o: True\n"
        "    __len__ = lambda s: 1\n    __str__ = lambda s: '[4]'\ndef f(x): return L([7])"
    ),
    "patched builtins and harness": PATCHES,
    "reads tests from memory and files": SEARCH,
    "writes results to every file": REPORTS,
    "a thread that reports later": (
        "import threading, time, os\ndef later():\n    time.sleep(.2)\n"
        "    for fd in range(256):\n        try: os.write(fd, b'{\"value\": true}\\n')\n"
        "        except OSError: pass\n"
        "threading.Thread(target=later).start()\ndef f(x): return 0"
    ),
    "a child that reports later": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(.2)\n"
        "    os.write(1, b'true')\n    os._exit(0)\ndef f(x): return 0"
    ),
    "raises what tests catch": "def f(x): raise AssertionError('passed')",
    "kills its parents": (
        "import os\nfor p in (os.getppid(), 1, -1):\n    try: os.kill(p, 9)\n"
        "    except OSError: pass\ndef f(x): return 0"
    ),
}


# Every attack in one form of tests, which differs from one to the next; then in all others.
FORGED = [
    (attack, [*FORMS][(number + turn) % len(FORMS)])
    for turn in range(len(FORMS))
    for number, attack in enumerate(FORGERIES)
]


@pytest.mark.parametrize(("attack", "form"), some(FORGED, len(FORGERIES)))
def test_no_result_is_forged(attack: str, form: str) -> None:
    result = run_tests(FORGERIES[attack], read_tests(FORMS[form]), Limits(seconds=0.4))
    assert result.passed == 0


# Where a test calls a function of the program inside of something that ends, or looks for another
# answer, at an exception. `f(name, …)` raises the exception of this name.
CONSTRUCTS = [
    "all(map(lambda x: f(name) == x, [1]))",
    "[*map(f, [name])]",
    "for x in map(f, [name]): assert x == 1",
    "sum(map(f, [name]))",
    "sorted([1, 2], key=lambda x: f(name))",
    "1 not in map(f, [name])",
    "list(iter(lambda: f(name), 1))",
    "list(itertools.takewhile(lambda x: f(name), [1]))",
    "functools.reduce(lambda x, y: f(name), [1, 2])",
    "re.sub('a', lambda m: f(name), 'a')",
    "collections.defaultdict(lambda: f(name))[1]",
    "f(name) == 1 or True",
    "{f(name) for x in [1]}",
    "class A(list, metaclass=lambda *a: f(name)): pass",
    "def g():\n      try: yield\n      finally: f(name)\n    h = g(); next(h); h.close()",
    "async def g(): return f(name)\n    try: g().send(None)\n    except StopIteration: pass",
    "async def g():\n      yield f(name)\n    async def h(): return [x async for x in g()]\n"
    "    try: h().send(None)\n    except StopIteration: pass",
    "async def g(): return f(name)\n    class A:\n      def __aiter__(self): return self\n"
    "      __anext__ = lambda self: g()\n    async def h(): return [x async for x in A()]\n"
    "    try: h().send(None)\n    except StopIteration: pass",
    "class A:\n      __iter__ = lambda self: self\n      __next__ = lambda self: f(name)\n"
    "    list(A())",
    "class A:\n      __len__ = lambda self: f(name)\n    len(A())",
    "class A:\n      __contains__ = lambda self, x: f(name)\n    1 in A()",
    "with contextlib.ExitStack() as stack: stack.callback(f, name)",
    "try: f(name)\n    except* (StopIteration, StopAsyncIteration, GeneratorExit): pass",
]
EXCEPTIONS = [
    n for n, k in vars(builtins).items() if isinstance(k, type) and issubclass(k, BaseException)
]
RAISES = """
import builtins
def f(name, *a):
    kind = getattr(builtins, name)
    for arguments in (("text",), ("text", [ValueError()]), ("utf-8", b"x", 0, 1, "text"),
                      ("utf-8", "x", 0, 1, "text"), ("x", 0, 1, "text")):
        try: error = kind(*arguments)
        except TypeError: continue
        raise error
def h(name):
    arguments = ("text", [ValueError()]) if name.endswith("Group") else ("text",)
    raise type("Own", (getattr(builtins, name),), {})(*arguments)
"""


def test_no_construct_of_the_language_swallows_an_exception() -> None:
    scripts = [
        "import itertools, functools, re, collections, contextlib\nswallowed = []\n"
        f"for name in {EXCEPTIONS}:\n  try:\n    {construct}\n  except BaseException: continue\n"
        "  swallowed.append(name)\nassert swallowed == []"
        for construct in CONSTRUCTS
    ]
    limits = Limits(seconds=20)
    run = run_asserts(RAISES, scripts, limits)
    assert not [c for c, reply in zip(CONSTRUCTS, run.replies, strict=True) if reply != PASSED]


CAUGHT = ("StopIteration", "StopAsyncIteration", "GeneratorExit", "BaseExceptionGroup")
CAUGHT += ("ExceptionGroup",)


@pytest.mark.parametrize("function", ["f", "h"])
def test_an_exception_arrives_as_what_it_is(function: str) -> None:
    names = [name for name in EXCEPTIONS if function == "f" or "Unicode" not in name]
    classes = {name: getattr(builtins, name).__name__ for name in names}
    expected = {name: "RuntimeError" if name in CAUGHT else classes[name] for name in names}
    script = (
        f"arrived = {{}}\nfor name in {names}:\n  try: {function}(name)\n"
        "  except BaseException as error: arrived[name] = type(error).__name__\n"
        f"assert arrived == {expected}"
    )
    assert run_asserts(RAISES, [script], LIMITS).replies == [PASSED]


UNSENT = {
    "an object of a class of the test": "class A: pass\nv = A()",
    "a function": "v = lambda: 1",
    "a deque": "from collections import deque\nv = deque([1])",
    "a date": "from datetime import date\nv = date(2024, 1, 1)",
    "a list that holds itself": "v = []\nv.append(v)",
    "one of them in a list": "from datetime import date\nv = [(1, {2: date(2024, 1, 1)})]",
    "a list of another class": "class L(list): pass\nv = L([1])",
}


@pytest.mark.parametrize("value", UNSENT)
def test_an_argument_that_cannot_be_sent_passes_no_test_that_expects_an_exception(
    value: str,
) -> None:
    test = f"{UNSENT[value]}\ntry:\n    f(v)\nexcept Exception:\n    pass\nelse:\n    assert False"
    task = Code()
    for program in ("def f(x): raise ValueError", "def f(x): return 1"):
        mark = task.mark(f"```python\n{program}\n```", read_tests([test]))
        assert mark.outcome == "error" and "cannot be sent" in mark.rule, mark


def test_what_can_be_sent_arrives_as_it_is() -> None:
    values = ["(1, [2])", "{1, 2}", "frozenset([3])", "{'a': (1, 2), 3: None}", "range(2, 9, 3)"]
    values += ["b'x'", "1.5", "2j", "'text'", "True", "...", "(g(), [g()])"]
    for value in values:
        code = "def f(v): return type(v).__name__\nclass O: pass\ndef g(): return O()"
        test = f"v = {value}\nassert f(v) == type(v).__name__ and bool(v)"
        assert run_tests(code, read_tests([test, SCRIPTS[0]]), LIMITS).passed == 1, value


@pytest.mark.parametrize(
    "test",
    [
        "assert not abs(f() - 3) > 1e-6",
        "import math\nassert not math.fabs(f() - 3) > 1e-6",
        "x = f()\nassert not (x < 2 or x > 4)",
        "assert f()",
        "assert not [v for v in [f()] if v > 4], 'finance'",
    ],
)
def test_nan_passes_no_test_that_does_not_name_it(test: str) -> None:
    for value, passed in (("3.0", 1), ("float('nan')", 0), ("1e400 * 0", 0)):
        result = run_tests(f"def f(): return {value}", read_tests([test]), LIMITS)
        assert result.passed == passed, value


def test_nan_passes_a_test_that_expects_it() -> None:
    program = "def f(): return float('nan')"
    for test in ("import math\nassert math.isnan(f()) and True", "x = f()  # nan\nassert x != x"):
        assert run_tests(program, read_tests([test]), LIMITS).passed == 1


def test_a_value_that_cannot_come_back_is_no_exception_of_the_function() -> None:
    test = "try:\n    f()\nexcept RecursionError:\n    pass\nelse:\n    assert False"
    code = "def f():\n    a = []\n    a.append(a)\n    return a"
    assert run_tests(code, read_tests([test]), LIMITS).passed == 0
    right = "def f(): raise RecursionError"
    assert run_tests(right, read_tests([test]), LIMITS).passed == 1


def test_a_program_that_has_ended_passes_no_test() -> None:
    tests = ["try: f()\nexcept BaseException: pass", "import contextlib\n"
             "with contextlib.suppress(BaseException): f()"]  # fmt: skip
    for code in ("def f(): raise ValueError", "def f(): raise SystemExit"):
        assert run_asserts(code, tests, LIMITS).replies == [PASSED] * 2
    ends = ["import os\ndef f(): os._exit(0)", "import os\ndef f(): os.abort()"]
    for code in (*ends, replies("}"), f"REPLY = b'7\\n'\n{WRITES}", replies('{"tuple": 7}')):
        assert PASSED not in run_asserts(code, tests, LIMITS).replies


WRITES = """
import os
def f():
    for fd in range(3, 256):
        try:
            data = REPLY
            while data: data = data[os.write(fd, data):]
        except OSError: pass
    os._exit(0)
"""


def replies(value: str) -> str:
    """A program that writes this as its reply."""
    line = f'{{"value": {value}}}\n'.encode("utf-8", "surrogateescape")
    return f"REPLY = {line!r}\n{WRITES}"


MULTIPLES = [i * (2**61 - 1) for i in range(30_000)]  # of the same hash
ENDLESS = {  # replies that take minutes to read
    "a set": f'{{"set": {MULTIPLES}}}',
    "a set of tuples": json.dumps({"set": [{"tuple": [i]} for i in MULTIPLES]}),
    "keys": json.dumps({"dict": [[i, 0] for i in MULTIPLES]}),
    "a list": str(MULTIPLES),
}


LONG = "x" * 600_000  # so that a long reply may be the expected one
OF_ENDLESS: dict[str, Any] = {
    "a set": ["assert f()"],
    "a set of tuples": [f"assert f() == {{{LONG!r}}}"],
    "keys": [f"assert len(f()) == {[LONG]}"],
    "a list": [f"assert set(f()) == {{{LONG!r}}}"],
}


@pytest.mark.parametrize("reply", ENDLESS)
def test_a_reply_that_takes_long_to_read_is_given_up(reply: str) -> None:
    tests = read_tests(OF_ENDLESS[reply])
    result = run_tests(replies(ENDLESS[reply]), tests, Limits(seconds=0.3))
    assert result == (0, 1, "time-limit")


def test_a_long_reply_to_a_script_is_given_up() -> None:
    script = "try: x = f()\nexcept BaseException: pass\nassert True"
    assert run_tests(replies(ENDLESS["a set"]), read_tests([script]), Limits(seconds=0.3))[0] == 0


@pytest.mark.parametrize(
    "reply",
    ["[" * 300_000, '{"list": ' * 30_000, "1" * 500_000, '{"object": [1]}', "{}", "", "NaN",
     '{"complex": ["1"]}', '{"dict": [[[], 1]]}', '"\\ud800"', "\udcff", '{"object": 0}',
     '"x", "value": true, "output": "424242", "status": 0, "passed": true'],
)  # fmt: skip
def test_a_reply_that_is_no_value_is_not_the_expected_one(reply: str) -> None:
    forms = (
        {"fn_name": "f", "inputs": [[]], "outputs": [SECRET]},
        [f"assert f() == {SECRET}"],
        [f"x = f()\nassert x == {SECRET}"],
    )
    for form in forms:
        assert run_tests(replies(reply), read_tests(form), LIMITS).passed == 0


def value_of(code: str, limits: Limits = LIMITS) -> Any:
    """What `f()` of a program returns, or why it returns nothing."""
    request = ["new", 10_000, "call", [("name", "f")], {}]
    run = run_program(code, [request], False, limits)
    return json.loads(run.replies[0]) if run.replies else {"failed": run.end}


READS = {
    "open": "return open({path!r}).read()",
    "a symbolic link": ("import os; os.symlink({path!r}, '/tmp/l'); return open('/tmp/l').read()"),
    "the root of another process": "return open('/proc/1/root' + {path!r}).read()",
    "a relative path": "return open('../' * 20 + {path!r}).read()",
    "a directory's descriptor": (
        "import os; d = os.open('/', os.O_RDONLY); "
        "return os.read(os.open('.' + {path!r}, os.O_RDONLY, dir_fd=d), 99)"
    ),
    "mount": (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); "
        "assert c.mount(b'proc', b'/tmp', b'proc', 0, None) == 0; return 1"
    ),
    "a new user namespace": (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); "
        "assert c.unshare(0x10000000) == 0; return 1"
    ),
}


@pytest.mark.parametrize("way", READS)
def test_no_file_of_the_machine_is_read(way: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    assert "raised" in value_of(f"def f():\n    {READS[way].format(path=str(secret))}")


def test_no_file_of_the_user_or_the_system_is_read() -> None:
    secret = Path.home() / f".decile-secret-{os.getpid()}"
    secret.write_text(SECRET)
    try:
        for path in (secret, "/etc/passwd"):
            assert "raised" in value_of(f"def f(): return open({str(path)!r}).read()")
    finally:
        secret.unlink()


@pytest.mark.parametrize("folder", ["/", "/usr", "/dev", "HOME", sys.base_prefix, "TMP"])
def test_nothing_is_written_outside(folder: str, tmp_path: Path) -> None:
    folder = {"TMP": str(tmp_path), "HOME": str(Path.home())}.get(folder, folder)
    reply = value_of(
        f"import os\ndef f(): open(os.path.join({folder!r}, 'escaped'), 'w'); return 1"
    )
    assert "raised" in reply and not (Path(folder) / "escaped").exists()


# What could change a file or a device: functions of `os` on a path, an open file, or both.
CHANGES = """
import fcntl, os
def attempts(path):
    yield from ((name, lambda f=f, a=a: f(path, *a)) for name, f, a in (
        ("chmod", os.chmod, (0o640,)), ("chown", os.chown, (65534, 65534)),
        ("lchown", os.lchown, (65534, 65534)), ("utime", os.utime, ((1, 1),)),
        ("setxattr", os.setxattr, ("user.x", b"1")), ("removexattr", os.removexattr, ("user.x",)),
        ("truncate", os.truncate, (0,)), ("unlink", os.unlink, ()), ("rmdir", os.rmdir, ()),
        ("rename", os.rename, ("/tmp/renamed",)), ("link", os.link, ("/tmp/linked",)),
        ("replace", os.replace, ("/tmp/replaced",)), ("mknod", os.mknod, ()),
    ))
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_PATH):
        try:
            fd = os.open(path, flags)
        except OSError:
            continue
        yield from ((name, lambda f=f, a=a, fd=fd: f(fd, *a)) for name, f, a in (
            ("fchmod", os.fchmod, (0,)), ("fchown", os.fchown, (65534, 65534)),
            ("futime", os.utime, ((1, 1),)), ("fsetxattr", os.setxattr, ("user.x", b"1")),
            ("ftruncate", os.ftruncate, (0,)), ("fallocate", os.posix_fallocate, (0, 1)),
            ("ioctl", fcntl.ioctl, (0x5201, 0)), ("flock", fcntl.lockf, (fcntl.LOCK_EX,)),
        ))
def f():
    changed, seen = [], 0
    for folder, folders, files in os.walk("/"):
        folders[:] = [] if folder.count("/") > 2 else [n for n in folders if n != "tmp"]
        for path in (folder, *(os.path.join(folder, name) for name in files[:20])):
            seen += 1
            for name, attempt in attempts(path):
                before = os.lstat(path)
                try:
                    attempt()
                except OSError:
                    continue
                if name not in ("chmod", "fchmod", "utime", "futime") or os.lstat(path) != before:
                    changed.append([name, path])
    return [seen, changed]
"""


def as_user(monkeypatch: pytest.MonkeyPatch, user: int | None) -> None:
    """Start bubblewrap as another user, where this is root."""
    if user is None:
        return
    if os.geteuid() != 0:
        pytest.skip("only root can start it as another user")
    start = partial(subprocess.Popen, user=user, group=user, extra_groups=[])
    fake = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)
    monkeypatch.setattr(sandbox, "subprocess", fake)
    try:
        run_program("x = 1\n", [["new", 999, "value", [("name", "x")], {}]], False, Limits())
    except SandboxError as error:
        pytest.skip(f"another user cannot start it here: {error}")


@pytest.mark.parametrize("user", [None, 65534])
def test_a_program_changes_no_metadata_of_the_host(
    user: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any path inside, by any call. Root owns the devices that a program sees."""
    as_user(monkeypatch, user)
    paths = [
        *map(str, Path("/dev").glob("[a-z]*")),
        "/usr",
        "/usr/bin",
        "/etc/ld.so.cache",
        sys.base_prefix,
    ]

    def metadata() -> list[tuple[int, ...]]:
        found = [os.stat(path) for path in paths]
        return [(s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_nlink) for s in found]

    before = metadata()
    try:
        reply = value_of(CHANGES)
        assert reply["value"][1] == [] and reply["value"][0] > 20, reply
        assert "value" in value_of("import os\ndef f(): os.fchmod(0, 0)")
        assert "value" in value_of("import os\ndef f(): os.utime(0, (1, 1))")
    finally:
        after = metadata()
        if after != before and os.geteuid() == 0:
            os.chmod(os.devnull, 0o666)
    assert after == before


def test_no_environment_variable_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECILE_SECRET", SECRET)
    reply = value_of(
        "import glob, os\ndef f():\n"
        "    files = glob.glob('/proc/*/environ')\n"
        "    return repr(os.environ) + ''.join(open(p).read() for p in files)"
    )
    assert "LC_CTYPE" in reply["value"] and SECRET not in reply["value"]


BOMBS = {
    "forks": "import os\ndef f():\n    while True: os.fork()",
    "memory": "def f(): return len(bytearray(4 << 30))",
    "mapped memory": (
        "import mmap\ndef f(): return len(mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE))"
    ),
    "empty files": "def f():\n    for i in range(10**7): open(f'/tmp/{i}', 'wb').close()",
    "links": "import os\ndef f():\n    for i in range(10**7): os.symlink('x', f'/tmp/{i}')",
    "files": (
        "def f():\n    i = 0\n    while True:\n        i += 1\n"
        "        open(f'/tmp/{i}', 'wb').write(bytes(1 << 22))"
    ),
    "a large result": "def f(): return 'x' * 10**8",
    "a deep result": "def f():\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "an endless result": (
        "import os\ndef f():\n    while True:\n        for fd in range(3, 256):\n"
        "            try: os.write(fd, b'x' * 9999)\n            except OSError: pass"
    ),
    "endless output": "def f():\n    while True: print('x' * 9999)",
    "an endless loop": "def f():\n    while True: pass",
    "an endless loop without signals": (
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ndef f():\n    while True: pass"
    ),
    "threads": (
        "import threading, time\nthreading.stack_size(1 << 16)\ndef f():\n    while True:\n"
        "        threading.Thread(target=time.sleep, args=(99,)).start()"
    ),
}


KERNEL = """
import ctypes, mmap, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def refused(call, *arguments):
    ctypes.set_errno(0)
    return call(*arguments) in (-1, 2**64 - 1) and ctypes.get_errno() == 38
"""


def test_no_other_system_call_exists() -> None:
    """Nothing is kept by the kernel beyond the limits but by a call that is listed."""
    column = _MACHINES[os.uname().machine][1]
    listed = [entry.split()[1 + column] for entry in f"{_CALLS},{_IGNORED}".split(",")]
    of_probes = {335, 336}  # the kernel answers these itself: they are of its own code
    others = sorted({*range(700), 2**30 + 1} - {int(n) for n in listed if n != "-"} - of_probes)
    code = (
        f"{KERNEL}\ndef f():\n"
        f"    return [n for n in {others} if not refused(libc.syscall, n, 0, 0, 0, 0, 0, 0)]"
    )
    assert value_of(code) == {"value": []}


HEADERS = {
    0: ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    1: ("/usr/include/asm-generic/unistd.h",),
}


@pytest.mark.parametrize("column", HEADERS)
def test_numbers_of_system_calls_are_those_of_the_kernel(column: int) -> None:
    texts = [Path(file).read_text() for file in HEADERS[column] if Path(file).exists()]
    if not texts:
        pytest.skip("there are no headers of the kernel")
    pairs = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", texts[0])
    numbers = {"newfstatat" if name == "fstatat" else name: number for name, number in pairs}
    for name, *listed in map(str.split, f"{_CALLS},{_IGNORED}".split(",")):
        assert numbers.get(name, "-") == listed[column], name


ARGUMENTS = {
    "a new process": "libc.syscall(clone, 17, 0, 0, 0, 0)",
    "a thread with files of its own": "libc.syscall(clone, 0x3D0F00 & ~0x400, 0, 0, 0, 0)",
    "a larger pipe": "libc.fcntl(os.pipe()[1], 1031, 1 << 20)",
    "a lock": "libc.fcntl(1, 6, bytes(64))",
    "a terminal": "libc.ioctl(0, 0x5402, bytes(64))",
    "another filter": "libc.prctl(22, 2, 0)",
    "huge pages": "libc.prctl(41, 0, 0, 0, 0)",
    "memory that stays": "libc.mmap(None, 4096, 3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)",
    "memory that stays, validated": "libc.mmap(None, 4096, 3, 3 | mmap.MAP_ANONYMOUS, -1, 0)",
}


@pytest.mark.parametrize("call", ARGUMENTS)
def test_other_arguments_of_system_calls_are_refused(call: str) -> None:
    [clone] = [e.split()[1:] for e in _CALLS.split(",") if e.split()[0] == "clone"]
    function, _, arguments = ARGUMENTS[call].partition("(")
    code = (
        f"{KERNEL}\nclone = {clone[_MACHINES[os.uname().machine][1]]}\n"
        f"def f(): return refused({function}, {arguments}"
    )
    assert value_of(code) == {"value": True}


def test_no_family_of_sockets_is_open() -> None:
    code = (
        f"{KERNEL}\ndef f():\n    a, b = socket.socketpair()\n    a.send(b'x')\n"
        "    opened = [(n, kind) for n in range(64) for kind in range(1, 11)\n"
        "              if not refused(libc.socket, n, kind, 0)]\n"
        "    opened += [n for n in {*range(64)} - {1}\n"
        "               if not refused(libc.socketpair, n, 1, 0, bytes(8))]\n"
        "    return b.recv(1), opened"
    )
    assert value_of(code) == {"value": {"tuple": [{"bytes": "78"}, []]}}


def test_without_a_filter_no_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="riscv64"):
        _filter("riscv64")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(SystemExit, match="riscv64"):
        _restriction(isolated=True)
    _restriction(isolated=False)()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_ends_by_itself(bomb: str) -> None:
    reply = value_of(BOMBS[bomb])
    assert "value" not in reply
    assert not remaining()


def test_threads_are_limited_for_every_user() -> None:
    code = (
        "import _thread\n_thread.stack_size(1 << 15)\nlock = _thread.allocate_lock()\n"
        "def f():\n    lock.acquire()\n    for n in range(10**6):\n"
        "        try: _thread.start_new_thread(lock.acquire, ())\n"
        "        except RuntimeError: return n"
    )
    reply = value_of(code, Limits(memory=64))
    assert reply.get("value", 0) <= THREADS and not remaining()


@pytest.mark.parametrize("name", [b"\xff", b"\r", b"\n", b"\r\nVmPTE:\t9 kB", b":\t", b"a\tb\x85"])
def test_a_program_may_have_any_name(name: bytes) -> None:
    code = f"{KERNEL}\nlibc.prctl(15, {name!r})\nimport time\ndef f(): time.sleep(0.3); return 1"
    assert value_of(code) == {"value": 1}


PAGE_TABLES = """
libc.mmap.argtypes = [ctypes.c_size_t] * 6
def fill():
    for n in range(60_000):
        place = libc.mmap((1 << 40) + (n << 30), 4096, 3, 0x100022, 2**64 - 1, 0)
        ctypes.memset(place, 1, 1)
    import time
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "call",
    [
        "fill()",
        # The main thread ends itself, and /proc shows no memory of it.
        "import threading; threading.Thread(target=fill).start(); libc.syscall(EXIT, 0)",
    ],
)
def test_page_tables_are_limited(call: str) -> None:
    exit_number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    code = f"{KERNEL}{PAGE_TABLES}\ndef f(): {call.replace('EXIT', str(exit_number))}"
    assert value_of(code, Limits(seconds=5)) == {"failed": "crashed"}


def test_sleep_ends_at_the_wall_limit() -> None:
    code = "import time\ndef f(): time.sleep(999)"
    assert value_of(code, Limits(seconds=0.1)) == {"failed": "time-limit"}
    assert not remaining()


def remaining() -> list[str]:
    """The sandboxes of this process that are still there."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended in the meantime
            stats.append(path.read_text(errors="replace"))
    return [stat for stat in stats if "(bwrap)" in stat and f" {os.getpid()} " in stat]


def test_a_compiler_bomb_is_a_wrong_answer() -> None:
    task = Code()
    for code in ("(" * 10_000, "x = " + "-" * 50_000 + "1", "\0", "a" + ".b" * 50_000):
        mark = task.mark(f"```python\n{code}\n```", read_tests(["assert f(1) == 1"]))
        assert mark.outcome in ("wrong", "error"), mark


LEGITIMATE: dict[str, tuple[str, Any]] = {
    "recursion": (
        "import sys\nsys.setrecursionlimit(10**6)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)",
        ["assert f(20_000) == 20_000"],
    ),
    "recursion in a thread": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\n"
        "def main():\n    def g(n): return n and 1 + g(n - 1)\n    print(g(int(input())))\n"
        "threading.Thread(target=main).start()",
        {"inputs": ["20000\n"], "outputs": ["20000\n"]},
    ),
    "the standard library": (
        "import collections, datetime, decimal, fractions, hashlib, heapq, itertools, json, re\n"
        "from dataclasses import dataclass\nfrom functools import cache\n"
        "@dataclass\nclass P:\n    x: int\n"
        "@cache\ndef f(n): return P(n).x + len(json.dumps(list(itertools.permutations('abc'))))",
        ["assert f(1) == 103", "assert type(f(1)) is int"],
    ),
    "generators": (
        "def f(n):\n    for i in range(n): yield i * i",
        ["assert list(f(3)) == [0, 1, 4]", "g = f(3)\nassert next(g) == 0 and next(g) == 1",
         "g = f(0)\ntry: next(g)\nexcept StopIteration: pass\nelse: assert False",
         "assert next(f(0), 7) == 7", "assert [*zip(f(2), 'ab')] == [(0, 'a'), (1, 'b')]"],
    ),
    "exceptions": (
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x",
        ["try:\n    f(-1)\nexcept ValueError as e:\n    assert 'neg' in str(e)\nelse:\n    1 / 0"],
    ),
    "values of all types": (
        "import collections\ndef f(): return {(1, 2): [None, True, 1.5, 2**5000, b'x', {3}, 1j]}, "
        "collections.Counter('aab'), float('inf'), 'é\\u2028\\U0001f600'",
        ["assert f() == ({(1, 2): [None, True, 1.5, 2**5000, b'x', {3}, 1j]}, {'a': 2, 'b': 1}, "
         "float('inf'), 'é\\u2028\\U0001f600')"],
    ),
    "input loops": (
        "import sys\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))\n"
        "print(*sys.stdin.read().split(), sep='-')\nexit()",
        {"inputs": ["2\n3\n4\né→ b\nc"], "outputs": ["7\né→-b-c"]},
    ),
    "large outputs": (
        "print(*range(int(input())), sep='\\n')",
        {"inputs": ["200000"], "outputs": ["\n".join(map(str, range(200_000)))]},
    ),
    "a method of LeetCode": (
        "class Solution:\n    def f(self, xs: List[int]) -> Optional[int]:\n"
        "        return max(Counter(xs).items(), key=lambda p: p[1])[0] if xs else None",
        {"fn_name": "f", "inputs": [[[1, 2, 2]], [[]]], "outputs": [2, [None]]},
    ),
    "files, threads and an event loop": (
        "import asyncio, os, random, shutil, signal, tempfile, threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(n):\n"
        "    with tempfile.TemporaryDirectory() as d:\n"
        "        open(f'{d}/a', 'w').write('x' * n)\n"
        "        shutil.copy2(f'{d}/a', f'{d}/b')\n"
        "        os.makedirs(f'{d}/c/d')\n"
        "        os.rename(f'{d}/b', f'{d}/c/b')\n"
        "        size = sum(os.path.getsize(f'{r}/{x}') for r, _, xs in os.walk(d) for x in xs)\n"
        "        shutil.make_archive(f'{d}/z', 'zip', f'{d}/c')\n"
        "    async def g(): await asyncio.sleep(0.01); return await asyncio.to_thread(len, 'ab')\n"
        "    with ThreadPoolExecutor(4) as pool: total = sum(pool.map(abs, range(-9, 9)))\n"
        "    signal.signal(signal.SIGALRM, lambda *a: None)\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
        "    signal.pause()\n"
        "    return size, asyncio.run(g()), total, os.cpu_count() > 0, len(os.urandom(3))",
        ["assert f(5) == (10, 2, 81, True, 3)"],
    ),
    "asserts about exceptions": (
        "class E(KeyError): pass\ndef f(x):\n    if x < 0: raise E(x)\n"
        "    if x > 9: raise SystemExit\n    return b'\\xff'.decode()",
        ["import unittest\nt = unittest.TestCase()\nwith t.assertRaises(KeyError): f(-1)\nassert t",
         "import unittest\nt = unittest.TestCase()\nt.assertRaises(LookupError, f, -1)\nassert t",
         "try:\n    f(1)\nexcept UnicodeDecodeError:\n    pass\nelse:\n    assert False",
         "try:\n    f(10)\nexcept Exception:\n    assert False\nexcept SystemExit:\n    pass"],
    ),
    "a guard that does not run": (
        "def f(x): return x\nif __name__ == '__main__':\n    print(f(input()))",
        ["assert f(3) == 3"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", LEGITIMATE)
def test_a_right_program_passes(program: str) -> None:
    code, tests = LEGITIMATE[program]
    result = run_tests(code, read_tests(tests), Limits())
    assert result.passed == result.tests and result.tests


def test_a_part_of_the_tests_is_a_score() -> None:
    task = Code()
    tests = read_tests(["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 0"])
    mark = task.mark("```python\ndef f(x): return x\n```", tests)
    assert (mark.outcome, mark.rule, mark.score) == ("wrong", "tests:2/3", 2 / 3)


def test_an_error_after_the_right_output_is_a_failure() -> None:
    tests = read_tests({"inputs": ["1"], "outputs": ["1"]})
    for end in ("raise ValueError", "exit(1)", "import os; os.abort()", "while True: pass"):
        assert run_tests(f"print(1, flush=True)\n{end}", tests, LIMITS).passed == 0
    assert run_tests("print(1)\nexit(0)", tests, LIMITS).passed == 1


def test_marks_of_many_are_those_of_each() -> None:
    task = Code()
    prompts = task.check_prompts()
    completions = [task.solution(prompt) or "" for prompt in prompts]
    answers = [Answer.to(p, c) for p in prompts for c in (*completions, "no code")]
    assert task.mark_all(answers) == [task.mark_answer(answer) for answer in answers]


def test_the_order_of_a_set_is_the_same_in_every_run() -> None:
    code = "def f(): return list({str(i) for i in range(99)})"
    assert value_of(code) == value_of(code)


def test_without_a_sandbox_the_limits_remain() -> None:
    limits = Limits(seconds=1, isolated=False)
    tests = read_tests(["assert f(1) == 1"])
    assert run_tests("def f(x): return x", tests, limits).passed == 1
    assert run_tests("def f(x):\n    while True: pass", tests, limits) == (0, 1, "time-limit")


def test_the_limit_of_a_reply_does_not_tell_what_is_expected() -> None:
    """A program finds its limits in the frames of the process that it was forked from."""
    values = [True, False, ["a" * 1000], 10**300, [1] * 5000]
    requests = [
        compiled(read_tests({"inputs": [[1]], "outputs": [value], "fn_name": "f"})).requests
        for value in values
    ]
    assert len({request[1] for [request] in requests}) == 1


def test_a_program_that_is_huge_once_compiled_is_not_run() -> None:
    code = "def f(x):\n    a = 1\n"
    for depth in range(1, 18):
        code += "    " * depth + "try: a\n" + "    " * depth + "finally:\n"
    code += "    " * 18 + "a;" * 400 + "\n"
    limits = Limits(seconds=1, memory=0.25)
    for form in ("scripts", "stdin"):
        result = run_tests(code, read_tests(FORMS[form]), limits)
        assert (result.passed, result.end) == (0, "syntax-error")


@pytest.mark.parametrize("signal", ["SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"])
def test_a_program_cannot_stop_the_process_that_watches_it(signal: str) -> None:
    code = f"import os, signal\ndef f(): os.kill(os.getppid(), signal.{signal})"
    test = "try: f()\nexcept OSError: pass\nelse: assert False"
    assert run_tests(code, json.dumps({"asserts": [test]}), LIMITS).passed == 1


def test_a_program_cannot_fill_its_input() -> None:
    code = "import os\ntry: os.write(0, b'x' * 1000)\nexcept OSError: print('refused')"
    tests = json.dumps({"stdin": [["1\n", "refused\n"]]})
    assert run_tests(code, tests, LIMITS).passed == 1


def test_nothing_beside_the_interpreter_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it stands in the user's own bin folder."""
    (tmp_path / "home" / "bin").mkdir(parents=True)
    interpreter = tmp_path / "home" / "bin" / "python"
    monkeypatch.setattr(sandbox, "executable", lambda: str(interpreter))
    command = sandbox._bubblewrap.__wrapped__()
    shown = command[command.index(str(interpreter)) - 1 :][:3]
    assert shown == ["--ro-bind", str(interpreter), str(interpreter)]
    assert str(tmp_path / "home") not in command
