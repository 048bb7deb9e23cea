"""The report of an experiment's training probes: a page, a summary in the terminal, tables."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.probe_table import table_file
from orchestrator.difficulty.table import outcome_counts
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.sample_store import PROBE, SPLIT
from orchestrator.report.content import Paragraph, Section, Table, one_line
from orchestrator.report.layout import wrapped
from orchestrator.report.probe_analysis import PoolAnalysis, analyse_pool
from orchestrator.report.render import as_text, write_page
from orchestrator.report.sections.pool import (
    BANDS,
    band_of,
    facts,
    policy_table,
    pool_sections,
    suspect_lines,
    tier_table,
)
from orchestrator.report.sections.tables import NONE
from orchestrator.storage.store import Store, check_output
from tasks import OUTCOMES

BAR = 14  # characters of the longest bar of a histogram
TERMINAL_TIERS = 8
TERMINAL_SUSPECTS = 3


@dataclass(frozen=True)
class ProbeReport:
    """The analyses of all training probes with stored samples, and the sections of their page."""

    name: str
    about: str
    status: str
    pools: tuple[PoolAnalysis, ...]
    sections: tuple[Section, ...]
    last_result: str = ""


def training_probes(plan: Plan) -> list[ProbeSpec]:
    """The probes of training pools: test questions are never candidates for a subset."""
    return [spec for spec in plan.probes if spec.split == "train"]


def probe_report(plan: Plan, store: Store, page: Path | None = None) -> ProbeReport:
    """Analyse what the store holds of a plan's training probes.

    Commands of the report select from the difficulty tables beside `page`; None: no commands.
    """
    specs = training_probes(plan)
    analyses = (
        analyse_pool(plan, store, spec, table_file(plan, spec, page) if page else None)
        for spec in specs
    )
    pools = tuple(filter(None, analyses))
    drawn = f"{sum(pool.drawn for pool in pools):,} samples of training prompts"
    status = f"{drawn} in {len(pools)} of {len(specs)} probe{'s' * (len(specs) != 1)}."
    empty = Section("difficulty", "Difficulty", (Paragraph("No sample is stored yet."),))
    sections = tuple(pool_sections(pools)) or (empty,)
    return ProbeReport(plan.name, plan.experiment.about, status, pools, sections)


def write_tables(plan: Plan, report: ProbeReport, page: Path) -> list[Path]:
    """Write the difficulty table of every complete pool beside the page; returns the files."""
    files = []
    for pool in report.pools:
        if pool.complete:
            file = table_file(plan, pool.spec, page)
            metadata = {PROBE: pool.spec.key, SPLIT: pool.spec.split}
            table = pool.table.replace_schema_metadata(metadata)
            Store(str(file.resolve().parent)).write_table(table, file.name)
            files.append(file)
    return files


def check_outputs(plan: Plan, page: Path) -> None:
    """Raise UserError unless the page and the tables beside it can be written."""
    for file in (page, *(table_file(plan, spec, page) for spec in training_probes(plan))):
        check_output(file)


def save_report(plan: Plan, store: Store, page: Path, width: int | None = None) -> str:
    """Write the page and the difficulty tables; returns the report in short."""
    report = probe_report(plan, store, page)
    write_page(report, page)
    files = [page, *write_tables(plan, report, page)]
    return f"{terminal_probe(report, width)}\n\nwrote {', '.join(map(str, files))}"


def terminal_probe(report: ProbeReport, width: int | None = None) -> str:
    """The report in short. Lines fit `width` columns, but for commands, which stay whole."""
    if not report.pools:
        return "no sample is stored yet"
    return "\n\n".join(_pool_text(pool, width) for pool in report.pools)


def _pool_text(pool: PoolAnalysis, width: int | None) -> str:
    parts = [
        "\n".join([pool.title, *(wrapped(f"  {line}", width) for line in facts(pool))]),
        as_text(_histogram(pool), width),
    ]
    if (tiers := tier_table(pool.table, TERMINAL_TIERS)).body:
        body = [
            (name, f"{count:,}", *(f"{100 * share:.0f}" for share in shares))
            for name, count, shares in tiers.body
        ]
        parts.append(f"{tiers.title}, % of prompts\n" + as_text(Table("", tiers.head, body), width))
    if (policies := policy_table(pool)).body:
        parts.append(as_text(policies, width))
    parts += [wrapped(f"{p.policy}: {p.note}", width) for p in pool.policies if p.note]
    if pool.agreement.suspects:
        lines = [f"suspected wrong gold answers: {pool.agreement.suspected:,}"]
        for question, about in suspect_lines(pool, TERMINAL_SUSPECTS):
            lines += [wrapped(f"  {one_line(question, 72)}", width), wrapped(f"    {about}", width)]
        parts.append("\n".join(lines))
    if command := next((p.command for p in pool.policies if p.command), ""):
        parts.append(f"to select a subset:\n  {command}")
    return "\n\n".join(parts)


def _histogram(pool: PoolAnalysis) -> Table:
    """Prompts by pass rate, with the outcomes of their samples."""
    band = band_of(pool.table)
    prompts = np.bincount(band, minlength=len(BANDS))
    shown = [i for i, count in enumerate(prompts) if count or i < len(BANDS) - 1]
    by_band = [outcome_counts(pool.table.filter(pa.array(band == i))) for i in shown]
    occurring = [o for o in OUTCOMES if any(outcomes[o] for outcomes in by_band)]
    body = []
    for i, outcomes in zip(shown, by_band, strict=True):
        total = max(1, sum(outcomes.values()))
        shares = (f"{100 * outcomes[o] / total:.0f}" if prompts[i] else NONE for o in occurring)
        bar = "█" * round(BAR * prompts[i] / prompts.max())
        body.append((BANDS[i], f"{prompts[i]:,}", bar, *shares))
    return Table("", ("pass rate", "prompts", "", *(f"{o} %" for o in occurring)), body)
