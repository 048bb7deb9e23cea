"""Mutation score by package: the share of small changes to the code that the tests notice.

    make mutants PACKAGE="orchestrator.stats policies" SAMPLE=200 SEED=1

mutmut changes one expression at a time and runs the tests that call the changed function;
[tool.mutmut] of pyproject.toml names the modules and the tests. Properties, decorated functions and
module constants are not changed. Results are kept in mutants/: a killed mutant is tested again if
its function has changed, every other mutant on each run. Delete the folder if an existing test now
calls different functions.
"""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mutmut.__main__ import (
    collect_source_file_mutation_data,
    copy_also_copy_files,
    copy_src_dir,
    create_mutants,
)
from mutmut.stats import status_by_exit_code

from benchmarks.command_line import benchmark_parser

KILLED = ("killed", "timeout")  # an endless loop is noticed


def main() -> None:
    parser = benchmark_parser("mutants", __doc__)
    parser.add_argument("--package", nargs="*", default=[], help="the default is all of them")
    parser.add_argument("--sample", type=int, default=100, help="mutants per package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()

    Path("mutants").mkdir(exist_ok=True)
    copy_src_dir()
    copy_also_copy_files()
    create_mutants(options.processes)
    mutants: dict[str, list[str]] = {}
    for name in sorted(statuses()):
        mutants.setdefault(package(name), []).append(name)
    if unknown := set(options.package) - set(mutants):
        parser.error(f"no mutants of {', '.join(sorted(unknown))}; known: {', '.join(mutants)}")
    samples = {
        name: random.Random(options.seed).sample(all_of_it, min(options.sample, len(all_of_it)))
        for name, all_of_it in mutants.items()
        if name in options.package or not options.package
    }
    earlier = statuses()
    if names := [n for sample in samples.values() for n in sample if earlier[n] not in KILLED]:
        mutmut = [Path(sys.executable).with_name("mutmut"), "run", "--max-children"]
        subprocess.run([*mutmut, str(options.processes), *names], check=True)
    for line in table(samples, mutants, statuses()):
        print(line)


def statuses() -> dict[str, str]:
    """The result of each mutant."""
    mutants, _ = collect_source_file_mutation_data(mutant_names=())
    return {name: status_by_exit_code[exit_code] for _, name, exit_code in mutants}


def package(mutant: str) -> str:
    """`orchestrator.stats.power.x_needed__mutmut_3` belongs to `orchestrator.stats`."""
    return ".".join(mutant.split(".")[: 2 if mutant.startswith("orchestrator.") else 1])


def table(
    samples: Mapping[str, Sequence[str]],
    mutants: Mapping[str, Sequence[str]],
    status: Mapping[str, str],
) -> Iterator[str]:
    """The surviving mutants, each with the command that shows it, and the score of each package."""
    for sample in samples.values():
        for name in sorted(sample):
            if status[name] not in KILLED:
                yield f"{status[name]}: mutmut show {name}"
    yield f"{'package':24} mutants sample killed timeout survived untested score"
    for name, sample in samples.items():
        count = Counter(status[mutant] for mutant in sample)
        killed = sum(count[outcome] for outcome in KILLED)
        untested = count["no tests"]
        yield (
            f"{name:24} {len(mutants[name]):7,} {len(sample):6} {count['killed']:6}"
            f" {count['timeout']:7} {len(sample) - killed - untested:8} {untested:8}"
            f" {killed / len(sample):5.0%}"
        )


if __name__ == "__main__":
    main()
