"""Checks what a sweep needs within seconds: libraries, Ray, MLflow, every marker."""

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cluster.actors import run_in_worker
from cluster.resources import usable_cpus
from orchestrator.cli.smoke_test import gpu_names, sample_with_vllm, smoke_test
from orchestrator.config.catalog import LoadedConfig, load_config
from orchestrator.planning.pools import Dataset
from orchestrator.planning.resolve import datasets_of, model_source
from orchestrator.probing.marker_check import check_dataset, check_marker
from orchestrator.training.settings_check import check_in_worker, settings_of
from tasks import find_task, task_names

LIBRARIES = ("ray", "torch", "transformers", "trl", "peft", "datasets", "mlflow", "pyarrow")


class Check(NamedTuple):
    """The result of one check."""

    name: str
    ok: bool
    detail: str


def checks(
    tracking_uri: str | None = None,
    datasets: Mapping[str, Dataset] | None = None,
    settings: Mapping[str, Callable[[], str]] | None = None,
    *,
    gpu: bool = False,
) -> Iterator[Check]:
    """Run all checks, yielding each as soon as it is done; one that fails does not end the rest.

    Every task's marker is checked on the task's own examples, and the marker of each of `datasets`
    on all its answers; `settings` construct what an experiment describes. With `gpu`, a small
    sweep also runs on a GPU.
    """
    yield _guard("libraries", _libraries)
    yield _guard("machine", _machine)
    yield _guard("embedded model", _embedded)
    yield _guard("mlflow", lambda: _mlflow(tracking_uri))
    yield from _in_ray(datasets or {}, settings or {})
    if gpu:
        yield from _on_gpu()


def declared(
    file: Path | None, experiment: str | None
) -> tuple[dict[str, Dataset], dict[str, Callable[[], str]]]:
    """The data sets of a file and the checks of its settings; of one experiment, or of all."""
    if file is None:
        return {}, {}
    loaded = load_config(file)
    return datasets_of(loaded, experiment), setting_checks(loaded, experiment)


def setting_checks(
    loaded: LoadedConfig, experiment: str | None = None
) -> dict[str, Callable[[], str]]:
    """For one experiment of the file, or all: constructs what its settings describe."""
    names = [experiment] if experiment else loaded.config.experiments
    return {name: partial(_check_settings, loaded, name) for name in names}


def _check_settings(loaded: LoadedConfig, name: str) -> str:
    experiment = loaded.experiment(name)
    models = [model_source(loaded, model) for model in experiment.grid.model]
    check_in_worker(loaded, name, settings := settings_of(experiment, models))
    names = dict.fromkeys(one.model.name for one in settings)
    return f"TRL and PEFT accept them for {', '.join(names)}"


def _on_gpu() -> Iterator[Check]:
    """A one-minute sweep on a GPU, and vLLM where it is installed."""
    gpu = _guard("gpu", gpu_names)
    yield gpu
    if not gpu.ok:
        return
    yield _guard("sweep on a GPU", smoke_test)
    if importlib.util.find_spec("vllm"):
        yield _guard("vllm", sample_with_vllm)
    else:
        yield Check("vllm", True, "not installed; probes sample with transformers")


def _guard(name: str, check: Callable[[], str]) -> Check:
    """Run one check; any exception is its failure."""
    try:
        return Check(name, True, check())
    except Exception as error:  # noqa: BLE001 every kind of failure is reported
        return Check(name, False, f"{type(error).__name__}: {error}")


def _libraries() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)


def _machine() -> str:
    import torch

    gpus = torch.cuda.device_count()
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    return f"{usable_cpus()} CPUs, {gpus} GPUs, {free:.0f} GiB of disk free"


def _embedded() -> str:
    from orchestrator.embedded import EMBEDDED, embedded_path
    from orchestrator.sampling import load_sampler
    from orchestrator.sampling.base import Request, SamplingSettings
    from orchestrator.sampling.model import ModelSource
    from orchestrator.storage.hashing import folder_identity

    results = []
    for name in EMBEDDED:
        folder = embedded_path(name)
        sampler = load_sampler(ModelSource(name, str(folder), folder_identity(folder)))
        request = Request("doctor", [{"role": "user", "content": "Ana has the cup."}], [0])
        [[completion]] = sampler.sample([request], SamplingSettings(max_completion_length=8))
        results.append(f"{name} generated {completion.tokens} tokens")
    return ", ".join(results)


def _mlflow(tracking_uri: str | None) -> str:
    from orchestrator.tracking.client import connect

    with tempfile.TemporaryDirectory() as folder:
        uri = tracking_uri or f"sqlite:///{Path(folder) / 'mlflow.db'}"
        connect(uri).search_experiments(max_results=1)
    return f"responds at {tracking_uri or 'a new SQLite database'}"


def _in_ray(
    datasets: Mapping[str, Dataset], settings: Mapping[str, Callable[[], str]]
) -> Iterator[Check]:
    """Ray, then settings and markers inside a Ray worker, where a sweep uses them."""
    from cluster.session import ray_session

    try:
        with ray_session() as cluster:
            counts = [f"{cluster.get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU")]
            yield Check("ray", True, ", ".join(counts))
            for name, check in settings.items():
                yield _guard(f"settings {name}", check)
            for name in task_names():
                yield _guard(f"marker {name}", lambda: run_in_worker(try_task, name))  # noqa: B023
            for dataset in datasets.values():
                label = f"dataset {dataset.name}"
                yield _guard(label, lambda: run_in_worker(check_dataset, dataset))  # noqa: B023
    except Exception as error:  # noqa: BLE001 every kind of failure is reported
        yield Check("ray", False, f"{type(error).__name__}: {error}")


def try_task(name: str) -> str:
    """Check a task's marker on the task's own examples; no dataset is loaded."""
    tasks = find_task(name).marker_variants()
    return "; ".join(str(check_marker(task, task.check_prompts())) for task in tasks)
