"""`decile diagnose` on simulated runs, with complete logs and with logs that lack columns.

`python -m benchmarks.simulated_diagnoses kinds` prints a row per kind: the findings in healthy and
in broken runs. `… formats` writes healthy runs as every trainer does. `… lacking` leaves every
column and metric out of the broken runs in every format, one at a time and all at once: a finding
must then still be found, or be unknown. `--pairs` also leaves out every two of them.
"""

import hashlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import decile
from benchmarks.command_line import add_json, benchmark_parser, write_json
from benchmarks.simulated_logs import OPTIONAL, WRITERS, Without
from benchmarks.simulated_runs import BROKEN, HEALTHY, Kind, run_of

RUNS, BROKEN_RUNS = 25, 8  # of a healthy and of a broken kind
NOTHING: Without = frozenset()
# Kinds whose runs differ in length, or are appended to a table.
OF_TABLES = ("resumed, overlapping", "resumed, counting from 1", "adapter lost, counting from 1")


def diagnosed(
    kind: Kind, seed: int, layout: str, without: Without = NOTHING
) -> tuple[Counter[str], set[str]]:
    """The findings of a run, problems with "!", and the checks that were not made.

    Raises decile.UserError for a rejected log.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = WRITERS[layout](Path(folder) / "run", *run_of(kind, seed), without)
        return found_in(log)


def found_in(log: Path) -> tuple[Counter[str], set[str]]:
    """As `diagnosed`, for a log."""
    values = decile.diagnose(log).to_dict()[0]
    codes = Counter(f"{each['code']}{'!' * each['bad']}" for each in values["findings"])
    return codes, {*values["unchecked"]} - {code.rstrip("!") for code in codes}


def content_of(log: Path) -> str:
    """A hash of the files of a log."""
    files = [log] if log.is_file() else sorted(file for file in log.rglob("*") if file.is_file())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def layout_of(kind: Kind, seed: int) -> str:
    """The format that shows the problem of a kind."""
    return kind.layout or ("verl" if run_of(kind, seed)[1] else "table")


def is_false(kind: Kind, codes: Counter[str]) -> bool:
    """Whether a problem is found that the kind does not have."""
    return any(code[-1] == "!" and code[:-1] not in kind.codes for code in codes)


def is_named(kind: Kind, codes: Counter[str]) -> bool:
    """Whether one of the kind's findings is found."""
    return any(code.rstrip("!") in kind.codes for code in codes)


def counts_text(counts: Counter[str]) -> str:
    """`code` 3, `other` 2."""
    return ", ".join(f"`{code}` {count}" for code, count in sorted(counts.items()))


def kinds(only: str, first: int) -> list[dict[str, Any]]:
    """Print a row per kind, in the format that shows it."""
    print("| kind | runs | named, or with a false problem | findings | not checked |")
    print("|---|---|---|---|---|")
    measured = []
    for kind in (*HEALTHY, *BROKEN):
        if only not in kind.name:
            continue
        seeds = range(first, first + (RUNS if kind.healthy else BROKEN_RUNS))
        codes, unchecked = Counter[str](), Counter[str]()
        right, false = 0, 0
        for seed in seeds:
            own, unknown = diagnosed(kind, seed, layout_of(kind, seed))
            codes.update(own.keys())
            unchecked.update({"collapse", "reset"} & unknown)
            right, false = right + is_named(kind, own), false + is_false(kind, own)
        verdict = f"{false} false" if kind.healthy else f"{right} named"
        cells = (kind.name, len(seeds), verdict, counts_text(codes), counts_text(unchecked))
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        measured.append(
            {"kind": kind.name, "healthy": kind.healthy, "runs": len(seeds), "named": right}
            | {"false": false, "codes": codes, "unchecked": unchecked}
        )
    healthy = [row for row in measured if row["healthy"]]
    runs = sum(row["runs"] for row in healthy)
    print(f"\nhealthy runs with a false problem: {sum(r['false'] for r in healthy)} of {runs}")
    return measured


