"""The commands as a user types them; invalid input ends with code 2 and one message."""

import subprocess
import sys

from paths import ROOT


def test_a_command_ends_without_finalizing_the_interpreter() -> None:
    code = (
        "import atexit, os, sys\n"
        "from orchestrator.cli.main import process\n"
        "class AtFinalization:\n"
        "    def __del__(self, write=os.write): write(1, b'finalized')\n"
        "alive = AtFinalization()\n"
        "def at_exit():\n"
        "    atexit.register(print, 'exit functions run', end='')\n"
        "    return 3\n"
        "sys.modules['orchestrator.cli.main'].main = at_exit\n"
        "process()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (3, "exit functions run")
