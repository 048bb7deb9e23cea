"""Checks what a sweep needs, on real parts, in seconds: libraries, Ray, MLflow, every marker."""

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cluster.actors import run_in_worker
from orchestrator.cli.smoke_test import gpu_names, rehearse, sample_with_vllm
from orchestrator.planning.pools import Dataset
from orchestrator.probing.marker_check import check_dataset, check_marker
from tasks import find_task, task_names

LIBRARIES = ("ray", "torch", "transformers", "trl", "peft", "datasets", "mlflow", "pyarrow")


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


def checks(
    tracking_uri: str | None = None,
    datasets: Mapping[str, Dataset] | None = None,
    *,
    gpu: bool = False,
) -> Iterator[Check]:
    """All checks, each as soon as it is done; a failing one never hides the next.

    Every task's marker is tried on examples of its own, and that of each of `datasets` on all its
    answers. With `gpu` a small sweep runs on a GPU.
    """
    yield _guard("libraries", _libraries)
    yield _guard("machine", _machine)
    yield _guard("embedded model", _embedded)
    yield _guard("mlflow", lambda: _mlflow(tracking_uri))
    yield from _in_ray(datasets or {})
    if gpu:
        yield from _on_gpu()


def _on_gpu() -> Iterator[Check]:
    """A sweep of a minute on a GPU, and vLLM where it is installed."""
    found = _guard("gpu", gpu_names)
    yield found
    if not found.ok:
        return
    yield _guard("sweep on a GPU", rehearse)
    if importlib.util.find_spec("vllm"):
        yield _guard("vllm", sample_with_vllm)
    else:
        yield Check("vllm", True, "not installed: probes sample with transformers")


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
    from orchestrator.sampling import load_sampler
    from orchestrator.sampling.base import Request, SamplingSettings
    from orchestrator.sampling.model import ModelSource
    from orchestrator.storage.hashing import folder_identity

    said = []
    for name in EMBEDDED:
        folder = embedded_path(name)
        sampler = load_sampler(ModelSource(name, str(folder), folder_identity(folder)))
        request = Request("doctor", [{"role": "user", "content": "Ana has the cup."}], [0])
        [[completion]] = sampler.sample([request], SamplingSettings(max_completion_length=8))
        said.append(f"{name} answers ({completion.tokens} tokens)")
    return ", ".join(said)


def _mlflow(tracking_uri: str | None) -> str:
    from orchestrator.tracking.client import connect

    with tempfile.TemporaryDirectory() as folder:
        uri = tracking_uri or f"sqlite:///{Path(folder) / 'mlflow.db'}"
        found = connect(uri).search_experiments(max_results=1)
    return f"answers at {tracking_uri or 'a new SQLite store'} ({len(found)} experiments seen)"


def _in_ray(datasets: Mapping[str, Dataset]) -> Iterator[Check]:
    """Ray itself, then every marker inside a Ray worker, where it will run."""
    from cluster.session import ray_session

    try:
        with ray_session() as cluster:
            have = [f"{cluster.get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU")]
            yield Check("ray", True, ", ".join(have))
            for name in task_names():
                yield _guard(f"marker {name}", lambda: run_in_worker(try_task, name))  # noqa: B023
            for dataset in datasets.values():
                label = f"dataset {dataset.name}"
                yield _guard(label, lambda: run_in_worker(check_dataset, dataset))  # noqa: B023
    except (OSError, RuntimeError, ValueError) as error:
        yield Check("ray", False, f"{type(error).__name__}: {error}")


def try_task(name: str) -> str:
    """A task's marker on the task's own examples; needs no data set."""
    task = find_task(name)
    tried = [str(check_marker(made, made.trial_prompts())) for made in task.trials()]
    return "; ".join(tried)
