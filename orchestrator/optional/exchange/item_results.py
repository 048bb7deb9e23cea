"""Arms of item-level results: their files grouped into runs, and rejected if they do not pair."""

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from orchestrator.optional.exchange.item_files import (
    BY_TEXT,
    CELL_RESULTS,
    GROUP,
    ItemColumns,
    ItemRow,
    ResultFile,
    files_of,
    read_results,
    seed_in,
)
from orchestrator.planning.near_duplicates import grouped_ids
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.report.content import one_line
from orchestrator.report.item_comparison import (
    Arm,
    ArmRun,
    ItemAnalysis,
    ItemFile,
    Rated,
    compare_arms,
    distinct_runs,
)
from orchestrator.stats.churn import Marks
from orchestrator.stats.factors import AnswerCounts
from orchestrator.stats.inference import Effect, SeedSpread
from orchestrator.storage.errors import UserError
from tasks.sources.values import json_text

Source: TypeAlias = str | Path | pa.Table
# In names of models that are training seeds of one recipe.
_SEED_PART = re.compile(r"(?:seed|run)[-_=]?\d+", re.IGNORECASE)
WITH_METRICS = {"Inspect", "lm-eval", "verl"}  # formats that may have several
SHOWN = 60  # characters of a question in an error


def compare_items(
    arms: Mapping[str, Sequence[Source]], columns: ItemColumns, *, models_are_seeds: bool = False
) -> ItemAnalysis:
    """Read the files of every arm and compare all pairs.

    arms: name -> files, globs, folders or Arrow tables. models_are_seeds: an arm may have several
    models, which are training seeds. Raises UserError if the arms cannot be paired.
    """
    if len(arms) < 2:
        raise UserError("a comparison needs at least two arms: write A B, or NAME=FILES NAME=FILES")
    files: dict[str, list[ResultFile]] = {}
    for name, sources in arms.items():
        files[name] = [
            read_results(file, columns)
            for source in sources
            for file in ([source] if isinstance(source, pa.Table) else files_of(str(source)))
        ]
        if not files[name]:
            raise UserError(f"arm {name} has no files: write a file, a folder or a glob")
    _check_copies(files)
    _check_metric(files, columns)
    for name, own in files.items():
        _check_mixed(name, own, models_are_seeds)
    texts = _check_data(files, columns)
    groups = _groups(files, texts, columns)
    notes = []
    metrics = {name: own[0].metric for name, own in files.items()}
    if len(set(metrics.values())) > 1 and len({own[0].format for own in files.values()}) == 1:
        shown = ", ".join(f"{name} {metric}" for name, metric in metrics.items())
        notes.append(f"arms are scored by different metrics: {shown}")
    notes += _differing_settings(files)
    read, numbers = [], dict[str, dict[str | None, int]]()
    for name, own in files.items():
        every, ordered = _runs(name, own, numbers)
        runs, left_out = distinct_runs(name, every)
        notes += left_out
        kept = {item_file.path for run in runs for item_file in run.files}
        gains: dict[str, Effect] = {}
        if all(file.cell for file in own):
            used = [file for file in own if file.path in kept]
            gains = import_module(CELL_RESULTS).gain_per(used, groups)
        read.append(Arm(name, own[0].metric, runs, gains, _row_counts(own, runs)))
        if ordered:
            notes.append(f"the files of {name} do not state seeds: they are numbered in file order")
    _check_shared(read, texts, columns)
    missing = {arm.name: arm.missing for arm in read if arm.missing}
    if missing:
        counts = ", ".join(f"{name} {count:,}" for name, count in missing.items())
        notes.append(f"samples without a score are left out, not counted as wrong: {counts}")
    spreads: dict[str, SeedSpread] = {}
    if any(file.cell for own in files.values() for file in own):
        spreads = import_module(CELL_RESULTS).stored_spreads(files)
    return compare_arms(read, texts, spreads, notes, groups, _kinds(files))


def _check_metric(files: Mapping[str, list[ResultFile]], columns: ItemColumns) -> None:
    """Raise UserError for a metric that no file can have."""
    formats = {file.format for own in files.values() for file in own}
    if columns.metric and not formats & WITH_METRICS:
        raise UserError(
            f"--metric {columns.metric}: only logs of {', '.join(sorted(WITH_METRICS))} have "
            "metrics: leave it out, or name the column of a table with --score",
            "metric-without-logs",
        )


def _check_copies(files: Mapping[str, Sequence[ResultFile]]) -> None:
    """Raise UserError if a file, or a copy of a log, occurs twice.

    Small tables of different runs may be equal; this is only noted.
    """
    first: dict[str, tuple[str, str]] = {}
    for name, own in files.items():
        for file in own:
            if not file.sha256:  # a table in memory
                continue
            key = os.path.realpath(file.path) if file.format == "table" else file.sha256
            if key in first:
                arm, path = first[key]
                raise UserError(
                    f"{file.path} (arm {name}) is the same file as {path} (arm {arm}): write each "
                    "result once"
                )
            first[key] = (name, file.path)


