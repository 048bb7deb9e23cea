"""The difficulty tables of the probes of a plan."""

from functools import cached_property
from pathlib import Path

import pyarrow as pa

from orchestrator.difficulty.agreement import agreement_of_rows, with_suspected
from orchestrator.difficulty.table import difficulty_of_codes
from orchestrator.planning.cells import Cell, ProbeSpec, cells_of
from orchestrator.planning.plan import Plan
from orchestrator.planning.pool_columns import with_pool_columns
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe_folder import ProbeFolder, WrongAnswers
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
    group = cells_of(plan.cells, spec)[0].batch.group_size
    return CellTables(outcomes).with_group(spec, group)


class CellTables:
    """The difficulty tables of the cells that share a probe's samples, each computed once.

    Cells may differ in K, in how truncated samples count, and in the size of a group. The samples'
    answers are read for the first cell whose policy needs them.
    """

    def __init__(self, outcomes: Outcomes, folder: ProbeFolder | None = None) -> None:
        self._outcomes, self._folder = outcomes, folder
        self._tables: dict[tuple[int, str, int, bool], pa.Table] = {}

    @cached_property
    def _wrong(self) -> WrongAnswers:
        assert self._folder is not None, "only subsets need answers"
        return self._folder.with_wrong_answers()[1]

    def of(self, cell: Cell, *, answers: bool = False, unlabelled: bool = False) -> pa.Table:
        """The table of the cell's own first K samples of each prompt.

        Of prompts with a gold answer, which can be trained on; with `unlabelled`, of all.

        Its column `suspected` is filled with `answers`, and where the cell's subset depends on it.
        A further column, `question`, is added where the subset depends on that.
        """
        answers |= cell.rule.build().reads_answers
        answers |= any(rule.build().reads_answers for rule in cell.match)
        table = self.with_group(cell.probe, cell.batch.group_size, answers=answers)
        if cell.rule.build().reads_questions:
            prompts = self._outcomes.prompts
            questions = prompts.take(prompts.order).column("question")  # a file, if they are large
            table = table.append_column("question", questions)
        return table if unlabelled else table.filter(table["labelled"])

    def with_group(self, spec: ProbeSpec, group_size: int, *, answers: bool = False) -> pa.Table:
        """The table of the first K samples of each prompt, K and the rest as in `spec`.

        With `answers`, its column `suspected` is filled.
        """
        settings = spec.settings
        key = settings.samples, settings.count_truncated, group_size, answers
        if key not in self._tables:
            prompts = self._outcomes.prompts
            scores, labelled = self._outcomes.scores, self._outcomes.labelled
            table = difficulty_of_codes(
                prompts.ids(prompts.order),
                prompts.column("tier").combine_chunks().take(pa.array(prompts.order)),
                self._outcomes.by_id[:, : settings.samples],
                scores=None if scores is None else scores[prompts.order, : settings.samples],
                labelled=None if labelled is None else labelled[prompts.order],
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
