"""The interface of an online policy: it chooses the prompts of every update during training.

Its choice depends only on the seed, the prompts to choose from, the probe and the groups drawn so
far, which a cell records: a resumed cell chooses what an undisturbed one chooses.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import pyarrow as pa

from policies.arrays import Bools, Rows
from policies.base import Needs, PolicyError
from policies.history import History

WHOLE_POOL = "full"  # what an online policy chooses from without `of`
MAX_DRAWS = 4


class OnlinePolicy(ABC):
    """Chooses the prompts of each update, from a pool or from the subset of another policy.

    A policy that discards groups also has `keep` (see `Discards`).
    """

    needs: ClassVar[Needs] = "all"
    """What of the probe it uses."""
    cost: ClassVar[str] = "no further rollouts"

    @abstractmethod
    def next(self, update: int, history: History) -> pa.Array:
        """`history.size` distinct prompt_ids for an update (counted from 1)."""


@runtime_checkable
class Discards(Protocol):
    """An online policy that draws further groups in place of those that it does not keep.

    `max_draws`: at most so many times the prompts of an update are drawn for it.
    """

    max_draws: int

    def keep(self, correct: Rows, marked: Rows) -> Bools:
        """Which groups to train on, by their correct and marked completions."""


def discards(policy: Any) -> TypeGuard[Discards]:
    """Whether an online policy may discard groups that were drawn."""
    return callable(getattr(policy, "keep", None))


def max_draws_of(policy: Any) -> int:
    """How many times the prompts of an update are drawn at most."""
    return int(getattr(policy, "max_draws", MAX_DRAWS)) if discards(policy) else 1


def is_online(policy: Any) -> bool:
    """Whether a policy, or its class, chooses prompts during training."""
    return callable(getattr(policy, "next", None))


class Parts(NamedTuple):
    """A policy in two parts: what selects before training (name, options), what chooses during it.

    `online` is None for a static policy.
    """

    static: tuple[str, dict[str, Any]]
    online: tuple[str, dict[str, Any]] | None


def static_part(name: str, of: Any) -> tuple[str, dict[str, Any]]:
    """The static policy that an online policy's option `of` names. PolicyError for another form."""
    if isinstance(of, Mapping) and len(of) == 1:
        [(static, own)] = of.items()
    else:
        static, own = of, {}
    if not isinstance(static, str) or not isinstance(own, Mapping):
        raise PolicyError(
            f"policy {name!r}: of is {of!r:.80}: write a static policy such as hard, or one with "
            "its options, such as {band: {low: 0.2, high: 0.8}}"
        )
    return static, dict(own)


def checked_ids(chosen: Any, policy: str, size: int) -> pa.Array:
    """The prompt_ids that a policy returned. PolicyError unless they are `size` distinct texts."""
    how = f"return {size} distinct prompt_ids, such as history.ids(rows)"
    if isinstance(chosen, set | frozenset):
        raise PolicyError(
            f"policy {policy!r} returned a set, whose order is another one in every process: {how}"
        )
    try:
        values = chosen if isinstance(chosen, pa.Array | pa.ChunkedArray) else pa.array([*chosen])
        ids = pa.array(values.cast(pa.string()).to_pylist(), pa.string())
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PolicyError(
            f"policy {policy!r} returned {type(chosen).__name__} instead of prompt_ids: {how}"
        ) from error
    distinct = len(ids.unique())
    if len(ids) != size or distinct != size or ids.null_count:
        raise PolicyError(
            f"policy {policy!r} returned {len(ids)} prompt_ids ({distinct} distinct): {how}"
        )
    return ids


def checked_keep(kept: Any, policy: str, groups: int) -> Bools:
    """What `keep` returned. PolicyError unless it is one boolean per group."""
    values = np.asarray(kept)
    if values.shape != (groups,) or values.dtype != np.bool_:
        raise PolicyError(
            f"policy {policy!r}: keep returned {values.dtype} of shape {values.shape} for {groups} "
            "groups: return a NumPy array with one boolean per group"
        )
    return values


def check_count(policy: str, option: str, value: Any, least: int = 1) -> None:
    """PolicyError unless the option is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(
            f"{policy}: {option} is {value!r}: write a whole number of at least {least}"
        )


def check_share(policy: str, option: str, value: Any, meaning: str) -> None:
    """PolicyError unless the option is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise PolicyError(f"{policy}: {option} is {value!r}: write {meaning} from 0 to 1")


def check_band(policy: str, low: Any, high: Any) -> None:
    """PolicyError unless both are pass rates and `low` is at most `high`."""
    check_share(policy, "low", low, "a pass rate")
    check_share(policy, "high", high, "a pass rate")
    if low > high:
        raise PolicyError(f"{policy}: low {low} is above high {high}: swap them")
