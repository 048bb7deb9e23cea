"""Logs of GRPO runs of other trainers, cells of Decile, and plain tables, as `RunLog`.

TRL: trainer_state.json and completions/*.parquet (`log_completions`). verl: the dumps of
`trainer.rollout_data_dir` and `validation_data_dir`, and the metrics of its file logger. prime-rl:
rollouts/step_N/train/all, and metrics.jsonl. verifiers: results.jsonl, traces.jsonl. NeMo-RL:
train_data_stepN.jsonl. rLLM: episodes/train_step_N_epoch_E. AReaL: rollout/V/T.jsonl. ms-swift:
completions.jsonl and logging.jsonl. Pickled files, such as TRL's training_args.bin and the dumps of
slime and SkyRL, are not read.
"""

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.evaluation.run_log import COMPLETIONS, METRICS, RunLog
from orchestrator.optional.exchange.placed_rows import json_object, nested, objects
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.storage.errors import UserError
from orchestrator.training.cell_paths import CELLS, is_cell
from tasks import TaskError
from tasks.sources.files import is_chat, is_json_lines, message_text, parse_json, read_file
from tasks.sources.roles import GOLDS, NEEDS, columns_in_role, spelling
from tasks.sources.user_files import exists, parquet_schema, read_bytes, text_lines
from tasks.sources.values import (
    counts_of,
    is_missing,
    json_text,
    number_of,
    valid_count,
    value_text,
)
from tasks.words import word_list

# Cells are read by modules of the sweep. They load only if a path is a cell.
CELL_LOGS = "orchestrator.optional.exchange.cell_logs"
METRIC_ROWS = 20  # of a file, some of which have metrics
MOST_RESUMES = 0.2  # per update; a table whose updates go back more often is unordered
RARE = 0.1  # share of a log's groups; a rarer size may come from incomplete groups
# Errors of readers for rows with different types than the trainer writes.
UNREADABLE = (
    *(TaskError, OSError, pa.ArrowException, LookupError, TypeError, ValueError),
    *(ArithmeticError, AttributeError),
)
LIVE = 600  # seconds since the last write, up to which a run counts as live
OF_CORRECTNESS = re.compile(r"correct|accura|(^|_)acc($|_)", re.IGNORECASE)
_HELD_OUT = re.compile(r"(^|[/_.-])(e?val|valid)", re.IGNORECASE)  # in the path of a folder
_STEP = re.compile(r"step_?(\d+)|(\d+)")
_NEEDED = dict(zip(("update", "prompt", "reward"), NEEDS["diagnose"], strict=True))
_DESCRIBED = ("gold", "source", "version")  # fields of `Rollout`, and roles except for the first
_COUNTED = ("tokens", "truncated", "advantage")  # of tables; other logs have their own names
_PREFERENCES = {"rewards/chosen", "rewards/margins", "logps/chosen"}  # metrics of DPO and others
_EXACT = 1e-4  # relative error up to which logged rewards equal the weighted sum of their functions


class Rollout(NamedTuple):
    """A completion of a log; values that the log lacks are None.

    `group` separates groups of one prompt in one update; `rewards` are named values of reward
    functions, and `correct` may be one of them. `version` counts the weights that wrote it. Readers
    return values as in the log, with any type; `typed` converts them to the types of COMPLETIONS.
    """

    update: Any
    prompt: str
    rewards: Mapping[str, Any]
    reward: Any = None
    correct: bool | None = None
    group: str | None = None
    tokens: Any = None
    truncated: Any = None
    text: str | None = None
    advantage: Any = None
    gold: str | None = None
    source: str | None = None
    version: Any = None

    def unreadable(self, typed: "Rollout") -> Iterator[tuple[str, Any]]:
        """The existing values that `typed` could not read, by name."""
        for name, value in self.rewards.items():
            if value is not self.reward and number_of(value) is None and not is_missing(value):
                yield name, value
        for name, value, read in zip(self._fields, self, typed, strict=True):
            if read is None and not is_missing(value):
                yield name, value

    def typed(self) -> "Rollout":
        """The same with values of the types of COMPLETIONS; invalid values become unknown.

        Raises TaskError without an update.
        """
        update, cut = valid_count(self.update), number_of(self.truncated)
        if update is None or isinstance(self.update, bool):
            raise TaskError(f"the update is {self.update!r:.60}: write a number from 0")
        texts: dict[str, Any] = {n: getattr(self, n) and _utf8(getattr(self, n)) for n in TEXTS}
        return self._replace(
            update=update,
            reward=number_of(self.reward),
            advantage=number_of(self.advantage),
            tokens=valid_count(self.tokens),
            version=valid_count(self.version),
            truncated=None if cut is None else cut == 1,
            **texts,
        )


TEXTS = {"group", *(f.name for f in COMPLETIONS if "string" in str(f.type))} & {*Rollout._fields}


