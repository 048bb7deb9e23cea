"""The answers that were read from the samples of a pool."""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.marking.marks import FAILED, UNREAD

Bools = npt.NDArray[np.bool_]

LONGEST = 2_000  # bytes of an answer


@dataclass(frozen=True)
class Answers:
    """The answers that were read from the samples of a pool.

    codes: [prompts, K], positions in `texts`, in the order of the prompts' ids; -1 without an
    answer. texts: the distinct answers, sorted.
    """

    codes: npt.NDArray[np.int32]
    texts: pa.Array


def has_answer(samples: pa.Table) -> Bools:
    """Whether an answer was read from each of these samples."""
    unread = pc.is_in(samples["outcome"], value_set=pa.array(UNREAD))
    read = pc.and_not(samples["extracted"].is_valid(), unread)
    return np.asarray(read.to_numpy(), dtype=bool)


def only_otherwise_correct(samples: pa.Table) -> Bools:
    """Whether each of these samples failed, and is correct under the other reading."""
    failed = pc.is_in(samples["outcome"], value_set=pa.array(FAILED))
    correct = pc.equal(samples["other_outcome"], "correct")
    return np.array(pc.fill_null(pc.and_(failed, correct), False).to_numpy(), dtype=bool)


def encoded(texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """The position of each text among the distinct texts, and the distinct texts, sorted.

    Texts of more than LONGEST bytes are cut, with a hash appended.
    """
    codes = texts.combine_chunks().dictionary_encode()
    distinct = codes.dictionary
    long = pc.greater(pc.binary_length(distinct), LONGEST)
    if pc.any(long).as_py():
        shortened = [
            f"{text[:200]}… {hashlib.sha256(text.encode()).hexdigest()}"
            for text in distinct.filter(long).to_pylist()
        ]
        distinct = pc.replace_with_mask(distinct, long, pa.array(shortened))
    order = pc.sort_indices(distinct)
    place = np.empty(len(distinct), np.int32)
    place[order.to_numpy()] = np.arange(len(distinct), dtype=np.int32)
    return place[codes.indices.to_numpy()], distinct.take(order)