def formats(only: str, first: int) -> list[dict[str, Any]]:
    """Print a row per format: 25 healthy runs of all kinds, and false problems among them."""
    print("| format | healthy runs | with a false problem | findings |")
    print("|---|---|---|---|")
    measured, usual = [], [kind for kind in HEALTHY if kind.name not in OF_TABLES]
    for layout in WRITERS:
        if only not in layout:
            continue
        codes, false = Counter[str](), 0
        for seed in range(first, first + RUNS):
            kind = usual[seed % len(usual)]
            own, _ = diagnosed(kind, seed, layout)
            codes.update(own.keys())
            false += is_false(kind, own)
        print(f"| {layout} | {RUNS} | {false} | {counts_text(codes)} |", flush=True)
        measured.append({"format": layout, "runs": RUNS, "false": false, "codes": codes})
    return measured


def verdicts(kind: Kind, seed: int, layout: str, most: int) -> Iterator[tuple[Without, str]]:
    """The result of a finding without up to `most` columns or metrics, and without all."""
    run, contents = run_of(kind, seed), set[str]()
    some = (names for size in range(most + 1) for names in combinations(OPTIONAL, size))
    for without in map(frozenset, (*some, OPTIONAL)):
        with tempfile.TemporaryDirectory() as folder:
            log = WRITERS[layout](Path(folder) / "run", *run, without)
            if content_of(log) in contents:
                continue
            contents.add(content_of(log))
            try:
                codes, unknown = found_in(log)
            except decile.UserError:
                yield without, "refused"
                continue
        is_unknown = {*kind.codes} <= unknown
        yield without, "named" if is_named(kind, codes) else "unknown" if is_unknown else "passed"


def lacking(only: str, first: int, layouts: Sequence[str], most: int) -> list[dict[str, Any]]:
    """Print a row per format: the results of findings if the log lacks columns or metrics."""
    print("| format | logs | named | unknown | refused | passed as fine |")
    print("|---|---|---|---|---|---|")
    measured = []
    for layout in layouts:
        counts, passed = Counter[str](), []
        for kind in BROKEN:
            if only not in kind.name or (kind.name in OF_TABLES and "table" not in layout):
                continue
            seeds = range(first, first + BROKEN_RUNS)
            named = (s for s in seeds if is_named(kind, diagnosed(kind, s, layout_of(kind, s))[0]))
            seed = next(named, first)
            for without, verdict in verdicts(kind, seed, layout, most):
                counts[verdict] += 1
                if verdict == "passed":
                    lacks = ", ".join(sorted(without)) if len(without) <= most else "all"
                    passed.append(f"{layout}: {kind.name} without {lacks or 'nothing'}")
                    print(passed[-1], file=sys.stderr, flush=True)
        numbers = [counts[name] for name in ("named", "unknown", "refused", "passed")]
        print(f"| {layout} | {counts.total()} | {' | '.join(map(str, numbers))} |", flush=True)
        measured.append({"format": layout, "counts": counts, "passed": passed})
    return measured


def main() -> None:
    """Print one of the three tables."""
    parser = benchmark_parser("simulated_diagnoses", __doc__)
    parser.add_argument("table", choices=["kinds", "formats", "lacking"])
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds whose name has this text")
    parser.add_argument("--format", nargs="*", default=[*WRITERS], choices=[*WRITERS])
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    parser.add_argument("--pairs", action="store_true", help="also leave out every two columns")
    add_json(parser)
    arguments = parser.parse_args()
    if arguments.table == "kinds":
        measured = kinds(arguments.only, arguments.seed)
    elif arguments.table == "formats":
        measured = formats(arguments.only, arguments.seed)
    else:
        measured = lacking(arguments.only, arguments.seed, arguments.format, 1 + arguments.pairs)
    write_json(arguments, {arguments.table: measured})


if __name__ == "__main__":
    main()
