"""The looks at the cells of a sweep: each time that verdicts were computed from different results.

Adding seeds until a difference is significant finds one in up to a quarter of the sweeps of equal
policies. One look is planned: at all cells that the file declared when the first look was taken. It
decides at 5 %. Any other look decides at .1 % (Haybittle 1971, Peto 1976): ten further looks add at
most one point to the error, and the planned look loses nothing.
"""

import logging
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.report.compare import policy_key
from orchestrator.stats.inference import ALPHA
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.store import Store

LOG = logging.getLogger(__name__)
LOOKS = "looks"  # folder of the store
EXTRA_LEVEL = 0.001  # of a look that was not planned


class Look(NamedTuple):
    """A look: when, the finished cells that it saw, the cells that were planned, and its level."""

    at: str
    cells: frozenset[str]
    plan: frozenset[str]
    level: float

    @property
    def is_complete(self) -> bool:
        """Whether it saw every planned cell."""
        return self.plan <= self.cells


def take_look(
    plan: Plan,
    store: Store,
    finished: Collection[str],
    failed: Collection[str] = (),
    dropped: Collection[str] = (),
) -> list[Look]:
    """The looks at the cells of a plan, in order; the last one is at the `finished` ones, now.

    The look is stored, so that the same results have the same level when they are looked at again.
    failed: cells that a run has tried and given up; dropped: cells that a cap leaves out of the
    plan. Empty if no cell is finished. If the store cannot be written, a warning is logged: its
    looks count, but this one is not stored.
    """
    if not finished:
        return []
    cells, planned = frozenset(finished), frozenset(c.cell_id for c in plan.cells) - {*dropped}
    name = f"{canonical_hash(sorted(cells))}.json"
    stored = [_read(store, other) for other in store.names(LOOKS) if other.endswith(".json")]
    arms = {cell.cell_id: policy_key(cell) for cell in plan.cells}
    earlier = sorted(
        look
        for look in stored
        if look is not None
        and (len({arms[i] for i in look.cells if i in arms}) > 1 or look.cells <= cells)
        and look.cells != cells
    )
    if (again := _read(store, name)) is not None:
        return [*(look for look in earlier if look.at <= again.at), again]
    settled = planned <= cells | {*failed}
    as_declared = not earlier or earlier[0].plan == planned
    spent = any(look.level == ALPHA and look.is_complete for look in earlier)
    level = ALPHA if settled and as_declared and not spent else EXTRA_LEVEL
    now = Look(time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()), cells, planned, level)
    content = {"at": now.at, "cells": sorted(cells), "plan": sorted(planned), "level": level}
    try:
        store.write_json(content, LOOKS, name)
    except OSError as error:
        LOG.warning("this look is not recorded, because the storage cannot be written: %s", error)
    return [*earlier, now]


def _read(store: Store, name: str) -> Look | None:
    stored = store.read_json(LOOKS, name)
    if stored is None:
        return None
    cells, planned = frozenset(stored["cells"]), frozenset(stored["plan"])
    return Look(stored["at"], cells, planned, stored["level"])


def looks_text(looks: Sequence[Look]) -> str:
    """The number of looks and what they cost, in sentences; empty for a planned first look."""
    if not looks or (len(looks) == 1 and looks[0].level == ALPHA):
        return ""
    now = looks[-1]
    seen = f"{len(now.cells & now.plan)} of {counted(len(now.plan), 'planned cell')}"
    extra = sum(look.level < ALPHA for look in looks)
    error = 100 * (ALPHA * any(look.level == ALPHA for look in looks) + EXTRA_LEVEL * extra)
    kind = "is the planned one"
    if now.level < ALPHA:
        kind = f"is not the planned one, so verdicts need p ≤ {EXTRA_LEVEL:g}"
    return (
        f"Look {len(looks)} at these results ({seen} finished) {kind}. "
        f"With all looks so far, at most {error:.1f} % of sweeps of equal policies have a verdict"
    )
