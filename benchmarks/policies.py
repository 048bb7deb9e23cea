"""Seconds and peak memory of each policy on a large difficulty table.

Every policy runs in a child process of its own, which generates the table in chunks as a probe
writes it, selects once, and reports the time and its peak memory (getrusage). The peak includes the
interpreter and the table; the row `(table)` is a child that does not select.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.command_line import benchmark_parser
from policies import get_policy

SAMPLES = 10
CHUNK = 500_000
OUTCOMES = ["correct", "wrong", "unparsed", "truncated"]
SOURCES = pa.array([f"source {number:02}" for number in range(100)])
PARSED = {"require": "parsed"}
RUNS: list[tuple[str, str, dict[str, Any]]] = [
    *((name, name, {}) for name in ("hard", "easy", "middle", "random", "full")),
    *((name, name, {}) for name in ("base_wrong", "base_right", "hardest_nonzero", "learnable")),
    ("band 0.2 to 0.8", "band", {"low": 0.2, "high": 0.8}),
    ("tiers 1-3", "tiers", {"levels": "1-3"}),
    ("mixture of three", "mixture", {"shares": {"hard": 0.5, "middle": 0.25, "random": 0.25}}),
    ("hard, parsed", "hard", PARSED),
    ("middle, parsed", "middle", PARSED),
    *((f"{name} within 100 sources", name, {"within": "source"}) for name in ("hard", "random")),
]


def main() -> None:
    """Measure each policy in a child process and print a table."""
    parser = benchmark_parser("policies", __doc__)
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="prompts of the pool (default 10000000)"
    )
    parser.add_argument(
        "--share", type=float, default=0.1, help="share of the pool to select (default 0.1)"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(json.loads(arguments.child), arguments.rows, arguments.share)))
        return
    print(f"{arguments.rows:,} rows, a subset of {arguments.share:.0%}\n")
    print("| policy | seconds | peak, GB |\n|---|---|---|")
    for label, name, options in [("(table)", "", {}), *RUNS]:
        seconds, peak = in_child([name, options], arguments.rows, arguments.share)
        print(f"| {label} | {seconds:.2f} | {peak:.2f} |", flush=True)


def in_child(run: list[Any], rows: int, share: float) -> tuple[float, float]:
    """Seconds and peak GB of one selection, in a fresh interpreter."""
    command = [sys.executable, "-m", "benchmarks.policies", "--child", json.dumps(run)]
    command += ["--rows", str(rows), "--share", str(share)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak = json.loads(output)
    return seconds, peak


def measure(run: list[Any], rows: int, share: float) -> tuple[float, float]:
    """Seconds of the selection, and the process's peak in GB."""
    name, options = run
    generator = np.random.default_rng(0)
    sizes = [min(CHUNK, rows - start) for start in range(0, rows, CHUNK)]
    table = pa.concat_tables([chunk(generator, size) for size in sizes])
    start = time.perf_counter()
    if name:
        get_policy(name, **options)(table, max(1, int(rows * share)), np.random.default_rng(0))
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def chunk(generator: np.random.Generator, rows: int) -> pa.Table:
    """Rows of a pool whose pass rates are Beta(0.24, 0.21), similar to recorded GSM8K data."""
    right = generator.binomial(SAMPLES, generator.beta(0.24, 0.21, rows)).astype(np.int32)
    wrong = generator.binomial(SAMPLES - right, 0.5).astype(np.int32)
    unparsed = generator.binomial(SAMPLES - right - wrong, 0.3).astype(np.int32)
    rate = right / SAMPLES
    first = np.where(generator.random(rows) < rate, 0, generator.integers(1, len(OUTCOMES), rows))
    return pa.table(
        {
            "prompt_id": pa.array(np.strings.mod("%016x", generator.integers(0, 2**62, rows))),
            "source": SOURCES.take(pa.array(generator.integers(0, len(SOURCES), rows))),
            "tier": pa.array(list("12345")).take(pa.array(generator.integers(0, 5, rows))),
            "n": pa.array(np.full(rows, SAMPLES, dtype=np.int32)),
            "successes": right,
            "pass_rate": pa.array(rate, mask=generator.random(rows) < 0.001),
            "wrong": wrong,
            "unparsed": unparsed,
            "truncated": SAMPLES - right - wrong - unparsed,
            "first": pa.array(OUTCOMES).take(pa.array(first)),
            "learnability": 1 - rate**8 - (1 - rate) ** 8,
        }
    )


if __name__ == "__main__":
    main()
