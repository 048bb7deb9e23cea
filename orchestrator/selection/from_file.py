"""`decile select`: a subset from stored probes or difficulty tables, without a sweep."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.entries import (
    MAX_SAMPLES,
    DifficultyEntry,
    PolicyEntry,
    difficulty_option,
)
from orchestrator.difficulty.remedies import few_signals_of
from orchestrator.difficulty.sources import (
    OF_AGREEMENT,
    by_agreement,
    with_ranks_of,
)
from orchestrator.difficulty.table import difficulty
from orchestrator.planning.score_file import rated_table, read_scores
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.probing.adaptive import Target, count_outcomes, undecided_rows
from orchestrator.probing.probe_folder import COUNTED, PAIR, PROBE, SPLIT, parts, split_of
from orchestrator.selection.stored import subset_reasons
from orchestrator.selection.subsets import SubsetRequest, select, with_reason
from orchestrator.storage.errors import UserError
from orchestrator.storage.local_files import check_output
from orchestrator.storage.proof import Unsound, read_parquet, sequence_hash
from orchestrator.storage.schema import MARKED, SAMPLES, completed
from orchestrator.storage.store import Store
from policies import labelled_rows
from tasks import OUTCOMES, TaskError
from tasks.sources.user_files import reading_parquet

_OWN_TABLE = (
    "select from the difficulty table that decile probe FILE -e NAME writes beside its page, or "
    "use the subset that it writes to the storage's subsets/"
)


def select_file(
    probes: Sequence[str | Path],
    rule: PolicyEntry,
    budget: str,
    seed: int,
    out: str | Path,
    ranked_by: str = "gold",
) -> dict[str, Any]:
    """Select from probes of one key (folders or Parquet of samples), or from a difficulty table.

    Of a probe that holds both splits, only the training prompts are read. Its samples must be those
    of exactly one pool, under one marker. `ranked_by`: gold, agreement, or a file of difficulty by
    prompt. Writes the subset to `out` and returns its reason, and `row_counts` of the prompts.
    Raises UserError or PolicyError.
    """
    out, paths = Path(out), [*map(Path, probes)]
    ranking = DifficultyEntry.of(difficulty_option(ranked_by))
    if ranking and ranking.model:
        raise UserError(
            f"--difficulty {ranked_by}: models are those of FILE -e NAME: write the difficulty "
            "table of that model's probe"
        )
    check_output(out, inputs=[*paths, *([ranking.file] if ranking and ranking.file else [])])
    files = [(probe, table) for probe in paths for table in _tables(probe)]
    key = _common_key(files)
    table = _training_rows(files)
    samples = rows = None
    if "pass_rate" in table.column_names and "prompt_id" in table.column_names:
        rated = rated_table(paths[0], table)
    else:
        _check_one_pool(paths, key, table)
        rows = _sample_rows(paths[0], table)
        samples = int(pc.max(rows["sample"]).as_py()) + 1
        rated = difficulty(rows, samples_per_prompt=samples)
    request = SubsetRequest(rule, size_of(budget, rated.num_rows), seed, samples=samples)
    prompts = rated.num_rows
    rated = rated.filter(pa.array(labelled_rows(rated)))
    if not rated.num_rows:
        raise UserError(
            f"{paths[0]}: none of its prompts has a gold answer: write decile select FILE -e NAME "
            "--to-label FILE to have some labelled",
            "missing-gold-answers",
        )
    ranked = rated
    if ranking:
        ranked, request = _ranked(paths[0], rated, ranking, request)
    if rows is not None and request.samples and pc.any(ranked["short"]).as_py():
        _check_certain(paths[0], rows, ranked, request)
    chosen, why = select(ranked, request, rated if ranking else None)
    size = 1 if rule.build().takes_all else why["size"]
    if warning := few_signals_of(rated, size):
        why["notes"] = [*why.get("notes", []), warning]
    why |= {"source": [str(probe) for probe in paths], "probe_key": key}
    Store(str(out.parent)).write_table(with_reason(chosen, why), out.name)
    left_out = {
        "without a gold answer": prompts - rated.num_rows,
        f"not chosen by {rule.policy}": rated.num_rows - chosen.num_rows,
    }
    counts = RowCounts(prompts, left_out, chosen.num_rows)
    return why | {"row_counts": counts.to_dict()}


def _training_rows(files: Sequence[tuple[Path, pa.Table]]) -> pa.Table:
    """The rows of the training split of all tables. Raises UserError."""
    first = files[0][0]
    tables = [table.replace_schema_metadata(None) for table in _training_tables(files)]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise UserError(f"{first}: its tables cannot be merged: {error}") from error
    if not table.num_rows:
        raise UserError(f"{first}: holds no rows: write one row per prompt, or a probe's samples")
    if "prompt_id" in table.column_names and (missing := table["prompt_id"].null_count):
        rows = counted(missing, "row has no prompt_id", "rows have no prompt_id")
        raise UserError(f"{first}: {rows}: write one in every row")
    return table


def _ranked(
    probe: Path,
    rated: pa.Table,
    ranking: DifficultyEntry,
    request: SubsetRequest,
) -> tuple[pa.Table, SubsetRequest]:
    """The table by another difficulty, and the request for a subset of it. Raises UserError."""
    if ranking.file:
        table = with_ranks_of(rated, read_scores(ranking.file))
        name = Path(ranking.file).name
        if table["pass_rate"].null_count == table.num_rows:
            raise UserError(f"{ranking.file}: has a pass rate for no prompt of {probe}: write some")
        return table, request._replace(samples=None, difficulty=name)
    known = [n for n in rated.column_names if rated[n].null_count < rated.num_rows]
    if missing := [name for name in OF_AGREEMENT if name not in known]:
        raise UserError(
            f"{probe}: agreement needs the column {missing[0]}: write a probe's folder, samples "
            "with the column extracted, or a table that decile probe writes"
        )
    return by_agreement(rated), request._replace(difficulty="agreement")


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
    files = sorted(probe.glob("*.parquet")) if folder else [probe]
    if not files or not all(os.path.isfile(file) for file in files):
        raise UserError(
            f"{probe}: no probe found: write a probe's folder or a Parquet file", "no-probe"
        )
    for file in files:
        try:
            with reading_parquet(file, "write a probe's folder or a Parquet file"):
                samples = completed(read_parquet(file), SAMPLES)
        except Unsound as error:
            raise UserError(f"{file}: {error}: write an intact file") from error
        except TaskError as error:
            raise UserError(str(error), "no-parquet") from error
        yield samples


def _key(table: pa.Table) -> str:
    return str((table.schema.metadata or {}).get(PROBE, b"").decode())


def _common_key(files: Sequence[tuple[Path, pa.Table]]) -> str | None:
    """The key that all tables share; UserError that names the difference where they do not."""
    one, key = files[0][0], _key(files[0][1])
    for two, table in files:
        if _key(table) == key:
            continue
        folders = [(Store(str(p.parent.parent)), p.parent.name, p.name) for p in (one, two)]
        keys = [store.read_json(*place, "key.json") for store, *place in folders]
        left, right = (_flat(content or {}) for content in keys)
        names = sorted(left.keys() | right.keys()) if left and right else ()
        differences = [
            f"{n} is {left.get(n)} and {right.get(n)}" for n in names if left.get(n) != right.get(n)
        ]
        reason = "; ".join(differences) or f"keys {key or 'none'} and {_key(table) or 'none'}"
        raise UserError(
            f"{one} and {two} are different probes and cannot be merged: {reason}: "
            "write paths of one probe",
            "different-probes",
        )
    return key or None


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    inner = [_flat(v, f"{name}.{k}" if name else k) for k, v in value.items()]
    return {k: v for part in inner for k, v in part.items()}


def _training_tables(files: Sequence[tuple[Path, pa.Table]]) -> list[pa.Table]:
    """The tables of the training split, and those that are no part of a probe.

    Raises UserError where training prompts cannot be distinguished from test questions.
    """
    train: list[pa.Table] = []
    test: list[pa.Table] = []
    for _, table in files:
        (test if split_of(table.schema) == "test" else train).append(table)
    if not train:
        raise UserError(
            f"{files[0][0]}: holds only samples of the test split: write the probe of a training "
            "pool (decile plan FILE -e NAME --json lists the probes with key and split)",
            "test-split-only",
        )
    if test:
        questions = pa.concat_arrays([t["prompt_id"].combine_chunks() for t in test])
        shared = [t["prompt_id"].filter(pc.is_in(t["prompt_id"], questions)) for t in train]
        if both := {prompt_id for ids in shared for prompt_id in ids.to_pylist()}:
            raise UserError(
                f"{files[0][0]}: {counted(len(both), 'prompt is', 'prompts are')} "
                "both training prompts and test "
                f"questions of the datasets that share this probe: {_OWN_TABLE}",
                "train-in-test",
            )
    return train


def _check_one_pool(probes: Sequence[Path], key: str | None, samples: pa.Table) -> None:
    """Refuse samples that are not those of exactly one pool, under one marker.

    A probe's key names neither: data sets share its folder, also with an interrupted probe. The
    subsets in the storage name the pools that it was finished for, by the hash of their prompts.
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
                f"{probes[0]}: holds samples of {counted(len(pools), 'pool')}: {_OWN_TABLE}",
                "several-pools",
            )
        if pools != {sequence_hash([ids.to_pylist()])}:
            raise UserError(
                f"{probes[0]}: its training prompts are not exactly the pool of one finished probe "
                f"(several pools share a folder, or a probe was interrupted): {_OWN_TABLE}",
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
            f"{probes[0]}: holds marks of several markers ({shown}): {_OWN_TABLE}",
            "several-markers",
        )


def _store_of(probe: Path) -> Store:
    """The storage of a probe's folder, or of a part in it."""
    path = Path(os.path.realpath(probe))
    folder = path if path.is_dir() else path.parent
    return Store(str(folder.parent.parent))


def _sample_rows(probe: Path, table: pa.Table) -> pa.Table:
    """The samples of a probe, each once. Raises UserError where their columns are not valid."""
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
    for name, is_kind in (("extracted", pa.types.is_string), ("tokens", pa.types.is_integer)):
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


def size_of(budget: str, pool: int, name: str = "--budget") -> int:
    """`0.1` is a share of the pool, `80` a count."""
    try:
        return int(budget) if budget.isdigit() else int(float(budget) * pool + 1e-9)
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"{name} {budget[:40]}: write a share (0.1) or a count (80)", "invalid-budget"
        ) from error