class Remarks(list[str]):
    """Remarks on a log, and its unreadable values by column."""

    def __init__(self) -> None:
        super().__init__()
        self._counts = Counter[str]()
        self._first: dict[str, str] = {}

    def cannot_read(self, name: str, value: Any, place: str) -> None:
        """One more unreadable value of a column or metric."""
        self._counts[name] += 1
        self._first.setdefault(name, f"{value!r:.40} in {place}")

    def lines(self) -> tuple[str, ...]:
        """All remarks."""
        unreadable = (
            f"{counted(count, 'value')} of {name} cannot be read, the first is {self._first[name]}"
            for name, count in self._counts.items()
        )
        return (*self, *unreadable)

    def unreadable(self) -> frozenset[str]:
        """Unreadable values, in the terms of `diagnosis`."""
        correct = {"correct" for name in self._counts if OF_CORRECTNESS.search(name)}
        known = {*COMPLETIONS.names, *METRICS}
        return frozenset(correct | {name if name in known else "reward" for name in self._counts})


class Layout(NamedTuple):
    """A kind of log: its files with rollouts, and how they are read.

    `files` are patterns below a folder, and the first that matches counts; `fields` of a row of
    JSON lines identify the kind. `spread`: a run's files are in several folders.
    """

    name: str
    files: str
    fields: str
    rollouts: Callable[[Path], Iterator[Rollout]]
    spread: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """The fields."""
        return frozenset(word_list(self.fields)) - {""}


def read_logs(path: str, correct: str | None = None) -> list[RunLog]:
    """The runs of a file or folder: one, or one per cell of a Decile storage.

    `correct` is the reward function or column that marks correct completions. Raises UserError or
    TaskError if the path is not a log.
    """
    folder = Path(path)
    if not exists(path):
        raise UserError(f"{path} does not exist: write a file or folder with training logs")
    if (folder / CELLS).is_dir():
        logs: list[RunLog] = import_module(CELL_LOGS).storage_logs(path)
        return logs
    if is_cell(folder):
        log: RunLog | None = import_module(CELL_LOGS).cell_log(folder)
        if log is not None:
            return [log]
    return [_foreign_log(folder, correct)]


def _foreign_log(path: Path, correct: str | None) -> RunLog:
    """The log of one run of another trainer."""
    layout, files, validation = _rollout_files(path)
    below = [path] if path.is_file() else sorted(path.rglob("*.json*"))
    states = [file for file in below if file.name == "trainer_state.json"]
    metric_files = [
        f
        for f in below
        if f.suffix == ".jsonl" and f not in [*files, *validation] and _has_metrics(f)
    ]
    if not files and not states and not metric_files:
        expected = ", ".join(f"{word_list(layout.files)[0]} ({layout.name})" for layout in LAYOUTS)
        raise UserError(
            f"{path} has no readable training log: write a folder with "
            f"trainer_state.json (TRL), {expected}, or a table with update, prompt and reward"
        )
    notes = Remarks()
    state = _newest_state(path, states, notes, needed=not files)
    history = state["log_history"] if state else _metric_rows(metric_files)
    rows = [row for row in map(_flat, objects(history)) if row["step"] is not None]
    if layout is None:
        _refuse_metrics(path, rows, [] if states else metric_files)
    batches = _batches(layout, files, notes) if layout else {}
    read = sum(map(len, batches.values()))
    if layout in (TRL, SWIFT):
        batches = _of_functions(batches, rows)
    if layout is TRL:
        batches = _trained_batches(batches, rows, notes)
    rollouts = [rollout for batch in batches.values() for rollout in batch]
    left_out = {"written again, or replaced by an evaluation": read - len(rollouts)}
    if layout is TABLE:
        every = len(rollouts)
        rollouts = _in_one_count(rollouts, notes)
        left_out["replaced by a resumed run"] = every - len(rollouts)
    if path.is_file() and layout and not rollouts:
        raise UserError(f"{path} has no completions: write a row per completion")
    weights = _weights(rows, rollouts)
    column, marked = _with_correctness(rollouts, correct, weights)
    if correct is not None and not column:
        raise _no_correctness(path, correct, rollouts)
    _note_missing(path, layout, marked, notes)
    left_out["without a reward"] = unrated(marked)
    metrics = metrics_of(rows, notes)
    if validation and layout:
        metrics["evaluation"] = _validation(_batches(layout, validation, notes))
    newest = max(file.stat().st_mtime for file in [*files, *states, *metric_files])
    return RunLog(
        name=str(path),
        layout=layout.name if layout else "TRL" if states else "metrics",
        completions=completions_of(marked),
        metrics=metrics,
        planned=valid_count((state or dict(*rows[-1:])).get("max_steps")) or None,
        lora=_is_lora(path),
        running=time.time() - newest < LIVE and not any("train_runtime" in row for row in rows),
        by_correct=column,
        weights=weights,
        unreadable=notes.unreadable(),
        notes=notes.lines(),
        rows=RowCounts(read, left_out) if layout else RowCounts(len(rows)),
    )


def _no_correctness(path: Path, name: str, rollouts: Sequence[Rollout]) -> UserError:
    """The error for a column that does not mark correct completions, with columns that do."""
    names = {each for rollout in rollouts for each in rollout.rewards}
    graded = sorted(each for each in names if _with_correctness(rollouts, each, {})[0])
    choices = f"write one of {', '.join(graded)}" if graded else "the log has none"
    return UserError(f"{path} has no reward or column {name!r} with 0 or 1: {choices}")


