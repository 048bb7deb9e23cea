"""How much results vary between training seeds, from every finished cell of the store."""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from orchestrator.planning.cells import Cell
from orchestrator.stats.inference import SeedSpread
from orchestrator.stats.spread import pooled_spread
from orchestrator.storage.hashing import canonical_hash
from orchestrator.storage.store import Store
from orchestrator.training.cell_state import read_cell, read_result


class Spreads(NamedTuple):
    """Between training seeds of one policy: of its final accuracy, and of its learnable share."""

    accuracy: SeedSpread | None = None
    learnable: SeedSpread | None = None


def settings_key(cell: Cell) -> str:
    """Hashes what cells share that differ in nothing but their subset and their seed."""
    baseline = cell.baseline
    return canonical_hash(
        {
            "pool": cell.train_hash,
            "evaluation": [baseline.key, baseline.settings.samples, cell.test_hash],
            "grpo": cell.grpo,
            "mask_dead_groups": cell.mask_dead_groups,
            "lora": cell.lora,
            "workers": cell.resources.workers,
        }
    )


def read_spreads(store: Store, cells: Sequence[Cell]) -> dict[str, Spreads]:
    """`settings_key` -> spreads, for the settings of these finished cells.

    Pools all finished cells of the store with those settings, whichever sweep ran them. Empty where
    every policy has several seeds, because their own spread is used then. Cells whose files fail
    verification are left out, which is logged.
    """
    counts: dict[str, int] = {}
    for cell in cells:
        policy = _without_seed(cell)
        counts[policy] = counts.get(policy, 0) + 1
    if all(count > 1 for count in counts.values()):
        return {}
    settings = {settings_key(cell) for cell in cells}
    results: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for cell_id in store.folders("cells"):
        result, stored = read_result(store, cell_id), read_cell(store, cell_id)
        if result is None or stored is None or not isfinite(result["accuracy_final"]):
            continue
        if (key := settings_key(stored)) in settings:
            numbers = (result["accuracy_final"], result["learnable_pct"] / 100)
            results.setdefault(key, {}).setdefault(_without_seed(stored), []).append(numbers)
    return {
        key: Spreads(
            *(pooled_spread([[n[i] for n in seeds] for seeds in own.values()]) for i in (0, 1))
        )
        for key, own in results.items()
    }


def _without_seed(cell: Cell) -> str:
    """The same for all seeds of a policy."""
    subset = {name: value for name, value in cell.subset_identity.items() if name != "seed"}
    online = [cell.online.model_dump()] if cell.online else []
    return canonical_hash([settings_key(cell), subset, *online])
