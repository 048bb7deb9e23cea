"""A training probe of a plan and the subsets that policies select from it, without a sweep."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.policy_entries import Difficulty, DifficultyEntry, PolicyEntry
from orchestrator.config.problems import Problem
from orchestrator.config.wording import one_of
from orchestrator.difficulty.probe_table import CellTables
from orchestrator.planning.cells import Cell, DifficultySource, ProbeSpec, cells_of, readers_of
from orchestrator.planning.expand import ProbeSpecs, choice_of, difficulty_source
from orchestrator.planning.plan import Plan
from orchestrator.planning.resolve import model_source
from orchestrator.planning.score_file import read_scores
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe import pending_samples, targets_of
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.selection.budgets import size_of
from orchestrator.selection.stored import select_for
from orchestrator.selection.subsets import policy_entry
from orchestrator.storage.errors import UserError, shortened
from orchestrator.storage.store import Store
from policies import WHOLE_POOL, PolicyError


def choose_probe(plan: Plan, model: str | None = None, dataset: str | None = None) -> ProbeSpec:
    """The training probe of this model and dataset; None matches any.

    Raises UserError with a list of the plan's probes unless exactly one matches.
    """
    probes = [spec for spec in plan.training_probes if cells_of(plan.cells, spec)]
    matching = [
        spec
        for spec in probes
        if model in (None, spec.model.name, spec.model.title)
        and dataset in (None, spec.dataset.name, spec.dataset.variant_key)
    ]
    if len(matching) == 1:
        return matching[0]
    names = "; ".join(plan.pool_title(spec) for spec in matching or probes)
    if not matching:
        given = " and ".join(
            f"{k} {shortened(v)}" for k, v in (("model", model), ("dataset", dataset)) if v
        )
        raise UserError(f"{plan.name}: no training probe has {given}: choose one of {names}")
    if len({(spec.model.title, spec.dataset.variant_key) for spec in matching}) == 1:
        advice = "they differ in other axes: write an experiment with one value of these"
    else:
        advice = f"choose a model (such as {matching[0].model.title!r}) and a dataset"
    raise UserError(
        f"{plan.name} has {counted(len(matching), 'training probe')} ({names}): {advice}"
    )


@dataclass(frozen=True)
class PlanProbe:
    """The stored samples of a training probe of a plan."""

    plan: Plan
    store: Store
    spec: ProbeSpec

    @cached_property
    def folder(self) -> ProbeFolder:
        """The stored samples of the pool."""
        pool = self.plan.pool(self.spec)
        return ProbeFolder(self.store, self.spec, pool.train, pool.task)

    @property
    def title(self) -> str:
        """Its model and dataset, and further settings that distinguish it in the plan."""
        return self.plan.pool_title(self.spec)

    @property
    def command(self) -> str:
        """The command that draws its missing samples."""
        command = ["decile", "probe", str(self.plan.source.file), "-e", self.plan.name]
        if self.store.uri != Store(self.plan.source.config.storage).uri:
            command += ["--storage", self.store.uri]
        return shlex.join(command)

    @cached_property
    def outcomes(self) -> Outcomes:
        """The outcomes of all samples. Raises UserError while some are missing."""
        outcomes = self.folder.outcomes()
        unfinished = not outcomes.complete
        if unfinished and targets_of(self.plan, self.spec) is not None:
            # An adaptive probe stops early, once no missing sample could change a subset.
            unfinished = pending_samples(self.plan, self.spec, self.folder).samples > 0
        if unfinished:
            remedy = f"run: {self.command}"
            if not readers_of(self.plan.cells, self.spec):
                option = f"{{model: {self.spec.model.name}}}"
                remedy = f"write difficulty: {option} for a policy of its grid, then {remedy}"
            if not self.plan.source.file.exists():  # a plan of decile.probe has no file
                remedy = "run decile.probe again"
            expected = len(outcomes.prompts) * self.spec.settings.samples
            raise UserError(
                f"the probe of {self.title} is not finished: "
                f"{outcomes.drawn:,} of {counted(expected, 'sample')} stored in {self.store.uri}: "
                f"{remedy}"
            )
        return outcomes

    @cached_property
    def tables(self) -> CellTables:
        """The difficulty tables of the probe's cells.

        Tables of another model's probe raise UserError while samples are missing.
        """

        def of_other(spec: ProbeSpec) -> CellTables:
            return PlanProbe(self.plan, self.store, spec).tables

        return CellTables(self.outcomes, self.folder, others=of_other)

    def tables_by(self, other: "PlanProbe | None") -> CellTables:
        """The tables of cells that rank by another probe, if it is not one of the plan's.

        Raises UserError if the other probe has none of the prompts.
        """
        if other is None:
            return self.tables
        if not (self.folder.prompts.rows_of(other.folder.prompts.column("prompt_id")) >= 0).any():
            raise UserError(
                f"the probe of {other.title} has no prompt of {self.title}: write a probe of "
                "the same prompts"
            )
        return CellTables(self.outcomes, self.folder, others=lambda _: other.tables)

    def cell(
        self,
        policy: str,
        budget: float | str | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        difficulty: "Difficulty | PlanProbe | None" = None,
    ) -> Cell:
        """The cell that would train on a subset: one of the plan, or a similar one.

        policy: a name of the file or a known policy. budget: a share (0.1) or count (80) of the
        prompts. difficulty: as in the file, or another probe. None means the experiment's budget,
        seed or difficulty; if an axis has several values, the first one. Raises UserError, or
        PolicyError, also for a policy that chooses prompts during training.
        """
        if not isinstance(policy, str):
            raise UserError(f"policy {shortened(policy)}: write a policy's name")
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**32):
            raise UserError(f"seed {shortened(seed)}: write an integer from 0 to {2**32 - 1:,}")
        own = cells_of(self.plan.cells, self.spec)
        first = next((cell for cell in own if cell.policy == policy), own[0])
        entry = (
            policy_entry(policy, dict(options))
            if options
            else self.plan.source.config.policy(policy)
        )
        rule, online = entry.parts
        if online:
            of = "" if rule.policy == WHOLE_POOL else f" (it chooses from those of {rule.policy})"
            raise PolicyError(
                f"policy {policy!r} chooses prompts during training: write one that selects a "
                f"subset, such as hard{of}; in your own trainer, use decile.trl.PromptSelector"
            )
        total = len(self.plan.pool(self.spec).train)
        settings = self.plan.settings_of(first)
        if rule.build().takes_all:
            size = total
        elif budget is None:
            size = settings.subset_size(total)
        else:
            size = size_of(str(budget), total, "budget")
        if not 0 < size <= total:
            raise UserError(
                f"budget {budget} selects {counted(size, 'prompt')} from a pool of {total:,}: "
                f"write a share up to 1.0 or a count up to {total}"
            )
        seed = first.seed if seed is None else seed  # a probe may be of one seed's cells
        ranking = self._ranking(difficulty, settings.difficulty_of(entry), rule, first.probe)
        choice = choice_of(rule, None)
        cell = first.changed(policy=policy, size=size, seed=seed, difficulty=ranking, **choice)
        in_grid = {each.subset_key for each in cells_of(self.plan.cells, self.spec)}
        return next((each for each in cell.earlier if each.subset_key in in_grid), cell)

    def _ranking(
        self,
        given: "Difficulty | PlanProbe | None",
        own: DifficultyEntry | None,
        rule: PolicyEntry,
        probe: ProbeSpec,
    ) -> DifficultySource | None:
        """What a policy ranks by in a cell with this probe: the given source, or its own.

        Raises UserError if the source cannot be found, or the policy does not rank.
        """
        if rule.build().needs == "nothing":
            if given is None:
                return None
            raise UserError(
                f"policy {rule.policy!r} selects prompts whatever their difficulty is: leave "
                "difficulty out"
            )
        if isinstance(given, PlanProbe):
            return DifficultySource(probe=given.spec)
        config = self.plan.source.config
        pool = self.plan.pool(self.spec)
        models = {}
        try:
            entry = own if given is None else DifficultyEntry.of(given)
        except Problem as problem:
            raise UserError(str(problem), problem.code) from problem
        if entry and entry.file:
            try:
                read_scores(entry.file, pool.train)
            except OSError as error:
                raise UserError(f"{entry.file} cannot be read: {error.strerror}") from error
        if entry and entry.model:
            if entry.model not in config.models:
                unknown = shortened(entry.model)
                known = one_of([*config.models], entry.model)
                raise UserError(f"difficulty: unknown model {unknown}: write {known}")
            with self.plan.source.located():
                models[entry.model] = model_source(config, entry.model)
        return difficulty_source(entry, probe, pool, models, ProbeSpecs())

    def row_counts(self, cell: Cell, subset: pa.Table) -> RowCounts:
        """The prompts of the pool, with the reasons why some are not in a cell's subset."""
        pool = self.plan.pool(self.spec)
        left_out = {
            "without a gold answer": len(pool.train) - pool.gold_count,
            f"not chosen by {cell.policy}": pool.gold_count - subset.num_rows,
        }
        return RowCounts(len(pool.train), left_out, subset.num_rows)

    def select(self, cell: Cell, other: "PlanProbe | None" = None) -> pa.Table:
        """The cell's subset (schema SUBSET), with its identity and the reason for it.

        other: the probe that it ranks by, if it is not one of the plan's. Raises PolicyError if the
        subset cannot be filled, and UserError if samples are missing.
        """
        tables = self.tables_by(other)
        table = tables.of(cell)
        if not table.num_rows:
            raise UserError(
                f"no prompt of {self.title} has a gold answer: write --to-label FILE to have some "
                "labelled",
                "missing-gold-answers",
            )
        in_grid = {own.subset_key for own in cells_of(self.plan.cells, self.spec)}
        if pc.any(table["short"]).as_py() and cell.subset_key not in in_grid:
            raise UserError(
                f"the probe of {self.title} stopped early, so only the subsets "
                f"of the grid are certain: probe with adaptive: false, or with a grid that has "
                f"policy {cell.policy}, this budget and seed {cell.seed}"
            )
        return select_for(cell, table, tables.own_table(cell))
