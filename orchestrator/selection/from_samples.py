"""`decile select`: a subset from the samples of stored probes, without a sweep."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.config.settings import MAX_SAMPLES
from orchestrator.difficulty.table import difficulty
from orchestrator.planning.score_file import rated_table
from orchestrator.plugins.counts import counted
from orchestrator.probing.adaptive import Target, count_outcomes, undecided_rows
from orchestrator.probing.probe_folder import COUNTED, PAIR, parts
from orchestrator.selection.budgets import size_of
from orchestrator.selection.from_file import (
    OWN_TABLE,
    checked_ranking,
    common_key,
    file_tables,
    is_rated,
    ranked_table,
    training_rows,
    write_subset,
)
from orchestrator.selection.stored import subset_reasons
from orchestrator.selection.subsets import SubsetRequest
from orchestrator.storage.errors import UserError
from orchestrator.storage.proof import sequence_hash
from orchestrator.storage.schema import MARKED, PROBE, SPLIT
from orchestrator.storage.store import Store
from tasks import OUTCOMES


def select_samples(
    probes: Sequence[str | Path],
    rule: PolicyEntry,
    budget: str,
    seed: int,
    out: str | Path,
    ranked_by: str = "gold",
) -> dict[str, Any]:
    """Select from probes of one key: folders, or Parquet of samples or of a difficulty table.

    If a probe holds both splits, only the training prompts are read. The samples must be those of
    exactly one pool, with one marker. Otherwise like `select_file`.
    """
    paths = [*map(Path, probes)]
    ranking = checked_ranking(ranked_by, paths, Path(out))
    files = [(probe, table) for probe in paths for table in _tables(probe)]
    key = common_key(files, _differences)
    table = training_rows(files)
    samples = rows = None
    if is_rated(table.column_names):
        rated = rated_table(paths[0], table)
    else:
        _check_one_pool(paths, key, table)
        rows = _sample_rows(paths[0], table)
        samples = int(pc.max(rows["sample"]).as_py()) + 1
        rated = difficulty(rows, samples_per_prompt=samples)
    request = SubsetRequest(rule, size_of(budget, rated.num_rows), seed, samples=samples)
    table = ranked_table(paths[0], rated, request, ranking)
    if rows is not None and table.request.samples and pc.any(table.ranked["short"]).as_py():
        _check_certain(paths[0], rows, table.ranked, table.request)
    return write_subset(table, paths, key, Path(out))


def _tables(probe: Path) -> Iterator[pa.Table]:
    """The parts of a probe's folder, or one Parquet file; metadata names their probe and split."""
    folder = Path(os.path.realpath(probe)) if os.path.isdir(probe) else None
    if folder and folder.parent.name == "probes":
        verified = {part.name: part for part in parts(_store_of(probe), folder.name)}
        names = _store_of(probe).names("probes", folder.name)
        if unsound := {name for name in names if name.endswith(".parquet")} - verified.keys():
            raise UserError(
                f"{probe / min(unsound)}: fails verification: probe again", "unsound-part"
            )
        for part in verified.values():
            yield part.samples.replace_schema_metadata({PROBE: folder.name, SPLIT: part.split})
        if verified:
            return
    yield from file_tables(probe)


def _differences(one: Path, two: Path) -> list[str]:
    """The settings in which two probes differ, if both are folders of a storage."""
    folders = [(Store(str(p.parent.parent)), p.parent.name, p.name) for p in (one, two)]
    keys = [store.read_json(*place, "key.json") for store, *place in folders]
    left, right = (_flat(content or {}) for content in keys)
    names = sorted(left.keys() | right.keys()) if left and right else ()
    return [
        f"{n} is {left.get(n)} and {right.get(n)}" for n in names if left.get(n) != right.get(n)
    ]


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    inner = [_flat(v, f"{name}.{k}" if name else k) for k, v in value.items()]
    return {k: v for part in inner for k, v in part.items()}


