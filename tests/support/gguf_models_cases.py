"""What the tests of gguf models share."""

import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT


def cached(folder: Path) -> set[str]:
    """The names in the cache of models, but for the lock."""
    models = folder / "cache" / "decile" / "models"
    return {*os.listdir(models)} - {".lock"} if models.exists() else set()


CHILD = """
import os, signal, sys
from pathlib import Path
from orchestrator.sampling import gguf_models

def dies(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
print(gguf_models.converted_model(Path(sys.argv[1])).folder)
"""


def child(file: Path, patch: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD.format(patch=patch), str(file)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)
