"""The columns of a user's row that travel with its prompt: its source, and columns to keep."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tasks.errors import TaskError
from tasks.sources.files import cell
from tasks.sources.values import row_text, value_text

Column: TypeAlias = str | Sequence[str]  # a name, or alternatives for different files


@dataclass(frozen=True)
class KeptColumns:
    """The options `source` and `keep` of a task that reads files.

    source: the column of a prompt's source. keep: columns, or `all` of them except the source and
    `others`, the columns of question and answer. A list in place of a column names alternatives:
    the first one that a file has is read (`of_file`), and kept under the first name of the list.
    """

    source: Column | None
    keep: Sequence[Column] | Literal["all"]
    others: Sequence[str | None]

    def __post_init__(self) -> None:
        """Raises TaskError for a value of any other form."""
        if self.source is not None and not _is_column(self.source):
            raise TaskError(
                f"invalid source {self.source!r:.80}: write the name of a column, or a list of "
                f"alternative names"
            )
        listed = isinstance(self.keep, list | tuple) and all(map(_is_column, self.keep))
        if self.keep != "all" and not listed:
            raise TaskError(
                f"invalid keep {self.keep!r:.80}: write a list of columns, such as [id], or all"
            )

    @property
    def source_name(self) -> str:
        """The name of the source's column, or the first alternative; `source` without one."""
        return alternatives(self.source or "source")[0]

    def of_file(self, has: Callable[[str], bool]) -> "FileColumns":
        """The columns of a file that has those for which `has` is true.

        If the file has none of the alternatives, the first one is used.
        """

        def chosen(column: Column) -> str:
            names = alternatives(column)
            return next(filter(has, names), names[0])

        source = None
        if self.source is not None:
            source = chosen(self.source)
        if self.keep == "all":
            return FileColumns(source, None, (source, *self.others))
        kept = {alternatives(column)[0]: chosen(column) for column in self.keep}
        return FileColumns(source, kept)

    def of_rows(self, file: str, rows: Sequence[Any]) -> "FileColumns":
        """The columns of a file with these rows. Raises TaskError for a column that no row has."""
        objects = [row for row in rows if isinstance(row, Mapping)]
        columns = self.of_file(lambda name: any(cell(row, name) is not None for row in objects))
        named = list[Column]()
        if self.source is not None:
            named.append(self.source)
        if self.keep != "all":
            named += self.keep
        for column in named:
            names = alternatives(column)
            if not any(cell(row, name) is not None for row in objects for name in names):
                known = ", ".join(dict.fromkeys(str(each) for row in objects for each in row))
                missing = " or ".join(f"{name!r}" for name in names)
                raise TaskError(f"{file} has no column {missing}: write one of {known}")
        return columns


@dataclass(frozen=True)
class FileColumns:
    """The columns of one file that travel with its prompts.

    kept: each column's name in tables, and its name in the file; None for all columns except the
    `excluded` ones.
    """

    source: str | None
    kept: Mapping[str, str] | None
    excluded: Collection[str | None] = ()

    def names(self, known: Collection[str]) -> dict[str, str]:
        """Name in tables -> name in the file, for a file or a row with the columns `known`."""
        if self.kept is not None:
            return dict(self.kept)
        return {name: name for name in known if name not in self.excluded}

    def source_of(self, row: Mapping[str, Any]) -> str:
        """The source of a row, "" if it has none."""
        return value_text(cell(row, self.source)) if self.source else ""

    def text_of(self, row: Mapping[str, Any], place: str) -> str:
        """The kept columns as JSON text, "" if there are none.

        Raises TaskError for a value that JSON cannot represent.
        """
        names = self.names(row.keys())
        columns = {name: cell(row, in_file) for name, in_file in names.items()}
        if not columns:
            return ""
        # NaN, which data frames write for missing values, is not JSON.
        columns = {name: None if v != v else v for name, v in columns.items()}
        return row_text(columns, place, "name the other columns in keep: […]")


def alternatives(column: Column) -> list[str]:
    """The names that a column may have, in order."""
    return [column] if isinstance(column, str) else list(column)


def _is_column(value: Any) -> bool:
    """Whether a value is a column's name, or a list of alternatives."""
    if isinstance(value, str):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(type(v) is str for v in value)
