"""The stored samples of a pool as arrays [prompts, K], read one part at a time.

An outcome takes a byte, whatever the length of prompts and completions, so a pool of ten million
prompts with four samples each takes 40 MB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.planning.cells import ProbeSpec
from orchestrator.probing.sample_store import (
    COUNTED,
    PAIR,
    Part,
    ids_and_samples,
    rows_of_parts,
)
from orchestrator.probing.samples import SampleRequest, marks_are_current
from orchestrator.storage.store import Store
from tasks import OUTCOMES, Prompt, Task
from tasks.prompt_table import PromptTable

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

NONE = 255  # in place of an outcome: no sample is stored
ROWS_PER_PART = 640  # enough to fill a batch, few enough that a kill costs seconds
MOST_TASKS = 4_000  # of a probe: the parts of a larger one are handed over several at a time
_CODES = pa.array(OUTCOMES)


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of the samples of a pool.

    codes: [prompts, K], positions in OUTCOMES, in the order of the pool; NONE without a sample.
    """

    prompts: PromptTable
    codes: Codes

    @cached_property
    def drawn(self) -> int:
        """The stored samples."""
        return int(np.count_nonzero(self.codes != NONE))

    @property
    def complete(self) -> bool:
        """Whether every sample is stored."""
        return self.drawn == self.codes.size

    @property
    def by_id(self) -> Codes:
        """The codes in the order of the prompts' ids, which is that of a difficulty table."""
        return self.codes[self.prompts.order]


class OutcomeReader:
    """Collects the outcomes of a pool's samples, from one part after the other.

    `stale` becomes true where a part has marks of another marker than the task's.
    """

    def __init__(self, spec: ProbeSpec, prompts: PromptTable, task: Task) -> None:
        self.spec, self.prompts, self.task, self.stale = spec, prompts, task, False
        shape = len(prompts), spec.settings.samples
        self.codes = np.full(shape, NONE, dtype=np.uint8)

    def add(self, part: Part) -> None:
        """Add the rows of a part as they are, if they are of this pool."""
        if part.split not in (self.spec.split, None):
            return
        rows = ids_and_samples(part.samples, self.prompts, self.spec.settings.samples)
        self.stale |= not marks_are_current(rows.samples, self.task)
        self.add_rows(rows.prompts, rows.samples)

    def add_rows(self, prompt: Ints, samples: pa.Table) -> Bools:
        """Add samples with their rows in the pool; returns which of them were not there yet."""
        codes = pc.index_in(samples["outcome"], value_set=_CODES)
        known = codes.is_valid().to_numpy()  # a row without a mark has no outcome yet
        index = samples["sample"].to_numpy()
        new: Bools = known & (self.codes[prompt, index] == NONE)
        values = codes.fill_null(NONE).to_numpy().astype(np.uint8)[new][::-1]
        self.codes[prompt[new][::-1], index[new][::-1]] = values
        return new

    @property
    def outcomes(self) -> Outcomes:
        """What was added."""
        return Outcomes(self.prompts, self.codes)


def load_outcomes(
    store: Store, spec: ProbeSpec, prompts: PromptTable, task: Task, *, partial: bool = True
) -> Outcomes:
    """The stored outcomes by the task's current marker.

    Raises RuntimeError while samples are missing, unless `partial`.
    """
    reader = OutcomeReader(spec, prompts, task)
    for rows in rows_of_parts(store, spec, prompts, COUNTED, task):
        reader.add_rows(rows.prompts, rows.samples)
    outcomes = reader.outcomes
    if not (partial or outcomes.complete):
        raise RuntimeError(
            f"probe {spec.key} holds {outcomes.drawn} of {outcomes.codes.size} samples: "
            "run it first"
        )
    return outcomes


class StoredSamples(NamedTuple):
    """The tokens of each stored sample, -1 without one, and the outcomes that were stored with it.

    Both [prompts, K]; `codes` as in Outcomes.
    """

    tokens: npt.NDArray[np.int32]
    codes: Codes


def load_stored(store: Store, spec: ProbeSpec, prompts: PromptTable) -> StoredSamples:
    """The stored samples by whatever marker marked them: good enough for an estimate."""
    shape = len(prompts), spec.settings.samples
    tokens, codes = np.full(shape, -1, dtype=np.int32), np.full(shape, NONE, dtype=np.uint8)
    for rows in rows_of_parts(store, spec, prompts, (*COUNTED, "tokens")):
        index = rows.samples["sample"].to_numpy()
        new = tokens[rows.prompts, index] < 0
        places = rows.prompts[new][::-1], index[new][::-1]
        tokens[places] = rows.samples["tokens"].to_numpy()[new][::-1]
        outcomes = pc.index_in(rows.samples["outcome"], value_set=_CODES).fill_null(NONE)
        codes[places] = outcomes.to_numpy().astype(np.uint8)[new][::-1]
    return StoredSamples(tokens, codes)