def _check_mixed(name: str, files: Sequence[ResultFile], models_are_seeds: bool) -> None:
    """Raise UserError if the files of an arm have several models, tasks or metrics."""
    about = [{"metric": file.metric, **file.about} for file in files]
    for kind in dict.fromkeys(key for each in about for key in each):
        values = sorted({each[kind] for each in about if kind in each})
        if kind == "model" and (
            models_are_seeds or len({_SEED_PART.sub("", value) for value in values}) == 1
        ):
            continue
        if len(values) > 1:
            remedy = "write an arm for each"
            if kind == "model":
                remedy += ", or --models-are-seeds if they are training seeds of one recipe"
            raise UserError(
                f"arm {name} has more than one {kind} ({', '.join(values[:5])}): {remedy}"
            )


def _differing_settings(files: Mapping[str, Sequence[ResultFile]]) -> list[str]:
    """A note on settings in which arms differ, among files that state their settings."""
    known = [(name, f.settings) for name, own in files.items() for f in own if f.settings]
    differing = []
    for setting in dict.fromkeys(each for _, settings in known for each in settings):
        arms: dict[str, list[str]] = {}  # by value
        for name, settings in known:
            arms.setdefault(json_text(settings.get(setting)), []).append(name)
        if len(arms) > 1:
            values = (f"{v} ({', '.join(dict.fromkeys(names))})" for v, names in arms.items())
            differing.append(f"{setting} {', '.join(values)}")
    if not differing:
        return []
    return [f"arms were sampled or marked under different settings: {'; '.join(differing)}"]


def _check_data(files: Mapping[str, Sequence[ResultFile]], columns: ItemColumns) -> dict[str, str]:
    """Question -> its text. Raises UserError if an id has different texts in different places."""
    first: dict[str, tuple[ItemRow, ResultFile]] = {}
    texts: dict[str, str] = {}
    other: dict[str, str] = {}
    for own in files.values():
        for file in own:
            for row in file.rows:
                if row.question:
                    texts.setdefault(row.item, row.question)
                known, where = first.setdefault(row.item, (row, file))
                if known is row or file.format != where.format:
                    pairs = zip(known.data[:1], row.data[:1], strict=False)
                else:
                    pairs = zip(known.data, row.data, strict=False)
                if row.item not in other and (
                    differing := next(((a, b) for a, b in pairs if a != b and a and b), None)
                ):
                    places = (f"{f.path} ({r.place})" for f, r in ((where, known), (file, row)))
                    shown = (repr(one_line(text, SHOWN)) for text in differing)
                    parts = (f"{text} in {p}" for text, p in zip(shown, places, strict=True))
                    other[row.item] = " and ".join(parts)
    if other:
        item, difference = next(iter(other.items()))
        by_text = "" if columns.item == BY_TEXT else f", or pair by text with --id {BY_TEXT}"
        raise UserError(
            f"the same ids have different questions or answers ({len(other):,} of {len(first):,}): "
            f"{one_line(item, SHOWN)} is {difference}: compare results on the same data{by_text}"
        )
    return texts


def _kinds(files: Mapping[str, Sequence[ResultFile]]) -> dict[str, dict[str, str]]:
    """Tier and source -> question -> its name, for questions on which all files agree."""
    names = defaultdict[tuple[str, str], set[str]](set)
    for file in (file for own in files.values() for file in own):
        for row in file.rows:
            names["tier", row.item].add(row.tier)
            names["source", row.item].add(row.source)
    kinds: dict[str, dict[str, str]] = {"tier": {}, "source": {}}
    for (kind, item), each in names.items():
        if len(each - {""}) == 1:
            kinds[kind][item] = (each - {""}).pop()
    return kinds


def _groups(
    files: Mapping[str, Sequence[ResultFile]], texts: Mapping[str, str], columns: ItemColumns
) -> dict[str, str]:
    """Question -> its group of related questions: as files name it, else by nearly equal texts.

    Raises UserError if a question has two groups, or all questions have the same group.
    """
    groups: dict[str, tuple[str, str]] = {}
    every = {row.item for own in files.values() for file in own for row in file.rows}
    for file in (file for own in files.values() for file in own):
        for row in file.rows:
            place = f"{file.path} ({row.place})"
            known, where = (
                groups.setdefault(row.item, (row.group, place)) if row.group else ("", "")
            )
            if known != row.group:
                raise UserError(
                    f"question {one_line(row.item, SHOWN)} is in group {one_line(known, SHOWN)} in "
                    f"{where}, and in {one_line(row.group, SHOWN)} in {place}: write the same group"
                )
    names = {group for group, _ in groups.values()}
    if len(names) == 1 and len(groups) == len(every) > 1:
        raise UserError(
            f"all questions have the group {one_line(names.pop(), SHOWN)} (column "
            f"{columns.group or GROUP}): name a column with a value for each group of related "
            "questions, --group COLUMN"
        )
    if columns.group and not groups:
        raise UserError(f"no question has a value in {columns.group}: write --group COLUMN")
    if groups:
        return {item: group for item, (group, _) in groups.items()}
    items = sorted(texts)
    # JSON may contain halves of surrogate pairs, which UTF-8 cannot encode.
    words = [texts[item].encode(errors="replace").decode() for item in items]
    return grouped_ids(items, pa.chunked_array([words], pa.string()))


