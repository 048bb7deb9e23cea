"""Files that users name: pipes, devices, folders, huge and endless ones, and huge numbers."""

import gzip
import subprocess
import sys
from pathlib import Path


def test_a_limit_of_the_address_space_counts(tmp_path: Path) -> None:
    """As of `ulimit -v`: 300 MB of zeros in a file of 1.3 MB, and 2 GB to read it."""
    with gzip.open(file := tmp_path / "a.json.gz", "wb", 1) as stream:
        for _ in range(300):
            stream.write(b"0" * 2**20)
    code = (
        "import resource, sys; from tasks.sources.files import read_file, TaskError\n"
        "import psutil; used = psutil.Process().memory_info().vms\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))\n"
        "try: read_file(sys.argv[1], [])\n"
        "except TaskError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True)
    assert str(file) in ended.stdout and "memory" in ended.stdout, ended.stderr
