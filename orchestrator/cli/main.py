"""`decile …`: the command line. What a command does is in `commands`.

Exit codes: 0 done, 1 a cell failed (others finished), 2 the user's input is wrong, 3 a cap
(`max_gpu_hours`, `max_hours`) left cells out.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator import __version__
from orchestrator.cli import commands
from orchestrator.storage.errors import UserError

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; wrong input becomes one message and exit code 2."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # so that package.module:attribute finds the user's own
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except (UserError, ValueError, RuntimeError) as error:
        if not isinstance(error, (*_input_errors(), *_marker_errors())):
            raise
        print(f"decile: {error}", file=sys.stderr)
        return 2 if isinstance(error, _input_errors()) else 1
    except KeyboardInterrupt:
        print("decile: stopped; the same command goes on from here", file=sys.stderr)
        return 130


def _input_errors() -> tuple[type[Exception], ...]:
    """What the rooms raise when the user's input is wrong; loaded only once something failed."""
    from cluster.resources import ResourceError
    from orchestrator.storage.store import StoreError
    from policies import PolicyError
    from tasks import TaskError

    return UserError, StoreError, ResourceError, PolicyError, TaskError


def _marker_errors() -> tuple[type[Exception], ...]:
    """What ends a sweep whose answers cannot be judged."""
    from orchestrator.probing.marker_check import MarkerFails
    from orchestrator.probing.samples import MarkingError

    return MarkerFails, MarkingError


def build_parser() -> argparse.ArgumentParser:
    """Every command and its options."""
    parser = argparse.ArgumentParser(
        prog="decile", description="Which tenth of your prompts should GRPO train on?"
    )
    parser.add_argument("--version", action="version", version=f"decile {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_experiment_commands(subparsers)
    _add_select(subparsers)
    _add_mark(subparsers)
    _add_exchange(subparsers)
    listing = _add(subparsers, "ls", commands.ls, "list what there is to name in YAML")
    listing.add_argument("what", choices=["tasks", "policies", "models", "experiments"])
    listing.add_argument("file", nargs="?", type=Path, default=Path("experiments.yaml"))
    doctor_ = _add(
        subparsers, "doctor", commands.doctor, "check this machine, Ray, MLflow and every marker"
    )
    doctor_.add_argument("file", nargs="?", type=Path, help="also check its datasets' markers")
    doctor_.add_argument("-e", "--experiment", help="of this one of the file alone")
    doctor_.add_argument("--tracking-uri", help="also check this MLflow")
    doctor_.add_argument("--gpu", action="store_true", help="also a small sweep on a GPU (1 min)")
    ui_ = _add(subparsers, "ui", commands.ui, "the MLflow UI on loopback")
    ui_.add_argument("--storage", default="./runs", help="where results are kept (./runs)")
    ui_.add_argument("--port", type=int, default=5000)
    return parser


def _add(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    command: Command,
    text: str,
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    return parser


def _add_experiment_commands(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    for name, command, text in (
        ("plan", commands.plan, "validate and say what would run; runs nothing"),
        ("run", commands.run, "probe, select, train, and tell; does only what is owed"),
        ("probe", commands.probe, "only the probes"),
        ("report", commands.report, "the table, and one self-contained HTML page"),
    ):
        parser = _add(subparsers, name, command, text)
        parser.add_argument("file", type=Path, help="experiments.yaml")
        parser.add_argument("-e", "--experiment", required=True, help="its name in the file")
        parser.add_argument("--storage", help="a folder or URI, in place of the file's")
        if name != "report":
            _add_size(parser)
        if name == "plan":
            parser.add_argument("--json", action="store_true", help="for machines")
            _add_site(parser)
        if name == "run":
            parser.add_argument("--tracking-uri", help="an MLflow server in place of SQLite")
        if name == "report":
            parser.add_argument("--out", type=Path, help="the page (report-EXPERIMENT.html)")
            said = "put a paper's published numbers beside the measured ones"
            parser.add_argument("--paper", choices=["A"], help=said)


def _add_size(parser: argparse.ArgumentParser) -> None:
    """How large the cluster is, or may grow; a plan asks none, and takes this machine."""
    for name in ("cpus", "gpus"):
        parser.add_argument(
            f"--{name}",
            type=int,
            help=f"{name.upper()[:-1]}s of the cluster, or those that it may grow to",
        )


def _add_site(parser: argparse.ArgumentParser) -> None:
    """What the GPUs are, and what they cost."""
    parser.add_argument("--gpu", help="their kind, such as h100, where nothing was measured yet")
    parser.add_argument("--gpu-price", type=float, help="of one GPU for one hour")


def _add_select(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(
        subparsers, "select", commands.select, "pick a subset from a probe or difficulty table"
    )
    parser.add_argument(
        "--probe",
        type=Path,
        required=True,
        action="append",
        help="a probe's folder, or Parquet; again for another part",
    )
    parser.add_argument("--policy", required=True, help="decile ls policies")
    _add_options(parser, "policy", "low=0.2")
    parser.add_argument("--budget", required=True, help="a share (0.1) or a count (80)")
    parser.add_argument("--seed", type=_seed, default=0, help="breaks ties (0)")
    parser.add_argument("--out", type=Path, required=True, help="the subset, Parquet")
    parser.add_argument("--json", action="store_true", help="print why, for machines")


def _add_mark(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(subparsers, "mark", commands.mark, "mark stored completions of any source")
    parser.add_argument("--task", required=True, help="decile ls tasks, or package.module:Class")
    _add_options(parser, "task", "marker=letter")
    parser.add_argument("--marking", choices=["lenient", "strict"], default="lenient")
    parser.add_argument(
        "--input",
        type=Path,
        required=True,
        help="JSONL or Parquet: answer, completion or completions",
    )
    parser.add_argument("--output", type=Path, required=True, help="JSONL or Parquet")
    parser.add_argument("--json", action="store_true", help="print the counts for machines")


def _add_exchange(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    taken = _add(subparsers, "import", commands.import_, "take in what others sampled, as a probe")
    taken.add_argument(
        "source", type=Path, help="completions, solve rates, or a run of another tool"
    )
    taken.add_argument("--layout", help="named where the columns do not tell it")
    taken.add_argument("--rate", help="the column of solve rates")
    taken.add_argument("--samples", type=int, help="samples per prompt behind the rates")
    taken.add_argument("--model", help="whose rates, where a source has several")
    taken.add_argument("--pool", action="store_true", help="match the task's own prompts")
    given = _add(subparsers, "export", commands.export, "a subset in another trainer's layout")
    given.add_argument("--subset", type=Path, required=True, help="what decile select wrote")
    given.add_argument("--layout", required=True, help="jsonl, trl, verl or verifiers")
    given.add_argument("--texts", type=Path, help="an import that holds the questions")
    for parser in (taken, given):
        parser.add_argument(
            "--task", required=True, help="decile ls tasks, or package.module:Class"
        )
        _add_options(parser, "task", "marker=number")
        parser.add_argument("--out", type=Path, required=True, help="the file to write")
        parser.add_argument("--json", action="store_true", help="print what was done, for machines")


def _add_options(parser: argparse.ArgumentParser, what: str, such_as: str) -> None:
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"an option of the {what}, such as {such_as}",
    )


def _seed(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: write a whole number from 0")
    return int(text)