def _runs(
    name: str, files: Sequence[ResultFile], numbers: dict[str, dict[str | None, int]]
) -> tuple[tuple[ArmRun, ...], bool]:
    """The runs of an arm by seed, and whether seeds are only file numbers.

    numbers: question -> sample -> its bit in `Marks`, for all arms; new ones are added.

    The seed comes from the rows, else the cell, else all files' names, else the file's number.
    Files with equal seeds are parts of one run. Raises UserError if a run has a question twice
    without sample numbers.
    """
    stated = {row.seed is not None for file in files for row in file.rows}
    if len(stated) > 1:
        raise UserError(f"arm {name}: some of its files have a column seed, others do not: add it")
    seeds: list[int | None] = [
        seed_in(file.path) if file.seed is None else file.seed for file in files
    ]
    own_cells = all(file.cell for file in files)
    ordered = None in seeds or (len(set(seeds)) < len(seeds) and not own_cells)
    parts: dict[int, dict[str, dict[str | None, tuple[ItemRow, ResultFile]]]] = {}
    origin: dict[int, list[ItemFile]] = {}
    for number, file in enumerate(files):
        of_file = number if ordered else seeds[number]
        for row in file.rows:
            seed = of_file if row.seed is None else row.seed
            assert seed is not None
            samples = parts.setdefault(seed, {}).setdefault(row.item, {})
            earlier = next(iter(samples.values()), None) if row.sample is None else None
            if earlier := earlier or samples.get(row.sample) or samples.get(None):
                places = " and ".join(f"{f.path} ({r.place})" for r, f in (earlier, (row, file)))
                raise UserError(
                    f"arm {name}, seed {seed}: question {one_line(row.item, SHOWN)} occurs twice "
                    f"(in {places}): number its samples in a column sample, or its runs in a "
                    f"column seed (or write a file for each run)"
                )
            samples[row.sample] = (row, file)
            item_file = ItemFile(file.path, file.format, file.sha256)
            if item_file not in origin.setdefault(seed, []):
                origin[seed].append(item_file)
    runs = []
    for seed, items in sorted(parts.items()):
        scores = {
            item: _rated({s: row for s, (row, _) in samples.items()}, numbers.setdefault(item, {}))
            for item, samples in items.items()
        }
        runs.append(ArmRun(seed, scores, tuple(origin[seed])))
    return tuple(runs), ordered and len(files) > 1 and stated == {False}


def _rated(samples: Mapping[str | None, ItemRow], bits: dict[str | None, int]) -> Rated:
    """A question's samples in one run; `bits`: sample -> its bit in `Marks`, new ones are added."""
    scored = {
        bits.setdefault(sample, len(bits)): row.score
        for sample, row in samples.items()
        if row.score is not None
    }
    marks = None
    if {*scored.values()} <= {0, 1}:
        right = (1 << number for number, score in scored.items() if score)
        marks = Marks(sum(1 << number for number in scored), sum(right))
    outcomes = [row.outcome for row in samples.values() if row.outcome]
    return Rated(
        len(scored),
        sum(scored.values()),
        len(samples) - len(scored),
        marks,
        AnswerCounts.of(outcomes) if len(outcomes) == len(samples) else None,
    )


def _row_counts(files: Sequence[ResultFile], runs: Sequence[ArmRun]) -> RowCounts:
    """The rows of an arm's files; some may not belong to any of its runs."""
    unread, rows = sum(file.unread for file in files), sum(len(file.rows) for file in files)
    rated = [each for run in runs for each in run.items.values()]
    scored, missing = sum(each.samples for each in rated), sum(each.missing for each in rated)
    left_out = {
        "of a different filter": unread,
        "of a run that does not count": rows - scored - missing,
        "without a score": missing,
    }
    return RowCounts(rows + unread, left_out)


def _check_shared(arms: Sequence[Arm], texts: Mapping[str, str], columns: ItemColumns) -> None:
    """Raise UserError if an arm has no score, or two arms share no question."""
    for arm in arms:
        if not arm.questions:
            scored = any(run.scores for run in arm.runs)
            raise UserError(
                f"arm {arm.name}: "
                + ("its runs share no question" if scored else "no question has a score")
                + ": compare runs on the same test set"
            )
    for n, arm in enumerate(arms):
        for other in arms[:n]:
            if {*arm.questions} & {*other.questions}:
                continue
            ids = [one_line(a.questions[0], SHOWN) for a in (other, arm)]
            text = (
                f"{other.name} and {arm.name} share no question with a score: their ids look "
                f"like {ids[0]} and {ids[1]}"
            )
            words = [{texts.get(i) for i in a.questions} - {None} for a in (other, arm)]
            if columns.item is None and (same := words[0] & words[1]):
                raise UserError(f"{text}; {len(same):,} have the same text: write --id {BY_TEXT}")
            raise UserError(f"{text}: name the id column of questions with --id")