class MissingSamples(Sequence[SampleRequest]):
    """The prompts of a pool that lack samples, each with the indices that it lacks."""

    def __init__(self, prompts: PromptTable, present: Bools) -> None:
        self.prompts = prompts
        self.rows = np.flatnonzero(~present.all(axis=1))
        self.absent = ~present[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | slice) -> SampleRequest:  # type: ignore[override]
        assert isinstance(index, int), "requests are read one by one"
        prompt = self.prompts[int(self.rows[index])]
        return prompt, tuple(np.flatnonzero(self.absent[index]).tolist())

    def __iter__(self) -> Iterator[SampleRequest]:
        prompts: Iterator[Prompt] = iter(self.prompts.take(self.rows))
        for prompt, absent in zip(prompts, self.absent, strict=True):
            yield prompt, tuple(np.flatnonzero(absent).tolist())

    @property
    def samples(self) -> int:
        """All missing samples."""
        return int(np.count_nonzero(self.absent))


def missing_samples(store: Store, spec: ProbeSpec, prompts: Sequence[Prompt]) -> MissingSamples:
    """The prompts with fewer samples than the probe needs, each with its missing indices."""
    table = PromptTable.of(prompts)
    present = np.zeros((len(table), spec.settings.samples), dtype=bool)
    for rows in rows_of_parts(store, spec, table, PAIR):
        present[rows.prompts, rows.samples["sample"].to_numpy()] = True
    return MissingSamples(table, present)


class PartTables:
    """The missing samples in parts of about ROWS_PER_PART, prompts of similar length together.

    Each table has one row per part: column `part`, a list of prompts with the sample indices to
    draw. Tables are made one after the other; of a large probe, one holds several parts.
    """

    def __init__(self, missing: MissingSamples) -> None:
        self.prompts = missing.prompts
        by_length = _by_length(missing)
        self.rows, self.absent = missing.rows[by_length], missing.absent[by_length]
        self.ends = _part_ends(np.count_nonzero(self.absent, axis=1))
        self.per_table = -(-len(self.ends) // MOST_TASKS)

    def __len__(self) -> int:
        return -(-len(self.ends) // max(1, self.per_table))

    def __iter__(self) -> Iterator[pa.Table]:
        starts = [0, *self.ends[:-1]]
        for first in range(0, len(self.ends), self.per_table):
            bounds = [starts[first], *self.ends[first : first + self.per_table]]
            yield self._table(bounds)

    def _table(self, bounds: Sequence[int]) -> pa.Table:
        start, stop = bounds[0], bounds[-1]
        rows = self.prompts.take(self.rows[start:stop])
        absent = self.absent[start:stop]
        ends = np.cumsum(np.count_nonzero(absent, axis=1))
        samples = pa.ListArray.from_arrays(
            pa.array(np.append(0, ends), pa.int32()), pa.array(np.nonzero(absent)[1], pa.int32())
        )
        columns = [rows.column(name).combine_chunks() for name in Prompt.__slots__]
        requests = pa.StructArray.from_arrays([*columns, samples], [*Prompt.__slots__, "samples"])
        offsets = pa.array(np.array(bounds) - start, pa.int32())
        return pa.table({"part": pa.ListArray.from_arrays(offsets, requests)})


def _by_length(missing: MissingSamples) -> Ints:
    """The order of the missing rows by length of the question, then by id."""
    prompts = missing.prompts
    rank = np.empty(len(prompts), dtype=np.int64)
    rank[prompts.order] = np.arange(len(prompts))
    by_id = np.argsort(rank[missing.rows])
    lengths = prompts.question_lengths[missing.rows][by_id]
    if len(lengths) and lengths.max() < 2**16:
        lengths = lengths.astype(np.uint16)  # which NumPy sorts in linear time
    return by_id[np.argsort(lengths, kind="stable")]


def _part_ends(samples: Ints) -> list[int]:
    """Where parts end: each takes prompts until it has ROWS_PER_PART samples."""
    total = np.cumsum(samples)
    ends: list[int] = []
    while not ends or ends[-1] < len(samples):
        before = total[ends[-1] - 1] if ends else 0
        end = int(np.searchsorted(total, before + ROWS_PER_PART)) + 1
        ends.append(min(end, len(samples)))
    return ends
