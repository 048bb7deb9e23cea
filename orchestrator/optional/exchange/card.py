"""Exports from a plan's probe, and the data set card: which model chose the prompts, and how."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator import __version__
from orchestrator.difficulty.outcomes import BANDS, band_of
from orchestrator.optional.exchange.exports import POLICY_ORDER, export_subset
from orchestrator.optional.exchange.row_order import RowOrder
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.plugins.counts import counted
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.storage.local_files import check_output

_BIAS = (
    "Bands count the samples that selected the prompts; these exaggerate. Expected: the mean "
    "pass rate of new samples, by the distribution of pass rates over the pool."
)
_UNKNOWN = (
    "Bands count the samples that selected the prompts; these exaggerate: the pass rates of new "
    "samples are closer to the pool's mean, which is not in this file."
)


def export_selected(
    probe: PlanProbe,
    cell: Cell,
    subset: pa.Table,
    layout: str,
    out: str | Path,
    *,
    card: bool,
    order: RowOrder = POLICY_ORDER,
) -> dict[str, Any]:
    """`export_subset` of the subset of a plan's probe; with `card`, also `out`.card.md."""
    check_output(out, inputs=probe.plan.files)
    pool, pool_table = probe.plan.pool(probe.spec), probe.tables.own_table(cell)
    pool_table = probe.tables.of(cell) if pool_table is None else pool_table
    provenance = {"data": pool.task.provenance, "probe": probe.spec.identity}
    write = _command if probe.plan.trains else _python
    command = write(probe, cell, layout, Path(out).name, order)

    def text(origin: Mapping[str, Any], subset: pa.Table) -> str:
        return data_card(origin, subset, pool_table, probe.spec, command)

    return export_subset(
        subset, pool.train, pool.task, layout, out, provenance, text if card else None, order
    )


def data_card(
    origin: Mapping[str, Any],
    subset: pa.Table,
    pool: pa.Table | None = None,
    spec: ProbeSpec | None = None,
    command: str = "",
) -> str:
    """The card as Markdown. `origin`: the result of `export_subset`.

    `pool` is the difficulty table, and `spec` its probe; for a subset from a file, both are None.
    """
    why, task = origin["subset"], origin["task"]
    tables = {"subset": subset}
    if pool is not None:  # it also counts the scorable samples
        chosen = pc.is_in(pool["prompt_id"], value_set=subset["prompt_id"].combine_chunks())
        tables = {"subset": pool.filter(chosen), "pool": pool}
    lines = [
        f"# {why.get('policy', 'subset')}: {counted(subset.num_rows, 'prompt')} of {task['name']}",
        "",
    ]
    if pool is not None and spec is not None:
        lines[0] = (
            f"# {why['policy']}: {subset.num_rows:,} of {counted(pool.num_rows, 'prompt')} of "
            f"{spec.dataset.variant_key}"
        )
    lines += ["## Selection", "", *_facts(origin, spec), "", "## Pass rates", ""]
    lines += [f"| pass rate | {' | '.join(tables)} |", f"|---|{'---:|' * len(tables)}"]
    bands = {name: np.bincount(band_of(t), minlength=len(BANDS)) for name, t in tables.items()}
    for number, band in enumerate(BANDS):
        if number < len(BANDS) - 1 or any(of[number] for of in bands.values()):
            lines.append(f"| {band} | {' | '.join(f'{of[number]:,}' for of in bands.values())} |")
    if pool is not None:
        means = [pc.mean(table["posterior"]).as_py() for table in tables.values()]
        shown = ["–" if mean is None else f"{100 * mean:.1f} %" for mean in means]
        lines.append(f"| expected | {' | '.join(shown)} |")
    lines += ["", _UNKNOWN if pool is None else _BIAS, ""]
    lines += ["## Provenance", ""]
    hashes = {"file sha256": origin["sha256"], "subset file": origin.get("file")}
    hashes |= {"probe": why.get("probe_key"), "pool": why.get("pool")}
    lines += [f"* {name}: `{value}`" for name, value in hashes.items() if value]
    source = origin.get("data") or origin.get("import")
    lines += [f"* source: `{json.dumps(source, sort_keys=True)}`"] if source else []
    lines += [f"* written by Decile {__version__}"]
    if command:
        lines += ["", "## How to reproduce", "", "```", command, "```"]
    return "\n".join(lines) + "\n"


