"""Children that hang, crash, use too much memory or are killed: every call gets a reply."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from paths import ROOT, SUPPORT
from processes import LIMIT, wait_until

from tasks.children import Children, Reply


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[Children]:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    children = Children("misbehaving:do", 2, 1.0, memory=500 * 2**20)
    yield children
    children.close()


def values(replies: list[Reply]) -> list[object]:
    return [reply.value if reply.failure is None else reply.failure for reply in replies]


@pytest.mark.parametrize(
    ("what", "failure"),
    [
        ("hang", "time-limit"),
        ("hang holding the interpreter", "time-limit"),
        ("crash", "crashed"),
        ("exit", "crashed"),
        ("raise", "ZeroDivisionError"),
        ("recurse", "RecursionError"),
        ("eat memory", "MemoryError"),
    ],
)
def test_a_failed_call_gives_its_reason_and_the_next_call_succeeds(
    children: Children, what: str, failure: str
) -> None:
    calls = [["echo", 1], [what, None], ["echo", 2], ["echo", 3]]
    assert values(children.map(calls)) == [1, failure, 2, 3]
    assert values(children.map([["echo", 4]])) == [4]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_the_time_that_a_call_waits_for_a_processor_is_not_its_own(children: Children) -> None:
    processor = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    children.map([["echo", 1]])
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(3)]
    try:
        began = time.monotonic()
        assert values(children.map([["work", processor]])) == [processor]
        if time.monotonic() - began < children.limit:
            pytest.skip("the processor was not shared")
    finally:
        for process in others:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "what", ["hang", "hang holding the interpreter", "hang without the processor"]
)
def test_a_hanging_child_does_not_outlive_a_killed_parent(tmp_path: Path, what: str) -> None:
    script = (
        "import os; from tasks.children import Children; c = Children('misbehaving:do', 1, 1.0);"
        f"[r] = c.map([['pid', None]]); open({str(tmp_path / 'pid')!r}, 'w').write(str(r.value));"
        f"c.limit = 1000; c.map([[{what!r}, None]])"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": f"{SUPPORT}:{ROOT}"},
    )
    file = tmp_path / "pid"
    wait_until(lambda: file.exists() and file.read_text(), running=lambda: parent.poll() is None)
    child = psutil.Process(int(file.read_text()))
    time.sleep(0.5)  # it hangs by now
    processes = [child, *child.children()]
    assert len(processes) == 1 + (what == "hang without the processor")
    parent.kill()
    parent.wait()
    alive = psutil.wait_procs(processes, timeout=LIMIT)[1]
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


FORKS = """
import os, sys
from tasks.children import Children

children = Children("misbehaving:do", 1, 30.0)
print(children.map([["pid", 0]]) == children.map([["pid", 0]]))
[before] = children.map([["pid", 0]])
children._lock.acquire()  # as another thread of the parent may have it
if os.fork() == 0:
    [own] = children.map([["pid", 0]])
    print(own.failure is None and own != before, flush=True)
    sys.exit()  # which ends the children of this process
os.wait()
children._lock.release()
print(children.map([["pid", 0]]) == [before])
"""


def test_a_forked_process_has_children_of_its_own_and_leaves_those_of_its_parent() -> None:
    process = subprocess.run(
        [sys.executable, "-u", "-c", FORKS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert process.stdout.split() == ["True"] * 3, process.stderr


def test_replies_come_in_the_order_of_the_calls(children: Children) -> None:
    assert values(children.map([["echo", i] for i in range(500)])) == [*range(500)]
    assert children.map([]) == []
    text = "x" * 3_000_000
    calls = [["print", 7], ["echo", text]]  # what a library prints is no reply
    assert values(children.map(calls)) == [7, text]


def test_a_reply_without_an_end_is_a_crash(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.children.REPLY", 2**20)
    calls = [["long", 2**19], ["long", 2**21], ["echo", 1]]
    assert values(children.map(calls)) == ["x" * 2**19, "crashed", 1]


def test_more_replies_than_calls_are_dropped_with_their_child(children: Children) -> None:
    assert values(children.map([["write", '[7, null, ""]\n' * 9]])) == [7]
    assert values(children.map([["echo", 4]])) == [4]


def test_a_child_killed_while_idle_is_replaced(children: Children) -> None:
    [pid] = values(children.map([["pid", None]]))
    os.kill(int(str(pid)), signal.SIGKILL)
    psutil.wait_procs([p for p in psutil.Process().children() if p.pid == pid], timeout=5)
    assert values(children.map([["echo", 1], ["echo", 2]])) == [1, 2]


def test_several_threads_can_call_at_once(children: Children) -> None:
    replies: dict[int, list[object]] = {}

    def call(name: int) -> None:
        replies[name] = values(children.map([["echo", name]] * 50))

    threads = [threading.Thread(target=call, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == {name: [name] * 50 for name in range(4)}


def test_a_child_that_cannot_start_is_an_error() -> None:
    children = Children("nowhere.at_all:do", 1, 1.0)
    with pytest.raises(RuntimeError, match=r"nowhere\.at_all:do cannot start"):
        children.map([[1]])
    children.close()


def test_calls_that_were_not_finished_come_again_and_no_call_twice(children: Children) -> None:
    calls = [["echo", i] for i in range(300)]
    for place in (250, 130, 40, 0):
        calls.insert(place, ["exit", None])
    replies = children.map(calls)
    assert [reply.value for reply in replies if reply.failure is None] == [*range(300)]
    assert [reply.detail for reply in replies if reply.failure] == ["exit-code-0"] * 4


def test_after_too_many_failures_the_rest_is_not_tried(children: Children) -> None:
    replies = children.map([["raise", None]] * 200, tolerated=3)
    failures = [reply.failure for reply in replies]
    # Calls go to several processes, so the failed ones need not be the first.
    assert {*failures} == {"ZeroDivisionError", "not-tried"}
    assert 4 <= failures.count("ZeroDivisionError") < 200 / 2
    assert values(children.map([["echo", 1]])) == [1]


def test_a_batch_that_is_interrupted_leaves_no_reply_to_the_next(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Children, "_receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            children.map([["echo", "old"]])
    assert values(children.map([["echo", "new"]])) == ["new"]