def _check_one_pool(probes: Sequence[Path], key: str | None, samples: pa.Table) -> None:
    """Refuse samples that are not those of exactly one pool, with one marker.

    A probe's key includes neither: data sets share its folder, also with an interrupted probe. The
    subsets in the storage contain the hashes of the pools that the probe was finished for.
    """
    markers: set[str] = set()
    if "marker" in samples.column_names and pa.types.is_string(samples["marker"].type):
        markers |= {*samples["marker"].drop_null().unique().to_pylist()}
    if key and "prompt_id" in samples.column_names:
        stores = {store.uri: store for store in map(_store_of, probes)}.values()
        reasons = [why for store in stores for why in subset_reasons(store, key)]
        pools = {why["pool"] for why in reasons}
        ids = samples["prompt_id"].unique().sort()
        if len(pools) > 1:
            raise UserError(
                f"{probes[0]}: has samples of {counted(len(pools), 'pool')}: {OWN_TABLE}",
                "several-pools",
            )
        if pools != {sequence_hash([ids.to_pylist()])}:
            raise UserError(
                f"{probes[0]}: its training prompts are not exactly the pool of one finished probe "
                f"(several pools share a folder, or a probe was interrupted): {OWN_TABLE}",
                "not-one-pool",
            )
        markers |= {why["marker"] for why in reasons}
        marked_again = (
            store.read_table(MARKED, "probes", key, folder, name)
            for store in stores
            for folder in store.folders("probes", key)
            for name in store.names("probes", key, folder)
        )
        for marks in marked_again:
            if marks is not None:
                own = marks.filter(pc.is_in(marks["prompt_id"], ids))
                markers |= {*own["marker"].unique().to_pylist()}
    if len(markers) > 1:
        shown = ", ".join(sorted(markers))
        raise UserError(
            f"{probes[0]}: has marks of several markers ({shown}): {OWN_TABLE}",
            "several-markers",
        )


def _store_of(probe: Path) -> Store:
    """The storage of a probe's folder, or of a part in it."""
    path = Path(os.path.realpath(probe))
    folder = path if path.is_dir() else path.parent
    return Store(str(folder.parent.parent))


def _sample_rows(probe: Path, table: pa.Table) -> pa.Table:
    """The samples of a probe, each once. Raises UserError if their columns are not valid."""
    if not {*PAIR, "outcome"} <= set(table.column_names):
        raise UserError(
            f"{probe}: write the columns prompt_id and pass_rate, or a probe's samples",
            "no-samples",
        )
    if unknown := set(table["outcome"].to_pylist()) - set(OUTCOMES):
        raise UserError(f"{probe}: outcome {unknown.pop()!r}: write one of {', '.join(OUTCOMES)}")
    numbers = table["sample"]
    if not pa.types.is_integer(numbers.type) or numbers.null_count:
        kind = "null" if numbers.null_count else numbers.type
        raise UserError(f"{probe}: column sample holds {kind}: write integers from 0")
    least, most = pc.min_max(numbers).as_py().values()
    if least < 0 or most >= MAX_SAMPLES:
        number = least if least < 0 else most
        raise UserError(f"{probe}: sample {number}: write integers from 0 to {MAX_SAMPLES - 1:,}")
    columns = [name for name in COUNTED[len(PAIR) :] if name in table.column_names]
    texts = [f.name for f in MARKED if f.type == pa.string() and f.name not in (*PAIR, *columns)]
    kinds = {**dict.fromkeys(texts, pa.types.is_string), "tokens": pa.types.is_integer}
    for name, is_kind in kinds.items():
        if name in table.column_names and is_kind(table[name].type):
            columns.append(name)
    grouped = table.group_by(list(PAIR)).aggregate([(name, "min") for name in columns])
    return grouped.rename_columns([*PAIR, *columns])


def _check_certain(probe: Path, rows: pa.Table, rated: pa.Table, request: SubsetRequest) -> None:
    """Refuse a subset that missing samples could still change: the probe stopped early."""
    policy = request.rule.build()
    samples = request.samples or 0
    ids = rated["prompt_id"].to_pylist()
    undecided = len(ids)
    if policy.needs != "all" and policy.scored and not request.difficulty:
        outcomes: dict[str, dict[int, str]] = {}
        for row in rows.to_pylist():
            outcomes.setdefault(row["prompt_id"], {})[row["sample"]] = row["outcome"]
        counts = count_outcomes(outcomes, ids, frozenset({"error"}))
        target = Target(policy.scored, request.size, request.seed, policy.stream)
        undecided = len(undecided_rows([target], counts, [""] * len(ids), samples))
    if undecided:
        raise UserError(
            f"{probe}: the probe stopped early, and {undecided} of "
            f"{counted(len(ids), 'prompt')} could still "
            f"change the subset of {request.rule.policy}: probe with adaptive: false, or with a "
            f"grid that has this policy, size and seed",
            "undecided",
        )
