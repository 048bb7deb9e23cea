"""kill -9 in the middle of a probe, again and again: is the finished Parquet the same?

Probes the embedded model twice, once undisturbed and once with its whole process group killed at
random times, and compares the two row for row. Prints what each kill cost: samples that had to be
drawn again are those of parts in work, at most one part per actor.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml


def main() -> None:
    """Run both probes, compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--prompts", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calm = experiments(Path(folder) / "calm", wanted)
        began = time.monotonic()
        assert start(calm).wait() == 0
        took = time.monotonic() - began
        wild = experiments(Path(folder) / "wild", wanted)
        disturb(wild, wanted.kills, took, random.Random(wanted.seed))
        one, two = rows(calm), rows(wild)
    names = ["prompt_id", "sample", "completion", "tokens", "finish", "outcome"]
    same = one.select(names).equals(two.select(names))
    print(
        f"{one.num_rows} rows undisturbed in {took:.0f} s, {two.num_rows} after "
        f"{wanted.kills} kills: {'equal, row for row' if same else 'DIFFERENT'}"
    )
    sys.exit(0 if same else 1)


def experiments(folder: Path, wanted: argparse.Namespace) -> Path:
    """A file with one probe of the embedded model."""
    folder.mkdir()
    options = {"train": wanted.prompts, "test": 20}
    content = {
        "storage": str(folder / "runs"),
        "models": {"tiny": {"embedded": "tiny"}},
        "datasets": {"objects": {"task": "shuffled_objects", "options": options}},
        "experiments": {
            "kills": {
                "grid": {"model": ["tiny"], "dataset": ["objects"], "policy": ["middle"]},
                "probe": {"samples": wanted.samples, "max_completion_length": 96},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def start(file: Path) -> "subprocess.Popen[bytes]":
    """The probe in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "probe", str(file), "-e", "kills"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def disturb(file: Path, kills: int, took: float, rng: random.Random) -> None:
    """Start and kill the probe `kills` times, then let it end."""
    for number in range(kills):
        process = start(file)
        time.sleep(rng.uniform(8.0, 8.0 + took / 3))
        done = process.poll()
        os.killpg(process.pid, signal.SIGKILL) if done is None else None
        process.wait()
        time.sleep(1)
        print(
            f"kill {number + 1}: {stored(file)} samples whole"
            + ("" if done is None else " (it had ended)"),
            flush=True,
        )
    assert start(file).wait() == 0


def parts(file: Path) -> list[Path]:
    """The parts of every probe in the file's storage."""
    return sorted((file.parent / "runs" / "probes").glob("*/*.parquet"))


def stored(file: Path) -> int:
    """Samples in whole parts of the training probe."""
    return sum(pq.read_metadata(part).num_rows for part in parts(file))


def rows(file: Path) -> pa.Table:
    """All samples, sorted."""
    table = pa.concat_tables([pq.read_table(part) for part in parts(file)])
    return table.sort_by([("prompt_id", "ascending"), ("sample", "ascending")])


if __name__ == "__main__":
    main()
