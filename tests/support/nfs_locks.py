"""The locks of Linux's NFS client, on any file system: a library to preload."""

import shutil
import subprocess
from pathlib import Path

# The client refuses an exclusive flock on a file that is open for reading only, folders included,
# and a shared one on a file that is open for writing only.
FLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
int flock(int file, int operation) {
    int mode = fcntl(file, F_GETFL) & O_ACCMODE;
    if ((operation & LOCK_EX && mode == O_RDONLY) || (operation & LOCK_SH && mode == O_WRONLY)) {
        errno = EBADF;
        return -1;
    }
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(file, operation);
}
"""


def nfs_flock(folder: Path) -> str | None:
    """The path of the library for LD_PRELOAD, built in `folder`; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = folder / "flock.c", folder / "flock.so"
    source.write_text(FLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)
