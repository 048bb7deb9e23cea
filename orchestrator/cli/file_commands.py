"""The commands that turn one file into another: select, mark, import and export."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from orchestrator.report.layout import output_width, wrapped

if TYPE_CHECKING:
    from tasks import Task


def select(arguments: argparse.Namespace) -> int:
    """Select a subset from a probe or difficulty table."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.selection.from_file import select_file
    from orchestrator.selection.subsets import policy_entry

    policy = policy_entry(arguments.policy, named_values(arguments.option))
    reason = select_file(arguments.probe, policy, arguments.budget, arguments.seed, arguments.out)
    _print_result(reason, f"{reason['size']} prompts: {arguments.out}", arguments.json)
    return 0


def mark(arguments: argparse.Namespace) -> int:
    """Mark stored completions and count the outcomes."""
    from orchestrator.config.yaml_lines import named_values
    from orchestrator.exchange.mark import mark_file

    options = named_values(arguments.option) | {"marking": arguments.marking}
    counts = mark_file(
        arguments.task,
        options,
        arguments.input,
        arguments.output,
        answer=arguments.answer,
        completions=arguments.completions,
    )
    total = max(1, sum(counts.values()))
    lines = [f"{name:<10} {count:>9,}  {count / total:6.1%}" for name, count in counts.items()]
    print(json.dumps(counts) if arguments.json else "\n".join([*lines, str(arguments.output)]))
    return 0


def import_(arguments: argparse.Namespace) -> int:
    """Import external completions or solve rates as a probe or difficulty table."""
    from orchestrator.exchange import Hints, import_file
    from orchestrator.planning.pools import load_prompts

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
            model=arguments.model,
            question=arguments.question,
            answer=arguments.answer,
            completions=arguments.completions,
            prompt_id=arguments.prompt_id,
        ),
    )
    text = f"{summary['kind']} of {summary['prompts']:,} prompts: {arguments.out}"
    _print_result(summary, text, arguments.json)
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Export a subset in another trainer's format."""
    from orchestrator.exchange import export_layout, export_subset, prompts_of, summary_of
    from orchestrator.planning.pools import load_prompts

    export_layout(arguments.layout, arguments.out)  # before the texts are loaded
    task, texts = _task(arguments), arguments.texts
    prompts = prompts_of(texts) if texts else load_prompts(task, "train")
    provenance = {"import": summary_of(texts)} if texts else {"data": task.provenance}
    summary = export_subset(
        arguments.subset, prompts, task, arguments.layout, arguments.out, provenance
    )
    text = f"subset: {arguments.out}\nprovenance: {arguments.out}.provenance.json"
    _print_result(summary, text, arguments.json)
    return 0


def _task(arguments: argparse.Namespace) -> "Task":
    from orchestrator.config.yaml_lines import named_values
    from tasks import get_task

    return get_task(arguments.task, **named_values(arguments.option))


def _print_result(summary: dict[str, Any], text: str, as_json: bool) -> None:
    notes = [f"  {note}" for note in summary.get("notes", [])]
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        print(wrapped("\n".join([text, *notes]), output_width()))
