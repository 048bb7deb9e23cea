"""`decile …`: each command calls one function. Heavy libraries load inside a command only.

Exit codes: 0 done, 1 a cell failed (others finished), 2 the user's input is wrong.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.lines import UserError

if TYPE_CHECKING:
    from orchestrator.plan import Plan
    from orchestrator.pools import Dataset
    from orchestrator.store import Store

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
    from orchestrator.store import StoreError
    from policies import PolicyError
    from tasks import TaskError

    return UserError, StoreError, ResourceError, PolicyError, TaskError


def _marker_errors() -> tuple[type[Exception], ...]:
    """What ends a sweep whose answers cannot be judged."""
    from orchestrator.marker_check import MarkerFails
    from orchestrator.samples import MarkingError

    return MarkerFails, MarkingError


def build_parser() -> argparse.ArgumentParser:
    """Every command and its options."""
    parser = argparse.ArgumentParser(
        prog="decile", description="Which tenth of your prompts should GRPO train on?"
    )
    parser.add_argument("--version", action="version", version=f"decile {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_experiment_commands(commands)
    _add_select(commands)
    _add_mark(commands)
    listing = _add(commands, "ls", ls, "list what there is to name in YAML")
    listing.add_argument("what", choices=["tasks", "policies", "models", "experiments"])
    listing.add_argument("file", nargs="?", type=Path, default=Path("experiments.yaml"))
    doctor_ = _add(commands, "doctor", doctor, "check this machine, Ray, MLflow and every marker")
    doctor_.add_argument("file", nargs="?", type=Path, help="also check its datasets' markers")
    doctor_.add_argument("--tracking-uri", help="also check this MLflow")
    ui_ = _add(commands, "ui", ui, "the MLflow UI on loopback")
    ui_.add_argument("--storage", default="./runs", help="where results are kept (./runs)")
    ui_.add_argument("--port", type=int, default=5000)
    return parser


def _add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str,
         command: Command, text: str) -> argparse.ArgumentParser:  # fmt: skip
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    return parser


def _add_experiment_commands(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    for name, command, text in (
        ("plan", plan, "validate and say what would run; runs nothing"),
        ("run", run, "probe, select, train, and tell; does only what is owed"),
        ("probe", probe, "only the probes"),
        ("report", report, "the table, and one self-contained HTML page"),
    ):
        parser = _add(commands, name, command, text)
        parser.add_argument("file", type=Path, help="experiments.yaml")
        parser.add_argument("-e", "--experiment", required=True, help="its name in the file")
        parser.add_argument("--storage", help="a folder or URI, in place of the file's")
        if name == "plan":
            parser.add_argument("--json", action="store_true", help="for machines")
        if name == "run":
            parser.add_argument("--tracking-uri", help="an MLflow server in place of SQLite")
        if name == "report":
            parser.add_argument("--out", type=Path, help="the page (report-EXPERIMENT.html)")


def _add_select(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(commands, "select", select, "pick a subset from a probe or difficulty table")
    parser.add_argument("--probe", type=Path, required=True, help="a probe's folder, or Parquet")
    parser.add_argument("--policy", required=True, help="decile ls policies")
    parser.add_argument("--budget", required=True, help="a share (0.1) or a count (80)")
    parser.add_argument("--seed", type=_seed, default=0, help="breaks ties (0)")
    parser.add_argument("--out", type=Path, required=True, help="the subset, Parquet")
    parser.add_argument("--json", action="store_true", help="print why, for machines")


def _add_mark(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _add(commands, "mark", mark, "mark stored completions of any source")
    parser.add_argument("--task", required=True, help="decile ls tasks, or package.module:Class")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of the task, such as marker=letter")  # fmt: skip
    parser.add_argument("--marking", choices=["lenient", "strict"], default="lenient")
    parser.add_argument("--input", type=Path, required=True,
                        help="JSONL or Parquet: answer, completion or completions")  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, help="JSONL or Parquet")
    parser.add_argument("--json", action="store_true", help="print the counts for machines")


def _seed(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: write a whole number from 0")
    return int(text)


def plan(arguments: argparse.Namespace) -> int:
    """Validate, and say what would run."""
    from orchestrator.overview import overview, overview_text

    made, store = _open(arguments)
    view = overview(made, store)
    print(json.dumps(view, indent=2) if arguments.json else overview_text(view))
    return 0


def run(arguments: argparse.Namespace) -> int:
    """The whole sweep, then its table and where to look."""
    made, store = _open(arguments)
    store.check_writable()
    from orchestrator.run import run_experiment
    from orchestrator.tracking import default_tracking_uri

    uri = arguments.tracking_uri or default_tracking_uri(store)
    outcome = run_experiment(made, store, uri, _progress(made, store))
    print("\n" + _table(made, store))
    print(f"\nresults:  {store.uri}")
    print(f"compare:  decile ui --storage {store.uri}")
    print(f"report:   decile report {arguments.file} -e {made.name} --storage {store.uri}")
    return 1 if outcome.failed else 0


def probe(arguments: argparse.Namespace) -> int:
    """Only the probes and subsets."""
    made, store = _open(arguments)
    store.check_writable()
    from cluster.session import ray_session
    from orchestrator.run import missing_probes, run_probes

    progress = _progress(made, store)
    if not missing_probes(made, store):
        progress.say("nothing to do: every sample and subset is there")
        return 0
    with ray_session() as cluster:
        run_probes(made, store, cluster, progress)
    return 0


def report(arguments: argparse.Namespace) -> int:
    """The table in the terminal, and the page."""
    made, store = _open(arguments)
    from orchestrator.report.page import write_page

    page = arguments.out or Path(f"report-{made.name}.html")
    print(_table(made, store))
    write_page(made, store, page)
    print(f"\npage: {page}")
    return 0


def select(arguments: argparse.Namespace) -> int:
    """Pick a subset from any difficulty table or probe."""
    from orchestrator.selecting import select_file

    why = select_file(
        arguments.probe, arguments.policy, arguments.budget, arguments.seed, arguments.out
    )
    shown = f"{why['size']} prompts: {arguments.out}"
    print(json.dumps(why, indent=2) if arguments.json else shown)
    return 0


def mark(arguments: argparse.Namespace) -> int:
    """Mark stored completions, and count the outcomes."""
    from orchestrator.mark_file import mark_file, task_options

    options = task_options(arguments.option) | {"marking": arguments.marking}
    counts = mark_file(arguments.task, options, arguments.input, arguments.output)
    total = max(1, sum(counts.values()))
    lines = [f"{name:<10} {count:>9,}  {count / total:6.1%}" for name, count in counts.items()]
    print(json.dumps(counts) if arguments.json else "\n".join([*lines, str(arguments.output)]))
    return 0


def ls(arguments: argparse.Namespace) -> int:
    """Names, each with the first line that describes it."""
    from orchestrator.listing import listing

    for name, text in listing(arguments.what, arguments.file):
        print(f"{name:<20} {text}".rstrip())
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Check what a sweep needs before it costs anything."""
    from orchestrator.doctor import checks

    healthy = True
    datasets = _datasets(arguments.file) if arguments.file else {}
    for check in checks(arguments.tracking_uri, datasets):
        healthy &= check.ok
        print(f"{'ok ' if check.ok else 'BAD'}  {check.name}: {check.detail}", flush=True)
    return 0 if healthy else 1


