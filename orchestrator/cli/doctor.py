"""Checks what a sweep needs: libraries, Ray, MLflow and every marker, within seconds.

With --gpu, the embedded model also goes through the ordinary pipeline: see `gpu_checks`. With
--storage, every file of a storage is verified.
"""

import importlib.metadata
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cluster.actors import run_in_worker
from cluster.redaction import redact
from cluster.resources import usable_cpus
from cluster.terminal import echo, printable_line
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.gpu_checks import gpu_checks, sampled
from orchestrator.cli.json_output import json_text
from orchestrator.config.catalog import LoadedConfig, load_config
from orchestrator.pipeline.audit import KINDS, audit, remedy, set_aside
from orchestrator.planning.pools import Dataset
from orchestrator.planning.resolve import datasets_of, model_source
from orchestrator.plugins.counts import counted
from orchestrator.plugins.extras import missing_library
from orchestrator.probing.attacks import attacked
from orchestrator.probing.checks import check_dataset, check_marker
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from orchestrator.training.settings_check import check_in_worker, settings_of
from tasks import Prompt, Task, find_task, task_names

SHOWN = 5  # paths listed of a group; files that fail verification are all listed
PROGRESS_SECONDS = 5.0


def check_storage(uri: str | None, *, repair: bool = False, as_json: bool = False) -> int:
    """Check a storage and print the result; 0 if no file fails verification, else 1.

    With `repair`, files that fail are set aside. `as_json` prints status and detail of each line.
    Raises UserError if there is no storage.
    """
    if uri is None:
        raise UserError("--repair needs --storage: write the storage whose files to set aside")
    store = Store(uri)
    if not any(store.sizes(kind) for kind in KINDS):
        raise UserError(
            f"storage {store.uri} holds no results (no {', '.join(KINDS)}): "
            "write the `storage` of the experiments file"
        )
    printed = time.monotonic()

    def on_progress(done: int, total: int) -> None:
        nonlocal printed
        if time.monotonic() - printed > PROGRESS_SECONDS:
            printed = time.monotonic()
            echo(f"checked {done:,} of {counted(total, 'probe')}, subsets and cells", sys.stderr)

    result = audit(store, on_progress)
    if repair:
        unsound = set_aside(store, result.unsound)
    else:
        unsound = [f"{each.path} {each.problem}: {remedy(each)}" for each in result.unsound]
    lines = []
    for kind in KINDS:
        files = [path for path in result.unverified if path.startswith(f"{kind}/")]
        other = f", {len(files):,} that cannot be verified ({_paths(files)})" if files else ""
        sound = counted(result.sound[kind], "file")
        lines.append(f"ok    {kind}: {sound} verified{other}")
    lines += [f"FAIL  {line}" for line in unsound]
    if result.in_training:
        lines.append(f"note  not checked, in training: {_paths(result.in_training)}")
    for what, paths in (
        ("ignored", result.ignored),
        ("temporary files of killed or running runs", result.temporary),
        ("set aside", result.set_aside),
    ):
        if paths:
            lines.append(f"note  {what}: {len(paths):,} ({_paths(paths)})")
    if as_json:
        parts = [redact(line).split(maxsplit=1) for line in lines]
        listed = [{"status": status, "detail": text} for status, text in parts]
        echo(json_text("doctor", {"checks": listed}))
    else:
        for line in lines:
            echo(printable_line(redact(line)))
    if not unsound:
        return ExitCode.DONE
    if as_json:
        return ExitCode.FAILED
    if repair:
        echo("Rerun decile run to recreate these files.")
    else:
        repairing = ["decile", "doctor", "--storage", redact(uri), "--repair"]
        echo(f"decile run sets them aside, or: {shlex.join(repairing)}")
    return ExitCode.FAILED


