"""Seconds and memory of the search for test questions in a pool, next to the duplicate search.

The pool is generated from a template with random words; every hundredth question contains a test
question. The pool's own text is in memory before the search, and is shown separately.
"""

import resource
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.command_line import benchmark_parser
from orchestrator.planning.containment import find_containment
from orchestrator.planning.overlap import describe, find_overlap
from orchestrator.plugins.streams import generator
from tasks.prompt_table import ROWS, PromptTable, hex_ids, mapped
from tasks.prompts import Prompt

LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
WORDS = 40  # of a question, about


def main() -> None:
    """Generate a pool and a test set, search both ways and print a table."""
    parser = benchmark_parser("containment", __doc__)
    parser.add_argument("--prompts", type=int, default=1_000_000, help="default 1000000")
    parser.add_argument("--tests", type=int, default=5_000, help="test questions (default 5000)")
    arguments = parser.parse_args()
    rng = generator("benchmark of containment", 0)
    vocabulary = ["".join(rng.choice(LETTERS, rng.integers(2, 9))) for _ in range(20_000)]
    tests = table(questions(rng, vocabulary, arguments.tests), first=1)
    texts = tests.column("question").to_pylist()
    pool = table(questions(rng, vocabulary, arguments.prompts, texts), first=2**40)
    print(f"{len(pool):,} prompts with {len(tests):,} test questions; before: {peak():.2f} GB")
    for name, search in (
        ("containment", lambda: find_containment(pool, tests).describe(len(pool))),
        ("overlap", lambda: describe(find_overlap(pool, tests), len(pool))),
    ):
        wall, cpu = time.perf_counter(), time.process_time()
        line = search()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{name}: {wall:.1f} s, {cpu:.1f} s of CPU, at most {peak():.2f} GB; {line}")


def questions(
    rng: np.random.Generator, vocabulary: list[str], count: int, inside: list[str] | None = None
) -> Iterator[list[str]]:
    """Lists of questions; every hundredth contains one of those `inside`."""
    while count > 0:
        size = min(count, ROWS)
        lengths = rng.integers(WORDS // 2, WORDS * 3 // 2, size)
        names = rng.zipf(1.3, int(lengths.sum())) % len(vocabulary)
        ends, texts = np.cumsum(lengths), []
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True):
            texts.append(" ".join(vocabulary[i] for i in names[end - length : end]) + ". How many?")
        for row in range(0, size, 100) if inside else ():
            texts[row] = f"{texts[row]} {rng.choice(inside)}"
        yield texts
        count -= size


def table(lists: Iterator[list[str]], first: int) -> PromptTable:
    """The prompts with these questions and the ids from `first` on."""

    def batches() -> Iterator[pa.RecordBatch]:
        number = first
        for texts in lists:
            ids = hex_ids(np.arange(number, number + len(texts), dtype=np.uint64))
            number += len(texts)
            empty = pa.array([""] * len(texts))
            columns = dict.fromkeys(Prompt.__slots__, empty)
            columns |= {"prompt_id": ids, "question": pa.array(texts)}
            yield pa.RecordBatch.from_pydict(columns)

    return PromptTable(mapped(batches()))


def peak() -> float:
    """The largest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