def unrated(rollouts: Iterable[Rollout]) -> int:
    """The completions with neither a known reward nor known correctness."""
    return sum(rollout.reward is None and rollout.correct is None for rollout in rollouts)


def _note_missing(
    path: Path, layout: Layout | None, rollouts: Sequence[Rollout], notes: Remarks
) -> None:
    """Notes how many completions have no reward. Raises UserError for a table without any."""
    without = sum(rollout.reward is None for rollout in rollouts)
    if without == len(rollouts) and layout is TABLE:
        if all(each.correct is None and each.advantage is None for each in rollouts):
            remedy = "write the columns update, prompt and reward"
            if "reward" in notes.unreadable():
                raise UserError(f"{path}: {'; '.join(notes.lines())}: write rewards as numbers")
            raise UserError(f"{path} has no reward: {remedy}")
    elif 0 < without < len(rollouts):
        notes.append(f"no reward in {without:,} of {counted(len(rollouts), 'completion')}")
    unmarked = sum(rollout.correct is None for rollout in rollouts)
    if without < unmarked < len(rollouts):  # equal if marks are rewards
        notes.append(f"no correctness in {unmarked:,} of {counted(len(rollouts), 'completion')}")


def _rollout_files(path: Path) -> tuple[Layout | None, list[Path], list[Path]]:
    """The layout of the completions at a path, their files, and those of validation."""
    if path.is_file():
        if path.name == "trainer_state.json":
            return _rollout_files(path.parent)
        if path.suffix in (".parquet", ".csv", ".tsv") or path.name.endswith(".gz"):
            is_trl = {"step", "completion", "advantage"} <= {*_parquet_columns(path)}
            return (TRL if is_trl else TABLE), [path], []
        row = next(_json_rows(path), {}) if path.suffix in (".jsonl", ".json") else {}
        layout = next((each for each in LAYOUTS if each.keys and each.keys <= {*row}), None)
        if all(columns_in(roles, row) for roles in _NEEDED.values()) and (
            # Rows of verifiers' evaluations have the number of the example, but no update.
            layout is None or "update" in row or (layout is VERIFIERS and "example_id" not in row)
        ):
            layout = TABLE
        return layout, [path] if layout else [], []
    for layout in LAYOUTS:
        for pattern in word_list(layout.files):
            files = sorted(
                file
                for file in path.rglob(pattern)
                if file.is_file()
                and layout.keys <= {*(next(_json_rows(file), {}) if layout.keys else ())}
            )
            held_out = [f for f in files if _HELD_OUT.search(str(f.parent.relative_to(path)))]
            files = [file for file in files if file not in held_out] or files
            folders = sorted({str(_run_folder(file)) for file in files})
            if len(folders) > 1 and not layout.spread:
                raise UserError(f"{path} has several runs: write one of {', '.join(folders)}")
            if files:
                held_out = [file for file in held_out if file not in files]
                return layout, sorted(files, key=_step_of), sorted(held_out, key=_step_of)
    return None, [], []


def _run_folder(file: Path) -> Path:
    """The folder of the run that a file belongs to; TRL's metrics are above its completions."""
    folder = file.parent
    return folder.parent if folder.name == "completions" else folder


def _parquet_columns(file: Path) -> list[str]:
    """The columns of a Parquet file; empty for other files. Raises UserError if it is damaged."""
    if file.suffix != ".parquet":
        return []
    try:
        return list(parquet_schema(file).names)
    except TaskError as error:
        raise UserError(str(error)) from error


def _step_of(file: Path) -> tuple[int, str]:
    """The update in a file's name or its folder's, and the path."""
    for part in reversed(file.parts):
        numbers = _STEP.search(part.partition(".")[0])
        if numbers:
            return int(numbers[1] or numbers[2]), str(file)
    return 0, str(file)


def _batches(layout: Layout, files: Sequence[Path], notes: Remarks) -> dict[Path, list[Rollout]]:
    """The rollouts of each file; a file that a live run is writing is left out, with a note."""
    batches: dict[Path, list[Rollout]] = {}
    for file in files:
        batch, place = list[Rollout](), file.name
        try:
            for number, rollout in enumerate(layout.rollouts(file), 1):
                place = f"{file.name} row {number}"
                batch.append(rollout.typed())
                for name, value in rollout.unreadable(batch[-1]):
                    notes.cannot_read(name, value, place)
            batches[file] = batch
        except UNREADABLE as error:
            if len(files) == 1:
                raise UserError(
                    f"{file} cannot be read as a log of {layout.name}: {place}: {error}"
                ) from error
            notes.append(f"{file.name} is left out: {error}")
    return batches