def _paths(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN:,} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


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
    """Run all checks, yielding each as soon as it is done; a failure does not stop the rest.

    Every task's marker is checked on the task's own examples, and the marker of each of `datasets`
    on all its answers. `settings` construct what an experiment describes. With `gpu`, the checks of
    `gpu_checks` follow.
    """
    versions = (f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    yield _guard("libraries", lambda: ", ".join(versions))
    yield _guard("machine", _machine)
    yield _guard("embedded model", _embedded)
    yield _guard("mlflow", lambda: _mlflow(tracking_uri))
    from cluster.session import ray_session

    try:
        with ray_session() as cluster:  # settings and markers where a sweep uses them: in a worker
            counts = [f"{cluster.get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU")]
            yield Check("ray", True, ", ".join(counts))
            for name, check in (settings or {}).items():
                yield _guard(f"settings {name}", check)
            for name in task_names():
                yield _guard(f"marker {name}", partial(run_in_worker, try_task, name))
            for dataset in (datasets or {}).values():
                label = f"dataset {dataset.name}"
                yield _guard(label, partial(run_in_worker, check_dataset, dataset))
    except Exception as error:  # noqa: BLE001 every kind of failure is reported
        yield Check("ray", False, f"{type(error).__name__}: {error}")
    if not gpu:
        return
    for name, check in gpu_checks():
        yield _guard(name, check)


def declared(
    file: Path | None, experiment: str | None
) -> tuple[dict[str, Dataset], dict[str, Callable[[], str]]]:
    """The data sets of a file and the checks of its settings, for one experiment or all."""
    if file is None:
        return {}, {}
    loaded = load_config(file)
    return datasets_of(loaded, experiment), setting_checks(loaded, experiment)


def setting_checks(
    loaded: LoadedConfig, experiment: str | None = None
) -> dict[str, Callable[[], str]]:
    """For one experiment of the file, or all: constructs what its settings describe."""

    def check(name: str) -> str:
        experiment = loaded.experiment(name)
        with loaded.located():
            models = [model_source(loaded.config, model) for model in experiment.grid.model]
        settings = settings_of(experiment, models)
        check_in_worker(loaded, name, settings)
        accepted = dict.fromkeys(one.model.name for one in settings)
        return f"TRL and PEFT accept them for {', '.join(accepted)}"

    names = [experiment] if experiment else loaded.config.experiments
    return {name: partial(check, name) for name in names}


def _guard(name: str, check: Callable[[], str]) -> Check:
    """Run one check; any exception is its failure."""
    try:
        return Check(name, True, check())
    except Exception as error:  # noqa: BLE001 every kind of failure is reported
        reason = missing_library(error) or f"{type(error).__name__}: {error}"
        return Check(name, False, reason)


def _machine() -> str:
    import torch

    gpus = torch.cuda.device_count()
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    return f"{usable_cpus()} CPUs, {gpus} GPUs, {free:.0f} GiB of disk free"


def _embedded() -> str:
    from orchestrator.embedded import EMBEDDED

    results = []
    for name in EMBEDDED:
        [completion] = sampled(name, "transformers", samples=1, tokens=8)
        results.append(f"{name} generated {counted(completion.tokens, 'token')}")
    return ", ".join(results)


def _mlflow(tracking_uri: str | None) -> str:
    from orchestrator.tracking.client import connect

    with tempfile.TemporaryDirectory() as folder:
        uri = tracking_uri or f"sqlite:///{Path(folder) / 'mlflow.db'}"
        connect(uri).search_experiments(max_results=1)
    return f"responds at {tracking_uri or 'a new SQLite database'}"


def try_task(name: str) -> str:
    """Check a task's marker on the task's own examples; no dataset is loaded."""
    kind = find_task(name)
    if reason := kind.unusable():
        return f"not checked: {reason}"
    results = []
    for task in kind.marker_variants():
        prompts = task.check_prompts()
        results.append(check_marker(task, prompts))
        if task.environment is None:
            results[-1] += f", {_attacks(task, prompts)}"
    return "; ".join(results) or f"not checked: {kind.why_no_variants}"


def _attacks(task: Task, prompts: Sequence[Prompt]) -> str:
    """The kinds of attack that pass, under each reading."""
    readings = [task] if task.other_reading is task else [task, task.other_reading]
    results = [(each.marking, attacked(each, prompts)) for each in readings]
    passed = [
        f"{each.attack} ({marking}, {each.accepted:,} of {each.prompts:,})"
        for marking, attacks in results
        for each in attacks
        if each.accepted
    ]
    count = counted(len(results[0][1]), "kind")
    return f"{count} of wrong answers tried: {', '.join(passed) or 'none'} accepted"
