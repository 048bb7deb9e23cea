"""The library that counts writes: what it logs of every call that it sees, under sanitizers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from write_steps import available, compiled

SANITIZERS = ("address", "undefined")
OPERATIONS = """
import ctypes, os, sys
root, log = sys.argv[1:]
log_file = os.open(log, os.O_WRONLY | os.O_CREAT)
os.mkdir(f"{root}2")  # begins like the folder, and is another one
ctypes.CDLL(None).arm(root.encode(), ctypes.c_long(0), log_file)
os.mkdir(f"{root}2/a")
os.mkdir(root)
folder = os.open(root, os.O_RDONLY)
a = os.open(f"{root}/a", os.O_RDWR | os.O_CREAT)
os.write(a, b"1"), os.pwrite(a, b"2", 1), os.writev(a, [b"3", b"4"]), os.ftruncate(a, 2)
b = os.open("b", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
os.sendfile(b, a, 0, 1), os.copy_file_range(a, b, 1, 0)
os.mkdir("c", dir_fd=folder), os.unlink("b", dir_fd=folder)
os.rename("a", "d", src_dir_fd=folder, dst_dir_fd=folder), os.truncate(f"{root}/d", 1)
os.link(f"{root}/d", f"{root}/e"), os.symlink("d", f"{root}/f")
os.replace(f"{root}/e", f"{root}/g")
for name in "dfg":
    os.remove(f"{root}/{name}")
os.rmdir(f"{root}/c"), os.rmdir(root)
"""
STEPS = """mkdir .|open a|write a|write a|write a|truncate a|open b|write b|write b|mkdir c|unlink b
rename d|truncate d|link e|link f|rename g|unlink d|unlink f|unlink g|rmdir c|rmdir ."""


def test_every_write_is_logged_and_no_memory_is_read_beyond_its_end(tmp_path: Path) -> None:
    if not available():
        pytest.skip("no C compiler: install gcc")
    flags = [f"-fsanitize={name}" for name in SANITIZERS]
    libraries = [sanitizer(name) for name in ("libasan.so", "libubsan.so")]
    if not all(map(os.path.isabs, libraries)):
        pytest.skip("the C compiler has no sanitizers: install gcc with libasan and libubsan")
    preload = os.pathsep.join([*libraries, str(compiled(tmp_path, "-g", *flags))])
    variables = {
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1",
        "PYTHONMALLOC": "malloc",  # blocks of their own, whose ends are known
    }
    command = [sys.executable, "-S", "-c", OPERATIONS, tmp_path / "root", tmp_path / "log"]
    process = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert (tmp_path / "log").read_text().splitlines() == STEPS.replace("\n", "|").split("|")


def sanitizer(name: str) -> str:
    """The path of a library of the compiler; its bare name where it has none."""
    command = ["cc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
