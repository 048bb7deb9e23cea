"""What the tests of engine python share."""

import sys
from pathlib import Path

from orchestrator.config.probe import Probe
from orchestrator.probing.checks import check_engine


def interpreter(file: Path, *lines: str, python: str = sys.executable) -> str:
    """The path of a script that runs these shell lines, then a Python interpreter."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["#!/bin/sh", *lines, f'exec {python} "$@"']))
    file.chmod(0o755)
    return str(file)


def check(python: str, engine: str = "transformers") -> str:
    return check_engine(Probe(engine=engine, engine_python=python), 0)
