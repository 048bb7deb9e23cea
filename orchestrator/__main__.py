"""`python -m orchestrator` is `decile`."""

import os
import sys

if sys.path[0] == os.getcwd():  # Python put it first; `main` adds it as the last one
    sys.path.remove(sys.path[0])

from orchestrator.cli.main import process

process()
