"""Analyses as pages and as text.

A page is one HTML file without scripts or network; see templates/. In the terminal, the result
table comes first, then the conclusions.
"""

import html
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from cluster.terminal import printable_line
from orchestrator.difficulty.outcomes import BANDS, band_of, outcome_counts
from orchestrator.difficulty.probe_table import table_file
from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import SweepAnalysis
from orchestrator.report.content import NONE, Paragraph, Section, Table, one_line
from orchestrator.report.html_pages import PAGES, relative_path, write_page
from orchestrator.report.layout import wrapped
from orchestrator.report.looks import looks_text
from orchestrator.report.probe_analysis import PoolAnalysis
from orchestrator.report.sections import tables
from orchestrator.report.sections.difficulty_sources import difficulty_section
from orchestrator.report.sections.drift import drift_section
from orchestrator.report.sections.pool import (
    DISPUTED,
    PARTS,
    ProbeReport,
    advice,
    disputed_lines,
    facts,
    most_learnable,
    part_table,
    policy_table,
    probe_report,
    purpose,
    source_table,
    turn_table,
)
from orchestrator.report.sections.verdicts import control_lines, family_verdict, headline
from orchestrator.report.terminal import as_text, indented
from orchestrator.report.verdict_blocks import verdict_lines
from orchestrator.storage.errors import UserError
from orchestrator.storage.local_files import check_output
from orchestrator.storage.schema import PROBE, SPLIT
from orchestrator.storage.store import Store
from tasks import OUTCOMES
from tasks.sources.user_files import open_file

BAR = 14  # characters of the longest bar of a histogram
TERMINAL_PARTS = 8
TERMINAL_DISPUTED = 5


def own_page(plan: Plan, page: Path) -> Path:
    """The page, or one named after the experiments file if the page belongs to another file.

    Raises UserError if it cannot be written, or if both belong to other files.
    """
    for file in (page, page.with_stem(f"{page.stem}-{plan.source.file.stem}")):
        check_output(file, PAGES)
        head = b""
        with suppress(OSError), open_file(file) as stream:
            head = stream.read(4_000)
        source = re.search(rb'<meta name="decile-experiments" content="([^"]*)">', head)
        name = html.unescape(source[1].decode(errors="replace")) if source else ""
        if name in ("", relative_path(plan.source.file, file)):
            return file
    raise UserError(
        f"{page} is the page of another experiments file: write --out with another name"
    )


def terminal_report(analysis: SweepAnalysis, width: int | None = None) -> str:
    """The verdict in one line, then results and conclusions.

    Lines fit `width` columns; None: no limit.
    """
    if not analysis.rows:
        return "no cell has a result yet"
    results = as_text(tables.results(analysis.rows), width)
    parts = [
        wrapped(printable_line(headline(analysis)), width),
        results,
        verdict_text(analysis, width),
    ]
    sources = difficulty_section(analysis.sources, analysis.difficulty)
    drift = drift_section(analysis.families)
    turns = Section.of("turns", "", tables.turns(analysis.families))
    for section in (sources, drift, turns):
        parts += _section_texts(section, width)
    return "\n\n".join(parts)


def _section_texts(section: Section, width: int | None) -> list[str]:
    """The tables of a section, then its notes."""
    tables = [f"{table.title}\n{as_text(table, width)}" for table in section.tables]
    notes = [block.text for block in section.blocks if isinstance(block, Paragraph)]
    return [*tables, *(wrapped(note, width) for note in notes)]


def verdict_text(analysis: SweepAnalysis, width: int | None = None) -> str:
    """The conclusions of every family, the controls, and the claims."""
    parts = [verdict_lines(family_verdict(family), width) for family in analysis.families]
    if looks := looks_text(analysis.looks):
        parts.append([f"{looks}."])
    parts += [[f"{note}."] for note in analysis.plan.start_notes]
    if analysis.controls:
        parts.append(["controls", *indented(control_lines(analysis.controls), width)])
    if analysis.claims:
        parts.append(["claims (about policies; one level for all together)"])
        for c in analysis.claims:
            where = f", {c.cells}" if c.cells else ""
            text = f"{c.text}: {c.verdict}{where} ({c.reason}; {c.declared})"
            parts[-1] += indented([text], width)
    return "\n\n".join("\n".join([wrapped(lines[0], width), *lines[1:]]) for lines in parts)


def check_outputs(plan: Plan, page: Path) -> None:
    """Raise UserError unless the page and the tables beside it can be written."""
    own_page(plan, page)
    for spec in plan.training_probes:
        check_output(table_file(plan, spec, page))


def save_report(plan: Plan, store: Store, page: Path) -> tuple[ProbeReport, list[Path]]:
    """Write the page and the difficulty tables; returns the report and these files."""
    report = probe_report(plan, store, page)
    files = [own_page(plan, page)]
    write_page(report, files[0])
    for pool in report.pools:
        if pool.complete:
            file = table_file(plan, pool.spec, page)
            metadata = {PROBE: pool.spec.key, SPLIT: pool.spec.split}
            table = pool.table.replace_schema_metadata(metadata)
            Store(str(file.resolve().parent)).write_table(table, file.name)
            files.append(file)
    return report, files


def terminal_probe(report: ProbeReport, width: int | None = None) -> str:
    """The report in short. Lines fit `width` columns, except commands, which stay whole."""
    if not report.pools:
        return "no sample is stored yet"
    pools = [terminal_pool(pool, width) for pool in report.pools]
    return "\n\n".join([*pools, *_section_texts(difficulty_section(report.sources), width)])


def terminal_pool(pool: PoolAnalysis, width: int | None = None) -> str:
    """One pool of the report, as `terminal_probe` shows it."""
    parts = [
        "\n".join([pool.title, *(wrapped(f"  {line}", width) for line in facts(pool))]),
        as_text(_histogram(pool), width),
    ]
    for kind in PARTS:
        if (of_kind := part_table(pool.table, kind, TERMINAL_PARTS)).body:
            body = [
                (name, f"{count:,}", *(f"{100 * share:.0f}" for share in shares))
                for name, count, shares in of_kind.body
            ]
            text = as_text(Table("", of_kind.head, body), width)
            parts.append(f"{of_kind.title}, % of prompts\n{text}")
    if (turns := turn_table(pool)).body:
        parts.append(f"{turns.title}\n{as_text(turns, width)}")
    if (policies := policy_table(pool)).body:
        parts.append(as_text(policies, width))
    if (sources := source_table(pool, TERMINAL_PARTS)).body:
        parts.append(f"{sources.title}\n{as_text(sources, width)}")
    parts += [wrapped(f"{p.policy}: {p.note}", width) for p in pool.policies if p.note]
    if pool.disputed.on_other:
        title = pool.disputed.title
        lines = [f"{title[0].lower()}{title[1:]}: {pool.disputed.on_other:,}"]
        for question, about in disputed_lines(pool, TERMINAL_DISPUTED):
            shown = (f"  {one_line(question, 72)}", f"    {about}")
            lines += [wrapped(line, width) for line in shown]
        texts = (DISPUTED, pool.disputed.verdict)
        lines += [wrapped(f"  {text}", width) for text in texts]
        parts.append("\n".join(lines))
    if text := advice(pool):
        parts.append(wrapped(text, width))
    commands = {p.policy: p.command for p in pool.policies if p.command}
    ranked = [policy for _, policy in most_learnable(pool)]
    if command := next((commands[name] for name in [*ranked, *commands] if name in commands), ""):
        parts.append(f"{purpose(pool)}:\n  {command}")
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
