"""The difficulty tables of the probes of a plan."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.difficulty.answers import with_answers
from orchestrator.difficulty.disputed import DisputedGolds, disputed_golds, with_suspected
from orchestrator.difficulty.pool_spellings import PoolSpellings
from orchestrator.difficulty.sources import by_agreement, with_ranks_of
from orchestrator.difficulty.table import difficulty_of_codes
from orchestrator.planning.cells import Cell, DifficultySource, ProbeSpec, readers_of
from orchestrator.planning.plan import Plan
from orchestrator.planning.pool_columns import with_pool_columns
from orchestrator.planning.score_file import read_scores
from orchestrator.probing.answers import Answers
from orchestrator.probing.other_forms import reads_texts
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.storage.errors import UserError
from orchestrator.storage.identity import file_identity
from orchestrator.storage.proof import canonical_hash
from policies import labelled_rows


def table_file(plan: Plan, spec: ProbeSpec, page: Path) -> Path:
    """The file beside the page for the difficulty table of a training probe.

    Its name also hashes the pool and the marker: datasets that share a probe's folder never share a
    table, even if they have the same name in two files of experiments.
    """
    pool = plan.pool(spec).train_hash
    key = canonical_hash([spec.key, spec.dataset.name, spec.marker, pool])[:8]
    return page.with_name(f"{page.stem}-{key}.parquet")


def difficulty_of(plan: Plan, spec: ProbeSpec, outcomes: Outcomes) -> pa.Table:
    """The difficulty table of a training probe, with a row for every prompt of the pool."""
    group = readers_of(plan.cells, spec)[0].batch.group_size
    return CellTables(outcomes).with_group(spec, group)


def _labelled(table: pa.Table) -> pa.Table:
    """The rows with a gold answer; not a copy if all have one, as is usual."""
    rows = labelled_rows(table)
    return table if rows.all() else table.filter(pa.array(rows))


class CellTables:
    """The difficulty tables of the cells that share a probe's samples, each computed once.

    Cells may differ in K, in how truncated samples count, and in the group size. The samples'
    answers are read for the first cell with a policy that needs them, unless they are given.
    `others` returns the tables of another model's probe, which a cell may rank its prompts by.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        folder: ProbeFolder | None = None,
        answers: Answers | None = None,
        others: "Callable[[ProbeSpec], CellTables] | None" = None,
    ) -> None:
        self._outcomes = outcomes
        self._folder = folder
        self._answers = answers
        self._others = others
        self._ranks: dict[str, pa.Table] = {}
        self._tables: dict[tuple[int, str, int, bool], tuple[pa.Table, DisputedGolds | None]] = {}

    @cached_property
    def _read(self) -> tuple[Outcomes, Answers]:
        """The outcomes and the samples' answers."""
        if self._answers is not None:
            return self._outcomes, self._answers
        assert self._folder is not None, "only subsets need answers"
        return self._folder.with_answers()

    @cached_property
    def _spellings(self) -> PoolSpellings:
        assert self._folder is not None, "only subsets need answers"
        return PoolSpellings(self._read[1], self._folder.task, self._outcomes.prompts)

    @cached_property
    def _texts_needed(self) -> bool:
        """Whether only the samples' texts show answers in a form that the marker does not read."""
        return self._folder is not None and reads_texts(self._folder.task)

    def of(self, cell: Cell, *, answers: bool = False, unlabelled: bool = False) -> pa.Table:
        """The table that the cell's policy ranks by, from the first K samples of each prompt.

        It has the prompts with a gold answer, which can be trained on, or all with `unlabelled`.
        The columns of the samples' answers are filled with `answers`, if the cell's subset depends
        on them, or if failures by form need them. A column `question` is added if the subset
        depends on it. Raises UserError if a difficulty file has changed, or another model's probe
        is not finished.
        """
        answers |= self._texts_needed or cell.static_policy.build().reads_answers
        answers |= any(rule.build().reads_answers for rule in cell.bounding_rules)
        table = self.with_group(cell.probe, cell.batch.group_size, answers=answers)
        if cell.difficulty:
            ranks = self._ranks_of(cell, cell.difficulty, answers=answers)
            table = with_ranks_of(table, ranks)
        if cell.static_policy.build().reads_questions:
            prompts = self._outcomes.prompts
            questions = prompts.take(prompts.order).column("question")  # on disk, if large
            table = table.append_column("question", questions)
        return table if unlabelled else _labelled(table)

    def own_table(
        self, cell: Cell, *, answers: bool = False, unlabelled: bool = False
    ) -> pa.Table | None:
        """The table of its own model's pass rates, for the same prompts as the table of `of`.

        None if the cell's policy ranks by these.
        """
        if cell.difficulty is None:
            return None
        answers |= self._texts_needed
        table = self.with_group(cell.probe, cell.batch.group_size, answers=answers)
        return table if unlabelled else _labelled(table)

    def _ranks_of(self, cell: Cell, ranking: DifficultySource, *, answers: bool) -> pa.Table:
        """The table that a cell ranks by."""
        group = cell.batch.group_size
        settings = cell.probe.settings
        key = [ranking.identity, settings.samples, settings.count_truncated, group, answers]
        if (name := canonical_hash(key)) not in self._ranks:
            if ranking.file:
                if file_identity(Path(ranking.file)) != ranking.file_hash:
                    raise UserError(f"{ranking.file} has changed: run the same command again")
                self._ranks[name] = read_scores(ranking.file)
            else:
                tables, spec = self, ranking.probe or cell.probe
                if ranking.probe:
                    assert self._others is not None, "only subsets have other sources"
                    tables = self._others(ranking.probe)
                self._ranks[name] = tables.with_ranking(spec, group, ranking.by, answers=answers)
        return self._ranks[name]

    def with_ranking(
        self, spec: ProbeSpec, group_size: int, by: str, *, answers: bool = False
    ) -> pa.Table:
        """As `with_group`, by golds or by agreement."""
        table = self.with_group(spec, group_size, answers=answers or by == "agreement")
        if by == "gold":
            return table
        return by_agreement(table, group_size)

    def with_group(self, spec: ProbeSpec, group_size: int, *, answers: bool = False) -> pa.Table:
        """The table of the first K samples of each prompt; K and other settings as in `spec`.

        With `answers`, the columns of the samples' answers are filled.
        """
        return self._computed(spec, group_size, answers)[0]

    def disputed(self, spec: ProbeSpec, group_size: int) -> DisputedGolds:
        """The gold answers that these samples dispute."""
        disputed = self._computed(spec, group_size, True)[1]
        assert disputed is not None, "answers were read"
        return disputed

    def _computed(
        self, spec: ProbeSpec, group_size: int, answers: bool
    ) -> tuple[pa.Table, DisputedGolds | None]:
        settings = spec.settings
        key = settings.samples, settings.count_truncated, group_size, answers
        if key not in self._tables:
            outcomes = self._outcomes
            prompts = self._outcomes.prompts
            codes = outcomes.by_id[:, : settings.samples]
            first = np.s_[: settings.samples]
            tokens = outcomes.tokens
            scores = outcomes.scores
            labelled = outcomes.labelled
            other_form = self._read[0].other_form if answers else outcomes.other_form
            table = difficulty_of_codes(
                prompts.ids(prompts.order),
                prompts.column("tier").combine_chunks().take(pa.array(prompts.order)),
                codes,
                scores=None if scores is None else scores[prompts.order, first],
                labelled=None if labelled is None else labelled[prompts.order],
                tokens=None if tokens is None else tokens[prompts.order, first],
                other_form=None if other_form is None else other_form[prompts.order, first],
                count_truncated=settings.count_truncated,
                group_size=group_size,
            )
            table = with_pool_columns(table, prompts.take(prompts.order))
            disputed = None
            if answers:
                votes = self._spellings.votes(codes)
                disputed = disputed_golds(votes, table)
                table = with_suspected(with_answers(table, votes), disputed)
            self._tables[key] = table, disputed
        return self._tables[key]
