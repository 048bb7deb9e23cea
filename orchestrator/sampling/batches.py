"""Which rows the built-in engine samples together: limits that keep a batch within memory.

A row is one sample of a prompt. Rows come in order, those of a prompt together and the longest
prompts first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import ceil
from typing import NamedTuple

PROMPT_TOKENS = 131_072  # total of the prompts of a batch
READ_TOKENS = 512  # on a CPU, of prompts read at once, so that layers fit the CPU's caches
SHRINK_BELOW = 0.75  # copying the cache to fewer rows pays off once a quarter has ended


class Row(NamedTuple):
    """One completion to draw: sample `sample` of request `request`, a prompt of `tokens` tokens."""

    request: int
    sample: int
    tokens: int


@dataclass
class BatchLimits:
    """Limits of a batch: its rows, and the tokens of its prompts, including padding.

    read: tokens of the prompts that are read in one pass.
    """

    rows: int
    tokens: int = PROMPT_TOKENS
    read: int = PROMPT_TOKENS

    def halve(self) -> None:
        """Halve the limits; a batch of one row is always allowed."""
        self.rows = max(1, self.rows // 2)
        self.tokens = max(1, self.tokens // 2)

    def prompts(self, longest: int) -> int:
        """The number of prompts of up to `longest` tokens in a batch: at least one.

        It decreases from 2,048 tokens on, because the mask of padded prompts has an entry for every
        pair of tokens.
        """
        return max(1, int(self.tokens / longest * min(1, 2_048 / longest)))

    def whole_batch(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The first rows, as a batch that no rows can join; batches have nearly equal sizes."""
        longest = rows[0].tokens
        most = max(1, min(self.rows, self.tokens // longest))
        rows = rows[: ceil(len(rows) / ceil(len(rows) / most))]
        return _of_first_prompts(rows, self.prompts(longest))

    def passes(self, rows: Sequence[Row], common: int = 0) -> Iterator[Sequence[Row]]:
        """The rows in parts for one pass over their prompts: similar lengths, with little padding.

        The first prompt of a part is its longest. A pass does not read the first `common` tokens.
        """
        part: list[Row] = []
        for _, of_prompt in groupby(rows, key=lambda row: row.request):
            more = [*of_prompt]
            distinct = len({row.request for row in part}) + 1
            if part and distinct * (part[0].tokens - common) > self.read:
                yield part
                part = []
            part += more
        yield part

    def joining(
        self, rows: Sequence[Row], started: int, running: int, prompts: int, longest: int
    ) -> int:
        """The number of rows from `started` on that join `running` rows: whole prompts, if one
        fits.

        The batch has `prompts` prompts, padded to `longest` tokens.
        """
        free, waiting = self.rows - running, len(rows) - started
        if not waiting or free < min(waiting, (1 - SHRINK_BELOW) * self.rows):
            return 0
        cut = rows[started + free].request if free < waiting else None
        whole = [row for row in rows[started : started + free] if row.request != cut]
        most = self.prompts(max(longest, rows[started].tokens)) - prompts
        return len(_of_first_prompts(whole, most)) or (0 if running else free)


def _of_first_prompts(rows: Sequence[Row], most: int) -> Sequence[Row]:
    """The rows of the first prompts, `most` of them."""
    kept = {*islice(dict.fromkeys(row.request for row in rows), max(0, most))}
    return [row for row in rows if row.request in kept]
