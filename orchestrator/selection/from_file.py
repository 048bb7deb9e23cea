"""`decile select`: a subset from stored probes or difficulty tables, without any sweep."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.config.entries import PolicyEntry
from orchestrator.difficulty.table import difficulty
from orchestrator.probing.adaptive import Target, known_counts, owed_rows
from orchestrator.probing.sample_store import PROBE, parts
from orchestrator.selection.subsets import Choice, made, select, with_reason
from orchestrator.storage.errors import UserError
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from policies import ScorePolicy, needs_of
from tasks import OUTCOMES

_ONE = ["prompt_id", "sample", "outcome"]


def select_file(
    probes: Sequence[Path], rule: PolicyEntry, budget: str, seed: int, out: Path
) -> dict[str, Any]:
    """Choose from probes of one key (folders or Parquet of samples), or from a difficulty table.

    Writes the subset to `out` and returns why it is what it is. Raises UserError or PolicyError.
    """
    if out.is_dir() or any(folder.is_file() for folder in out.parents):
        raise UserError(f"--out {out}: is no place for a file: write a new file's name")
    tables = [_read(probe) for probe in probes]
    key = _one_key(probes, tables)
    table = pa.concat_tables(
        [t.replace_schema_metadata(None) for t in tables], promote_options="permissive"
    )
    rated = "pass_rate" in table.column_names and "prompt_id" in table.column_names
    subset = _from_rates if rated else _from_samples
    chosen, why = subset(probes[0], table, Choice(rule, 0, seed), budget)
    why |= {"source": [str(probe) for probe in probes], "probe_key": key}
    Store(str(out.parent)).write_table(with_reason(chosen, why), out.name)
    return why


def _read(probe: Path) -> pa.Table:
    """The rows of a probe's folder, sound parts only, or of one Parquet file."""
    if probe.is_dir() and probe.parent.name == "probes":
        found = dict(parts(Store(str(probe.parent.parent)), probe.name))
        if unsound := {file.name for file in probe.glob("*.parquet")} - found.keys():
            raise UserError(f"{probe / unsound.pop()}: is not as it was written: probe again")
        if found:
            rows = pa.concat_tables(found.values())
            return rows.replace_schema_metadata({PROBE: probe.name})
    files = sorted(probe.glob("*.parquet")) if probe.is_dir() else [probe]
    if not files or not all(file.is_file() for file in files):
        raise UserError(f"{probe}: no probe is there: write a probe's folder or a Parquet file")
    try:
        return pa.concat_tables([pq.read_table(file) for file in files])
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{probe}: cannot be read: {error}") from error


def _one_key(probes: Sequence[Path], tables: Sequence[pa.Table]) -> str | None:
    """The key that all tables share; UserError that names what differs where they do not."""
    keys = [(table.schema.metadata or {}).get(PROBE, b"").decode() for table in tables]
    if len(set(keys)) > 1:
        one, two = probes[0], probes[next(i for i, key in enumerate(keys) if key != keys[0])]
        differs = _differences(one, two) or f"keys {keys[0] or 'none'} and {set(keys) - {keys[0]}}"
        raise UserError(f"{one} and {two} are different probes and cannot be merged: {differs}")
    return keys[0] or None


def _differences(one: Path, two: Path) -> str:
    """What two probes' keys hash differently, in words; empty where it is not known."""
    try:
        left, right = (_flat(json.loads((p / "key.json").read_text())) for p in (one, two))
    except (OSError, ValueError):
        return ""
    names = [n for n in sorted(left.keys() | right.keys()) if left.get(n) != right.get(n)]
    return "; ".join(f"{n} is {left.get(n)} and {right.get(n)}" for n in names)


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    inner = [_flat(v, f"{name}.{k}" if name else k) for k, v in value.items()]
    return {k: v for part in inner for k, v in part.items()}


def _from_rates(
    probe: Path, table: pa.Table, choice: Choice, budget: str
) -> tuple[pa.Table, dict[str, Any]]:
    """A subset from a table of the user's own: pass rates as numbers, and a tier for every row."""
    kind = table["pass_rate"].type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise UserError(f"{probe}: pass_rate holds {kind}: write numbers from 0 to 1")
    if "tier" not in table.column_names:
        table = table.append_column("tier", pa.array([""] * table.num_rows, pa.string()))
    return select(table, choice._replace(size=_size(budget, table.num_rows)))


def _from_samples(
    probe: Path, table: pa.Table, choice: Choice, budget: str
) -> tuple[pa.Table, dict[str, Any]]:
    if not set(SAMPLES.names[:2]) | {"outcome"} <= set(table.column_names):
        raise UserError(f"{probe}: needs the columns prompt_id and pass_rate, or a probe's samples")
    if unknown := set(table["outcome"].to_pylist()) - set(OUTCOMES):
        raise UserError(f"{probe}: outcome {unknown.pop()!r}: write one of {', '.join(OUTCOMES)}")
    once = table.group_by(_ONE[:2]).aggregate([("outcome", "min")]).rename_columns(_ONE)
    samples = int(pc.max(once["sample"]).as_py()) + 1
    rated = difficulty(once, samples_per_prompt=samples)
    choice = choice._replace(size=_size(budget, rated.num_rows), samples=samples)
    if pc.any(rated["short"]).as_py():
        _check_certain(probe, once, rated, choice)
    return select(rated, choice)


def _check_certain(probe: Path, once: pa.Table, rated: pa.Table, choice: Choice) -> None:
    """Refuse a subset that samples not drawn could still change: the probe stopped early."""
    policy, samples = made(choice.rule), choice.samples or 0
    ids = rated["prompt_id"].to_pylist()
    open_rows = len(ids)
    if needs_of(policy) != "all" and isinstance(policy, ScorePolicy):
        said: dict[str, dict[int, str]] = {}
        for row in once.to_pylist():
            said.setdefault(row["prompt_id"], {})[row["sample"]] = row["outcome"]
        counts = known_counts(said, ids, frozenset({"error"}))
        target = Target(policy, choice.size, choice.seed)
        open_rows = len(owed_rows([target], counts, [""] * len(ids), samples))
    if open_rows:
        raise UserError(
            f"{probe}: the probe stopped early, and {open_rows} prompts of {len(ids)} could still "
            f"change what {choice.rule.policy} takes: probe with adaptive: false, or with a grid "
            f"that has this policy, size and seed"
        )


def _size(budget: str, pool: int) -> int:
    """`0.1` is a share of the pool, `80` a count."""
    try:
        return int(budget) if budget.isdigit() else int(float(budget) * pool + 1e-9)
    except (ValueError, OverflowError) as error:
        raise UserError(f"--budget {budget}: write a share (0.1) or a count (80)") from error