def _facts(origin: Mapping[str, Any], spec: ProbeSpec | None) -> list[str]:
    """The model, the sampling, the task and the policy, one line each."""
    why, task = origin["subset"], origin["task"]
    facts = []
    if spec is not None:
        model, settings = spec.model, spec.settings
        revision = f", revision {model.revision}" if model.revision else ""
        facts.append(f"model: {model.title} ({model.identity or model.location}{revision})")
        sampling = spec.identity["sampling"]
        facts.append(f"samples: K = {counted(settings.samples, 'completion')} per prompt")
        facts.append(
            "sampling: " + ", ".join(f"{n} {v}" for n, v in sampling.items() if v is not None)
        )
    facts += [
        f"task: {task['name']}, version {task['version']}, prompt {task['prompt']}",
        f"marker: {task['marker']}",
    ]
    options = why.get("options")
    chosen = f"{why.get('policy')}{f' with {options}' if options else ''}"
    facts.append(f"policy: {chosen}; {counted(origin['rows'], 'prompt')}, seed {why.get('seed')}")
    if ranked_by := why.get("ranked_by"):
        facts.append(f"ranked by: {ranked_by}, instead of the model's own pass rates")
    if order := origin.get("order"):
        spread = f"; every part has the shares of each {order['spread']}" if order["spread"] else ""
        facts.append(f"order: {order['name'] or 'as selected'}{spread}; {order['kept']}")
    if ties := why.get("ties"):
        facts.append(
            f"ties: {ties['chosen']:,} of the {counted(ties['pool'], 'prompt')} whose score equals "
            "the last chosen one's, drawn with the seed"
        )
    return [f"* {fact}" for fact in facts]


def _command(probe: PlanProbe, cell: Cell, layout: str, name: str, order: RowOrder) -> str:
    """The command line that exports the subset of an experiment."""
    source = probe.plan.source
    arguments = ["decile", "export", str(source.file), "-e", probe.plan.name]
    arguments += ["--policy", cell.policy, "--budget", str(cell.size), "--seed", str(cell.seed)]
    if cell.policy not in source.config.policies:
        for option, value in cell.static_policy.options.items():
            arguments += ["--option", f"{option}={json.dumps(value)}"]
    arguments += ["--difficulty", cell.difficulty.option] if cell.difficulty else []
    arguments += ["--model", probe.spec.model.title, "--dataset", probe.spec.dataset.variant_key]
    arguments += ["--layout", layout, "--out", name, "--card"]
    arguments += ["--order", order.name] if order.name else []
    arguments += ["--spread", order.spread] if order.spread else []
    return shlex.join(arguments)


def _python(probe: PlanProbe, cell: Cell, layout: str, name: str, order: RowOrder) -> str:
    """The call for a probe of a file of questions, which has no experiments file."""
    spec, options = probe.spec, probe.spec.dataset.options
    entry = probe.plan.source.config.models[spec.model.name]
    local = Path(entry.gguf).name if entry.gguf else entry.embedded or spec.model.name
    model = f"{entry.hub}@{entry.revision}" if entry.hub else local
    own = probe.plan.experiment.probe.model_dump(exclude_unset=True)
    texts = {name: options[name] for name in ("question", "answer", "marker")}
    data = Path(options.get("path") or options["train"]).name
    settings = "".join(f", {name}={value!r}" for name, value in {**own, **texts}.items())
    call = f"decile.probe({data!r}, {model!r}{settings})"
    chosen = "".join(f", {name}={value!r}" for name, value in cell.static_policy.options.items())
    if ranking := cell.difficulty:
        other = re.sub(r"\W", "_", f"probe_of_{ranking.probe.model.name}") if ranking.probe else ""
        chosen += f", difficulty={other or repr(ranking.option)}"
    select = f".select({cell.policy!r}, {cell.size}, seed={cell.seed}{chosen})"
    rows = f", order={order.name!r}" if order.name else ""
    rows += f", spread={order.spread!r}" if order.spread else ""
    return f"{call}{select}.export({layout!r}, {name!r}{rows})"
