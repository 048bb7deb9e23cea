"""Time of one marked program, next to the start of a plain interpreter, and marks per second.

The kinds of runs alternate; medians and minima are printed, and the ratio to the first kind.
"""

import statistics
import subprocess
import time
from collections.abc import Callable
from unittest.mock import patch

from benchmarks.command_line import benchmark_parser
from orchestrator.optional.code.code_tests import read_tests, run_tests
from orchestrator.optional.code.sandbox import Limits, executable
from orchestrator.optional.code.task import Code
from tasks.prompts import Answer

SQUARE = "def f(x): return x * x"
LITERALS = read_tests([f"assert f({i}) == {i * i}" for i in range(3)])
SCRIPTS = read_tests([f"assert f({i}) + 0 == {i * i}" for i in range(3)])
PROGRAMS = read_tests(
    {"inputs": [f"{i}\n" for i in range(10)], "outputs": [str(i * i) for i in range(10)]}
)


def main() -> None:
    """Measure and print two tables."""
    parser = benchmark_parser("code_marking", __doc__)
    parser.add_argument("--repeats", type=int, default=25, help="runs of each kind (default 25)")
    parser.add_argument("--marks", type=int, default=60, help="completions to mark (default 60)")
    arguments = parser.parse_args()
    plain = [executable(), "-P", "-s", "-S", "-c", SQUARE]
    kinds: dict[str, Callable[[], object]] = {
        "plain Python": lambda: subprocess.run(plain, check=True),
        "3 asserts": lambda: run_tests(SQUARE, LITERALS, Limits()),
        "3 asserts, no sandbox": lambda: run_tests(SQUARE, LITERALS, Limits(isolated=False)),
        "3 asserts, two sandboxes": lambda: run_tests(SQUARE, SCRIPTS, Limits()),
        "10 inputs": lambda: run_tests("print(int(input()) ** 2)", PROGRAMS, Limits()),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(arguments.repeats):
        for kind, run in kinds.items():
            times[kind].append(seconds(run))
    first = statistics.median(times["plain Python"])
    for kind, measured in times.items():
        median = statistics.median(measured)
        print(
            f"{kind:<26} median {median * 1000:6.1f} ms  min {min(measured) * 1000:6.1f} ms  "
            f"÷ plain {median / first:.1f}"
        )
    task, answers = Code(), [Answer(f"```python\n{SQUARE}\n```", LITERALS)] * arguments.marks
    for count in (1, 2, 1, 2):
        with patch("orchestrator.optional.code.task._cpus", return_value=count):
            rate = len(answers) / seconds(lambda: task.mark_all(answers))
        print(f"{count} at once: {rate:.1f} marks/s")


def seconds(run: Callable[[], object]) -> float:
    """The wall time of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
