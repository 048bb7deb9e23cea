"""The numbers of rows that a command read, left out and wrote."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class RowCounts:
    """Counts of the rows of an input.

    left_out: reason -> number of unused rows. written: the rows of the output, which may have
    several for one row of the input; None if rows are not written.
    """

    read: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    written: int | None = None

    @classmethod
    def sum(cls, parts: Iterable["RowCounts"]) -> Self:
        """The total of several inputs without written rows."""
        read, left_out = 0, Counter[str]()
        for part in parts:
            read += part.read
            left_out.update(part.left_out)
        return cls(read, dict(left_out))

    @property
    def used(self) -> int:
        """The rows that are not left out."""
        return self.read - sum(self.left_out.values())

    def line(self, of: str = "") -> str:
        """`rows: 9 read, 2 left out (2 without an answer), 7 used`; `of`: a file or an arm."""
        label = f"rows of {of}" if of else "rows"
        text = f"{label}: {self.read:,} read, {self.read - self.used:,} left out"
        reasons = [f"{count:,} {why}" for why, count in self.left_out.items() if count]
        if reasons:
            text += f" ({', '.join(reasons)})"
        if self.written is None:
            return f"{text}, {self.used:,} used"
        return f"{text}, {self.written:,} written"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
