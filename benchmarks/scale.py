"""A probe of a million prompts with a sampler that costs nothing: rows per second, and memory.

The engine is a stub named in YAML like any user's own, so all that is measured is the house: Ray
Data, marking, Parquet parts, compaction, the difficulty table, the subset. `decile probe` runs in a
process of its own; its resident memory (the driver's, and all of its processes') is looked at twice
a second, and shown at tenths of the sampling: flat means that the last tenth takes what the first
did.
"""

import argparse
import json
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

from orchestrator.sampling import Completion, Request, Sampler, SamplingSettings
from orchestrator.sampling.base import stream_key
from orchestrator.sampling.model import ModelSource


class StubSampler(Sampler):
    """Answers at once: right or wrong by (seed, prompt_id, sample), as a real sampler would."""

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None) -> Self:
        """Nothing to load."""
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
        """Nothing is cut into tokens."""
        return [0] * len(requests)


class Look(NamedTuple):
    """Megabytes at a moment: of the driver, and of the driver and all that it started."""

    seconds: float
    driver: float
    all: float
    files: int


def main() -> None:
    """Write the pool, probe it, tell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=4, help="K (default 4)")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = experiments(folder, wanted.prompts, wanted.samples)
        looks: list[Look] = []
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "probe", str(file), "-e", "scale"]
        )
        watcher = threading.Thread(target=watch, args=(process.pid, folder / "runs", looks))
        watcher.start()
        code = process.wait()
        watcher.join()
        tell(folder / "runs", looks)
    sys.exit(code)


def experiments(folder: Path, prompts: int, samples: int) -> Path:
    """A pool of small questions, and a file with one probe of it."""
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


def watch(pid: int, storage: Path, looks: list[Look]) -> None:
    """Look at the memory of a process and its children until it ends."""
    began = time.monotonic()
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        try:
            driver = psutil.Process(pid)
            own = driver.memory_info().rss
            children = sum(unshared(child) for child in driver.children(recursive=True))
        except psutil.NoSuchProcess:
            continue
        files = sum(1 for _ in storage.glob("probes/*/*.parquet"))
        looks.append(Look(time.monotonic() - began, own / 1e6, (own + children) / 1e6, files))
        time.sleep(0.5)


def unshared(process: psutil.Process) -> float:
    """Resident bytes less those that others may share: Ray's object store would count often."""
    try:
        memory = process.memory_info()
    except psutil.NoSuchProcess:
        return 0.0
    return float(memory.rss - memory.shared)


def tell(storage: Path, looks: list[Look]) -> None:
    """Rows per second, and memory at tenths of the sampling."""
    files = list(storage.glob("probes/*/*.parquet"))
    rows = sum(pq.read_metadata(f).num_rows for f in files)
    peak = max(look.files for look in looks)
    sampling = [look for look in looks if 0 < look.files <= peak]
    first = sampling[0].seconds
    last = next(look.seconds for look in looks if look.files == peak)
    print(
        f"{rows:,} rows: {looks[-1].seconds:.0f} s in all, sampled, marked and written in "
        f"{last - first:.0f} s ({rows / (last - first):,.0f} rows/s)"
    )
    print(f"{'':>10} {'driver MB':>10} {'all MB':>10}")
    for tenth in range(1, 11):
        moment = first + (last - first) * tenth / 10
        look = min(looks, key=lambda look: abs(look.seconds - moment))
        print(f"{tenth / 10:>10.0%} {look.driver:>10,.0f} {look.all:>10,.0f}")
    print(
        f"{'peak':>10} {max(k.driver for k in looks):>10,.0f} {max(k.all for k in looks):>10,.0f}"
    )


if __name__ == "__main__":
    main()
