"""The checks of `decile doctor --gpu`: a small cell on the GPU, and what its guards measure there.

What fails here would fail, or pass unnoticed, in a sweep that occupies a GPU for hours. Without a
GPU the same cell trains on a CPU, so that the checks can be tried before there is one.
"""

import importlib.util
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.config.catalog import load_config
from orchestrator.config.experiment import MAX_LOGP_DIFFERENCE
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.plugins.counts import counted
from orchestrator.storage.locks import scratch_folder
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import ADAPTER, FINAL_ADAPTER, CellFolder, Finished
from orchestrator.training.trial import run_cell

# 64 prompts and eight updates of the embedded model, in the dtype of most models. The limit is
# checked here instead, so that the cell finishes and reports its difference.
EXPERIMENT = """
models: {tiny: {embedded: tiny, dtype: bfloat16}}
datasets: {few: {task: shuffled_objects, options: {train: 64, test: 16}}}
experiments:
  small_sweep:
    grid: {model: [tiny], dataset: [few], policy: [middle]}
    budget: 16
    max_logp_difference: 1000
    probe: {samples: 4, max_completion_length: 64}
    grpo:
      max_steps: 8
      num_generations: 4
      per_device_train_batch_size: 16
      max_completion_length: 64
      learning_rate: 0.003
      save_steps: 2
    lora: {r: 8}
    evaluate: {samples: 2}
    resources: {cpus: 1, gpus: GPUS}
"""
FILE = "experiments.yaml"
KILL_SECONDS = 300.0  # to reach the first checkpoint
SAME = 1e-6  # relative difference of sums in a different order
COMPARED = ("loss", "grad_norm", "learning_rate", "reward", "completions/mean_length")


if TYPE_CHECKING:
    from orchestrator.sampling import Completion


class NoGpu(RuntimeError):
    """torch finds no GPU on this machine."""


def gpu_checks() -> Iterator[tuple[str, Callable[[], str]]]:
    """Each check by its name, to be called before the next one is taken."""
    import torch

    yield "gpu", gpu_names
    gpus, where = (1, "a GPU") if torch.cuda.is_available() else (0, "a CPU")
    with scratch_folder("decile-doctor-") as folder:
        yield f"sweep on {where}", partial(small_sweep, folder / "first", gpus)
        yield "rollouts", partial(rollouts_verdict, folder / "first")
        yield "base weights", partial(weights_verdict, folder / "first")
        yield "resume", partial(resume_verdict, folder / "first", folder)
    if gpus and importlib.util.find_spec("vllm"):
        yield "vllm", sample_with_vllm
    elif gpus:
        yield "vllm", lambda: "not installed; probes sample with transformers"


def gpu_names() -> str:
    """The GPUs of this machine, by name. Raises NoGpu if there is none."""
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise NoGpu("torch finds no GPU; the checks below ran on the CPU")
    names = [torch.cuda.get_device_name(i) for i in range(count)]
    bf16 = "with" if torch.cuda.is_bf16_supported() else "without"
    return f"{', '.join(names)} ({bf16} bfloat16, CUDA {torch.version.cuda})"


def small_sweep(folder: Path, gpus: float = 1) -> str:
    """Run the small sweep in a new folder and summarise it. Raises RuntimeError if it fails."""
    from orchestrator.pipeline.progress import ProgressDisplay
    from orchestrator.pipeline.run import Run
    from orchestrator.pipeline.sweep import run_experiment
    from orchestrator.tracking import default_tracking_uri

    folder.mkdir(parents=True)
    (folder / FILE).write_text(EXPERIMENT.replace("GPUS", f"{gpus:g}"))
    plan, trained = cell_of(folder)
    progress = ProgressDisplay(total=1, out=io.StringIO())
    outcome = run_experiment(
        Run(plan, trained.store, progress), default_tracking_uri(trained.store)
    )
    if outcome.failed:
        raise RuntimeError("; ".join(outcome.failed.values()))
    result = _finished(trained).result
    ledger = result.ledger
    return (
        f"{counted(round(ledger.updates), 'update')} in {ledger.seconds:.1f} s, "
        f"{ledger.generated_tokens:,.0f} tokens generated, "
        f"accuracy {result.accuracy_base:.2f} → {result.accuracy_final:.2f}"
    )


def cell_of(folder: Path) -> tuple[Plan, CellFolder]:
    """The plan of the small sweep in a folder, and its only cell."""
    plan = make_plan(load_config(folder / FILE), "small_sweep")
    return plan, CellFolder(Store(str(folder / "runs")), plan.cells[0].cell_id)


def rollouts_verdict(folder: Path) -> str:
    """How far rollouts are from the weights that trained. Raises RuntimeError above the limit."""
    from orchestrator.training.guards import LOGP_DIFFERENCE

    values = _series(cell_of(folder)[1], LOGP_DIFFERENCE)
    if not values:
        raise RuntimeError("no update had a live group, so none could be compared")
    worst = max(values.values())
    text = (
        f"tokens differ by {worst:.2g} nats at most between decoder and loss, in "
        f"{counted(len(values), 'update')} (limit {MAX_LOGP_DIFFERENCE:g})"
    )
    if not worst <= MAX_LOGP_DIFFERENCE:
        raise RuntimeError(f"{text}: rollouts are not drawn from the weights that train")
    return text


