"""What each command of `decile` does. Heavy libraries load inside a command only."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.pipeline.progress import Progress
    from orchestrator.planning.plan import Plan
    from orchestrator.planning.pools import Dataset
    from orchestrator.storage.store import Store
    from tasks import Task

CAPPED = 3  # the exit code of a sweep that a cap ended


def plan(arguments: argparse.Namespace) -> int:
    """Validate, and say what would run."""
    from orchestrator.cli.plan_summary import overview, overview_text
    from orchestrator.cost.timetable import Site

    made, store = _open(arguments)
    site = Site.of(_grows_to(arguments), arguments.gpu, arguments.gpu_price)
    view = overview(made, store, site)
    print(json.dumps(view, indent=2) if arguments.json else overview_text(view))
    return 0


def run(arguments: argparse.Namespace) -> int:
    """The whole sweep, then its table and where to look."""
    made, store = _open(arguments)
    _refuse_recordings(made)
    store.check_writable()
    from orchestrator.pipeline.sweep import run_experiment
    from orchestrator.tracking import default_tracking_uri

    uri = arguments.tracking_uri or default_tracking_uri(store)
    progress, grows_to = _progress(made, store), _grows_to(arguments)
    outcome = run_experiment(made, store, uri, progress, grows_to=grows_to)
    print("\n" + _table(made, store))
    print(f"\nresults:  {store.uri}")
    for line in _where_to_compare(arguments.tracking_uri, store, outcome.page):
        print(f"compare:  {line}")
    print(f"report:   decile report {arguments.file} -e {made.name} --storage {store.uri}")
    if outcome.dropped:
        print(f"capped:   {outcome.dropped}; the same command with a larger cap goes on")
    return 1 if outcome.failed else CAPPED if outcome.dropped else 0


def _where_to_compare(tracking_uri: str | None, store: "Store", page: str) -> list[str]:
    from orchestrator.tracking.rows import redact

    if tracking_uri is None:
        shown = [f"http://127.0.0.1:5000/{page}"] if page else []
        return [f"decile ui --storage {store.uri}", *shown]
    web = tracking_uri.startswith("http") and page
    return [redact(f"{tracking_uri.rstrip('/')}/{page}" if web else tracking_uri)]


def probe(arguments: argparse.Namespace) -> int:
    """Only the probes and subsets."""
    made, store = _open(arguments)
    store.check_writable()
    from cluster.session import ray_session
    from orchestrator.cost.caps import usage_meter
    from orchestrator.pipeline.probes import missing_probes, probes_forecast, run_probes
    from orchestrator.pipeline.sweep import save_usage

    progress = _progress(made, store)
    if not missing_probes(made, store):
        progress.say("nothing to do: every sample and subset is there")
        return 0
    account = usage_meter(made.name, store)
    with ray_session(_grows_to(arguments)) as cluster:
        progress.forecast = probes_forecast(made, store, cluster)
        run_probes(made, store, cluster, progress, account)
    save_usage(made, store, account)
    return 0


def report(arguments: argparse.Namespace) -> int:
    """The table in the terminal, and the page."""
    made, store = _open(arguments)
    from orchestrator.report.page import write_page

    page = arguments.out or Path(f"report-{made.name}.html")
    print(_table(made, store, arguments.paper))
    write_page(made, store, page, arguments.paper)
    print(f"\npage: {page}")
    return 0


def select(arguments: argparse.Namespace) -> int:
    """Pick a subset from any difficulty table or probe."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.selection.from_file import select_file
    from orchestrator.selection.subsets import policy_entry

    rule = policy_entry(arguments.policy, named_values(arguments.option))
    why = select_file(arguments.probe, rule, arguments.budget, arguments.seed, arguments.out)
    shown = f"{why['size']} prompts: {arguments.out}"
    print(json.dumps(why, indent=2) if arguments.json else shown)
    return 0


def mark(arguments: argparse.Namespace) -> int:
    """Mark stored completions, and count the outcomes."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.probing.mark_file import mark_file

    options = named_values(arguments.option) | {"marking": arguments.marking}
    counts = mark_file(arguments.task, options, arguments.input, arguments.output)
    total = max(1, sum(counts.values()))
    lines = [f"{name:<10} {count:>9,}  {count / total:6.1%}" for name, count in counts.items()]
    print(json.dumps(counts) if arguments.json else "\n".join([*lines, str(arguments.output)]))
    return 0


def import_(arguments: argparse.Namespace) -> int:
    """Take in what others sampled, as a probe or a difficulty table."""
    from orchestrator.exchange import Hints, import_file

    task = _task(arguments)
    hints = Hints(arguments.rate, arguments.samples, arguments.model)
    pool = task.train() if arguments.pool else None
    said = import_file(
        arguments.source, task, arguments.out, layout=arguments.layout, pool=pool, hints=hints
    )
    _tell(said, f"{said['kind']} of {said['prompts']:,} prompts: {arguments.out}", arguments.json)
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write a subset in the layout of another trainer."""
    from orchestrator.exchange import export_file, prompts_of, summary_of

    task = _task(arguments)
    texts = arguments.texts
    prompts = prompts_of(texts) if texts else task.train()
    provenance = {"import": summary_of(texts)} if texts else {"data": task.provenance}
    said = export_file(arguments.subset, prompts, task, arguments.layout, arguments.out, provenance)
    _tell(
        said,
        f"{arguments.out}, and where it comes from: {arguments.out}.provenance.json",
        arguments.json,
    )
    return 0


