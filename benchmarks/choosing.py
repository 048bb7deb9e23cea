"""Seconds and memory of choosing an update's prompts from a large pool, for each online policy.

Each policy runs in a child process: a pool with ids as from `make_prompt`, and pass rates similar
to recorded GSM8K data. An update is everything that a cell does to choose: the policy's own choice,
the check of its result, looking up the prompts, and adding their groups to the history. The first
update may sort the pool. Memory is the process's peak after the first update and its growth until
the last. With --refresh, that share of the pool was probed again, 4 samples per prompt, before
every tenth update.
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
from policies import BuiltOnlinePolicy, History, find_policy, get_online_policy, policy_names
from policies.online import is_online
from tasks.prompt_table import SCHEMA, PromptTable, hex_ids

SAMPLES, GROUP = 10, 8
REFRESH_EVERY, REFRESH_SAMPLES = 10, 4
SOURCES = 100
GATES = [{"gaussian": {"mean": {"from": 0.8, "to": 0.2}}}, {"rest": {"updates": 3}}]
MORE: dict[str, list[dict[str, Any]]] = {  # options that are measured besides the defaults
    "predicted": [{"drift": "shift"}],
    "pools": [{"within": "source"}, {"gates": GATES}, {"within": "source", "gates": GATES}],
}


def main() -> None:
    """Measure each policy in a child process and print a table."""
    parser = benchmark_parser("choosing", __doc__)
    parser.add_argument(
        "--prompts", type=int, default=1_000_000, help="prompts of the pool (default 1000000)"
    )
    parser.add_argument("--size", type=int, default=32, help="prompts per update (default 32)")
    parser.add_argument("--updates", type=int, default=200, help="updates (default 200)")
    parser.add_argument(
        "--refresh", type=float, default=0, help="share of the pool per refresh (default 0)"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        sizes = (arguments.prompts, arguments.size, arguments.updates, arguments.refresh)
        print(json.dumps(measure(*json.loads(arguments.child), *sizes)))
        return
    print(
        f"{arguments.prompts:,} prompts, {arguments.size} per update, {arguments.updates} updates"
    )
    print("\n| policy | first, ms | median, ms | slowest, ms | peak, MB | growth, MB |")
    print("|---|---|---|---|---|---|")
    for name in policy_names():
        for options in [{}, *MORE.get(name, [])] if is_online(find_policy(name)) else []:
            child = ["--child", json.dumps([name, options])]
            command = [sys.executable, "-m", "benchmarks.choosing", *sys.argv[1:], *child]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            title = ", ".join([name, *(f"{k}: {v}" for k, v in options.items())])
            print(f"| {title} | {' | '.join(f'{value:.1f}' for value in json.loads(out))} |")


def measure(
    name: str, options: dict[str, Any], prompts: int, size: int, updates: int, refresh: float
) -> list[float]:
    """Milliseconds of the first, the median and the slowest later update; peak and growth in MB."""
    generator = np.random.default_rng(0)
    keys = np.sort(generator.integers(0, 2**63, prompts).astype(np.uint64))
    ids = hex_ids(keys)
    texts = pa.array(["a question"]).take(pa.array(np.zeros(prompts, np.int64)))
    pool = PromptTable([pa.record_batch([ids, *[texts] * (len(SCHEMA) - 1)], SCHEMA)])
    rates = generator.beta(0.24, 0.21, prompts)
    successes = generator.binomial(SAMPLES, rates)
    source = np.array([f"source {number:02}" for number in range(SOURCES)])
    history = History(
        ids,
        np.full(prompts, SAMPLES),
        successes,
        seed=0,
        updates=updates,
        group_size=GROUP,
        columns={"source": source[generator.integers(0, SOURCES, prompts)]},
    )
    policy = get_online_policy(name, **options)
    seconds, peaks = [], []
    for update in range(1, updates + 1):
        if refresh and update > 1 and update % REFRESH_EVERY == 1:
            rows = generator.choice(prompts, int(refresh * prompts), replace=False)
            correct = generator.binomial(REFRESH_SAMPLES, rates[rows])
            history.add_refresh(update, rows, correct, np.full(len(rows), REFRESH_SAMPLES))
        start = time.process_time()
        rows = pool.rows_of(BuiltOnlinePolicy(name, policy).next_ids(history, update, size))
        pool.take(rows)
        for row, correct in zip(rows, generator.binomial(GROUP, rates[rows]), strict=True):
            history.add(update, int(row), int(correct), GROUP)
        seconds.append(1e3 * (time.process_time() - start))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
    later = np.array(seconds[1:])
    return [seconds[0], float(np.median(later)), later.max(), peaks[0], peaks[-1] - peaks[0]]


if __name__ == "__main__":
    main()
