"""What each command of `decile` does. Heavy libraries are imported inside the commands only."""

import argparse
import inspect
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.terminal import echo, printable_line
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.report.layout import described, output_width, wrapped

if TYPE_CHECKING:
    from orchestrator.optional.exchange.row_order import RowOrder
    from orchestrator.planning.cells import Cell
    from orchestrator.planning.plan import Plan
    from orchestrator.selection.labelling import ToLabel
    from orchestrator.selection.plan_probe import PlanProbe
    from orchestrator.storage.store import Store
    from tasks import Prompt, Task

OUTPUTS = ("out", "problems", "to_label")  # options that name a file to write


def check_outputs_are_new(arguments: argparse.Namespace) -> None:
    """Raise UserError if an output exists and --force is not given.

    Commands without --force write pages of an experiment, which they replace each time.
    """
    from orchestrator.storage.local_files import check_new

    if getattr(arguments, "force", True):
        return
    for name in OUTPUTS:
        if (file := getattr(arguments, name, None)) is not None:
            check_new(file, f"--{name.replace('_', '-')}")


def plan(arguments: argparse.Namespace) -> int:
    """Validate an experiment and print what it would run."""
    from orchestrator.cli.plan_summary import plan_summary
    from orchestrator.pipeline.long_prompts import check_long_prompts
    from orchestrator.pipeline.pilot import run_pilot
    from orchestrator.pipeline.probes import check_environments
    from orchestrator.pipeline.run import Run
    from orchestrator.pipeline.timetable import Site

    plan, store = _open(arguments)
    check_environments(plan)
    site = Site.from_options(_cluster_size(arguments), arguments.gpu, arguments.gpu_price)
    run = Run.of(plan, store, site.cluster)
    check_long_prompts(run, site.gpu)
    speeds = run_pilot(plan) if arguments.pilot else {}
    width = None if arguments.json else output_width()
    summary = plan_summary(run, site, width, speeds)
    if arguments.json:
        _print_json(arguments, asdict(summary))
    else:
        echo(summary.text(width))
    return ExitCode.DONE


def init(arguments: argparse.Namespace) -> int:
    """Write an experiments.yaml for a file of questions."""
    from orchestrator.cli.init import init as write_experiments

    return write_experiments(arguments)


