"""The columns of a user's row that travel with its prompt: its source, and those to keep."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.base import TaskError
from tasks.sources.files import cell, row_text
from tasks.sources.values import value_text


@dataclass(frozen=True)
class KeptColumns:
    """The options `source` and `keep` of a task that reads files.

    source: the column of a prompt's source. keep: columns, or `all` of them but the source's and
    `others`, those of question and answer.
    """

    source: str | None
    keep: Sequence[str] | Literal["all"]
    others: Sequence[str | None]

    def __post_init__(self) -> None:
        """Raises TaskError for a value of another form."""
        if self.source is not None and not isinstance(self.source, str):
            raise TaskError(f"invalid source {self.source!r:.80}: write the name of a column")
        listed = isinstance(self.keep, list | tuple) and all(isinstance(k, str) for k in self.keep)
        if self.keep != "all" and not listed:
            raise TaskError(
                f"invalid keep {self.keep!r:.80}: write a list of columns, such as [id], or all"
            )

    def names(self, known: Collection[str]) -> list[str]:
        """The columns to keep of a file that has the columns `known`."""
        if self.keep == "all":
            return [name for name in known if name not in (self.source, *self.others)]
        return [*dict.fromkeys(self.keep)]

    def check(self, file: str, rows: Sequence[Any]) -> None:
        """Raise TaskError for a named column that no row has."""
        for name in filter(None, (self.source, *(self.keep if self.keep != "all" else ()))):
            objects = [row for row in rows if isinstance(row, Mapping)]
            if not any(cell(row, name) is not None for row in objects):
                known = ", ".join(dict.fromkeys(str(column) for row in objects for column in row))
                raise TaskError(f"{file} has no column {name!r}: write one of {known}")

    def source_of(self, row: Mapping[str, Any]) -> str:
        """The source of a row, "" where it has none."""
        return value_text(cell(row, self.source)) if self.source else ""

    def text_of(self, row: Mapping[str, Any], place: str) -> str:
        """The kept columns as JSON text, "" where there are none.

        Raises TaskError for a value that JSON does not have.
        """
        columns = {name: cell(row, name) for name in self.names(row.keys())}
        if not columns:
            return ""
        # NaN, how data frames write that there is none, is no JSON.
        columns = {name: None if v != v else v for name, v in columns.items()}
        return row_text(columns, place, "name the others in keep: […]")
