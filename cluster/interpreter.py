"""Ray workers under another Python interpreter, for libraries whose pins conflict with Decile's."""

import importlib.metadata
import os
import platform
import re
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

TIMEOUT = 60.0  # seconds to print two versions, from a slow network file system
_VERSIONS = """
import importlib.metadata, platform
try:
    ray = importlib.metadata.version("ray")
except importlib.metadata.PackageNotFoundError:
    ray = "none"
print("versions", platform.python_version(), ray)
"""


def interpreter_path(python: str) -> str:
    """An absolute path. Links are not followed: an environment's interpreter is a link."""
    return os.path.abspath(Path(python).expanduser())


def worker_options(python: str | None) -> dict[str, Any]:
    """Options of `ray.remote` for workers under this interpreter; none for the driver's own."""
    if python is None:
        return {}
    command = shlex.quote(interpreter_path(python))  # Ray passes it to a shell
    return {"runtime_env": {"py_executable": command}}


def interpreter_problem(python: str) -> str:
    """Why Ray cannot start a worker under this interpreter on this node; empty if it can.

    Ray itself would start workers that fail, again and again.
    """
    path, node = interpreter_path(python), socket.gethostname()
    command = [path, "-c", _VERSIONS]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=True, cwd="/"
        )
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        return f"{path} does not run on {node}: {lines[-1]}"
    versions = re.search(r"^versions (\S+) (\S+)$", process.stdout, re.MULTILINE)
    if versions is None:
        return f"{path} on {node} is not a Python interpreter"
    (python, ray), own = versions.groups(), platform.python_version()
    own_ray = importlib.metadata.version("ray")
    if _minor(python) == _minor(own) and ray == own_ray:
        return ""
    return (
        f"{path} has Python {python} and {'no Ray' if ray == 'none' else f'Ray {ray}'}, but Decile "
        f"runs under Python {own} and Ray {own_ray}: the minor version of Python and the version "
        "of Ray must be the same"
    )


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
