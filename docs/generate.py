"""Writes docs/reference/*.md and docs/experiments.schema.json; `make docs` runs it.

Every page is made from docstrings, the settings' schema, the parser and the registries, so that
nothing is listed twice. It imports neither torch nor Ray, and its output depends on the code alone.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import orchestrator.probing.attacks as attacks
import orchestrator.probing.isolation as isolation
import policies
import tasks.sources.values as cell_values
from decile import _MODULES as API
from docs.page_parts import (
    code,
    described_options,
    field_rows,
    option_row,
    options,
    prose,
    section,
    table,
)
from docs.source_code import attributes, class_node, coded, definition, described_keys
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.json_output import EVERY, FORMS, MADE_BY, OF_RUN, RUNS_MADE_BY
from orchestrator.cli.parser import COMMANDS
from orchestrator.config.library_settings import GRPO_DEFAULTS, RESERVED
from orchestrator.config.schema import json_schema
from orchestrator.evaluation.check_meanings import MEANINGS as CHECK_MEANINGS
from orchestrator.evaluation.diagnosis import CHECKS
from orchestrator.optional.code import sandbox
from orchestrator.optional.exchange.exports import LAYOUTS as OUTPUTS
from orchestrator.optional.exchange.layouts import INPUTS
from orchestrator.optional.exchange.log_formats import FORMATS
from orchestrator.pipeline.audit import remedy
from orchestrator.pipeline.stored_files import FILES
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.plugins.difficulty_table import COLUMNS, OF_PROMPT
from orchestrator.report.item_comparison import ItemAnalysis
from orchestrator.storage.verification import Checked
from orchestrator.tracking import metric_names
from policies.allocation import SizeRule
from policies.base import Requiring
from policies.composed import Composed
from policies.gates import GATES, Reopening
from policies.online import is_online
from policies.pass_rate import ByRate
from policies.registry import ALLOCATIONS, POLICIES
from policies.strata import Stratified
from tasks.lookup import TASKS
from tasks.marking import equivalence
from tasks.marking.marks import MEANINGS as OUTCOME_MEANINGS
from tasks.sources.files import SUFFIXES
from tasks.sources.roles import NEEDS, ROLES

DOCS = Path(__file__).resolve().parent
HEAD = (
    "*Generated from the code by `make docs`. Edit the docstrings and tables there, not this page.*"
)


def main() -> None:
    """Write every generated file."""
    for name, content in pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, "utf-8")


def pages() -> dict[str, str]:
    """The content of every generated file, by its path below docs/."""
    parts = {
        "commands": commands,
        "settings": settings,
        "tasks": task_page,
        "policies": policy_page,
        "columns": columns,
        "metrics": metrics,
        "errors": errors,
        "store": store,
        "python": python,
        "json": json_page,
        "checks": checks,
    }
    texts = {
        f"reference/{name}.md": "\n\n".join([HEAD, *make()]) + "\n" for name, make in parts.items()
    }
    return {**texts, "experiments.schema.json": json.dumps(json_schema(), indent=2) + "\n"}


# --- Commands ---


def commands() -> Iterator[str]:
    yield "# Commands"
    yield (
        "`decile COMMAND --help` prints the same. [Errors](errors.md) has the exit codes, and "
        "[JSON](json.md) what `--json` prints. No command replaces a file of yours without "
        "`--force`; `report` and `probe` write the page of an experiment anew each time."
    )
    for command in COMMANDS:
        yield f"## {command.name}"
        yield f"{command.text[0].upper()}{command.text[1:]}."
        yield f"```\ndecile {command.name} {command.example}\n```"
        yield table(("option", "meaning"), map(option_row, command.options))


# --- Settings ---


def settings() -> Iterator[str]:
    yield "# Settings of experiments.yaml"
    yield (
        "Each block and its fields. [The JSON schema](../experiments.schema.json) lets an editor "
        "complete and check them. An unknown field is an error."
    )
    schema = json_schema()
    blocks = [("", schema)]
    for path, block in blocks:  # grows by the blocks that it names
        for name, field in block["properties"].items():
            target = re.search(r"#/\$defs/(\w+)", json.dumps(field))
            if target and "properties" in schema["$defs"][target[1]]:
                each = ".NAME" if "additionalProperties" in field else ""
                blocks.append((f"{path}.{name}{each}".strip("."), schema["$defs"][target[1]]))
        yield f"## {code(path) if path else 'The file'}"
        yield block.get("description", "")
        yield table(("field", "type", "default", "meaning"), field_rows(block))
    yield "## Settings of TRL and PEFT"
    yield (
        "`grpo` takes every setting of TRL's GRPOConfig, and `lora` every setting of PEFT's "
        "LoraConfig. These are Decile's defaults where they are not the libraries' own:"
    )
    yield table(("`grpo`", "default"), ((code(k), code(v)) for k, v in GRPO_DEFAULTS.items()))
    yield "Decile sets these itself:"
    yield table(("setting", "instead"), ((code(k), v) for k, v in RESERVED.items()))


# --- Tasks, policies ---


def task_page() -> Iterator[str]:
    yield "# Tasks and marking"
    yield (
        "A task supplies questions and marks answers. `task:` of a data set names one, and "
        "`options:` are its options. `package.module:Class` is a task or an environment of your "
        "own."
    )
    for name in TASKS.builtin:
        cls = TASKS.find(name)
        yield f"## {code(name)}"
        yield from options(cls)
        yield f"Presets of `prompt`: {', '.join(map(code, cls.templates))}."
    yield "## Outcomes"
    yield table(("outcome", "meaning"), ((code(k), v) for k, v in OUTCOME_MEANINGS.items()))
    yield f"## Marking\n\n{prose(equivalence).partition(chr(10) * 2)[2]}"
    yield f"## Markers of your own\n\n{prose(isolation)}"
    yield f"## Attacks\n\n{prose(attacks)}"
    yield "\n".join(f"* {kind}" for kind in attacks.ATTACKS)
    yield f"## The sandbox of `code`\n\n{prose(sandbox)}"


def policy_page() -> Iterator[str]:
    yield "# Policies, gates and allocations"
    yield (
        "A policy selects the prompts that a cell trains on, before training or, if it is online, "
        "for every update. Options are written under `policies:` of the experiments file."
    )
    names = POLICIES.builtin
    rows = [(code(n), policies.policy_line(n), policies.policy_cost(n)) for n in names]
    yield table(("policy", "prompts", "costs"), rows)
    yield "## Before training"
    for name in names:
        if not is_online(POLICIES.find(name)):
            yield from (f"### {code(name)}", *options(POLICIES.find(name)))
    yield "### Options of every policy before training"
    yield described_options(Requiring, ByRate, Stratified)
    yield "## During training"
    for name in names:
        if is_online(POLICIES.find(name)):
            yield from (f"### {code(name)}", *options(POLICIES.find(name)))
    yield "### Options of every online policy"
    yield described_options(Composed)
    yield "## Gates\n\nAn online policy chooses only prompts that all of its `gates` let pass."
    yield prose(Reopening)
    for name in GATES.builtin:
        yield from (f"### {code(name)}", *options(GATES.find(name)))
    yield f"## Allocations\n\n{prose(SizeRule)}"
    for name in ALLOCATIONS.builtin:
        yield from (f"### {code(name)}", *options(ALLOCATIONS.find(name)))


# --- Files ---


def columns() -> Iterator[str]:
    yield "# Files and columns"
    endings = sorted({suffix.removesuffix(".gz") for suffix in SUFFIXES})
    yield (
        f"Every command reads rows in the same way, from {', '.join(map(code, endings))} files. "
        "Text files may be gzipped. The content decides where the ending does not fit: a `.json` "
        "file may hold JSON lines, and a `.csv` file may be separated by semicolons or tabs."
    )
    yield "## Names"
    yield (
        "A column is recognized by its name. Case does not count, nor whether spaces, hyphens or "
        "underscores join its words. Of several columns, the one whose name stands first is read. "
        "Options and settings (`--question`, `question:`) name any other column."
    )
    rows = ((name, ", ".join(map(code, role.names)), role.holds) for name, role in ROLES.items())
    yield table(("role", "names", "values"), rows)
    yield "Beside a column that grades completions, an output is the model's, never a gold answer."
    yield "## What commands need"
    needs = ((code(c), "; ".join(" or ".join(roles) for roles in g)) for c, g in NEEDS.items())
    yield table(("command", "a file needs"), needs)
    yield f"## Values\n\n{prose(cell_values)}"
    yield "## What `decile import` reads"
    inputs = ((code(name), each.needs, each.of, each.gives) for name, each in INPUTS.items())
    yield table(("layout", "needs", "written by", "gives"), inputs)
    yield "## What `decile export` writes"
    rows = ((code(n), ", ".join(map(code, e.suffixes)), e.order_kept) for n, e in OUTPUTS.items())
    yield table(("layout", "files", "order of the rows"), rows)
    yield "## What `decile diagnose` and `decile replay` read"
    logs = ((name, *log) for name, log in FORMATS.items())
    yield table(("trainer", "versions", "files", "correctness"), logs)
    yield "## The difficulty table"
    yield (
        "`decile probe` writes a row per prompt, `decile select --probe` reads it, and policies "
        "rank by it. By another source of difficulty, a policy sees that source's values in all "
        f"columns but {', '.join(map(code, sorted(OF_PROMPT)))}. After these columns come "
        "those of your data that travel with the prompts: `source`, `file`, `line`, and the kept "
        "ones. [Outcomes](tasks.md#outcomes) are described with the tasks."
    )
    yield table(
        ("column", "type", "meaning", "null"),
        ((code(column.name), *column[1:4]) for column in COLUMNS),
    )


def metrics() -> Iterator[str]:
    yield "# MLflow: parameters and metrics"
    yield (
        "`decile run` logs a run per cell and a parent run per sweep. MLflow holds copies of what "
        "is in the storage. The parameters of a cell are its axes and every setting that its id "
        "covers."
    )
    yield "## What identifies a cell"
    yield (
        "Two cells are one if everything that is hashed is equal. Cells of one subset, treatment "
        "and evaluation that differ in their seed alone are repetitions."
    )
    for spec, title in ((Cell, "field of `cell.json`"), (ProbeSpec, "field of its probe")):
        parts = spec.parts().items()
        yield table((title, "hashed by"), ((code(n), p.of or f"none: {p.why}") for n, p in parts))
    tables = {
        "Metrics of a cell, by update": metrics_by_update(),
        "Metrics of a cell": metrics_of_cell(),
        "Metrics of the parent run": metric_names.PER_SWEEP,
        "Tags": metric_names.TAGS,
    }
    for title, meanings in tables.items():
        yield f"## {title}"
        yield table(("name", "meaning"), ((code(name), text) for name, text in meanings.items()))
    yield "## The ledger of a cell (`ledger/…`)"
    entries = class_node("orchestrator.training.record", "LedgerEntries")
    yield prose(entries)
    yield table(("name", "meaning"), ((code(n), text) for n, text in attributes(entries).items()))


def metrics_by_update() -> dict[str, str]:
    """The metrics of a cell that have a value per update, with their meaning."""
    return {
        **metric_names.OF_EVALUATIONS,
        **described_keys("orchestrator.evaluation.groups:GroupRecorder.metrics"),
        **metric_names.OF_TRAINING,
        **described_keys("orchestrator.evaluation.drift:Drift.metrics"),
    }


def metrics_of_cell() -> dict[str, str]:
    """The metrics of a finished cell, with their meaning."""
    return {**described_keys("orchestrator.tracking.views:summary"), **metric_names.PER_CELL}


def store() -> Iterator[str]:
    yield "# Files of a storage"
    yield (
        "Words in capitals stand for names, keys and numbers. A file that fails verification is "
        "never used; `decile run` renames it to `NAME.unsound`, and does the work again."
    )
    head = ("file", "holds", "written by", "read by", "proof", "if it fails")
    rows = []
    for file in FILES:
        again = remedy(Checked(file.path)) if file.audited else ""
        rows.append((code(file.path), *file[1:5], again))
    yield table(head, rows)


# --- Errors ---


def errors() -> Iterator[str]:
    yield "# Errors and exit codes"
    yield prose(ExitCode)
    members = attributes(class_node("orchestrator.cli.exit_codes", "ExitCode")).items()
    yield table(("exit code", "meaning"), ((ExitCode[n].value, text) for n, text in members))
    yield "## Codes"
    yield (
        "`UserError.code` in Python, and the first word of the message of a cell that fails a "
        "check, name the kind of mistake. `…` stands for a name or a number."
    )
    rows = sorted(set(coded()))
    yield table(("code", "message", "raised in"), ((code(c), m, code(p)) for c, m, p in rows))


# --- Python, JSON, checks ---


def python() -> Iterator[str]:
    yield "# Python: `import decile`"
    yield (
        "The same files, storage and numbers as the commands. `import decile` loads neither torch "
        "nor Ray. [An example](../examples/notebook.py) uses most of it. What is wrong with an "
        "argument is a `decile.UserError` of one sentence, before anything is sampled. Ray starts "
        "on this machine for the duration of a call, unless `ray.init()` was called or RAY_ADDRESS "
        "names a cluster."
    )
    for name, module in sorted({**API, "GateSampler": "decile.verl"}.items()):
        yield from section(name, definition(module, name), module)


def json_page() -> Iterator[str]:
    yield "# JSON"
    yield (
        "`--json` prints one object. A null is a value that is not known or does not apply; nan "
        "and infinity are null, too. Later versions may add keys."
    )
    yield table(("key", "meaning"), ((code(key), text) for key, text in EVERY.items()))
    for form in FORMS:
        yield f"## `decile {form} --json`"
        yield table(("key", "meaning"), ((code(k), text) for k, text in json_keys(form).items()))
        if form in RUNS_MADE_BY:
            yield "Each entry of `runs`:"
            yield table(("key", "meaning"), ((code(k), text) for k, text in run_keys(form).items()))
        if form == "compare":
            yield from map(prose, (ItemAnalysis.to_dict, ItemAnalysis.pairs))


def json_keys(form: str) -> dict[str, str]:
    """The keys of what a form of a command prints, with their meaning."""
    return {**(described_keys(MADE_BY[form]) if form in MADE_BY else {}), **FORMS[form]}


def run_keys(command: str) -> dict[str, str]:
    """The keys of each entry of `runs`, with their meaning."""
    return {**described_keys(RUNS_MADE_BY[command]), **OF_RUN}


def checks() -> Iterator[str]:
    yield "# Checks of `decile diagnose`"
    yield (
        "A problem ends the command with exit code 4; a warning does not. A check that cannot be "
        "made is listed with the reason. A change counts if it is beyond chance."
    )
    rows = ((code(c.code), *CHECK_MEANINGS[c.code], ", ".join(map(code, c.needs))) for c in CHECKS)
    yield table(("code", "problem", "warning", "needs"), rows)


if __name__ == "__main__":
    main()
