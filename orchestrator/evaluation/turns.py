"""Turns and tool calls of the episodes among marked samples. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_COUNTED = ("turns", "tool_calls", "tool_errors", "truncated", "failed")


class Turns(NamedTuple):
    """Sums over some episodes.

    tool_errors: tool calls that were answered with an error; truncated, failed: episodes with the
    outcome truncated (a limit ended them) or error (their environment failed, or none began).
    """

    episodes: int
    turns: int
    tool_calls: int
    tool_errors: int
    truncated: int
    failed: int

    @property
    def error_share(self) -> float:
        """The share of tool calls that were answered with an error; nan without a call."""
        return self.tool_errors / self.tool_calls if self.tool_calls else float("nan")


def episode_numbers(samples: pa.Table) -> pa.Table:
    """A row per sample that is an episode: prompt_id, and what Turns counts.

    `samples` has the columns prompt_id, outcome and episode of SAMPLES.
    """
    episode, outcome = samples["episode"], samples["outcome"]
    columns = {name: pc.struct_field(episode, name) for name in _COUNTED[:3]}
    columns["truncated"] = pc.equal(outcome, "truncated").cast(pa.int32())
    columns["failed"] = pc.equal(outcome, "error").cast(pa.int32())
    return pa.table({"prompt_id": samples["prompt_id"], **columns}).filter(episode.is_valid())


def turns_by(numbers: pa.Table, column: str) -> dict[Any, Turns]:
    """Value of a column -> the sums of its rows, which are those of `episode_numbers`."""
    sums = numbers.group_by(column).aggregate([*((n, "sum") for n in _COUNTED), ([], "count_all")])
    names = ("count_all", *(f"{name}_sum" for name in _COUNTED))
    return {row[column]: Turns(*(row[name] for name in names)) for row in sums.to_pylist()}


def total(parts: Iterable[Turns]) -> Turns | None:
    """The sum of all; None without any."""
    sums = [sum(values) for values in zip(*parts, strict=True)]
    return Turns(*sums) if sums else None