def _task(arguments: argparse.Namespace) -> "Task":
    from orchestrator.config.yaml_lines import named_values
    from tasks import get_task

    return get_task(arguments.task, **named_values(arguments.option))


def _tell(said: dict[str, Any], line: str, as_json: bool) -> None:
    notes = [f"  {note}" for note in said.get("notes", [])]
    print(json.dumps(said, indent=2) if as_json else "\n".join([line, *notes]))


def ls(arguments: argparse.Namespace) -> int:
    """Names, each with the first line that describes it."""
    from orchestrator.cli.listing import listing

    listed = listing(arguments.what, arguments.file)
    width = max((len(name) for name, _ in listed), default=0)
    for name, text in listed:
        print(f"{name:<{width}}  {text}".rstrip())
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Check what a sweep needs before it costs anything."""
    from orchestrator.cli.doctor import checks

    healthy = True
    datasets = _datasets(arguments.file, arguments.experiment) if arguments.file else {}
    for check in checks(arguments.tracking_uri, datasets, gpu=arguments.gpu):
        healthy &= check.ok
        print(f"{'ok ' if check.ok else 'BAD'}  {check.name}: {check.detail}", flush=True)
    return 0 if healthy else 1


def _datasets(file: Path, experiment: str | None) -> "dict[str, Dataset]":
    from orchestrator.config.catalog import load_config
    from orchestrator.planning.plan import datasets_of

    return datasets_of(load_config(file), experiment)


def ui(arguments: argparse.Namespace) -> int:
    """Serve the MLflow UI on loopback until stopped."""
    from orchestrator.storage.store import Store
    from orchestrator.tracking import serve_ui

    return serve_ui(Store(arguments.storage), port=arguments.port)


def _open(arguments: argparse.Namespace) -> "tuple[Plan, Store]":
    """The plan and the store that a command names; every wrong input ends here."""
    from orchestrator.config.catalog import load_config
    from orchestrator.planning.plan import make_plan
    from orchestrator.storage.store import Store

    source = load_config(arguments.file)
    made = make_plan(source, arguments.experiment)
    return made, Store(arguments.storage or _storage(source.config.storage))


def _storage(storage: str) -> str:
    """A job's working directory is a copy that vanishes: relative storage goes to the home."""
    from cluster.session import in_ray_job

    if in_ray_job() and "://" not in storage and not Path(storage).expanduser().is_absolute():
        return str(Path.home() / "decile" / storage)
    return storage


def _refuse_recordings(made: "Plan") -> None:
    from orchestrator.storage.errors import UserError

    for model in {cell.probe.model.name for cell in made.cells if cell.probe.model.recorded}:
        raise UserError(
            f"model {model} is recorded: it can be probed, not trained: "
            "write decile probe, or leave it out of the grid"
        )


def _progress(made: "Plan", store: "Store") -> "Progress":
    from orchestrator.pipeline.progress import Progress
    from orchestrator.training.cell_state import cell_state

    return Progress.of(made, sum(cell_state(store, cell).settled for cell in made.cells))


def _grows_to(arguments: argparse.Namespace) -> dict[str, float]:
    """What the user says that the cluster may come to have."""
    from orchestrator.storage.errors import UserError

    said = {"CPU": arguments.cpus, "GPU": arguments.gpus}
    for name, count in said.items():
        if count is not None and count < 1:
            raise UserError(f"--{name.lower()}s is {count}: write a count from 1")
    return {name: float(count) for name, count in said.items() if count is not None}


def _table(made: "Plan", store: "Store", paper: str | None = None) -> str:
    from orchestrator.report.families import families
    from orchestrator.report.paper_comparison import as_lines
    from orchestrator.report.rows import read_rows
    from orchestrator.report.text import text_table
    from orchestrator.report.verdicts import claims_made, text_verdicts
    from orchestrator.training.early_stopping import stopped_lines

    rows = read_rows(store, made.cells)
    if not rows:
        return "no cell has a result yet"
    parts = [text_table(rows), text_verdicts(made, rows, claims_made(store, made.name))]
    parts += stopped_lines(store, made.cells)
    if paper == "A":
        parts.append(as_lines(families(rows, made.experiment.compare_at)))
    return "\n\n".join(parts)
