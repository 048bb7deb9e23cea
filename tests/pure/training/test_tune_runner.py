"""Which errors of a cell are retried."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from cluster.ray_internals import worker_failures
from orchestrator.probing.samples import MarkingError
from orchestrator.storage.errors import StoreError
from orchestrator.training.micro_batch import SmallerBatch
from orchestrator.training.tune_runner import (
    SameAgain,
    deterministic_errors,
    is_deterministic,
)


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def raised_after(error: Exception, earlier: Exception) -> Exception:
    error.__context__ = earlier
    return error


@pytest.mark.parametrize(
    ("error", "same_again"),
    [
        (ValueError("Unknown loss type"), True),
        (TypeError("unexpected keyword"), True),
        (KeyError("setting"), True),
        (AttributeError("no such method"), True),
        (FloatingPointError("NaN logits"), True),
        (NotImplementedError("not for this model"), True),
        (SmallerBatch("16: 8 from here on"), False),
        (pa.ArrowKeyError("torn file"), False),
        (RuntimeError("CUDA error"), False),
        (MemoryError(), False),
        (OSError("connection reset"), False),
        (StoreError("storage cannot be reached"), False),
        (raised_after(ValueError("no model"), pa.ArrowInvalid("torn file")), False),
        (caused_by(ValueError("model cannot be loaded"), OSError("no network")), False),
        (caused_by(ValueError("a"), caused_by(TypeError("b"), KeyError("c"))), True),
    ],
)
def test_a_wrong_value_is_the_same_every_time(error: Exception, same_again: bool) -> None:
    assert is_deterministic(error) == same_again


def test_what_a_worker_of_a_group_raised_is_read_from_the_groups_error() -> None:
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

    def failure(error: BaseException) -> BaseException:
        with pytest.raises((SameAgain, OSError, SmallerBatch)) as caught, deterministic_errors():
            raise error
        return pickle.loads(pickle.dumps(UserExceptionWithTraceback(caught.value, "its traceback")))

    failures = {
        0: failure(KeyError("beta")),
        1: failure(OSError("reset")),
        2: failure(MarkingError("3 of 3")),
        3: failure(SmallerBatch("8 from here on")),
    }
    group: Any = pickle.loads(pickle.dumps(WorkerGroupError("both failed", failures)))  # type: ignore[arg-type]
    assert [f"{type(e).__name__}: {e}" for e in worker_failures(group).values()] == [
        "SameAgain: KeyError: 'beta'",
        "OSError: reset",
        "SameAgain: MarkingError: 3 of 3",
        "SmallerBatch: 8 from here on",
    ]
