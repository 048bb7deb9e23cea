"""The difficulty tables of the probes of a plan."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.agreement import agreement_of_rows, with_suspected
from orchestrator.difficulty.sources import by_agreement, with_ranks_of, with_text_agreement
from orchestrator.difficulty.table import difficulty_of_codes
from orchestrator.planning.cells import Cell, DifficultySource, ProbeSpec, readers_of
from orchestrator.planning.plan import Plan
from orchestrator.planning.pool_columns import with_pool_columns
from orchestrator.planning.score_file import read_scores
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe_folder import ProbeFolder, WrongAnswers
from orchestrator.storage.errors import UserError
from orchestrator.storage.identity import file_identity
from orchestrator.storage.proof import canonical_hash


def table_file(plan: Plan, spec: ProbeSpec, page: Path) -> Path:
    """The file beside the page for the difficulty table of a training probe.

    Its name hashes the pool and the marker, too: datasets that share a probe's folder never share a
    table, even if they have the same name in two files of experiments.
    """
    pool = plan.pool(spec).train_hash
    key = canonical_hash([spec.key, spec.dataset.name, spec.marker, pool])[:8]
    return page.with_name(f"{page.stem}-{key}.parquet")


def difficulty_of(plan: Plan, spec: ProbeSpec, outcomes: Outcomes) -> pa.Table:
    """The difficulty table of a training probe, with a row for every prompt of the pool."""
    group = readers_of(plan.cells, spec)[0].batch.group_size
    return CellTables(outcomes).with_group(spec, group)


class CellTables:
    """The difficulty tables of the cells that share a probe's samples, each computed once.

    Cells may differ in K, in how truncated samples count, and in the size of a group. The samples'
    answers are read for the first cell whose policy needs them. `others` gives the tables of
    another model's probe, by which a cell may rank its prompts.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        folder: ProbeFolder | None = None,
        others: "Callable[[ProbeSpec], CellTables] | None" = None,
    ) -> None:
        self._outcomes, self._folder, self._others = outcomes, folder, others
        self._ranks: dict[str, pa.Table] = {}
        self._tables: dict[tuple[int, str, int, bool], pa.Table] = {}

    @cached_property
    def _wrong(self) -> WrongAnswers:
        assert self._folder is not None, "only subsets need answers"
        return self._folder.with_wrong_answers()[1]

    def of(self, cell: Cell, *, answers: bool = False) -> pa.Table:
        """The table that the cell's policy ranks by, of the first K samples of each prompt.

        Its column `suspected`, of its own golds, is filled with `answers`, and where the cell's
        subset depends on it. A further column, `question`, is added where the subset depends on
        that. Raises UserError for a file of difficulty that has changed, or another model's probe
        that is not finished.
        """
        answers |= cell.rule.build().reads_answers
        answers |= any(rule.build().reads_answers for rule in cell.match)
        table = self.with_group(cell.probe, cell.batch.group_size, answers=answers)
        if cell.difficulty:
            ranks = self._ranks_of(cell, cell.difficulty, answers=answers)
            table = with_ranks_of(table, ranks)
        if cell.rule.build().reads_questions:
            prompts = self._outcomes.prompts
            questions = prompts.take(prompts.order).column("question")  # a file, if they are large
            table = table.append_column("question", questions)
        return table

    def golds(self, cell: Cell, *, answers: bool = False) -> pa.Table | None:
        """The table of its own model's pass rates, if the cell's policy ranks by others."""
        if cell.difficulty is None:
            return None
        return self.with_group(cell.probe, cell.batch.group_size, answers=answers)

    def _ranks_of(self, cell: Cell, source: DifficultySource, *, answers: bool) -> pa.Table:
        """The table of what a cell ranks by."""
        group, settings = cell.batch.group_size, cell.probe.settings
        key = [source.identity, settings.samples, settings.count_truncated, group, answers]
        if (name := canonical_hash(key)) not in self._ranks:
            if source.file:
                if file_identity(Path(source.file)) != source.file_hash:
                    raise UserError(f"{source.file} has changed: run the same command again")
                self._ranks[name] = read_scores(source.file)
            else:
                tables, spec = self, source.probe or cell.probe
                if source.probe:
                    assert self._others is not None, "only subsets have other sources"
                    tables = self._others(source.probe)
                self._ranks[name] = tables.with_source(spec, group, source.by, answers=answers)
        return self._ranks[name]

    def with_source(
        self, spec: ProbeSpec, group_size: int, by: str, *, answers: bool = False
    ) -> pa.Table:
        """As `with_group`, by golds or by agreement."""
        table = self.with_group(spec, group_size, answers=answers or by == "agreement")
        if by == "gold":
            return table
        if "agreement" not in table.column_names:
            assert self._folder is not None, "only subsets need answers"
            samples = self._folder.samples(("extracted",), partial=True)
            used = pc.less(samples["sample"], spec.settings.samples)
            table = with_text_agreement(table, samples.filter(used))
        return by_agreement(table, group_size)

    def with_group(self, spec: ProbeSpec, group_size: int, *, answers: bool = False) -> pa.Table:
        """The table of the first K samples of each prompt, K and the rest as in `spec`.

        With `answers`, its column `suspected` is filled.
        """
        settings = spec.settings
        key = settings.samples, settings.count_truncated, group_size, answers
        if key not in self._tables:
            prompts = self._outcomes.prompts
            scores = self._outcomes.scores
            table = difficulty_of_codes(
                prompts.ids(prompts.order),
                prompts.column("tier").combine_chunks().take(pa.array(prompts.order)),
                self._outcomes.by_id[:, : settings.samples],
                scores=None if scores is None else scores[prompts.order, : settings.samples],
                count_truncated=settings.count_truncated,
                group_size=group_size,
            )
            table = with_pool_columns(table, prompts.take(prompts.order))
            if answers:
                first = self._wrong.sample < settings.samples
                texts = self._wrong.answers.filter(pa.array(first))
                agreed = agreement_of_rows(self._wrong.row[first], texts, table)
                table = with_suspected(table, agreed)
            self._tables[key] = table
        return self._tables[key]