def weights_verdict(folder: Path) -> str:
    """Confirm that the base weights did not move: the cell would have failed (`check_weights`)."""
    plan, trained = cell_of(folder)
    _finished(trained)
    count = plan.cells[0].updates // int(plan.cells[0].grpo["save_steps"])
    return f"a sample of every frozen tensor was the same at {counted(count, 'checkpoint')}"


def resume_verdict(first: Path, folder: Path) -> str:
    """Confirm that a cell killed after a checkpoint resumes as if it had not been killed.

    Its updates and final adapter may differ from those of an undisturbed cell about as much as two
    undisturbed cells differ. Raises RuntimeError if they differ more.
    """
    plan, undisturbed = cell_of(first)
    cell = plan.cells[0]
    again, _ = _trained(cell, undisturbed.store, folder / "again", kill=False)
    killed, update = _trained(cell, undisturbed.store, folder / "killed", kill=True)
    expected, resumed = difference(undisturbed, again), difference(undisturbed, killed)
    text = (
        f"killed after update {update} of {cell.updates}: updates and adapter differ by "
        f"{resumed:.2g} from those of an undisturbed cell; two undisturbed cells differ by "
        f"{expected:.2g}"
    )
    if not resumed <= max(SAME, 3 * expected):
        raise RuntimeError(text)
    return text


def difference(one: CellFolder, other: CellFolder) -> float:
    """The largest difference of what two runs of a cell logged, and of their adapters.

    Relative to the largest value of each series and tensor; infinite where an update is missing.
    """
    import numpy as np
    from safetensors.numpy import load

    pairs = []
    for name in COMPARED:
        series = [_series(folder, name) for folder in (one, other)]
        if series[0].keys() != series[1].keys():
            return float("inf")
        pairs.append([np.array([*values.values()]) for values in series])
    adapters = [
        load(folder.store.read_bytes(folder.place, FINAL_ADAPTER, ADAPTER[0]))
        for folder in (one, other)
    ]
    pairs += [[adapter[name] for adapter in adapters] for name in adapters[0]]
    return max(
        float(np.abs(a - b).max()) / max(float(np.abs(a).max()), 1e-12) for a, b in pairs if a.size
    )


def _series(cell: CellFolder, name: str) -> dict[int, float]:
    """A number of a finished cell's log, by update."""
    rows = _finished(cell).tables["log"].to_pylist()
    return {row["update"]: row["value"] for row in rows if row["name"] == name}


def _finished(cell: CellFolder) -> Finished:
    finished = cell.finished()
    if finished is None:
        raise RuntimeError("the small sweep did not finish")
    return finished


def _trained(cell: Cell, store: Store, folder: Path, *, kill: bool) -> tuple[CellFolder, int]:
    """Train a cell in its own processes, with the probes and the subset of another storage.

    Returns it, and the update of the checkpoint that it resumed from; 0 without `kill`.
    """
    for kind in ("probes", "subsets"):
        shutil.copytree(store.local_path(kind), folder / kind)
    trained, update = CellFolder(Store(str(folder)), cell.cell_id), 0
    code = "import sys; from orchestrator.cli.gpu_checks import train; train(*sys.argv[1:])"
    # -P: modules in the user's folder do not shadow the libraries.
    command = [sys.executable, "-Pc", code, cell.model_dump_json(), str(folder)]
    if kill:
        quiet, deadline = subprocess.DEVNULL, time.monotonic() + KILL_SECONDS
        process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        while not trained.checkpoints() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.wait()
        update = max(trained.checkpoints(), default=0)
        if not 0 < update < cell.updates:
            raise RuntimeError(f"the cell was not killed midway, but after update {update}")
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [""]
        raise RuntimeError(f"a process that trained the cell failed: {lines[-1]}")
    return trained, update


def train(cell: str, storage: str) -> None:
    """Train, or resume, a cell that is given as JSON."""
    run_cell(Cell.model_validate_json(cell), storage, lambda _: None)


def sample_with_vllm() -> str:
    """Sample one prompt with vLLM. Raises RuntimeError or ValueError if it fails."""
    samples = sampled("tiny", "vllm", samples=4, tokens=16)
    return (
        f"{counted(sum(sample.tokens for sample in samples), 'token')} in "
        f"{counted(len(samples), 'sample')}"
    )


def sampled(model: str, engine: str, *, samples: int, tokens: int) -> "list[Completion]":
    """Completions of one prompt by an embedded model."""
    from orchestrator.embedded import embedded_path
    from orchestrator.sampling import Request, SamplingSettings, load_sampler
    from orchestrator.sampling.model import ModelSource
    from orchestrator.storage.identity import folder_identity

    folder = embedded_path(model)
    sampler = load_sampler(ModelSource(model, str(folder), folder_identity(folder)), engine)
    chat = [{"role": "user", "content": "Ana has the cup."}]
    request = Request("doctor", chat, range(samples))
    [completions] = sampler.sample([request], SamplingSettings(max_completion_length=tokens))
    return completions
