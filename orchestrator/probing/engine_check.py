"""Checks where an engine's actors will run that it can be loaded, before anything is sampled."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from cluster.actors import WorkerFails, run_in_worker
from cluster.interpreter import interpreter_path, interpreter_problem
from orchestrator.config.engine_settings import check_engine_args
from orchestrator.config.probe import Probe
from orchestrator.sampling import find_sampler
from orchestrator.sampling.base import SamplingError

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "tasks", "policies", "cluster")


class EngineFails(RuntimeError):
    """An engine cannot be loaded; the message says why and what to do."""


class _Engine(NamedTuple):
    name: str
    args: dict[str, Any]
    sources: str  # what `source_hash` of the driver returns


def check_engine(settings: Probe, gpus: float) -> str:
    """The engine's library, version and interpreter, from a Ray worker with this many GPUs.

    Raises EngineFails.
    """
    python = settings.engine_python
    try:
        if python and (problem := run_in_worker(interpreter_problem, python, gpus)):
            raise EngineFails(f"{problem}; make engine-vllm builds such an environment")
        engine = _Engine(settings.engine, settings.engine_args, source_hash())
        version = run_in_worker(_version, engine, gpus, python)
    except WorkerFails as error:
        raise EngineFails(
            f"decile cannot be imported by {python}: {error}; install it there: "
            f"{python} -m pip install -e FOLDER"
        ) from error
    return f"{version} ({interpreter_path(python)})" if python else version


def _version(engine: _Engine) -> str:
    """The version of the engine's library in this process, which takes these settings."""
    if source_hash() != engine.sources:
        raise EngineFails(
            f"the decile in {ROOT} is another one than that of this run: install the same one"
        )
    try:
        version = find_sampler(engine.name).version() or engine.name
        check_engine_args(engine.name, engine.args)  # here, vLLM's own names are known
    except (SamplingError, ValueError) as error:
        raise EngineFails(str(error)) from error
    return version


def source_hash() -> str:
    """A hash of the source of Decile's packages."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
