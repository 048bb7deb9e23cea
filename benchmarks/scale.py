"""Rows per second and memory of a probe of a million prompts with a sampler that costs nothing.

The engine is a stub named in YAML like a custom engine, so the measurement covers Ray Data,
marking, Parquet parts, compaction, the difficulty table and the subset. `decile probe` runs in a
separate process; its resident memory (of the driver, and of all processes together) is recorded
every second and shown at tenths of the sampling.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import psutil
import pyarrow.parquet as pq
import yaml

from benchmarks.command_line import benchmark_parser
from orchestrator.plugins.streams import stream_key
from orchestrator.sampling import Completion, Request, Sampler, SamplingSettings
from orchestrator.sampling.model import ModelSource


class StubSampler(Sampler):
    """Answers without a model; (seed, prompt_id, sample) decide whether the answer is correct."""

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None) -> Self:
        """There is nothing to load."""
        return cls()

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """A sentence and a number."""
        return [[self._answer(r, i, settings.seed) for i in r.samples] for r in requests]

    def _answer(self, request: Request, sample: int, seed: int) -> Completion:
        ease = stream_key(seed, request.prompt_id, -1) % 101
        right = stream_key(seed, request.prompt_id, sample) % 100 < ease
        answer = request.question.rsplit(" ", 1)[-1] if right else "-1"
        return Completion(f"That is simple to see.\n#### {answer}", 12, "stop")

    def count_tokens(self, requests: Sequence[Request]) -> list[int]:
        """There is no tokenizer: every prompt counts as 0 tokens."""
        return [0] * len(requests)


class MemorySample(NamedTuple):
    """Megabytes at one time: of the driver, and of the driver and all its child processes.

    `own` is the driver's without the pages of files and Ray's object store, which it only maps.
    """

    seconds: float
    driver: float
    own: float
    all: float
    files: int


def main() -> None:
    """Write the pool, probe it and print a table."""
    parser = benchmark_parser("scale", __doc__)
    parser.add_argument("--prompts", type=int, default=1_000_000, help="default 1000000")
    parser.add_argument("--samples", type=int, default=4, help="samples per prompt (default 4)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = experiments(folder, arguments.prompts, arguments.samples)
        memory: list[MemorySample] = []
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "probe", str(file), "-e", "scale"]
            + ["--out", str(folder / "probe.html")]
        )
        watcher = threading.Thread(
            target=record_memory, args=(process.pid, folder / "runs", memory)
        )
        watcher.start()
        code = process.wait()
        watcher.join()
        print_table(folder / "runs", memory)
    sys.exit(code)


def experiments(folder: Path, prompts: int, samples: int) -> Path:
    """Write a pool of short questions and an experiments.yaml with one probe of it."""
    for split, count in (("train", prompts), ("test", 10)):
        with (folder / f"{split}.jsonl").open("w") as out:
            for i in range(count):
                number = i if split == "train" else -i - 2
                question = f"A shelf holds some books, and {split} says there are {number}"
                out.write(json.dumps({"question": question, "answer": str(number)}) + "\n")
    content = {
        "storage": str(folder / "runs"),
        "models": {"stub": {"embedded": "tiny"}},
        "datasets": {
            "numbers": {
                "task": "file",
                "options": {
                    "train": str(folder / "train.jsonl"),
                    "test": str(folder / "test.jsonl"),
                },
            }
        },
        "experiments": {
            "scale": {
                "grid": {"model": ["stub"], "dataset": ["numbers"], "policy": ["hard", "middle"]},
                "probe": {"samples": samples, "engine": "benchmarks.scale:StubSampler"},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def record_memory(pid: int, storage: Path, memory: list[MemorySample]) -> None:
    """Record the memory of a process and its children until it ends."""
    start = time.monotonic()
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        try:
            driver = psutil.Process(pid)
            resident, own = driver.memory_info().rss, unshared(driver)
            children = sum(unshared(child) for child in driver.children(recursive=True))
        except psutil.NoSuchProcess:
            continue
        files = sum(len(os.listdir(probe)) for probe in storage.glob("probes/*"))
        megabytes = (size / 1e6 for size in (resident, own, resident + children))
        memory.append(MemorySample(time.monotonic() - start, *megabytes, files))
        time.sleep(1)


def unshared(process: psutil.Process) -> float:
    """Resident bytes without shared ones: Ray's object store would count once per process."""
    try:
        memory = process.memory_info()
    except psutil.NoSuchProcess:
        return 0.0
    return float(memory.rss - memory.shared)


def print_table(storage: Path, memory: list[MemorySample]) -> None:
    """Print rows per second, and memory at tenths of the sampling."""
    files = list(storage.glob("probes/*/*.parquet"))
    rows = sum(pq.read_metadata(f).num_rows for f in files)
    peak = max(sample.files for sample in memory)
    sampling = [sample for sample in memory if 0 < sample.files <= peak]
    first = sampling[0].seconds
    last = next(sample.seconds for sample in memory if sample.files == peak)
    print(
        f"{rows:,} rows: {memory[-1].seconds:.0f} s in total, sampled, marked and written in "
        f"{last - first:.0f} s ({rows / (last - first):,.0f} rows/s)"
    )
    print(f"{'':>10} {'driver MB':>10} {'of its own':>10} {'all MB':>10}")
    for tenth in range(1, 11):
        moment = first + (last - first) * tenth / 10
        sample = min(memory, key=lambda sample: abs(sample.seconds - moment))
        print_row(f"{tenth / 10:.0%}", sample)
    peaks = [max(values) for values in zip(*memory, strict=True)]
    print_row("peak", MemorySample(*peaks))


def print_row(name: str, sample: MemorySample) -> None:
    """Print one moment."""
    print(f"{name:>10} {sample.driver:>10,.0f} {sample.own:>10,.0f} {sample.all:>10,.0f}")


if __name__ == "__main__":
    main()
