"""Checks what a sweep needs, on real parts, in seconds: libraries, Ray, MLflow, every marker."""

import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tasks import get_task, task_names

LIBRARIES = ("ray", "torch", "transformers", "trl", "peft", "datasets", "mlflow", "pyarrow")
GOLDS_PER_TASK = 20


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


def checks(tracking_uri: str | None = None) -> Iterator[Check]:
    """All checks, each as soon as it is done; a failing one never hides the next."""
    yield _guard("libraries", _libraries)
    yield _guard("machine", _machine)
    yield _guard("embedded model", _embedded)
    yield _guard("mlflow", lambda: _mlflow(tracking_uri))
    yield from _in_ray()


def _guard(name: str, check: Callable[[], str]) -> Check:
    """Run one check; whatever it raises is what is wrong, and is said."""
    try:
        return Check(name, True, check())
    except Exception as error:  # noqa: BLE001 a doctor reports every kind of failure
        return Check(name, False, f"{type(error).__name__}: {error}")


def _libraries() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)


def _machine() -> str:
    import torch

    gpus = torch.cuda.device_count()
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    return f"{os.cpu_count()} CPUs, {gpus} GPUs, {free:.0f} GB free here"


def _embedded() -> str:
    from orchestrator.embedded import EMBEDDED, embedded_path
    from orchestrator.models import ModelSource, folder_identity
    from orchestrator.sampling import load_sampler
    from orchestrator.sampling.base import Request, SamplingSettings

    folder = embedded_path(EMBEDDED[0])
    sampler = load_sampler(ModelSource("tiny", str(folder), folder_identity(folder)))
    request = Request("doctor", [{"role": "user", "content": "Ana has the cup."}], [0])
    [[completion]] = sampler.sample([request], SamplingSettings(max_completion_length=8))
    return f"{EMBEDDED[0]} answers ({completion.tokens} tokens)"


def _mlflow(tracking_uri: str | None) -> str:
    from orchestrator.tracking.runs import connect

    with tempfile.TemporaryDirectory() as folder:
        uri = tracking_uri or f"sqlite:///{Path(folder) / 'mlflow.db'}"
        found = connect(uri).search_experiments(max_results=1)
    return f"answers at {tracking_uri or 'a new SQLite store'} ({len(found)} experiments seen)"


def _in_ray() -> Iterator[Check]:
    """Ray itself, then every task's marker inside a Ray worker, where it will run."""
    from cluster.session import ray_session

    try:
        with ray_session() as cluster:
            import ray

            have = [f"{cluster.get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU")]
            yield Check("ray", True, ", ".join(have))
            marker = ray.remote(num_cpus=0.5)(check_marker)
            for name in task_names():
                yield _guard(f"marker {name}", lambda: ray.get(marker.remote(name)))  # noqa: B023
    except (OSError, RuntimeError, ValueError) as error:
        yield Check("ray", False, f"{type(error).__name__}: {error}")


def check_marker(name: str) -> str:
    """Every gold must mark correct and a perturbed gold wrong; raises AssertionError otherwise."""
    task: Any = get_task(name)
    prompts = task.test()[:GOLDS_PER_TASK]
    for prompt in prompts:
        gold = task.mark(boxed(prompt.answer), prompt.answer)
        if gold.outcome != "correct":
            raise AssertionError(f"gold {prompt.answer!r} marks {gold.outcome} by {gold.rule}")
        other = next(p.answer for p in task.test() if p.answer != prompt.answer)
        wrong = task.mark(boxed(other), prompt.answer)
        if wrong.outcome != "wrong":
            raise AssertionError(f"{other!r} for {prompt.answer!r} marks {wrong.outcome}")
    return f"{len(prompts)} golds correct, as many perturbed ones wrong"


def boxed(answer: str) -> str:
    """A completion that does nothing but answer."""
    return rf"\boxed{{{answer}}}"
