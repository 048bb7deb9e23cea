"""Groups of nearly equal questions within one pool, by the measure of `overlap`. Pure.

Two sets of runs of words with a Jaccard similarity of at least `NEAR` share one of the rarest fifth
of the runs of either, plus one (prefix filtering, as in `overlap`). Only questions that share such
a run are compared. Runs are compared as hashes of 48 bits, in batches, so that a pool of a million
questions takes a minute and 8 bytes per word.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.planning.shingles import NEAR, Hashes, Ints, hashed_runs

ROWS = 1 << 16  # of a batch: a row number has 16 bits beside a hash of 48
COMPARED = 20_000_000  # pairs, approximately, if thousands of questions share their rarest runs
_HASH, _ROW = np.uint64(2**48 - 1), np.uint64(2**32 - 1)
_BUCKETS = 22  # maximum bits of a hash for counting the questions with a run
_RARITY = 2**16 - 1
_ODD = np.uint64(0x9E3779B97F4A7C15)


def grouped_ids(ids: Sequence[str], questions: pa.ChunkedArray) -> dict[str, str]:
    """id -> the smallest id of its group, for questions with duplicates.

    ids: of the questions, ascending. A group has exact and near duplicates as in
    `overlap.find_overlap`, and duplicates of these.
    """
    first = near_groups(questions, np.zeros(len(ids), dtype=np.int64))
    grouped = np.flatnonzero(np.bincount(first, minlength=len(ids))[first] > 1)
    return {ids[row]: ids[first[row]] for row in grouped.tolist()}


def near_groups(questions: pa.ChunkedArray, classes: Ints) -> Ints:
    """For each row, the first row of its group of nearly equal questions, or itself.

    Only questions of the same class are compared. Duplicates of duplicates are in the same group.
    """
    sets = RunSets.of(questions)
    if not len(classes):
        return np.empty(0, dtype=np.int64)
    # Only the first of several equal sets (equal sums) is compared with different sets.
    sums = np.add.reduceat(sets.hashes, sets.starts[:-1]) + classes.astype(np.uint64) * _ODD
    _, first, equal_to = np.unique(sums, return_index=True, return_inverse=True)
    distinct = np.sort(first)
    one, two = _near_pairs(sets.take(distinct), classes[distinct])
    return joined(
        len(classes),
        [(np.arange(len(classes)), first[equal_to.reshape(-1)])] + [(distinct[one], distinct[two])],
    )


def joined(rows: int, links: Sequence[tuple[Ints, Ints]]) -> Ints:
    """For each row, the first of the rows that links connect it to, directly or indirectly."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = [np.concatenate(each) for each in zip(*links, strict=True)]
    graph = coo_array((np.ones(len(ends[0]), dtype=np.int8), tuple(ends)), shape=(rows, rows))
    _, labels = connected_components(graph, directed=False)
    _, first, of_row = np.unique(labels, return_index=True, return_inverse=True)
    return first[of_row.reshape(-1)]


class RunSets(NamedTuple):
    """The set of runs of words of each question.

    hashes: 48 bits, ascending within a question; starts: [questions + 1], where each begins.
    """

    hashes: Hashes
    starts: Ints

    @classmethod
    def of(cls, questions: pa.ChunkedArray) -> "RunSets":
        """The sets of some questions; never empty, because runs are padded."""
        hashes, sizes = [np.empty(0, dtype=np.uint64)], [np.zeros(1, dtype=np.int64)]
        for chunk in questions.chunks:
            for start in range(0, len(chunk), ROWS):
                runs = hashed_runs(chunk.slice(start, ROWS))
                row = np.repeat(np.arange(len(runs.counts), dtype=np.uint64), runs.counts)
                keys = np.sort((row << np.uint64(48)) | (runs.hashes >> np.uint64(16)))
                keys = keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys
                hashes.append(keys & _HASH)
                row = (keys >> np.uint64(48)).astype(np.int64)
                sizes.append(np.bincount(row, minlength=len(runs.counts)))
        return cls(np.concatenate(hashes), np.cumsum(np.concatenate(sizes)))

    @property
    def sizes(self) -> Ints:
        """Runs of each question."""
        return np.diff(self.starts)

    def take(self, rows: Ints) -> "RunSets":
        """The sets of these rows, in their order."""
        sizes = self.sizes[rows]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        # The position of each run: its row's first position plus its index in the row.
        at = np.repeat(self.starts[rows] - starts[:-1], sizes) + np.arange(starts[-1])
        return RunSets(self.hashes[at], starts)