def fetch(arguments: argparse.Namespace) -> int:
    """Download the models and data sets of an experiment from the hub."""
    from orchestrator.cli.fetch import fetch as download

    return download(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Run a sweep, then print its table and where the results are."""
    from orchestrator.pipeline.open_plan import check_trainable

    plan, store = _open(arguments)
    check_trainable(plan)
    store.check_writable()
    from orchestrator.pipeline.run import Run
    from orchestrator.pipeline.sweep import run_experiment
    from orchestrator.report.render import terminal_report
    from orchestrator.tracking import comparison_links, default_tracking_uri

    tracking_uri = arguments.tracking_uri or default_tracking_uri(store)
    grows_to = _cluster_size(arguments)
    if not arguments.json:
        _echo_rows(plan)
    run = Run.of(plan, store)
    with run.progress:
        outcome = run_experiment(run, tracking_uri, max_resources=grows_to, wait=arguments.wait)
    code = ExitCode.CAPPED if outcome.dropped else ExitCode.DONE
    if outcome.failed:
        code = ExitCode.FAILED
    if arguments.json:
        values = outcome.analysis.to_dict() if outcome.analysis else {}
        _print_json(arguments, {**values, "failed": outcome.failed, "results": store.uri})
        return code
    if outcome.analysis:
        echo("\n" + terminal_report(outcome.analysis, output_width()))
    echo(f"\nresults:  {store.uri}")
    for line in comparison_links(arguments.tracking_uri, store, outcome.page):
        echo(f"compare:  {line}")
    call = ["decile", "report", str(arguments.file), "-e", plan.name, "--storage", store.uri]
    echo(f"report:   {shlex.join(call)}")
    if outcome.dropped:
        todo = "to continue, raise the cap and rerun the same command"
        echo(wrapped(f"capped:   {outcome.dropped}; {todo}", output_width(), indent=10))
    return code


def probe(arguments: argparse.Namespace) -> int:
    """Run the probes and select the subsets, without training, then report what they show."""
    from orchestrator.report.render import check_outputs, save_report, terminal_probe
    from policies import PolicyError

    plan, store = _open(arguments)
    page = arguments.out or Path(f"probe-{plan.name}.html")
    check_outputs(plan, page)
    store.check_writable()
    from orchestrator.pipeline.run import Run
    from orchestrator.pipeline.sweep import probe_experiment

    problem = None
    if not arguments.json:
        _echo_rows(plan)
    try:
        grows_to = _cluster_size(arguments)
        probe_experiment(Run.of(plan, store), grows_to, wait=arguments.wait)
    except PolicyError as error:  # a subset cannot be filled: the report shows which ones can
        problem = error
    report, files = save_report(plan, store, page)
    if arguments.json:
        pools = [pool.to_dict() for pool in report.pools]
        values = {"experiment": plan.name, "datasets": plan.row_counts, "pools": pools}
        _print_json(arguments, {**values, "files": [*map(str, files)]})
    else:
        echo(terminal_probe(report, output_width()))
        echo(f"\nwrote {', '.join(map(str, files))}")
    if problem:
        raise problem
    return ExitCode.DONE


def evaluate(arguments: argparse.Namespace) -> int:
    """Evaluate a model on held-out questions, and write a file for `decile compare`."""
    from orchestrator.pipeline.evaluate import evaluate_model, plan_evaluation
    from orchestrator.storage.local_files import check_output

    check_output(arguments.out, [".parquet"])
    plan, store = _open(arguments)
    check_output(arguments.out, inputs=plan.files)
    evaluation = plan_evaluation(
        plan, arguments.model, arguments.dataset, arguments.adapter, arguments.checkpoint
    )
    store.check_writable()
    grows_to = _cluster_size(arguments)
    evaluated = evaluate_model(plan, store, evaluation, grows_to, wait=arguments.wait)
    evaluated.write(arguments.out)
    summary = evaluated.to_dict()
    _print_result(arguments, summary, f"{evaluated.summary()}: {arguments.out}")
    return ExitCode.DONE


def report(arguments: argparse.Namespace) -> int:
    """Print the results table and write the HTML page; `FAILED` if nothing is stored."""
    from orchestrator.report.analysis import analyse
    from orchestrator.report.html_pages import write_page
    from orchestrator.report.render import own_page, terminal_report
    from orchestrator.report.sections.page import sweep_page

    plan, store = _open(arguments)
    page = own_page(plan, arguments.out or Path(f"report-{plan.name}.html"))
    analysis = analyse(plan, store)
    write_page(sweep_page(analysis), page)
    if arguments.json:
        _print_json(arguments, {**analysis.to_dict(), "page": str(page)})
    else:
        _echo_rows(plan)
        echo(terminal_report(analysis, output_width()))
        echo(f"\npage: {page}")
    return ExitCode.DONE if analysis.rows or analysis.pools else ExitCode.FAILED


def select(arguments: argparse.Namespace) -> int:
    """Select a subset, or the prompts that annotators should label."""
    from orchestrator.storage.errors import UserError

    if arguments.to_label is None:
        if arguments.test:
            raise UserError("--test lists questions for annotators: add --to-label FILE")
        return _select_subset(arguments)
    if arguments.out is not None:
        raise UserError("--out and --to-label write different files: remove one of them")
    return _test_to_label(arguments) if arguments.test else _chosen_to_label(arguments)


def _select_subset(arguments: argparse.Namespace) -> int:
    """Select a subset from the probe of an experiment, or from a probe or difficulty table."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.plugins.counts import counted
    from orchestrator.selection.from_file import are_rated, select_file
    from orchestrator.selection.subsets import policy_entry, reason
    from orchestrator.storage.store import Store

    file = arguments.out
    if _reads_experiment(arguments, ("policy",), ("probe", "policy", "budget", "out")):
        probe, cell = _chosen_cell(arguments)
        subset = probe.select(cell)
        if file is None:  # as a run does
            probe.store.check_writable()
            file = probe.store.path("subsets", f"{cell.subset_key}.parquet")
            probe.store.write_table(subset, "subsets", f"{cell.subset_key}.parquet")
        else:
            Store(str(file.absolute().parent)).write_table(subset, file.name)
        why = reason(subset) | {"row_counts": probe.row_counts(cell, subset).to_dict()}
    else:
        policy = policy_entry(arguments.policy, named_values(arguments.option))
        select_subset = select_file
        if not are_rated(arguments.probe):
            from orchestrator.selection.from_samples import select_samples

            select_subset = select_samples
        why = select_subset(
            arguments.probe,
            policy,
            arguments.budget,
            arguments.seed or 0,
            file,
            arguments.difficulty or "gold",
        )
    _print_result(arguments, why, f"{counted(why['size'], 'prompt')}: {file}")
    return ExitCode.DONE


def _chosen_to_label(arguments: argparse.Namespace) -> int:
    """Write the chosen prompts without a gold answer for annotators."""
    from orchestrator.selection.labelling import check_label_file, prompts_to_label

    check_label_file(arguments.to_label, replace=arguments.force)
    _reads_experiment(arguments, ("policy",), ("file", "policy"))
    probe, cell = _chosen_cell(arguments)
    return _write_to_label(arguments, prompts_to_label(probe, cell))


def _test_to_label(arguments: argparse.Namespace) -> int:
    """Write every test question without a gold answer for annotators."""
    from orchestrator.selection.labelling import check_label_file, test_questions_to_label
    from orchestrator.storage.errors import UserError

    check_label_file(arguments.to_label, replace=arguments.force)
    _reads_experiment(arguments, (), ("file",))
    for name in ("policy", "budget", "seed", "difficulty", "model", "option"):
        if getattr(arguments, name) not in (None, []):
            raise UserError(
                f"--{name} cannot be combined with --test, which lists every test question without "
                "a gold answer: remove one of them"
            )
    plan, _ = _open(arguments)
    names = [arguments.dataset] if arguments.dataset else plan.experiment.grid.dataset
    pools = [plan.pools[name] for name in names if name in plan.pools]
    return _write_to_label(arguments, test_questions_to_label(pools))


def _write_to_label(arguments: argparse.Namespace, listed: "ToLabel") -> int:
    from orchestrator.plugins.counts import counted
    from orchestrator.selection.labelling import write_to_label

    file = arguments.to_label
    write_to_label(file, listed.rows)
    questions = counted(len(listed.rows), "question")
    text = f"{questions}: write the answers into {file}, and add labels: [{file}]"
    summary = {
        "file": str(file),  # the file for annotators
        "prompt_ids": [row["prompt_id"] for row in listed.rows],  # the prompts in it
        "notes": listed.notes,
        "row_counts": listed.counts.to_dict(),
    }
    _print_result(arguments, summary, f"{text} next to the data set's options")
    return ExitCode.DONE


def mark(arguments: argparse.Namespace) -> int:
    """Mark stored completions and count the outcomes, or audit the marker."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.storage.errors import UserError

    if arguments.against_option and not arguments.against:
        raise UserError("--against-option applies to the second marker: add --against TASK")
    options = named_values(arguments.option) | {"marking": arguments.marking}
    if arguments.attack:
        return _attack_marker(arguments, options)
    if arguments.against:
        return _compare_markers(arguments, options)
    return _mark_file(arguments, options)


def _mark_file(arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Mark stored completions with a task and its options, and count the outcomes."""
    from orchestrator.optional.exchange.mark import mark_file
    from orchestrator.storage.errors import UserError

    if arguments.out is None:
        raise UserError(f"missing --out: write {arguments.example}")
    notes: list[str] = []
    outcomes, rows = mark_file(
        arguments.task,
        options,
        arguments.input,
        arguments.out,
        answer=arguments.answer,
        completions=arguments.completions,
        notes=notes,
    )
    total = max(1, sum(outcomes.values()))
    lines = [f"{name:<10} {count:>9,}  {count / total:6.1%}" for name, count in outcomes.items()]
    summary = {**outcomes, "row_counts": rows.to_dict()}
    _print_lines(arguments, summary, [*notes, *lines, str(arguments.out)])
    return ExitCode.DONE


def _attack_marker(arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Mark answers that must not pass, built from the gold answers of a file."""
    from orchestrator.optional.exchange.mark import Source, attack_file, open_marker
    from orchestrator.storage.errors import UserError

    if arguments.against or arguments.out:
        other = "--against" if arguments.against else "--out"
        raise UserError(f"--attack does not mark the file's completions: remove {other}")
    marker = open_marker(arguments.task, options)
    source = Source(arguments.input, arguments.answer, arguments.completions)
    notes: list[str] = []
    attacks, rows = attack_file(source, marker, notes)
    summary = {
        "marker": marker.marker_id,
        "attacks": [each._asdict() for each in attacks],
        "row_counts": rows.to_dict(),
    }
    text = "\n".join(printable_line(each.text()) for each in attacks)
    lines = wrapped(f"marker: {marker.marker_id}\n{text}", output_width())
    _print_lines(arguments, summary, [*notes, lines])
    return ExitCode.DONE


def _compare_markers(arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Mark stored completions with two markers, and show where they differ."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.optional.exchange.mark import Source, compare_markers, open_marker

    marker = open_marker(arguments.task, options)
    source = Source(arguments.input, arguments.answer, arguments.completions)
    second = open_marker(arguments.against, named_values(arguments.against_option))
    notes: list[str] = []
    compared = compare_markers(source, (marker, second), arguments.out, notes)
    lines = [*notes, compared.text(arguments.examples, output_width())]
    if arguments.out:
        lines.append(str(arguments.out))
    _print_lines(arguments, compared.to_dict(arguments.examples), lines)
    return ExitCode.DONE


def import_(arguments: argparse.Namespace) -> int:
    """Import external completions or solve rates as a probe or difficulty table."""
    from orchestrator.optional.exchange.imports import import_file
    from orchestrator.optional.exchange.records import Hints
    from orchestrator.planning.pools import load_prompts
    from orchestrator.plugins.counts import counted

    task = _task(arguments)
    summary = import_file(
        arguments.source,
        task,
        arguments.out,
        layout=arguments.layout,
        pool=load_prompts(task, "train") if arguments.pool else None,
        hints=Hints(
            rate=arguments.rate,
            samples=arguments.samples,
            successes=arguments.successes,
            model=arguments.model,
            question=arguments.question,
            answer=arguments.answer,
            completions=arguments.completions,
            prompt_id=arguments.prompt_id,
        ),
    )
    text = f"{summary['kind']} of {counted(summary['prompts'], 'prompt')}: {arguments.out}"
    _print_result(arguments, summary, text)
    return ExitCode.DONE


def export(arguments: argparse.Namespace) -> int:
    """Export a subset in another trainer's format."""
    from orchestrator.optional.exchange.card import export_selected
    from orchestrator.optional.exchange.exports import export_layout
    from orchestrator.optional.exchange.row_order import RowOrder
    from orchestrator.plugins.row_counts import RowCounts
    from orchestrator.storage.local_files import check_new

    layout, out = arguments.layout, arguments.out
    from_experiment = _reads_experiment(
        arguments, ("policy", "layout", "out"), ("subset", "task", "layout", "out")
    )
    export_layout(layout, out)  # before the probe or the texts are read
    order = RowOrder(arguments.order or "", arguments.spread or "", arguments.seed or 0)
    order.check()
    if not arguments.force:
        check_new(f"{out}.provenance.json", "--out")
        check_new(f"{out}.card.md", "--out")
    if from_experiment:
        probe, cell = _chosen_cell(arguments)
        subset = probe.select(cell)
        order = order._replace(seed=cell.seed)
        summary = export_selected(
            probe, cell, subset, layout, out, card=arguments.card, order=order
        )
        rows = probe.row_counts(cell, subset)
    else:
        summary = _export_file(arguments, order)
        rows = RowCounts(summary["rows"], written=summary["rows"])
    summary = summary | {"row_counts": rows.to_dict()}
    text = f"subset: {out}\nprovenance: {out}.provenance.json"
    if arguments.card:
        text += f"\ncard: {out}.card.md"
    if "order" in summary:
        text += f"\norder: {summary['order']['kept']}"
    _print_result(arguments, summary, text)
    return ExitCode.DONE


def _export_file(arguments: argparse.Namespace, order: "RowOrder") -> dict[str, Any]:
    """Export the subset of a file, with the prompts of a task or of an import."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.optional.exchange.card import data_card
    from orchestrator.optional.exchange.exports import export_subset, prompts_of, summary_of
    from orchestrator.planning.pools import load_prompts
    from orchestrator.storage.local_files import check_output

    task = _task(arguments)
    inputs = [arguments.subset, *map(str, named_values(arguments.option).values())]
    prompts: Sequence[Prompt]
    if arguments.texts:
        inputs.append(arguments.texts)
        prompts = prompts_of(arguments.texts)
        provenance = {"import": summary_of(arguments.texts)}
    else:
        prompts = load_prompts(task, "train")
        provenance = {"data": task.provenance}
    check_output(arguments.out, inputs=inputs)
    card = data_card if arguments.card else None
    return export_subset(
        arguments.subset, prompts, task, arguments.layout, arguments.out, provenance, card, order
    )


def compare(arguments: argparse.Namespace) -> int:
    """Compare item-level results, and write a page if --out is given."""
    from orchestrator.optional.exchange.arms import parse_arms
    from orchestrator.optional.exchange.item_files import ItemColumns
    from orchestrator.optional.exchange.item_results import compare_items
    from orchestrator.report.html_pages import PAGES, write_page
    from orchestrator.report.sections.items import item_page, terminal_items
    from orchestrator.storage.local_files import check_output

    if arguments.out:
        check_output(arguments.out, PAGES)
    analysis = compare_items(
        parse_arms(arguments.arms),
        ItemColumns(
            arguments.id,
            arguments.score,
            arguments.seed,
            arguments.sample,
            arguments.metric,
            arguments.group,
        ),
        models_are_seeds=arguments.models_are_seeds,
    )
    if arguments.out:
        write_page(item_page(analysis), arguments.out)
    if arguments.json:
        _print_json(arguments, analysis.to_dict())
    else:
        rows = "\n".join(printable_line(arm.rows.line(arm.name)) for arm in analysis.arms)
        _echo_parts(arguments.out, terminal_items(analysis, output_width()), rows)
    return ExitCode.DONE


def diagnose(arguments: argparse.Namespace) -> int:
    """Diagnose GRPO runs from their logs; `PROBLEM` if a finding is bad."""
    from orchestrator.evaluation import diagnosis
    from orchestrator.optional.exchange.run_logs import read_logs
    from orchestrator.plugins.row_counts import RowCounts
    from orchestrator.report.html_pages import PAGES, write_page
    from orchestrator.report.sections.diagnosis import (
        checks_line,
        diagnosis_page,
        terminal_diagnosis,
    )
    from orchestrator.storage.local_files import check_output

    if arguments.out:
        check_output(arguments.out, PAGES)
    logs = [log for path in arguments.logs for log in read_logs(path, arguments.correct)]
    diagnoses = [diagnosis.diagnose(log) for log in logs]
    if arguments.out:
        write_page(diagnosis_page(diagnoses), arguments.out)
    if arguments.json:
        _print_json(arguments, {"runs": [each.to_dict() for each in diagnoses]})
    else:
        rows = RowCounts.sum(log.rows for log in logs).line()
        text = terminal_diagnosis(diagnoses, output_width())
        _echo_parts(arguments.out, text, f"{rows}\n{checks_line(diagnoses)}")
    return ExitCode.PROBLEM if any(each.bad for each in diagnoses) else ExitCode.DONE


def replay(arguments: argparse.Namespace) -> int:
    """Report what policies would have chosen in recorded runs."""
    from orchestrator.config.yaml_lines import option_value
    from orchestrator.optional.exchange.replay_files import replay_logs
    from orchestrator.plugins.row_counts import RowCounts
    from orchestrator.report.html_pages import PAGES, write_page
    from orchestrator.report.sections.replay import replay_page, terminal_replay
    from orchestrator.storage.errors import UserError
    from orchestrator.storage.local_files import check_output

    if arguments.out:
        check_output(arguments.out, PAGES)
    if bool(arguments.logs) == bool(arguments.rates):
        raise UserError("write run logs, or --rates with files of two models")
    policies = [option_value(text, "--policy") for text in arguments.policy]
    if arguments.rates:
        return _replay_models(arguments, policies)
    replays = replay_logs(
        arguments.logs,
        policies,
        arguments.budget,
        arguments.visits,
        arguments.probe,
        arguments.correct,
        online=arguments.online,
    )
    if arguments.out:
        write_page(replay_page(replays), arguments.out)
    if arguments.json:
        _print_json(arguments, {"runs": [each.to_dict() for each in replays]})
    else:
        rows = RowCounts.sum(each.recording.rows for each in replays).line()
        _echo_parts(arguments.out, terminal_replay(replays, output_width()), rows)
    return ExitCode.DONE


def _replay_models(arguments: argparse.Namespace, policies: list[Any]) -> int:
    """Report what choosing by another model's rates costs."""
    from orchestrator.optional.exchange.model_rates import compare_models
    from orchestrator.report.html_pages import write_page
    from orchestrator.report.sections.two_models import models_page, terminal_models
    from orchestrator.storage.errors import UserError

    for option, default in (("online", False), ("visits", 1), ("probe", None), ("correct", None)):
        if getattr(arguments, option) != default:
            raise UserError(
                f"--{option} applies to logs and cannot be combined with --rates: remove it"
            )
    compared, rows = compare_models(arguments.rates, policies, arguments.budget)
    if arguments.out:
        write_page(models_page(compared), arguments.out)
    if arguments.json:
        _print_json(arguments, {**compared.to_dict(), "row_counts": rows.to_dict()})
    else:
        _echo_parts(arguments.out, terminal_models(compared, output_width()), rows.line())
    return ExitCode.DONE


_OF_FILES = ("probe", "subset", "task", "texts")


def _reads_experiment(
    arguments: argparse.Namespace, of_experiment: Sequence[str], of_files: Sequence[str]
) -> bool:
    """Whether FILE -e NAME is given instead of a probe or a subset.

    Raises UserError if an option that this form needs is missing, or belongs to the other form.
    """
    from orchestrator.config.experiment import GRID_AXES
    from orchestrator.storage.errors import UserError

    given = {name for name, value in vars(arguments).items() if value not in (None, [])}
    from_experiment = arguments.file is not None or "experiment" in given
    needed = ("file", *of_experiment) if from_experiment else of_files
    others = set(_OF_FILES)
    if not from_experiment:
        others = {"experiment", *GRID_AXES, "difficulty", "storage"} - {"policy"}
    if not from_experiment and getattr(arguments, "order", None):
        others -= {"seed"}
    if not from_experiment and "probe" in of_files:
        others -= {"seed", "difficulty"}
    elif not from_experiment:
        others |= {"policy", "budget"}
    options = {name: "FILE" if name == "file" else f"--{name}" for name in vars(arguments)}
    if missing := [options[name] for name in needed if name not in given]:
        example = arguments.example
        if from_experiment:
            out = " --layout trl --out train.jsonl" if "layout" in of_experiment else ""
            words = example.split()[:2]
            example = f"{' '.join(words)} experiments.yaml -e quickstart --policy hard{out}"
        raise UserError(f"missing {', '.join(missing)}: write {example}")
    if unwanted := sorted(others & given):
        form = "FILE -e NAME" if from_experiment else options[of_files[0]]
        raise UserError(
            f"{options[unwanted[0]]} cannot be combined with {form}: remove one of them"
        )
    return from_experiment


def _chosen_cell(arguments: argparse.Namespace) -> "tuple[PlanProbe, Cell]":
    """The probe and the cell that the options of an experiment name."""
    from orchestrator.config.policy_entries import difficulty_option
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.pipeline.manifest import check_pool_kept
    from orchestrator.selection.plan_probe import PlanProbe, choose_probe
    from orchestrator.storage.local_files import check_output

    plan, store = _open(arguments)
    if arguments.out is not None:
        check_output(arguments.out, inputs=plan.files)
    probe = PlanProbe(plan, store, choose_probe(plan, arguments.model, arguments.dataset))
    options, word = named_values(arguments.option), arguments.difficulty
    difficulty = None if word is None else difficulty_option(word)
    cell = probe.cell(arguments.policy, arguments.budget, arguments.seed, options, difficulty)
    _ = probe.outcomes  # raises if samples are missing, for example of new prompts
    check_pool_kept(probe)
    return probe, cell


def ls(arguments: argparse.Namespace) -> int:
    """List names with a one-line description; `models` and `experiments` are read from the file."""
    from orchestrator.config.catalog import load_config
    from policies import policy_cost, policy_line, policy_names
    from tasks import find_task, task_names

    if arguments.what == "tasks":
        docs = {name: inspect.getdoc(find_task(name)) or "" for name in task_names()}
        lines = {name: doc.partition("\n")[0] for name, doc in docs.items()}
    elif arguments.what == "policies":
        lines = {name: f"{policy_line(name)} Costs {policy_cost(name)}." for name in policy_names()}
    else:
        config = load_config(arguments.file).config
        if arguments.what == "models":
            lines = {name: entry.source_text() for name, entry in config.models.items()}
        else:
            lines = {name: experiment.about for name, experiment in config.experiments.items()}
    if arguments.json:
        _print_json(arguments, {arguments.what: lines})
    else:
        echo(described([*lines], [*lines.values()], output_width()))
    return ExitCode.DONE


def doctor(arguments: argparse.Namespace) -> int:
    """Run every check, printing each as soon as it is done."""
    from cluster.redaction import redact
    from orchestrator.cli.doctor import check_storage, checks, declared

    if arguments.storage or arguments.repair:
        return check_storage(arguments.storage, repair=arguments.repair, as_json=arguments.json)
    datasets, settings = declared(arguments.file, arguments.experiment)
    results = []
    for check in checks(arguments.tracking_uri, datasets, settings, gpu=arguments.gpu):
        result = check._replace(detail=redact(check.detail))
        results.append(result._asdict())
        if not arguments.json:
            line = f"{'ok' if result.ok else 'FAIL':<4}  {result.name}: {result.detail}"
            echo(wrapped(line, output_width(), indent=6))
    if arguments.json:
        _print_json(arguments, {"checks": results})
    return ExitCode.DONE if all(result["ok"] for result in results) else ExitCode.FAILED


def ui(arguments: argparse.Namespace) -> int:
    """Serve the MLflow UI on loopback until interrupted."""
    from orchestrator.storage.store import Store
    from orchestrator.tracking import serve_ui

    return serve_ui(Store(arguments.storage), port=arguments.port)


def _task(arguments: argparse.Namespace) -> "Task":
    from orchestrator.config.yaml_lines import named_values
    from tasks import get_task

    return get_task(arguments.task, **named_values(arguments.option))


def _echo_parts(page: Path | None, text: str, rows: str) -> None:
    """Print an analysis of files, the path of its page, and the counts of its rows."""
    place = f"page: {page}" if page else ""
    echo("\n\n".join(filter(None, [text, place, rows])))


def _print_json(arguments: argparse.Namespace, values: Mapping[str, Any]) -> None:
    from orchestrator.cli.json_output import json_text

    echo(json_text(arguments.name, values))


def _print_result(arguments: argparse.Namespace, summary: Mapping[str, Any], text: str) -> None:
    """Print the summary as JSON, or this text with the rows and the notes of the summary."""
    if arguments.json:
        _print_json(arguments, summary)
        return
    notes = [f"  {note}" for note in summary.get("notes", [])]
    echo(wrapped("\n".join([text, _row_line(summary), *notes]), output_width()))


def _print_lines(
    arguments: argparse.Namespace, summary: Mapping[str, Any], lines: Sequence[str]
) -> None:
    """Print the summary as JSON, or these lines with the rows of the summary."""
    if arguments.json:
        _print_json(arguments, summary)
    else:
        echo("\n".join([*lines, _row_line(summary)]))


def _row_line(summary: Mapping[str, Any]) -> str:
    """The `row_counts` of a command's JSON as a line."""
    from orchestrator.plugins.row_counts import RowCounts

    return RowCounts(**summary["row_counts"]).line()


def _echo_rows(plan: "Plan") -> None:
    """Print how many rows of each data set are used."""
    for name, pool in plan.pools.items():
        echo(wrapped("\n".join([name, *(f"  {line}" for line in pool.row_lines)]), output_width()))


def _open(arguments: argparse.Namespace) -> "tuple[Plan, Store]":
    """The plan and the store that a command names. Raises UserError for every invalid input."""
    from orchestrator.pipeline.open_plan import open_plan

    plan, store = open_plan(arguments.file, arguments.experiment, arguments.storage)
    arguments.store = store  # errors are logged there
    return plan, store


def _cluster_size(arguments: argparse.Namespace) -> dict[str, float]:
    """The CPUs and GPUs of --cpus and --gpus, by Ray's names."""
    options = {"CPU": arguments.cpus, "GPU": arguments.gpus}
    return {name: float(count) for name, count in options.items() if count is not None}
