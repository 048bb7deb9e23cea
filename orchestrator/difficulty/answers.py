"""How much the samples of a prompt agree on one answer, whatever the gold answer. Pure.

Answers are compared with each other like the task's marker compares an answer with a gold answer:
0.5 is `1/2`. Gold answers are not used. The comparison is not transitive (`5` is `5 cm`, and `5
kg`). A prompt's spellings are therefore grouped one by one, the most frequent first: each joins the
first group with a first spelling that equals it.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.proportions import counts
from orchestrator.probing.answers import encoded, has_answer
from tasks.marking.spelling import AnswerComparison, spelling_key

Ints = npt.NDArray[np.integer]

AT_ONCE = 1_000_000  # samples, or texts
REMEMBERED = 100_000  # pairs of texts with a cached comparison


class Votes:
    """The answers to each prompt, by row: an entry per prompt and answer, [V].

    row: in the difficulty table; samples: number with the answer; wrong: number of these that are
    marked wrong; text: their most frequent spelling, as a position in `texts`.
    """

    def __init__(self, entries: Ints, texts: pa.Array) -> None:
        """entries: [4, V], these arrays."""
        self.entries = entries.astype(np.int32, copy=False)
        self.texts = texts
        self.row, self.samples, self.wrong, self.text = self.entries

    def of_rows(self, start: int, stop: int) -> "Votes":
        """The votes of some rows, with row numbers relative to `start`."""
        entries = self.entries[:, slice(*np.searchsorted(self.row, [start, stop]))].copy()
        entries[0] -= start
        return Votes(entries, self.texts)


class Spellings:
    """The distinct texts of a pool's answers, and which of them a marker considers equal."""

    def __init__(self, texts: pa.Array, comparison: AnswerComparison | None = None) -> None:
        key, same = comparison or AnswerComparison(spelling_key)
        parts = [pa.array([], pa.string())]
        for start in range(0, len(texts), AT_ONCE):
            part = texts.slice(start, AT_ONCE).to_pylist()
            parts.append(pa.array(map(key, part), pa.string()))
        keys = pa.chunked_array(parts).combine_chunks().dictionary_encode()
        self.texts = texts
        self._keys = keys.indices.to_numpy()  # [texts]
        self._distinct = len(keys.dictionary)
        # The keys of texts that may equal a text with a different key.
        self._open = pc.index(keys.dictionary, "").as_py() if same else -1
        self._same = same and lru_cache(REMEMBERED)(same)

    def votes(self, row: Ints, text: Ints, wrong: npt.NDArray[np.bool_]) -> Votes:
        """The votes of the samples with an answer, [samples] each: their row, text and mark."""
        base = max(1, len(self.texts))
        # Each (row, text, wrong) as one number, then each pair (row, text).
        numbers, times = np.unique((row * base + text) * 2 + wrong, return_counts=True)
        pairs = numbers >> 1
        first = _starts(pairs)
        row, text = np.divmod(pairs[first], base)
        counted = np.stack([_sums(times, first), _sums(times * (numbers & 1), first)])
        group = self._groups(row, text, counted[0])
        if (group != np.arange(len(group))).any():
            order = np.lexsort((-counted[0], -counted[1], group))  # rows stay together
            first = _starts(group[order])
            row, text = row[order[first]], text[order[first]]
            counted = np.stack([_sums(each[order], first) for each in counted])
        return Votes(np.stack([row, *counted, text]), self.texts)

    def _groups(self, row: Ints, text: Ints, samples: Ints) -> Ints:
        """[pairs]: the place of one pair with the same answer; pairs are sorted by row."""
        group = np.arange(len(row))
        if self._distinct == len(self.texts) and self._open < 0:
            return group
        key = self._keys[text]
        numbers = np.sort(row * self._distinct + key)
        repeated = numbers[1:][numbers[1:] == numbers[:-1]] // max(1, self._distinct)
        rows = np.unique(np.concatenate([repeated, row[key == self._open]]))
        ends = np.searchsorted(row, [rows, rows + 1])
        for start, stop in ends[:, np.diff(ends, axis=0)[0] > 1].T.tolist():
            keys = key[start:stop].tolist()
            texts = self.texts.take(pa.array(text[start:stop]))
            for place, first in self._joined(keys, texts.to_pylist(), samples[start:stop]):
                group[start + place] = start + first
        return group

    def _joined(
        self, keys: Sequence[int], texts: Sequence[str], samples: Ints
    ) -> list[tuple[int, int]]:
        """The places of a prompt's spellings that join a group, each with the group's first."""
        firsts, joined = list[int](), []
        for place in np.argsort(-samples, kind="stable").tolist():
            for first in firsts:
                alike = keys[place] == keys[first]
                if self._same and (alike or self._open in (keys[place], keys[first])):
                    alike = self._same(texts[first], texts[place])
                if alike:
                    joined.append((place, first))
                    break
            else:
                firsts.append(place)
        return joined


def _starts(values: Ints) -> Ints:
    """The start of each run of equal values."""
    return np.flatnonzero(np.diff(values, prepend=-1))


def _sums(values: Ints, starts: Ints) -> Ints:
    return np.add.reduceat(values, starts) if len(starts) else values


def votes_of(
    samples: pa.Table, table: pa.Table, comparison: AnswerComparison | None = None
) -> Votes:
    """The votes of the samples (columns prompt_id, outcome, extracted) that a table was made from.

    Without a `comparison`, answers are compared as texts.
    """
    own = samples.filter(pa.array(has_answer(samples)))
    row = pc.index_in(own["prompt_id"], value_set=table["prompt_id"].combine_chunks()).to_numpy()
    codes, texts = encoded(own["extracted"])
    wrong = pc.equal(own["outcome"], "wrong").to_numpy()
    return Spellings(texts, comparison).votes(row.astype(np.int64), codes, wrong)


def with_answers(table: pa.Table, votes: Votes) -> pa.Table:
    """The difficulty table with agreement, answers and entropy; null if no answer was read."""
    if not len(votes.row):
        return table
    first = _starts(votes.row)
    rows = votes.row[first]
    answered = _sums(votes.samples, first)
    most, distinct = np.zeros((2, table.num_rows), np.int32)
    most[rows] = np.maximum.reduceat(votes.samples, first)
    distinct[rows] = np.diff(first, append=len(votes.row))
    entropy = np.full(table.num_rows, np.nan)
    logs = _sums(votes.samples * np.log(votes.samples), first)
    entropy[rows] = np.maximum(0, np.round(np.log(answered) - logs / answered, 12))
    marked = counts(table, "n") - counts(table, "error")
    columns = {
        "agreement": pa.array(most / np.maximum(marked, 1), mask=marked == 0),
        "answers": pa.array(distinct),
        "entropy": pa.array(entropy, mask=np.isnan(entropy)),
    }
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table