def _near_pairs(sets: RunSets, classes: Ints) -> tuple[Ints, Ints]:
    """The pairs of rows of the same class that are near duplicates."""
    near = [np.empty((2, 0), dtype=np.int64)]
    for one, two in _candidates(sets, classes):
        sizes_one, sizes_two = sets.sizes[one], sets.sizes[two]
        smaller, larger = np.minimum(sizes_one, sizes_two), np.maximum(sizes_one, sizes_two)
        likely = (classes[one] == classes[two]) & (smaller >= NEAR * larger - 1e-9)
        pairs = np.unique((one[likely] << 32) | two[likely])  # rows may share several rare runs
        for start in range(0, len(pairs), ROWS):
            both = np.stack(
                [pairs[start : start + ROWS] >> 32, pairs[start : start + ROWS] & 2**32 - 1]
            )
            near.append(both[:, _similarity(sets, *both) >= NEAR])
    one, two = np.concatenate(near, axis=1)
    return one, two


def _similarity(sets: RunSets, one: Ints, two: Ints) -> npt.NDArray[np.float64]:
    """The Jaccard similarity of the sets for up to ROWS pairs of rows."""
    parts = [sets.take(one), sets.take(two)]
    pair = [np.repeat(np.arange(len(one), dtype=np.uint64), part.sizes) for part in parts]
    keys = [(p << np.uint64(48)) | part.hashes for p, part in zip(pair, parts, strict=True)]
    ordered = np.sort(np.concatenate(keys))
    twice = (ordered[1:][ordered[1:] == ordered[:-1]] >> np.uint64(48)).astype(np.int64)
    shared = np.bincount(twice, minlength=len(one))
    return shared / (parts[0].sizes + parts[1].sizes - shared)


def _candidates(sets: RunSets, classes: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of rows that share one of their rarest runs, the smaller row first.

    If so many rows share a run that there would be more than COMPARED pairs, each row is paired
    with the next ones.
    """
    runs = _rare_runs(sets, classes)
    run, row = runs >> np.uint64(32), (runs & _ROW).astype(np.int64)
    at = np.arange(len(runs))
    for step in range(1, max(1, COMPARED // max(1, len(runs))) + 1):
        at = at[: np.searchsorted(at, len(runs) - step)]
        at = at[run[at] == run[at + step]]
        if not len(at):
            break
        yield row[at], row[at + step]


def _rare_runs(sets: RunSets, classes: Ints) -> Hashes:
    """For each row, its rarest runs that another row has too: 32 bits of their hash, and the row.

    Ascending, so that rows with the same run are adjacent; runs of different classes differ.
    """
    rows, bits = len(classes), min(_BUCKETS, len(sets.hashes).bit_length() + 2)
    shift, frequency = np.uint64(48 - bits), np.zeros(1 << bits, dtype=np.int64)
    parts = [slice(sets.starts[i], sets.starts[min(i + ROWS, rows)]) for i in range(0, rows, ROWS)]
    for part in parts:
        buckets = (sets.hashes[part] >> shift).astype(np.int64)
        frequency += np.bincount(buckets, minlength=len(frequency))
    sizes = sets.sizes
    # Round up: a prefix that is too long costs time, one that is too short misses duplicates.
    prefix = sizes - np.ceil(NEAR * sizes - 1e-9).astype(np.int64) + 1
    rare = [np.empty(0, dtype=np.uint64)]
    for first, part in zip(range(0, rows, ROWS), parts, strict=True):
        hashes, own = sets.hashes[part], slice(first, first + ROWS)
        row = np.repeat(np.arange(len(sizes[own])), sizes[own])
        rarity = np.minimum(frequency[(hashes >> shift).astype(np.int64)], _RARITY)
        order = (row << 48 | rarity << 32).astype(np.uint64) | (hashes >> np.uint64(16))
        order.sort()  # row by row as before, and the rarest runs of each first
        position = np.arange(len(row)) - np.repeat(sets.starts[:-1][own] - part.start, sizes[own])
        shared = (order >> np.uint64(32)) & np.uint64(_RARITY) > 1
        kept = (position < prefix[own][row]) & shared
        run = (order[kept] ^ classes[own][row[kept]].astype(np.uint64) * _ODD) & _ROW
        rare.append((run << np.uint64(32)) | (row[kept] + first).astype(np.uint64))
    return np.sort(np.concatenate(rare))
