"""`decile.compare`: compares item-level results of any tool, as `decile compare` does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from decile.errors import UserError, as_user_error
from decile.evaluation import Evaluation
from orchestrator.optional.exchange.item_files import ItemColumns
from orchestrator.optional.exchange.item_results import Source, compare_items
from orchestrator.report.html_pages import PAGES, section_html, write_page
from orchestrator.report.item_comparison import ItemAnalysis
from orchestrator.report.sections.items import item_page, terminal_items
from orchestrator.storage.local_files import check_output

if TYPE_CHECKING:
    from orchestrator.report.content import Section


class ItemComparison:
    """Arms compared pair by pair; differences are in points, scores are shares.

    `analysis` holds the arms with their runs, and the comparisons.
    """

    def __init__(self, analysis: ItemAnalysis) -> None:
        self.analysis = analysis

    def __repr__(self) -> str:
        return terminal_items(self.analysis)

    def _repr_html_(self) -> str:
        sections: tuple[Section, ...] = item_page(self.analysis).sections
        return "".join(map(section_html, sections[:2]))

    def to_dict(self) -> dict[str, Any]:
        """What `decile compare --json` prints."""
        return self.analysis.to_dict()

    def to_pandas(self) -> Any:
        """A DataFrame with one row per pair. Its columns are the fields of `comparisons`.

        The field `parts`, a list, is left out.
        """
        return pa.Table.from_pylist(self.analysis.pairs).to_pandas().drop(columns="parts")

    def save(self, page: str | Path) -> Path:
        """Write the HTML page. Raises UserError if it cannot be written."""
        check_output(page, PAGES)
        write_page(item_page(self.analysis), Path(page))
        return Path(page)


@as_user_error()
def compare(
    arms: Mapping[str, Any],
    *,
    id: str | None = None,
    score: str | None = None,
    seed: str | None = None,
    sample: str | None = None,
    metric: str | None = None,
    group: str | None = None,
    models_are_seeds: bool = False,
) -> ItemComparison:
    """Compare item-level results, paired by question.

    arms: name -> a path (file, folder, cell or glob), an Evaluation, an Arrow table, a pandas
    DataFrame, or a list of them. The options are those of `decile compare`. Raises UserError if the
    arms cannot be paired.
    """
    if not isinstance(arms, Mapping):
        raise UserError('arms: write a dictionary such as {"hard": "hard*.eval", "random": …}')
    columns = ItemColumns(id, score, seed, sample, metric, group)
    sources: dict[str, list[Source]] = {}
    for name, value in arms.items():
        own = sources[str(name)] = []
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for each in values:
            if isinstance(each, Evaluation):
                each = each.table
            if type(each).__name__ == "DataFrame":  # pandas, which is not imported for this
                each = pa.Table.from_pandas(each, preserve_index=False)
            if not isinstance(each, str | Path | pa.Table):
                raise UserError(
                    f"arm {name!r:.80}: {type(each).__name__}: write a path, an Evaluation, "
                    "an Arrow table or a DataFrame"
                )
            own.append(each)
    return ItemComparison(compare_items(sources, columns, models_are_seeds=models_are_seeds))
