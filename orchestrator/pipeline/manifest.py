"""The manifest of an experiment in the store: its cells, what its runs used, and its claims."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from orchestrator.cost.caps import Dropped, Spent, UsageMeter
from orchestrator.planning.cells import Cell, ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.probing.probe_folder import PAIR, parts
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.storage.errors import UserError
from orchestrator.storage.proof import canonical_hash, sequence_hash
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import CellFolder, CellState, cell_state


class Declared(TypedDict, total=False):
    """When a claim was first declared, and how many results there were by then."""

    at: str
    results: int


class PoolRecord(TypedDict):
    """A training pool: its number of prompts, and the hash of their ids."""

    prompts: int
    ids: str


class Manifest(TypedDict, total=False):
    """The manifest's JSON. `cells` have a cell_id and their axes; `claims` by their text.

    `pools`: the training pools that were probed, by data set, the latest at the end.
    """

    experiment: str
    cells: list[Mapping[str, Any]]
    pools: dict[str, list[PoolRecord]]
    claims: dict[str, Declared]
    spent: Spent
    dropped: Dropped


def read_manifest(experiment: str, store: Store) -> Manifest:
    """The stored manifest, or an empty one."""
    return store.read_json("sweeps", f"{experiment}.json") or Manifest()


def save_manifest(manifest: Manifest, store: Store) -> None:
    """Store a manifest under the name of its experiment."""
    store.write_json(manifest, "sweeps", f"{manifest['experiment']}.json")


def usage_meter(experiment: str, store: Store) -> UsageMeter:
    """A meter that continues from the earlier runs of an experiment."""
    return UsageMeter(read_manifest(experiment, store).get("spent"))


def write_manifest(plan: Plan, store: Store) -> Manifest:
    """Write and return the declared cells, and when each claim was first declared.

    Keeps the usage of earlier runs, but not what an earlier cap dropped.
    """
    previous = read_manifest(plan.name, store)
    claims = previous.get("claims", {})
    now = Declared(at=time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime()))
    if any(text not in claims for text in plan.experiment.claims):
        states = [cell_state(store, cell) for cell in plan.cells]
        now["results"] = states.count(CellState.FINISHED)
    manifest = Manifest(
        experiment=plan.name,
        cells=[{"cell_id": cell.cell_id, **cell.axes_json} for cell in plan.cells],
        # A claim that the file no longer states may come back: its first declaration counts.
        claims=dict.fromkeys(plan.experiment.claims, now) | claims,
        pools=pool_records(plan, previous.get("pools", {})),
    )
    if "spent" in previous:
        manifest["spent"] = previous["spent"]
    save_manifest(manifest, store)
    return manifest


def pool_records(
    plan: Plan, recorded: Mapping[str, Sequence[PoolRecord]]
) -> dict[str, list[PoolRecord]]:
    """The recorded pools, and after them the training pools of a plan.

    Files with an experiment of the same name may share a storage, so there may be several.
    """
    pools = {spec.dataset.variant_key: plan.pool(spec) for spec in plan.training_probes}
    records = {title: [*known] for title, known in recorded.items()}
    for title, pool in pools.items():
        record = PoolRecord(prompts=len(pool.train), ids=pool.ids_hash)
        others = [each for each in records.get(title, []) if each != record]
        records[title] = [*others, record]
    return records


def record_pools(plan: Plan, store: Store) -> None:
    """Record that a plan's pools are the probed ones."""
    manifest = read_manifest(plan.name, store) or write_manifest(plan, store)
    recorded = manifest.get("pools", {})
    manifest["pools"] = pool_records(plan, recorded)
    if manifest["pools"] != recorded:
        save_manifest(manifest, store)


def pool_change(plan: Plan, store: Store, spec: ProbeSpec) -> str:
    """How many prompts of a training pool are gone or new since it was probed; empty if none.

    Also empty if the experiment has no record of the pool.
    """
    records = read_manifest(plan.name, store).get("pools", {}).get(spec.dataset.variant_key, [])
    pool = plan.pool(spec)
    if not records or pool.ids_hash in [each["ids"] for each in records]:
        return ""
    sampled = {
        prompt_id
        for part in parts(store, spec.key, PAIR)
        if part.split == spec.split
        for prompt_id in part.samples["prompt_id"].unique().to_pylist()
    }
    own = {*pool.train.column("prompt_id").to_pylist()}
    change = f"it had {counted(records[-1]['prompts'], 'prompt')}, and has {len(own):,} now"
    if sequence_hash([sorted(sampled)]) in [
        each["ids"] for each in records
    ]:  # no other pool shares the folder
        changes = []
        if gone := len(sampled - own):
            changes.append(counted(gone, "prompt is gone", "prompts are gone"))
        if new := len(own - sampled):
            changes.append(counted(new, "prompt is new", "prompts are new"))
        change = " and ".join(changes)
    return f"the pool of {spec.dataset.variant_key} has changed since the probe: {change}"


def pool_changes(plan: Plan, store: Store) -> list[str]:
    """`pool_change` of each training pool that has changed."""
    changes = (pool_change(plan, store, spec) for spec in plan.training_probes)
    return list(dict.fromkeys(filter(None, changes)))


def check_pool_kept(probe: PlanProbe) -> None:
    """Raise UserError if a pool has changed since its probe: subsets would lose prompts."""
    if change := pool_change(probe.plan, probe.store, probe.spec):
        raise UserError(
            f"{change}: restore the data, or run {probe.command} to select from the pool as it is",
            "pool-changed",
        )


def changed_settings(
    plan: Plan, store: Store, cells: Sequence[Cell]
) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Why cells differ from those of the last run: cell_id -> setting -> its value then and now.

    Compares cells with the same axes, and leaves out cells that no trial has started.
    """
    manifest = read_manifest(plan.name, store)
    last = {_axes(entry): entry["cell_id"] for entry in manifest.get("cells", ())}
    changes: dict[str, dict[str, tuple[Any, Any]]] = {}
    for cell in cells:
        cell_id = last.get(_axes(cell.axes_json), cell.cell_id)
        if cell_id == cell.cell_id:
            continue
        if stored := CellFolder(store, cell_id).settings():
            then, now = id_settings(stored), id_settings(cell)
            names = [n for n in dict.fromkeys([*now, *then]) if then.get(n) != now.get(n)]
            # A key hashes other settings of its block: with these, it adds nothing.
            names = [n for n in names if not n.endswith(".key")] or names
            changes[cell.cell_id] = {name: (then.get(name), now.get(name)) for name in names}
    return changes


def _axes(entry: Mapping[str, Any]) -> str:
    return canonical_hash({name: value for name, value in entry.items() if name != "cell_id"})


def id_settings(cell: Cell) -> dict[str, Any]:
    """What a cell's id hashes, by dotted names of settings; texts and data as hashes."""
    settings: dict[str, Any] = {}
    for block, values in cell.settings_shown.items():
        if isinstance(values, dict):
            settings |= {f"{block}.{name}": value for name, value in values.items()}
        else:
            settings[block] = values
    as_json: dict[str, Any] = json.loads(json.dumps(settings))  # as stored
    return as_json