def _of_functions(
    batches: Mapping[Path, list[Rollout]], history: Sequence[Mapping[str, Any]]
) -> dict[Path, list[Rollout]]:
    """The batches without columns of `log_extra`: columns whose mean is not a metric."""
    names = [name for row in history if "reward" in row for name in row if name[:8] == "rewards/"]
    known = {name.split("/")[1] for name in names}
    if not known:
        return dict(batches)
    return {
        file: [
            r._replace(rewards={n: v for n, v in r.rewards.items() if n in known}) for r in batch
        ]
        for file, batch in batches.items()
    }


def _trained_batches(
    batches: Mapping[Path, list[Rollout]], history: Sequence[Mapping[str, Any]], notes: Remarks
) -> dict[Path, list[Rollout]]:
    """TRL's batches of training.

    TRL writes a batch again at every update that trains on it, and overwrites an update's
    completions with those of an evaluation.
    """
    means = {row.get("step"): row for row in history if "reward" in row}
    evaluated = {row.get("step"): row for row in history if "eval_reward" in row}
    trained: dict[Path, list[Rollout]] = {}
    before: list[Rollout] = []
    for file, batch in batches.items():
        again = [r._replace(update=0) for r in batch] == [r._replace(update=0) for r in before]
        before = batch
        if again or not batch:
            continue
        name, update = next(iter(batch[0].rewards), ""), batch[0].update
        values = [v for r in batch if (v := number_of(r.rewards.get(name))) is not None]
        mean = sum(values) / max(1, len(values))
        of_evaluation = number_of(evaluated.get(update, {}).get(f"eval_rewards/{name}/mean"))
        of_training = number_of(means.get(update, {}).get(f"rewards/{name}/mean"))
        if of_evaluation is not None and (of_training is None or abs(mean - of_training) > 1e-6):
            notes.append(f"{file.name} is left out: an evaluation has replaced its completions")
            continue
        trained[file] = batch
    return trained


def _in_one_count(rollouts: Sequence[Rollout], notes: Remarks) -> list[Rollout]:
    """The rollouts of a table to which a resumed run was appended, with continuous updates.

    If updates go back to a checkpoint, earlier rows of the updates after it were lost and are left
    out. If updates are counted from the first one again, they are renumbered. A table that is
    sorted by prompt or unordered is unchanged.
    """
    update = np.array([rollout.update for rollout in rollouts], dtype=np.int64)
    prompts = [rollout.prompt for rollout in rollouts]
    starts = np.flatnonzero(np.diff(update) < 0) + 1
    if not len(starts) or len(starts) > MOST_RESUMES * len(np.unique(update)):
        return list(rollouts)
    kept, origin, restarts = np.ones(len(update), bool), update[: starts[0]].min(), 0
    for start, end in zip(starts, [*starts[1:], len(update)], strict=True):
        before, first = update[:start], update[start]
        again = kept[:start] & (before >= first)
        redone = int((update[start:end] == first).sum())
        is_late = redone < (before[again] == first).sum() / 2  # rows that were written late
        if is_late or not {*prompts[:start]} & {*prompts[start:end]}:
            continue
        if first <= origin:
            origin = before[kept[:start]].max() + 1
            update[start:] += origin - first
            restarts += 1
        else:
            kept[:start] &= ~again
    if restarts:
        notes.append(f"updates restart from the first {counted(restarts, 'time')}")
    if not kept.all():
        replaced = counted(int((~kept).sum()), "completion")
        notes.append(f"left out, because a resumed run replaces them: {replaced}")
    numbered = zip(rollouts, update.tolist(), kept, strict=True)
    return [rollout._replace(update=number) for rollout, number, keep in numbered if keep]


def _validation(batches: Mapping[Path, list[Rollout]]) -> dict[int, float]:
    """Update -> mean correctness, or else score, of verl's validation dumps."""
    _, marked = _with_correctness([r for batch in batches.values() for r in batch], None, {})
    values = defaultdict[int, list[float]](list)
    for rollout in marked:
        grade = rollout.reward if rollout.correct is None else float(rollout.correct)
        if grade is not None:
            values[rollout.update].append(grade)
    return {update: sum(each) / len(each) for update, each in values.items()}


def _json_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    """The objects of JSON lines; an incomplete last line of a live run is left out."""
    if not is_json_lines(file):
        with suppress(TaskError):
            yield from read_file(file, []).rows
        return
    pending: str | None = None
    try:
        for number, line in text_lines(file):
            if pending is not None:
                raise TaskError(f"{file}:{number - 1}: not JSON: {pending[:60]}")
            try:
                row = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                pending = line
                continue
            if isinstance(row, Mapping):
                yield row
    except UnicodeDecodeError as error:
        raise TaskError(f"{file}: {error}: write it as UTF-8 text") from error


def _trl(file: Path) -> Iterator[Rollout]:
    """A file of `log_completions`: prompt, completion, a column per reward function, advantage."""
    for row in read_file(file, ["step", "prompt", "completion"]).rows:
        yield _completion(row["step"], row, "advantage")


def _swift(file: Path) -> Iterator[Rollout]:
    """completions.jsonl of ms-swift: for each batch, an object with a list for each column."""
    for row in _json_rows(file):
        batch = {name: each for name, each in row.items() if isinstance(each, list)}
        for values in zip(*batch.values(), strict=False):
            own = dict(zip(batch, values, strict=True))
            yield _completion(own["step"], own, "advantages")


