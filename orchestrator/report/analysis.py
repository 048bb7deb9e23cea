"""The analysis of a sweep, computed once; page, terminal, MLflow and notebook only render it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from orchestrator.cost.caps import dropped_summary
from orchestrator.planning.plan import Plan, tiers_of
from orchestrator.report.compare import (
    Family,
    FamilyVerdict,
    Spreads,
    families,
    family_verdict,
    read_spreads,
)
from orchestrator.report.content import (
    Command,
    Details,
    Figure,
    Paragraph,
    Section,
    Table,
    by_file_name,
)
from orchestrator.report.drawing import policy_styles
from orchestrator.report.probe_analysis import analyse_pool
from orchestrator.report.rows import Row, read_rows
from orchestrator.report.sections import ledger, page, spread
from orchestrator.report.sections.claim_verdicts import ClaimResult, claim_results
from orchestrator.report.sections.pool import pool_section, pool_sections
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import Store
from orchestrator.training.early_stopping import stopped_lines
from tasks import Prompt

FORM = 5  # increase to have the views of finished sweeps rendered again


@dataclass(frozen=True)
class SweepAnalysis:
    """The rows of a sweep's finished cells, their comparisons, and everything that views show.

    stopped: a sentence for each cell that was stopped early; status: progress, caps, stopped cells;
    results: one line per cell; digest: of all inputs, so that a view knows whether it is current.
    """

    name: str
    about: str
    status: str
    stopped: tuple[str, ...]
    rows: tuple[Row, ...]
    families: tuple[Family, ...]
    verdicts: tuple[FamilyVerdict, ...]
    claims: tuple[ClaimResult, ...]
    results: Table
    probe_spread: Table
    probe_spread_missing: tuple[str, ...]
    sections: tuple[Section, ...]
    digest: str

    @property
    def paper(self) -> Section | None:
        """The comparison with a paper, if requested."""
        return next((s for s in self.sections if s.anchor == page.PAPER_ANCHOR), None)

    @property
    def last_result(self) -> str:
        """When the newest result was written; empty without any."""
        newest = max((row.finished for row in self.rows if row.finished), default=None)
        return f"{newest:%Y-%m-%d %H:%M} UTC" if newest else ""

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Every table by a unique file name."""
        return by_file_name(table for section in self.sections for table in section.tables)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Every figure by a unique file name."""
        return by_file_name(figure for section in self.sections for figure in section.figures)


def analyse(plan: Plan, store: Store, paper: str | None = None) -> SweepAnalysis:
    """Analyse what the store holds of a plan.

    `paper`: "A" adds the comparison with the numbers that paper A published.
    """
    rows = read_rows(store, plan.cells)
    spreads = read_spreads(store, [row.cell for row in rows])
    compared = families(_in_every_block(plan, rows), plan.compare_at, spreads)
    manifest = store.read_json("sweeps", f"{plan.name}.json") or {}
    verdicts = tuple(map(family_verdict, compared))
    tiers = {}
    if any(claim.tier for claim in plan.claims):
        tiers = {name: tiers_of(pool) for name, pool in plan.pools.items()}
    declared = manifest.get("claims", {})
    claims = tuple(claim_results(plan.claims, compared, declared, tiers, spreads))
    stopped = stopped_lines(store, plan.cells)
    status = [f"{len(rows)} of {len(plan.cells)} cells finished", dropped_summary(manifest)]
    results, spread_table = ledger.results(rows), spread.table(compared)
    missing = spread.missing(compared)
    styles = policy_styles(cell.policy for cell in plan.cells)
    content: list[Section | None] = [
        page.verdicts(compared, verdicts, claims),
        page.gains(compared, spread_table, missing, styles),
        page.learnable(compared, styles),
        page.training(compared, styles),
        page.test_sets(compared),
        page.breakdown(compared, styles),
        page.paper_a(compared) if paper == "A" else None,
        *(page.completions(family, _test_questions(plan, family)) for family in compared),
        page.cells(rows, results),
    ]
    training = [spec for spec in plan.probes if spec.split == "train"]
    pools: list[Section] = []
    if not rows:
        empty = Paragraph("No cell has a result yet: run the experiment first.")
        content = [Section("verdicts", "Verdicts", (empty,))]
        analyses = [pool for spec in training if (pool := analyse_pool(plan, store, spec))]
        pools = [*pool_sections(analyses)]
    pools = pools or [pool_section(plan, store, spec) for spec in training]
    return SweepAnalysis(
        plan.name,
        plan.experiment.about,
        ". ".join(filter(None, [*status, *stopped])) + ".",
        tuple(stopped),
        tuple(rows),
        tuple(compared),
        verdicts,
        claims,
        results,
        spread_table,
        tuple(missing),
        sections=tuple(filter(None, [*content, *pools, _reproduce(plan, rows)])),
        digest=_digest(plan, rows, manifest, stopped, spreads),
    )


def _in_every_block(plan: Plan, rows: Sequence[Row]) -> list[Row]:
    """The rows, again for each further combination of axes of which a cell is the cell, too."""
    again = (
        replace(row, cell=row.cell.model_copy(update={"swept": swept}))
        for row in rows
        for swept in plan.shared.get(row.cell.cell_id, ())
    )
    return [*rows, *again]


def _test_questions(plan: Plan, family: Family) -> dict[str, Prompt]:
    return {p.prompt_id: p for p in plan.pool(family.rows[0].cell.baseline).test}


def _digest(
    plan: Plan,
    rows: Sequence[Row],
    manifest: dict[str, Any],
    stopped: Sequence[str],
    spreads: Mapping[str, Spreads],
) -> str:
    return canonical_hash(
        {
            "form": FORM,
            "experiment": plan.experiment.model_dump(mode="json"),
            "cells": [[cell.cell_id, cell.name, cell.probe.marker] for cell in plan.cells],
            "results": [row.result for row in rows],
            "claims": manifest.get("claims"),
            "dropped": manifest.get("dropped"),
            "stopped": list(stopped),
            "spreads": spreads,
        }
    )


def _reproduce(plan: Plan, rows: Sequence[Row]) -> Section:
    """The command, what it resolves to, the versions that ran, and the keys in the store."""
    keys = Table(
        "Cells",
        ("cell", "id", "subset", "probe"),
        [(c.name, c.cell_id, c.subset_key, c.probe.key) for c in plan.cells],
        "Names of folders and files in the store. A key hashes everything that can change the "
        "content: the same keys are the same experiment.",
    )
    versions = {tuple(row.result["versions"].items()) for row in rows}
    grid = {"grid": plan.experiment.grid.model_dump(mode="json")}
    settings = grid | plan.experiment.shared_settings()
    return Section(
        "reproduce",
        "How to reproduce",
        (
            Command(f"decile run experiments.yaml -e {plan.name}"),
            *(
                Paragraph("Versions: " + ", ".join(" ".join(pair) for pair in each))
                for each in sorted(versions)
            ),
            Details("All settings, including defaults", json.dumps(settings, indent=1)),
            keys,
        ),
    )
