"""A subset composed of shares that other policies select."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.plugins.counts import counted
from orchestrator.plugins.shares import largest_remainder
from policies.base import (
    Bools,
    ByColumns,
    Needs,
    Options,
    PolicyError,
    Requiring,
    Rows,
    SubsetPolicy,
)
from policies.built import Policy
from policies.partition import checked_shares
from policies.registry import get_policy, settled_options

_HOW = (
    "write policies with their shares, such as {hard: 0.5, random: 0.5}, or with options, "
    "such as {hard: 0.5, band: {share: 0.5, low: 0.2, high: 0.8}}"
)


class MixturePart(NamedTuple):
    """One policy of a mixture; `share` is as `written`, normalized so that all parts sum to 1."""

    name: str
    share: float
    policy: Policy
    written: float
    options: Options


@dataclass(kw_only=True)
class Mixture(Requiring, SubsetPolicy, ByColumns):
    """Shares of other policies, such as {hard: 0.5, random: 0.5}, selected one after another.

    Counts follow from shares by the largest remainder method. The parts select in the order
    written, each from the remaining rows and with its own random tie-breaks. With shared
    tie-breaks, prompts that lost a tie in the first part would lose again in the second, and
    `random` would not be uniform over the remaining rows. If all parts rank prompts, the first part
    breaks ties as it would alone.

    Scores are computed over the whole table (including the median of `middle`). A custom function
    without scores is called with a table of the remaining rows.

    Options:
        shares: the name of a policy, built in or defined in the file, with its share, or with
            {share: …, option: …}. A list of such maps may name a policy twice.
    """

    name: ClassVar[str] = "mixture"
    takes_all: ClassVar[bool] = False
    example: ClassVar[str] = "shares: {hard: 0.5, random: 0.5}"

    shares: Mapping[str, Any] | Sequence[Mapping[str, Any]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts = _parts(self.shares)
        # The canonical form: equal shares have equal hashes.
        self.shares = [{p.name: {"share": p.written, **p.options}} for p in self.parts]

    @property
    def needs(self) -> Needs:
        """Nothing if no part needs samples; otherwise all, because parts depend on each other."""
        kinds = {part.policy.needs for part in self.parts}
        return "nothing" if kinds == {"nothing"} and not self.restrictions else "all"

    @property
    def stream(self) -> str:
        """Its name if a part chooses at random; otherwise it shares the stream of ties."""
        return self.name if any(part.policy.stream for part in self.parts) else ""

    @property
    def reads_answers(self) -> bool:
        """Whether it, or one of its parts, does."""
        return super().reads_answers or any(part.policy.reads_answers for part in self.parts)

    @property
    def excludes_suspected(self) -> bool:
        """Whether it, or one of its parts, leaves out suspected prompts."""
        parts = (part.policy.excludes_suspected for part in self.parts)
        return super().excludes_suspected or any(parts)

    @property
    def reads_golds(self) -> bool:
        """Whether one of its parts, `require` or `exclude` uses the samples' answers."""
        return bool(self.restrictions) or any(part.policy.reads_golds for part in self.parts)

    @property
    def simulated(self) -> bool:
        """Whether all of its parts are simulated."""
        return all(part.policy.simulated for part in self.parts)

    @property
    def reads_questions(self) -> bool:
        """Whether one of its parts reads questions."""
        return any(part.policy.reads_questions for part in self.parts)

    @property
    def reads_columns(self) -> list[str]:
        """The columns of all parts."""
        return sorted({column for part in self.parts for column in part.policy.reads_columns})

    def check_values(self, prompts: pa.Table) -> None:
        """Raise PolicyError if one of its parts does."""
        for part in self.parts:
            part.policy.check_columns(prompts)

    def eligible(self, difficulty: pa.Table) -> Bools:
        """Rows that any part may select."""
        rows = np.zeros(difficulty.num_rows, dtype=bool)
        for part in self.parts:
            rows |= part.policy.eligible(difficulty)
        return rows & self.required(difficulty, self.name)

    def counts(self, size: int) -> list[int]:
        """Rows per part: largest remainder method, ties in the order written."""
        return largest_remainder([part.share * size for part in self.parts], size)

    def notes(self, difficulty: pa.Table, chosen: Rows, free: Bools | None = None) -> list[str]:
        """The notes of the parts, each for its own rows and the rows that earlier parts left."""
        left = self._left(difficulty, free)
        notes = list[str]()
        start = 0
        for part, count in zip(self.parts, self.counts(len(chosen)), strict=True):
            own = chosen[start : start + count]
            notes += [f"{part.name}: {note}" for note in part.policy.notes(difficulty, own, left)]
            left[own] = False
            start += count
        return notes

    def _left(self, difficulty: pa.Table, free: Bools | None) -> Bools:
        """Free rows that meet the requirement."""
        required = self.required(difficulty, self.name)
        return required if free is None else required & free

    def pick(
        self, difficulty: pa.Table, size: int, rng: np.random.Generator, free: Bools | None = None
    ) -> Rows:
        """Free rows that meet the requirement, beginning with the first part's."""
        left = self._left(difficulty, free)
        chosen: list[np.ndarray] = []
        for part, count in zip(self.parts, self.counts(size), strict=True):
            if count:
                chosen.append(_pick(part, difficulty, count, rng, left))
                left[chosen[-1]] = False
        return np.concatenate(chosen)


def _pick(
    part: MixturePart, difficulty: pa.Table, count: int, rng: np.random.Generator, left: Bools
) -> Rows:
    """The part's rows, selected from the remaining ones."""
    try:
        if isinstance(part.policy.rule, SubsetPolicy):
            return part.policy.rule.pick(part.policy.shown(difficulty), count, rng, left)
        rows = np.flatnonzero(left)  # for a custom function without scores
        if len(rows) < count:
            raise PolicyError(
                f"{part.name} has {len(rows)} of {counted(count, 'prompt')} among the remaining "
                "ones: write a smaller budget"
            )
        return rows[part.policy(difficulty.take(pa.array(rows)), count, rng)]
    except PolicyError as error:
        raise PolicyError(f"mixture: {error}") from error


def _parts(given: Any) -> list[MixturePart]:
    """The parts with their policies. PolicyError unless the shares sum to 1."""
    listed = [given] if isinstance(given, Mapping) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(m, Mapping) for m in listed):
        raise PolicyError(f"mixture: shares is {given!r}: {_HOW}")
    written = [
        (str(name), dict(value) if isinstance(value, Mapping) else {"share": value})
        for mapping in listed
        for name, value in mapping.items()
    ]
    named = ((name, options.get("share")) for name, options in written)
    shares = checked_shares(named, "mixture:", _HOW)
    parts = []
    for (name, options), share in zip(written, shares, strict=True):
        own = {option: value for option, value in options.items() if option != "share"}
        try:
            policy = Policy(name, get_policy(name, **own))
            if policy.label_count(1) is not None:
                raise PolicyError(f"labels of {name}: write them beside shares, for all parts")
        except PolicyError as error:
            raise PolicyError(f"mixture: {error}") from error
        settled = settled_options(policy.rule, own)
        parts.append(MixturePart(name, share / sum(shares), policy, share, settled))
    return parts
