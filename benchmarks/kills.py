"""Kill a probe with SIGKILL at random times and compare its samples with an undisturbed probe.

Probes the embedded model twice, once undisturbed and once with its whole process group killed
repeatedly, and compares the two row by row. Prints how many samples each kill left stored; those
of unfinished parts, at most one part per actor, are drawn again.
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

from benchmarks.command_line import benchmark_parser


def main() -> None:
    """Run both probes and compare them."""
    parser = benchmark_parser("kills", __doc__)
    parser.add_argument(
        "--prompts", type=int, default=2000, help="prompts of the pool (default 2000)"
    )
    parser.add_argument("--samples", type=int, default=4, help="samples per prompt (default 4)")
    parser.add_argument("--kills", type=int, default=10, help="how often to kill it (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the times (default 0)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = experiments(Path(folder) / "undisturbed", arguments)
        start_time = time.monotonic()
        assert start(undisturbed).wait() == 0
        duration = time.monotonic() - start_time
        killed = experiments(Path(folder) / "killed", arguments)
        kill_repeatedly(killed, arguments.kills, duration, random.Random(arguments.seed))
        one, two = rows(undisturbed), rows(killed)
    names = ["prompt_id", "sample", "completion", "tokens", "finish", "outcome"]
    same = one.select(names).equals(two.select(names))
    print(
        f"{one.num_rows} rows undisturbed in {duration:.0f} s, {two.num_rows} after "
        f"{arguments.kills} kills: {'equal, row for row' if same else 'DIFFERENT'}"
    )
    sys.exit(0 if same else 1)


def experiments(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write an experiments.yaml with one probe of the embedded model."""
    folder.mkdir()
    options = {"train": arguments.prompts, "test": 20}
    content = {
        "storage": str(folder / "runs"),
        "models": {"tiny": {"embedded": "tiny"}},
        "datasets": {"objects": {"task": "shuffled_objects", "options": options}},
        "experiments": {
            "kills": {
                "grid": {"model": ["tiny"], "dataset": ["objects"], "policy": ["middle"]},
                "probe": {"samples": arguments.samples, "max_completion_length": 96},
            }
        },
    }
    file = folder / "experiments.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def start(file: Path) -> "subprocess.Popen[bytes]":
    """Start the probe in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "probe", str(file), "-e", "kills"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_repeatedly(file: Path, kills: int, duration: float, rng: random.Random) -> None:
    """Start and kill the probe `kills` times, then let it finish."""
    for number in range(kills):
        process = start(file)
        time.sleep(rng.uniform(8.0, 8.0 + duration / 3))
        finished = process.poll() is not None
        if not finished:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(1)
        print(
            f"kill {number + 1}: {stored(file)} samples stored"
            + (" (the probe had finished)" if finished else ""),
            flush=True,
        )
    assert start(file).wait() == 0


def parts(file: Path) -> list[Path]:
    """The parts of every probe in the file's storage."""
    return sorted((file.parent / "runs" / "probes").glob("*/*.parquet"))


def stored(file: Path) -> int:
    """The number of samples in finished parts."""
    return sum(pq.read_metadata(part).num_rows for part in parts(file))


def rows(file: Path) -> pa.Table:
    """All samples, sorted by prompt and number."""
    table = pa.concat_tables([pq.read_table(part) for part in parts(file)])
    return table.sort_by([("prompt_id", "ascending"), ("sample", "ascending")])


if __name__ == "__main__":
    main()