def _completion(update: Any, row: Mapping[str, Any], advantage: str) -> Rollout:
    """A row with prompt, completion, advantage, and a column of numbers per reward function."""
    values = {
        name: value
        for name, value in row.items()
        if name != advantage and (value is None or isinstance(value, float))
    }
    return Rollout(
        update,
        _text(row["prompt"]),
        values,
        text=_text(row["completion"]),
        advantage=row.get(advantage),
        **_described(row),
    )


def _described(row: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Data from columns about the prompt, the weights that wrote a completion, and more."""
    values = {}
    for name, columns in _in_roles((*_DESCRIBED, *more), tuple(row)):
        value = first_value(row, columns)
        if name in _COUNTED or name == "version":
            values[name] = value
        elif value is not None:
            scalar = isinstance(value, str | int | float)
            values[name] = (value_text(value) if scalar else _text(value)) or None
    return values


@lru_cache(1000)
def _in_roles(names: tuple[str, ...], columns: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """The columns from which fields of `Rollout` are read, if there are any."""
    roles = {"gold": "answer beside completions"}
    pairs = [(name, columns_in_role(roles.get(name, name), columns)) for name in names]
    return [pair for pair in pairs if pair[1]]


def _verl(file: Path) -> Iterator[Rollout]:
    for row in _json_rows(file):
        uid = str(row.get("uid") or "")
        yield Rollout(
            row["step"],
            str(row["input"]),
            {"score": row["score"]} | {name: row[name] for name in ("acc",) if name in row},
            group=uid.rsplit("_", 2)[0] if uid.count("_") >= 2 else None,
            text=str(row["output"]),
            **_described({"ground_truth": row.get("gts"), **row}),
        )


def _prime(file: Path) -> Iterator[Rollout]:
    """Episodes of prime-rl and verifiers v1; each trained trace is a completion.

    For prime-rl, all episodes are read: the shipped ones lack the groups without an advantage.
    """
    for episode in _json_rows(file):
        work, group = nested(episode, "run", "work"), nested(episode, "group").get("id")
        prompt = nested(episode, "task").get("key") or json_text(nested(episode, "task", "data"))
        for trace in objects(episode.get("traces")):
            if trace.get("trainable") is False:
                continue
            parts = {name: json_object(part) for name, part in nested(trace, "rewards").items()}
            scored = [part for part in parts.values() if _is_number(part.get("score"))]
            reward = sum(part["score"] * part.get("weight", 1.0) for part in scored)
            calls = objects(trace.get("calls"))
            nodes = [node for node in objects(trace.get("nodes")) if node.get("sampled")]
            yield Rollout(
                work.get("step") or 0,
                str(prompt),
                {name: part.get("score") for name, part in parts.items()},
                reward=reward if scored else None,
                group=str(group) if group else None,
                tokens=trace.get("num_output_tokens"),
                truncated=calls[-1].get("finish_reason") == "length" if calls else None,
                text="\n".join(message_text(nested(n, "message").get("content")) for n in nodes),
                **_described(nested(episode, "task", "data")),
            )


def _verifiers(file: Path) -> Iterator[Rollout]:
    """results.jsonl of verifiers v0: an evaluation, all at update 0."""
    for row in _json_rows(file):
        yield Rollout(
            0,
            str(row.get("example_id", _text(row["prompt"]))),
            json_object(row.get("metrics")),
            reward=row["reward"],
            tokens=json_object(row.get("token_usage")).get("output_tokens"),
            truncated=row.get("is_truncated"),
            text=_text(row["completion"]),
            **_described(row),
        )


def _nemo(file: Path) -> Iterator[Rollout]:
    update = _step_of(file)[0]
    for row in _json_rows(file):
        # Values are in lists of one entry, or of all rollouts of a batch.
        contents, rewards, masks = row["content"], row["rewards"], row.get("token_loss_mask") or []
        for index, reward in enumerate(rewards):
            texts = contents[index] if isinstance(contents[index], list) else [contents[index]]
            tokens = int(sum(masks[index])) if index < len(masks) else None
            yield Rollout(
                update,
                str(texts[0]),
                {"reward": reward},
                tokens=tokens,
                text=str(texts[-1]) if len(texts) > 1 else None,
            )


def _table(file: Path) -> Iterator[Rollout]:
    """A table: update, prompt, reward; and correct, tokens, truncated, completion, group."""
    json_rows = file.suffix in (".jsonl", ".json")  # the last may be incomplete in a live run
    rows = list(_json_rows(file) if json_rows else read_file(file, []).rows)
    names = [*dict.fromkeys(name for row in rows for name in row)]
    columns = {kind: columns_in(roles, names) for kind, roles in _NEEDED.items()}
    prompt_names = sorted(columns["prompt"], key=lambda name: spelling(name) != "prompt_id")
    rewards, grades = columns_in(("reward",), names), columns_in(("correct",), names)
    graded = dict.fromkeys([*rewards, *grades])
    golds = columns_in_role("answer beside completions", names)
    more = [n for n in names if OF_CORRECTNESS.search(n) and n not in [*graded, *golds]]
    texts = [name for name in columns_in(("completion",), names) if name not in prompt_names[:1]]
    # A column such as `answer` may be the model's: then most prompts have several values.
    written = {
        name for name in golds if spelling(name) not in GOLDS and _varies(rows, prompt_names, name)
    }
    for number, row in enumerate(rows, 1):
        update, prompt = first_value(row, columns["update"]), first_value(row, prompt_names)
        if update is None or prompt is None:
            raise TaskError(f"row {number}: write the columns update, prompt and reward")
        text, own = first_value(row, texts), {n: v for n, v in row.items() if n not in written}
        numbers = {name: n for name in more if (n := number_of(row.get(name))) is not None}
        yield Rollout(
            update,
            _text(prompt),
            {name: row[name] for name in graded if row.get(name) is not None} | numbers,
            reward=first_value(row, rewards),
            text=None if text is None else _text(text),
            **_described(own, "group", *_COUNTED),
        )


def _varies(rows: Sequence[Mapping[str, Any]], prompts: Sequence[str], name: str) -> bool:
    """Whether a column has several values for most prompts."""
    values = defaultdict[str, set[str]](set)
    for row in rows:
        values[_text(first_value(row, prompts))].add(_text(row.get(name)))
    return 2 * sum(len(each) > 1 for each in values.values()) > len(values)


def columns_in(roles: Sequence[str], names: Iterable[str]) -> list[str]:
    """The columns with these roles, in the order of the roles."""
    names = list(names)
    return [name for role in roles for name in columns_in_role(role, names)]


def first_value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of these columns that a row has; None if it has none."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def _rllm(file: Path) -> Iterator[Rollout]:
    episode = parse_json(read_bytes(file), str(file))
    trajectories = objects(episode.get("trajectories"))
    reward = trajectories[-1].get("reward") if trajectories else None
    correct, ended = episode.get("is_correct"), str(episode.get("termination_reason"))
    yield Rollout(
        episode["training_step"],
        str(episode["task_hash"]),
        {"is_correct": correct} if isinstance(correct, bool) else {},
        reward=reward,
        truncated="max" in ended.lower(),
        **_described(json_object(episode.get("task"))),
    )


def _areal(file: Path) -> Iterator[Rollout]:
    for row in _json_rows(file):
        yield Rollout(
            row["tail_version"],
            str(row["prompt"]),
            {"reward": row["reward"]},
            group=str(row["task_id"]),
            tokens=int(row["seqlen"]) - int(row["prompt_len"]),
            text=str(row["completion"]),
            version=row.get("head_version"),  # when it began; tail_version is the update
        )


def _open_instruct(file: Path) -> Iterator[Rollout]:
    """Written after open-instruct has dropped groups with equal rewards, which is its default."""
    for row in _json_rows(file):
        yield Rollout(
            row["step"],
            json_text(row["prompt_tokens"]),
            {"reward": row["reward"]},
            group=str(row["prompt_idx"]),
            tokens=len(row["response_tokens"]),
            truncated=row["finish_reason"] == "length",
            **_described(row),
        )


TRL = Layout("TRL", "completions_*.parquet", "", _trl)
SWIFT = Layout("ms-swift", "completions.jsonl", "step, prompt, completion, advantages", _swift)
VERIFIERS = Layout("verifiers", "results.jsonl", "prompt, completion, reward", _verifiers)
_PRIME_FILES = "train/all/traces.jsonl, traces.jsonl"
_TOKENS = "prompt_idx, prompt_tokens, response_tokens"
LAYOUTS = (
    TRL,
    Layout("prime-rl", _PRIME_FILES, "traces, task, run", _prime, spread=True),
    Layout("rLLM", "train_step_*/episode_*.json", "", _rllm, spread=True),
    Layout(
        "AReaL", "rollout/*/*.jsonl", "tail_version, prompt_len, completion", _areal, spread=True
    ),
    Layout("open-instruct", "*_rollouts_[0-9]*.jsonl", _TOKENS, _open_instruct),
    Layout("verl", "[0-9]*.jsonl", "input, output, score", _verl),
    VERIFIERS,
    Layout("NeMo-RL", "train_data_step*.jsonl", "content, rewards, input_lengths", _nemo),
    SWIFT,
)
TABLE = Layout("table", "", "", _table)


def _utf8(text: str) -> str:
    """The text with replaced halves of surrogate pairs, which JSON may contain."""
    return text.encode(errors="replace").decode()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _text(value: Any) -> str:
    """A text, or the messages of a chat as one text."""
    if isinstance(value, str):
        return value
    if is_chat(value):
        return "\n".join(message_text(message.get("content")) for message in value)
    return json_text(value)


def _weights(history: Sequence[Mapping[str, Any]], rollouts: Iterable[Rollout]) -> dict[str, float]:
    """The weights of reward functions by which the logged reward is the sum of their means.

    {} if the rows do not determine them. A function that is always 0 has no weight here.
    """
    if any(number_of(value) is None for each in rollouts for value in each.rewards.values()):
        return {}
    pattern = re.compile(r"rewards/(.+?)(/mean)?")
    names = {match[1]: key for row in history for key in row if (match := pattern.fullmatch(key))}
    names = {name: key for name, key in names.items() if not name.endswith("/std")}
    logged = [[number_of(row.get(key)) for key in (*names.values(), "reward")] for row in history]
    table = np.array([row for row in logged if None not in row], dtype=float)
    if not names or len(table) < len(names) + 3:
        return {}
    table = table[np.isfinite(table).all(axis=1)]
    used = np.flatnonzero((table[:, :-1] != 0).any(axis=0))
    values, reward = table[:, used], table[:, -1]
    weights, _, rank, _ = np.linalg.lstsq(values, reward, rcond=1e-6)
    error = np.abs(values @ weights - reward).max(initial=0)
    if rank < len(used) or error > _EXACT * max(1.0, np.abs(reward).max()):
        return {}
    return {[*names][i]: round(float(w), 4) + 0.0 for i, w in zip(used, weights, strict=True)}


def _with_correctness(
    rollouts: Sequence[Rollout], named: str | None, weights: Mapping[str, float]
) -> tuple[str, list[Rollout]]:
    """The name of the reward that marks correct completions, and the rollouts with both.

    It is the named one; else the only one with a name such as accuracy; else the only one. It has
    at most two values, and the larger means correct; "" if there is none. If the log has no rewards
    of its own, they are the weighted sum of reward functions. Functions with unknown weights count
    once, and advantages then show where the rewards of a group differ.
    """
    values = defaultdict[str, set[float]](set)
    for rollout in rollouts:
        for name, value in rollout.rewards.items():
            number = number_of(value)
            if number is not None and np.isfinite(number) and len(values[name]) < 3:
                values[name].add(number)
    binary = [name for name, seen in values.items() if 0 < len(seen) <= 2 and _grades(name, seen)]
    likely = [name for name in binary if OF_CORRECTNESS.search(name)]
    summed = all(rollout.reward is None for rollout in rollouts)
    is_exact = not summed or len(values) == 1 or bool(weights) or "score" in values
    column = ""
    if named is not None:
        column = named if named in binary else ""
    elif len(likely) == 1 or (not likely and len(values) == 1 and binary):
        column = (likely or binary)[0]
    marked = []
    for rollout in rollouts:
        reward = rollout.reward
        if summed:
            numbers = {
                n: v for n, each in rollout.rewards.items() if (v := number_of(each)) is not None
            }
            total = sum(weights.get(name, 1.0) * value for name, value in numbers.items())
            reward = numbers.get("score", total if numbers else None)
        grade = number_of(rollout.rewards.get(column)) if column else None
        marked.append(
            rollout._replace(
                reward=reward,
                correct=None if grade is None or np.isnan(grade) else grade in (1.0, 100.0),
                rewards={},
                advantage=None if is_exact and reward is not None else rollout.advantage,
            )
        )
    return column, marked


def _grades(name: str, values: set[float]) -> bool:
    """Whether values are right or wrong: 0 and 1, -1 and 1, or 0 and 100 for percentages."""
    percent = values <= {0.0, 100.0} and bool(OF_CORRECTNESS.search(name))
    return values <= {0.0, 1.0} or values <= {-1.0, 1.0} or percent


def completions_of(rollouts: Sequence[Rollout]) -> pa.Table:
    """The table of run_log.COMPLETIONS, sorted by group.

    Without named groups, the rollouts of a prompt in an update form one. If nearly all their counts
    are multiples of the smallest common count, that is the size of a group, and larger counts are
    several groups.
    """
    if not rollouts:
        return COMPLETIONS.empty_table()
    named: dict[str, Any] = dict(zip(Rollout._fields, zip(*rollouts, strict=True), strict=True))
    update = np.array(named["update"], dtype=np.int64)
    prompt = pa.array(named["prompt"], pa.string()).dictionary_encode().indices.to_numpy()
    groups = pa.array(named["group"], pa.string())
    key = groups.fill_null("").dictionary_encode().indices.to_numpy()
    _, code, sizes = np.unique(
        np.stack([update, prompt, key]), axis=1, return_inverse=True, return_counts=True
    )
    code = code.ravel()
    order = np.argsort(code, kind="stable")
    least = _group_size(sizes)
    if groups.null_count and least > 1:
        place = np.arange(len(code)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        code = code[order] * (int(sizes.max()) // least + 1) + place // least
    else:
        code = code[order]
    named |= {"group": np.zeros(len(update), dtype=np.int64), "named_group": named["group"]}
    columns = {field.name: pa.array(named[field.name], field.type) for field in COMPLETIONS}
    table = pa.table(columns).take(pa.array(order))
    return table.set_column(1, "group", pa.array(code, pa.int64())).cast(COMPLETIONS)


def _group_size(sizes: np.ndarray) -> int:
    """The completions of a group, from the numbers per prompt and update; 1 if unknown.

    A few incomplete groups, such as the last one of a live run, do not affect the size.
    """
    values, counts = np.unique(sizes, return_counts=True)
    least = int(values[counts >= RARE * len(sizes)].min(initial=int(values[-1])))
    return least if (sizes % least == 0).mean() >= 1 - RARE else 1


def _trainer_state(file: Path) -> dict[str, Any]:
    """TRL's trainer_state.json. Raises UserError or TaskError for any other file."""
    state = parse_json(read_bytes(file), str(file))
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise UserError(f"{file} is not a trainer_state.json: it has no log_history")
    return state


def _newest_state(
    path: Path, files: Sequence[Path], notes: Remarks, *, needed: bool
) -> dict[str, Any] | None:
    """The longest of a run's states: its own, and those of its checkpoints.

    An unreadable state is left out, with a note, if the log has more. Raises UserError for states
    of several runs.
    """
    runs = {f.parent.parent if f.parent.name.startswith("checkpoint-") else f.parent for f in files}
    runs = {run for run in runs if not runs & {*run.parents}}
    if len(runs) > 1:
        names = ", ".join(sorted(map(str, runs)))
        raise UserError(f"{path} has several runs: write one of {names}")
    states = []
    for file in files:
        try:
            states.append(_trainer_state(file))
        except (UserError, TaskError) as error:
            if needed and len(files) == 1:
                raise
            notes.append(f"{file.name} is left out: {error}")
    return max(states, key=lambda state: len(state["log_history"]), default=None)


def _refuse_metrics(path: Path, rows: Sequence[Mapping[str, Any]], files: Sequence[Path]) -> None:
    """Raise UserError for metrics of a training without rewards, or of several runs.

    Also for rows of completions with unknown prompts: they have several rewards per update.
    """
    names = dict.fromkeys(str(name) for row in rows for name in row)
    no_reward = "loss" in names and not any("reward" in n or "score" in n for n in names)
    if no_reward or {*names} & _PREFERENCES:
        kind = "supervised fine-tuning (SFT)" if no_reward else "training from preferences (DPO)"
        raise UserError(f"{path} is a log of {kind}, not of GRPO: write the log of a GRPO run")
    seen = set[int]()
    for file in files:
        steps = {row["step"] for row in _metric_rows([file])} - {None}
        if steps & seen:
            listed = ", ".join(map(str, files))
            raise UserError(f"{path} has metrics of several runs: write one of {listed}")
        seen |= steps
    rewarded = [row["step"] for row in rows if columns_in_role("reward", row)]
    if files and len(rewarded) > 2 * len({*rewarded}):
        raise UserError(
            f"{path} has several rows per update, and no recognized column of prompts: "
            f"write the columns update, prompt and reward; it has: {', '.join(names):.200}"
        )


def _has_metrics(file: Path) -> bool:
    """Whether a .jsonl file has metrics by update."""
    return bool(metrics_of(_flat(row) for row in islice(_json_rows(file), METRIC_ROWS)))


def _metric_rows(files: Iterable[Path]) -> list[Mapping[str, Any]]:
    return [_flat(row) for file in files for row in _json_rows(file)]


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of metrics with its update; verl's file logger has them in `data`.

    ms-swift writes `7/100`, the update and the number of updates.
    """
    values, counts = json_object(row.get("data", row)), counts_of(row.get("global_step/max_steps"))
    if counts and is_missing(row.get("step")):
        return {**values, "step": counts[0], "max_steps": counts[1]}
    return {**values, "step": valid_count(row.get("step"))}


def metrics_of(
    history: Iterable[Mapping[str, Any]], remarks: Remarks | None = None
) -> dict[str, dict[int, float]]:
    """The metrics under Decile's names, by update; later rows of an update replace earlier ones."""
    metrics: dict[str, dict[int, float]] = {}
    longest = set[Any]()
    for row in history:
        step = row.get("step")
        if not isinstance(step, int):
            continue
        for name, metric in METRICS.items():
            logged = {alias: row[alias] for alias in metric.logged_as if row.get(alias) is not None}
            numbers = [
                number for value in logged.values() if (number := _logged(value)) is not None
            ]
            if numbers:
                metrics.setdefault(name, {})[step] = numbers[0]
            elif logged and remarks is not None:
                alias, value = next(iter(logged.items()))
                remarks.cannot_read(name, value, f"{alias} of update {step}")
        longest.add(number_of(row.get("response_length/max")))
        validation = (number_of(row[key]) for key in row if key.startswith("val-core/"))
        if (score := next(validation, None)) is not None:
            metrics.setdefault("evaluation", {})[step] = score
    if len(longest) > 2:  # verl counts all completions as long as the batch's longest
        metrics.pop("truncated", None)
    return metrics


def _logged(value: Any) -> float | None:
    """A logged number, possibly not finite, or its text; None for anything else."""
    if not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _is_lora(path: Path) -> bool | None:
    """Whether the run's folder has an adapter; None if it has no weights."""
    folder = path if path.is_dir() else path.parent
    if next(folder.rglob("adapter_config.json"), None):
        return True
    return False if next(folder.rglob("model*.safetensors"), None) else None