def _datasets(file: Path) -> "dict[str, Dataset]":
    from orchestrator.config import load_config
    from orchestrator.plan import datasets_of

    return datasets_of(load_config(file))


def ui(arguments: argparse.Namespace) -> int:
    """Serve the MLflow UI on loopback until stopped."""
    from orchestrator.store import Store
    from orchestrator.tracking import serve_ui

    return serve_ui(Store(arguments.storage), port=arguments.port)


def _open(arguments: argparse.Namespace) -> "tuple[Plan, Store]":
    """The plan and the store that a command names; every wrong input ends here."""
    from orchestrator.config import load_config
    from orchestrator.plan import make_plan
    from orchestrator.store import Store

    source = load_config(arguments.file)
    made = make_plan(source, arguments.experiment)
    return made, Store(arguments.storage or _storage(source.config.storage))


def _storage(storage: str) -> str:
    """A job's working directory is a copy that vanishes: relative storage goes to the home."""
    from cluster.session import in_ray_job

    if in_ray_job() and "://" not in storage and not Path(storage).expanduser().is_absolute():
        return str(Path.home() / "decile" / storage)
    return storage


def _progress(made: "Plan", store: "Store"):  # type: ignore[no-untyped-def]  # noqa: ANN202
    from orchestrator.progress import Progress
    from orchestrator.trial import is_finished

    return Progress.of(made, sum(is_finished(store, cell) for cell in made.cells))


def _table(made: "Plan", store: "Store") -> str:
    from orchestrator.report.rows import read_rows
    from orchestrator.report.table import text_table

    rows = read_rows(store, made.cells)
    return text_table(rows) if rows else "no cell has a result yet"
