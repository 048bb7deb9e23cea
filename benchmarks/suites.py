"""How the expression marker agrees with the test suites of other checkers, and how fast it is.

Each file PROJECT.jsonl of a folder holds the cases of one project: `gold`, `completion`, `expected`
(true or false), and `bare` (whether the completion is the answer alone, which is put into a box).
Prints for each project and checker the number of cases and of agreements, the accepted wrong
answers, the rejected right ones, and the marks per second of CPU; also for math-verify, if it is
installed. Suites contradict each other: no checker agrees with all of them.
"""

import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.command_line import benchmark_parser
from tasks.question_file import QuestionFile


class Case(NamedTuple):
    """One case of a suite: a completion, its gold, and whether the suite calls it correct."""

    gold: str
    completion: str
    expected: bool


class Counts(NamedTuple):
    """The number of cases with which a checker agrees, and its kinds of disagreement."""

    agree: int
    wrong_accepted: int
    right_refused: int
    seconds: float


def main() -> None:
    """Measure and print a table."""
    parser = benchmark_parser("suites", __doc__)
    parser.add_argument("folder", type=Path, help="a folder of PROJECT.jsonl")
    parser.add_argument("--bare", action="store_true", help="only bare answers")
    options = parser.parse_args()
    checkers: dict[str, Callable[[Case], bool]] = {"Decile": decile_checker()}
    if importlib.util.find_spec("math_verify"):
        checkers["math-verify"] = math_verify_marks
    totals = {name: [0, 0, 0, 0, 0.0] for name in checkers}
    print(f"{'project':20} {'checker':12} cases agree wrong-accepted right-refused marks/s")
    for file in sorted(options.folder.glob("*.jsonl")):
        cases = read_cases(file, options.bare)
        for name, checker in checkers.items() if cases else ():
            counts = measure(cases, checker)
            print_row(file.stem, name, len(cases), counts)
            totals[name] = [a + b for a, b in zip(totals[name], (len(cases), *counts), strict=True)]
    for name, (count, agree, accepted, refused, seconds) in totals.items():
        if count:
            counts = Counts(int(agree), int(accepted), int(refused), seconds)
            print_row("all", name, int(count), counts)


def read_cases(file: Path, bare: bool) -> list[Case]:
    """The cases of a suite; `bare`: only those whose completion is the answer alone."""
    rows = map(json.loads, file.read_text("utf-8").splitlines())
    return [
        Case(
            row["gold"],
            rf"\boxed{{{row['completion']}}}" if row["bare"] else row["completion"],
            row["expected"],
        )
        for row in rows
        if row["bare"] or not bare
    ]


def measure(cases: Sequence[Case], checker: Callable[[Case], bool]) -> Counts:
    """The counts of a checker on the cases of a suite."""
    began = time.process_time()
    marks = [checker(case) for case in cases]
    seconds = time.process_time() - began
    pairs = [(mark, case.expected) for mark, case in zip(marks, cases, strict=True)]
    accepted, refused = pairs.count((True, False)), pairs.count((False, True))
    return Counts(len(cases) - accepted - refused, accepted, refused, seconds)


def decile_checker() -> Callable[[Case], bool]:
    """The expression marker, as in `task: file`."""
    task = QuestionFile(path="none", marker="expression")

    def check(case: Case) -> bool:
        gold = task.read_answer(case.gold)
        return gold is not None and task.mark(case.completion, gold).outcome == "correct"

    return check


def math_verify_marks(case: Case) -> bool:
    """math-verify with its defaults; a gold without delimiters is put between dollars."""
    from math_verify import parse, verify

    delimited = any(sign in case.gold for sign in ("$", "\\(", "\\[", "\\boxed"))
    try:
        return bool(
            verify(parse(case.gold if delimited else f"${case.gold}$"), parse(case.completion))
        )
    except Exception:  # noqa: BLE001 what raises accepts nothing
        return False


def print_row(project: str, checker: str, cases: int, counts: Counts) -> None:
    """Print one row of the table."""
    print(
        f"{project:20} {checker:12} {cases:5} {counts.agree:5} {counts.wrong_accepted:14} "
        f"{counts.right_refused:13} {cases / max(counts.seconds, 1e-9):7,.0f}"
    )


if __name__ == "__main__":
    main()
