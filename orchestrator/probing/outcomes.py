"""The outcomes of a pool as an array [prompts, K], and its missing samples in parts to draw."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orchestrator.probing.answers import Bools
from orchestrator.probing.episodes import SampleRequest
from tasks import Prompt
from tasks.prompt_table import PromptTable

Codes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

NONE = 255  # code of a sample that is not stored
PART_SECONDS = 30.0  # of one sampler's work: the loss in a kill
PARTS_PER_SAMPLER = 4  # at least, if each still fills a batch, because parts take unequal time
MOST_TASKS = 4_000  # of a probe; parts of larger probes are assigned several at a time


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of the samples of a pool.

    codes: [prompts, K], positions in OUTCOMES, in the order of the pool; NONE without a sample.
    scores: [prompts, K]; None for 1 for a correct sample and 0 otherwise. labelled: [prompts],
    whether each has a gold answer or does not need one; None if all do. tokens: [prompts, K],
    generated tokens, -1 without a sample; None if unknown. other_form: [prompts, K], whether a
    failed sample contains the gold answer in a form that the marker does not read; None if unknown.
    """

    prompts: PromptTable
    codes: Codes
    scores: Scores | None = None
    labelled: Bools | None = None
    tokens: npt.NDArray[np.int32] | None = None
    other_form: Bools | None = None

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
        """The codes in the order of the prompts' ids, as in a difficulty table."""
        return self.codes[self.prompts.order]


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

    def without(self, drawn: "MissingSamples") -> "MissingSamples":
        """The samples that are not missing from the other pool."""
        place = np.full(len(drawn.prompts) + 1, -1)  # the last one is for unknown ids
        place[drawn.rows] = np.arange(len(drawn.rows))
        at = place[drawn.prompts.rows_of(self.prompts.ids(self.rows))]
        present = np.ones((len(self.prompts), self.absent.shape[1]), dtype=bool)
        absent, shared = self.absent.copy(), at >= 0
        k = min(self.absent.shape[1], drawn.absent.shape[1])
        absent[shared, :k] &= ~drawn.absent[at[shared], :k]
        present[self.rows] = ~absent
        return MissingSamples(self.prompts, present)

    @property
    def samples(self) -> int:
        """All missing samples."""
        return int(np.count_nonzero(self.absent))


@dataclass(frozen=True)
class PartSize:
    """The size of parts in samples: from `batch` to `most`.

    A sampler that takes more than half a minute for a part draws and stores it in pieces.
    """

    batch: int = 640  # five times a GPU's decoding batch, so that few steps have a partial batch
    most: int = 20_000  # a part's prompts and completions are in memory

    def piece(self, seconds: float, drawn: int) -> int:
        """Samples for about half a minute, if `drawn` samples took `seconds`."""
        return max(self.batch, int(drawn * PART_SECONDS / max(seconds, 1e-9)))

    def count(self, samples: int, prompts: int, samplers: int) -> int:
        """The number of parts: equal for all samplers, and at least one each while prompts last."""
        least = ceil(samples / self.most)
        balanced = min(PARTS_PER_SAMPLER * samplers, samples // self.batch)
        rounds = ceil(max(least, balanced) / samplers)
        if rounds > 1 and samples < rounds * samplers * self.batch:
            rounds -= 1
        return min(prompts, rounds * samplers)


def even_ends(samples: Ints, parts: int) -> list[int]:
    """The ends of `parts` parts of prompts that lack these `samples`, with nearly equal totals.

    Each part has at least one prompt; `parts` is at most the number of prompts.
    """
    total = np.cumsum(samples)
    shares = total[-1] * np.arange(1, parts + 1) / parts
    # A prompt belongs to the share that contains its middle.
    ends = np.searchsorted(total - samples / 2, shares)
    places = np.arange(parts)  # a prompt for each part before and after an end
    ends = np.maximum.accumulate(np.maximum(ends - places, 1)) + places
    most = len(samples) - places[::-1]
    return [int(end) for end in np.minimum(ends, most)]


class PartTables:
    """The missing samples in parts of even size, with prompts of similar length together.

    Each table has one row per part: `part`, a list of prompts with the sample indices to draw, and
    `name`, which begins with the name of the whole. Tables are made one at a time; those of a large
    probe have several parts.
    """

    def __init__(self, missing: MissingSamples, parts: int, name: str = "") -> None:
        self.prompts, self.name = missing.prompts, name
        # By the length of the question, then by id.
        rank = np.empty(len(self.prompts), dtype=np.int64)
        rank[self.prompts.order] = np.arange(len(self.prompts))
        by_id = np.argsort(rank[missing.rows])
        lengths = self.prompts.question_lengths[missing.rows][by_id]
        if len(lengths) and lengths.max() < 2**16:
            lengths = lengths.astype(np.uint16)  # which NumPy sorts in linear time
        order = by_id[np.argsort(lengths, kind="stable")]
        self.rows = missing.rows[order]
        self.absent = missing.absent[order]
        self.ends = even_ends(np.count_nonzero(self.absent, axis=1), parts)
        self.per_table = -(-len(self.ends) // MOST_TASKS)

    def __len__(self) -> int:
        return -(-len(self.ends) // max(1, self.per_table))

    def __iter__(self) -> Iterator[pa.Table]:
        starts = [0, *self.ends[:-1]]
        for first in range(0, len(self.ends), self.per_table):
            bounds = [starts[first], *self.ends[first : first + self.per_table]]
            start, stop = bounds[0], bounds[-1]
            rows = self.prompts.take(self.rows[start:stop])
            absent = self.absent[start:stop]  # [prompts, K]: samples to draw
            # Lists of sample indices, one per prompt, as Arrow's offsets and values.
            ends = np.append(0, np.cumsum(np.count_nonzero(absent, axis=1)))
            samples = pa.ListArray.from_arrays(
                pa.array(ends, pa.int32()), pa.array(np.nonzero(absent)[1], pa.int32())
            )
            columns = [rows.column(name).combine_chunks() for name in Prompt.__slots__]
            names = [*Prompt.__slots__, "samples"]
            requests = pa.StructArray.from_arrays([*columns, samples], names)
            # Lists of prompts, one per part, over the same rows.
            offsets = pa.array(np.array(bounds) - start, pa.int32())
            numbers = range(first, first + len(bounds) - 1)
            yield pa.table(
                {
                    "name": [f"{self.name}/{number}" for number in numbers],
                    "part": pa.ListArray.from_arrays(offsets, requests),
                }
            )
