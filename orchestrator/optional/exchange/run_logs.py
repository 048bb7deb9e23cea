"""Logs of GRPO runs of other trainers, cells of Decile, and plain tables, as `RunLog`.

TRL: trainer_state.json and completions/*.parquet (`log_completions`). verl: the dumps of
`trainer.rollout_data_dir` and `validation_data_dir`, and the metrics of its file logger. prime-rl:
rollouts/step_N/train/all, and metrics.jsonl. verifiers: results.jsonl, traces.jsonl. NeMo-RL:
train_data_stepN.jsonl. rLLM: episodes/train_step_N_epoch_E. AReaL: rollout/V/T.jsonl. Nothing that
is pickled is read, such as TRL's training_args.bin and the dumps of slime and SkyRL.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from orchestrator.evaluation.diagnosis import COMPLETIONS, METRICS, RunLog
from orchestrator.optional.exchange.placed_rows import json_object, nested, objects
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.storage.errors import UserError
from orchestrator.training.cell_paths import CELLS, is_cell
from tasks import TaskError
from tasks.sources.files import is_chat, is_json_lines, message_text, parse_json, read_file
from tasks.sources.roles import NEEDS, columns_in_role, spelling
from tasks.sources.user_files import exists, parquet_schema, read_bytes, text_lines
from tasks.sources.values import json_text, number_of, valid_count

# Cells are read by modules of the sweep. They load where a path is one: no other log needs them.
CELL_LOGS = "orchestrator.optional.exchange.cell_logs"
METRIC_ROWS = 20  # of a file, among which some have metrics
MOST_RESUMES = 0.2  # per update; a table in which updates go back more often is not in order
RARE = 0.1  # share of a log's groups, below which their size may be that of incomplete ones
# What readers raise for rows of other types than the trainer writes.
UNREADABLE = (
    *(TaskError, OSError, pa.ArrowException, LookupError, TypeError, ValueError),
    *(ArithmeticError, AttributeError),
)
LIVE = 600  # seconds since the last write, up to which a run is taken to go on
OF_CORRECTNESS = re.compile(r"correct|accura|(^|_)acc($|_)", re.IGNORECASE)
_HELD_OUT = re.compile(r"(^|[/_.-])(e?val|valid)", re.IGNORECASE)  # in the path of a folder
_STEP = re.compile(r"step_?(\d+)|(\d+)")
_NEEDED = dict(zip(("update", "prompt", "reward"), NEEDS["diagnose"], strict=True))


class Rollout(NamedTuple):
    """A completion of a log; None is what the log does not hold.

    `group` tells groups of one prompt in one update apart; `rewards` are named values of reward
    functions, of which `correct` may be one. Readers give values as the log has them, which may be
    of any type; `typed` are those of COMPLETIONS.
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

    def typed(self) -> "Rollout":
        """The same with values of the types of COMPLETIONS; those without sense are unknown.

        Raises TaskError without an update.
        """
        update, cut = valid_count(self.update), number_of(self.truncated)
        if update is None or isinstance(self.update, bool):
            raise TaskError(f"the update is {self.update!r:.60}: write a number from 0")
        return self._replace(
            update=update,
            prompt=_utf8(self.prompt),
            reward=number_of(self.reward),
            group=None if self.group is None else _utf8(self.group),
            tokens=valid_count(self.tokens),
            truncated=None if cut is None else cut == 1,
            text=None if self.text is None else _utf8(self.text),
        )


class Layout(NamedTuple):
    """A kind of log: in which files its rollouts are, and how they are read from one.

    `files` are patterns below a folder, of which the first that matches counts; `keys` are those of
    a row of JSON lines by which it is known. `spread`: a run's files are in several folders.
    """

    name: str
    files: tuple[str, ...]
    keys: frozenset[str]
    rollouts: Callable[[Path], Iterator[Rollout]]
    spread: bool = False


def read_logs(path: str, correct: str | None = None) -> list[RunLog]:
    """The runs of a file or folder: one, or of a storage of Decile one per cell.

    `correct` is the reward function or column that says which completions are correct. Raises
    UserError or TaskError for what is no log.
    """
    folder = Path(path)
    if not exists(path):
        raise UserError(f"{path} does not exist: write a file or folder of a training's logs")
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
        expected = ", ".join(f"{layout.files[0]} ({layout.name})" for layout in LAYOUTS)
        raise UserError(
            f"{path} holds no log of a training that can be read: write a folder with "
            f"trainer_state.json (TRL), {expected}, or a table with update, prompt and reward"
        )
    notes: list[str] = []
    state = _newest_state(path, states, notes, needed=not files)
    if layout is None and not states:
        _refuse_several(path, metric_files)
    history = state["log_history"] if state else _metric_rows(metric_files)
    rows = [row for row in objects(history) if valid_count(row.get("step")) is not None]
    if layout is None and not states:
        _refuse_rollouts(path, rows)
    batches = _batches(layout, files, notes) if layout else {}
    read = sum(map(len, batches.values()))
    if layout is TRL:
        batches = _trained_batches(batches, rows, notes)
    rollouts = [rollout for batch in batches.values() for rollout in batch]
    left_out = {"written again, or replaced by an evaluation": read - len(rollouts)}
    if layout is TABLE:
        every = len(rollouts)
        rollouts = _in_one_count(rollouts, notes)
        left_out["replaced by a resumed run"] = every - len(rollouts)
    if path.is_file() and layout and not rollouts:
        raise UserError(f"{path} holds no completions: write a row per completion")
    column, marked = _with_correctness(rollouts, correct)
    if correct is not None and not column:
        names = {name for rollout in rollouts for name in rollout.rewards}
        graded = sorted(name for name in names if _with_correctness(rollouts, name)[0])
        choices = f"write one of {', '.join(graded)}" if graded else "the log has none"
        raise UserError(f"{path} has no reward or column {correct!r} with 0 or 1: {choices}")
    _note_missing(path, layout, marked, notes)
    left_out["without a reward"] = unrated(marked)
    metrics = metrics_of(rows)
    if validation and layout:
        metrics["evaluation"] = _validation(_batches(layout, validation, notes))
    newest = max(file.stat().st_mtime for file in [*files, *states, *metric_files])
    return RunLog(
        name=str(path),
        layout=layout.name if layout else "TRL" if states else "metrics",
        completions=completions_of(marked),
        metrics=metrics,
        planned=valid_count((state or {}).get("max_steps")) or None,
        lora=_is_lora(path),
        running=time.time() - newest < LIVE and not any("train_runtime" in row for row in rows),
        by_correct=column,
        notes=tuple(notes),
        rows=RowCounts(read, left_out) if layout else RowCounts(len(rows)),
    )


def unrated(rollouts: Iterable[Rollout]) -> int:
    """The completions of which neither reward nor correctness is known."""
    return sum(rollout.reward is None and rollout.correct is None for rollout in rollouts)


def _note_missing(
    path: Path, layout: Layout | None, rollouts: Sequence[Rollout], notes: list[str]
) -> None:
    """Notes how many completions have no reward. Raises UserError for a table without any."""
    without = sum(rollout.reward is None for rollout in rollouts)
    if without == len(rollouts) and layout is TABLE:
        if all(rollout.correct is None for rollout in rollouts):
            raise UserError(f"{path} holds no reward: write the columns update, prompt and reward")
    elif 0 < without < len(rollouts):
        notes.append(f"{without:,} of {len(rollouts):,} completions have no reward")
    unmarked = sum(rollout.correct is None for rollout in rollouts)
    if without < unmarked < len(rollouts):  # where marks are rewards, they are the same
        notes.append(f"{unmarked:,} of {len(rollouts):,} completions have no correctness")


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
            # Rows of verifiers' evaluations have no update, and a number of the example.
            layout is None or "update" in row or (layout is VERIFIERS and "example_id" not in row)
        ):
            layout = TABLE
        return layout, [path] if layout else [], []
    for layout in LAYOUTS:
        for pattern in layout.files:
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
                raise UserError(f"{path} holds several runs: write one of {', '.join(folders)}")
            if files:
                held_out = [file for file in held_out if file not in files]
                return layout, sorted(files, key=_step_of), sorted(held_out, key=_step_of)
    return None, [], []


def _run_folder(file: Path) -> Path:
    """The folder of the run that a file belongs to; TRL's metrics are above its completions."""
    folder = file.parent
    return folder.parent if folder.name == "completions" else folder


def _parquet_columns(file: Path) -> list[str]:
    """The columns of a Parquet file; none of another file. Raises UserError if it is damaged."""
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


def _batches(layout: Layout, files: Sequence[Path], notes: list[str]) -> dict[Path, list[Rollout]]:
    """The rollouts of each file; one that a live run is writing is left out, with a note."""
    batches: dict[Path, list[Rollout]] = {}
    for file in files:
        try:
            batches[file] = [rollout.typed() for rollout in layout.rollouts(file)]
        except UNREADABLE as error:
            if len(files) == 1:
                raise UserError(
                    f"{file} cannot be read as a log of {layout.name}: {error}"
                ) from error
            notes.append(f"{file.name} is left out: {error}")
    return batches


def _trained_batches(
    batches: Mapping[Path, list[Rollout]], history: Sequence[Mapping[str, Any]], notes: list[str]
) -> dict[Path, list[Rollout]]:
    """TRL's batches of training, with their reward functions.

    TRL writes a batch again at every update that trains on it, and the completions of an evaluation
    over those of the update. Columns of `log_extra` are no rewards: metrics have no mean of them.
    """
    means = {row.get("step"): row for row in history if "reward" in row}
    evaluated = {row.get("step"): row for row in history if "eval_reward" in row}
    known = {name.split("/")[1] for row in means.values() for name in row if name[:8] == "rewards/"}
    trained: dict[Path, list[Rollout]] = {}
    before: list[Rollout] = []
    for file, batch in batches.items():
        if known:
            batch = [
                r._replace(rewards={n: v for n, v in r.rewards.items() if n in known})
                for r in batch
            ]
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


def _in_one_count(rollouts: Sequence[Rollout], notes: list[str]) -> list[Rollout]:
    """The rollouts of a table to which a resumed run was appended, with updates that go on.

    Where updates go back to a checkpoint, those after it were lost and are left out; where they
    are counted from the first one again, they are numbered on. A table that is sorted by prompt or
    in no order stays as it is.
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
        notes.append(f"updates are counted from the first again {counted(restarts, 'time')}")
    if not kept.all():
        notes.append(f"{(~kept).sum():,} completions are left out: a resumed run replaces them")
    numbered = zip(rollouts, update.tolist(), kept, strict=True)
    return [rollout._replace(update=number) for rollout, number, keep in numbered if keep]


def _validation(batches: Mapping[Path, list[Rollout]]) -> dict[int, float]:
    """Update -> mean correctness, or else score, of verl's dumps of validation."""
    _, marked = _with_correctness([r for batch in batches.values() for r in batch], None)
    values = defaultdict[int, list[float]](list)
    for rollout in marked:
        grade = rollout.reward if rollout.correct is None else float(rollout.correct)
        if grade is not None:
            values[rollout.update].append(grade)
    return {update: sum(each) / len(each) for update, each in values.items()}


def _json_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    """The objects of JSON lines; an incomplete last line, of a live run, is left out."""
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
        values = {
            name: value
            for name, value in row.items()
            if name != "advantage" and (value is None or isinstance(value, float))
        }
        text = _text(row["completion"])
        yield Rollout(row["step"], _text(row["prompt"]), values, text=text)


def _verl(file: Path) -> Iterator[Rollout]:
    for row in _json_rows(file):
        uid = str(row.get("uid") or "")
        yield Rollout(
            row["step"],
            str(row["input"]),
            {"score": row["score"]} | {name: row[name] for name in ("acc",) if name in row},
            group=uid.rsplit("_", 2)[0] if uid.count("_") >= 2 else None,
            text=str(row["output"]),
        )


def _prime(file: Path) -> Iterator[Rollout]:
    """Episodes of prime-rl and verifiers v1; each trace that is trained on is a completion.

    Of prime-rl, all episodes: among those that were shipped, the groups without an advantage lack.
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
            )


def _verifiers(file: Path) -> Iterator[Rollout]:
    """results.jsonl of verifiers v0: an evaluation, of which all is at update 0."""
    for row in _json_rows(file):
        yield Rollout(
            0,
            str(row.get("example_id", _text(row["prompt"]))),
            json_object(row.get("metrics")),
            reward=row["reward"],
            tokens=json_object(row.get("token_usage")).get("output_tokens"),
            truncated=row.get("is_truncated"),
            text=_text(row["completion"]),
        )


def _nemo(file: Path) -> Iterator[Rollout]:
    update = _step_of(file)[0]
    for row in _json_rows(file):
        # Values stand in lists of one entry, or of all rollouts of a batch.
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
    json_rows = file.suffix in (".jsonl", ".json")  # the last may be incomplete, in a live run
    rows = list(_json_rows(file) if json_rows else read_file(file, []).rows)
    names = [*dict.fromkeys(name for row in rows for name in row)]
    columns = {kind: columns_in(roles, names) for kind, roles in _NEEDED.items()}
    prompt_names = sorted(columns["prompt"], key=lambda name: spelling(name) != "prompt_id")
    rewards, grades = columns_in(("reward",), names), columns_in(("correct",), names)
    graded = {*rewards, *grades, *(name for name in names if OF_CORRECTNESS.search(name))}
    texts = [name for name in columns_in(("completion",), names) if name not in prompt_names[:1]]
    others = {role: columns_in((role,), names) for role in ("group", "tokens", "truncated")}
    for number, row in enumerate(rows, 1):
        update, prompt = first_value(row, columns["update"]), first_value(row, prompt_names)
        if update is None or prompt is None:
            raise TaskError(f"row {number}: write the columns update, prompt and reward")
        text, group = first_value(row, texts), first_value(row, others["group"])
        yield Rollout(
            update,
            _text(prompt),
            {name: n for name in graded if (n := number_of(row.get(name))) is not None},
            reward=first_value(row, rewards),
            group=None if group is None else str(group),
            tokens=first_value(row, others["tokens"]),
            truncated=first_value(row, others["truncated"]),
            text=None if text is None else _text(text),
        )


def columns_in(roles: Sequence[str], names: Iterable[str]) -> list[str]:
    """The columns with these roles, in the order of the roles."""
    names = list(names)
    return [name for role in roles for name in columns_in_role(role, names)]


def first_value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of these columns that a row has; None without any."""
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
        )


def _open_instruct(file: Path) -> Iterator[Rollout]:
    """Written after open-instruct has dropped the groups whose rewards are equal, by default."""
    for row in _json_rows(file):
        yield Rollout(
            row["step"],
            json_text(row["prompt_tokens"]),
            {"reward": row["reward"]},
            group=str(row["prompt_idx"]),
            tokens=len(row["response_tokens"]),
            truncated=row["finish_reason"] == "length",
        )


TRL = Layout("TRL", ("completions_*.parquet",), frozenset(), _trl)
VERIFIERS = Layout(
    "verifiers", ("results.jsonl",), frozenset({"prompt", "completion", "reward"}), _verifiers
)
LAYOUTS = (
    TRL,
    Layout(
        "prime-rl",
        ("train/all/traces.jsonl", "traces.jsonl"),
        frozenset({"traces", "task", "run"}),
        _prime,
        spread=True,
    ),
    Layout("rLLM", ("train_step_*/episode_*.json",), frozenset(), _rllm, spread=True),
    Layout(
        "AReaL",
        ("rollout/*/*.jsonl",),
        frozenset({"tail_version", "prompt_len", "completion"}),
        _areal,
        spread=True,
    ),
    Layout(
        "open-instruct",
        ("*_rollouts_[0-9]*.jsonl",),
        frozenset({"prompt_idx", "prompt_tokens", "response_tokens"}),
        _open_instruct,
    ),
    Layout("verl", ("[0-9]*.jsonl",), frozenset({"input", "output", "score"}), _verl),
    VERIFIERS,
    Layout(
        "NeMo-RL",
        ("train_data_step*.jsonl",),
        frozenset({"content", "rewards", "input_lengths"}),
        _nemo,
    ),
)
TABLE = Layout("table", (), frozenset(), _table)


def _utf8(text: str) -> str:
    """The text, with halves of surrogate pairs, which JSON may hold, replaced."""
    return text.encode(errors="replace").decode()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _text(value: Any) -> str:
    """A text, or the messages of a chat as one."""
    if isinstance(value, str):
        return value
    if is_chat(value):
        return "\n".join(message_text(message.get("content")) for message in value)
    return json_text(value)


def _with_correctness(rollouts: Sequence[Rollout], named: str | None) -> tuple[str, list[Rollout]]:
    """The reward that says what is correct, and the rollouts with it and with their reward.

    It is the one named; else the only one with a name such as accuracy; else the only one. It has
    two values at most, of which the larger means correct; "" where there is none. Where the log
    has no rewards of its own, they are the sum of reward functions, whose weights no log holds.
    """
    values = defaultdict[str, set[float]](set)
    for rollout in rollouts:
        for name, value in rollout.rewards.items():
            number = number_of(value)
            if number is not None and np.isfinite(number) and len(values[name]) < 3:
                values[name].add(number)
    binary = [name for name, seen in values.items() if 0 < len(seen) <= 2 and _grades(seen)]
    likely = [name for name in binary if OF_CORRECTNESS.search(name)]
    summed = all(rollout.reward is None for rollout in rollouts)
    column = ""
    if named is not None:
        column = named if named in binary else ""
    elif len(likely) == 1 or (not likely and len(values) == 1 and binary):
        column = (likely or binary)[0]
    marked = []
    for rollout in rollouts:
        numbers = [n for value in rollout.rewards.values() if (n := number_of(value)) is not None]
        reward = rollout.reward
        if summed and numbers:
            reward = number_of(rollout.rewards.get("score"))
            reward = sum(numbers) if reward is None else reward
        grade = number_of(rollout.rewards.get(column)) if column else None
        marked.append(
            rollout._replace(
                reward=reward,
                correct=None if grade is None or np.isnan(grade) else grade == 1.0,
                rewards={},
            )
        )
    return column, marked


def _grades(values: set[float]) -> bool:
    """Whether values are right or wrong: 0 and 1, or -1 and 1."""
    return values <= {0.0, 1.0} or values <= {-1.0, 1.0}


def completions_of(rollouts: Sequence[Rollout]) -> pa.Table:
    """The table of diagnosis.COMPLETIONS, sorted by group.

    Where no group is named, the rollouts of a prompt in an update are one; if nearly all such
    numbers are multiples of the smallest that is not rare, that is the size of a group, and the
    others are several.
    """
    if not rollouts:
        return COMPLETIONS.empty_table()
    columns = list(zip(*rollouts, strict=True))
    named = dict(zip(Rollout._fields, columns, strict=True))
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
    table = pa.table(
        {
            "update": pa.array(update, pa.int32()),
            "group": pa.array(np.zeros(len(update)), pa.int64()),
            **{
                name: pa.array(values, COMPLETIONS.field(name).type)
                for name, values in (
                    ("prompt", named["prompt"]),
                    ("reward", named["reward"]),
                    ("correct", named["correct"]),
                    ("tokens", named["tokens"]),
                    ("truncated", named["truncated"]),
                    ("text", named["text"]),
                )
            },
        },
    ).take(pa.array(order))
    return table.set_column(1, "group", pa.array(code, pa.int64())).cast(COMPLETIONS)


def _group_size(sizes: np.ndarray) -> int:
    """The completions of a group, of the numbers of a prompt's in an update; 1 if unknown.

    A few incomplete groups, such as the last one of a run that goes on, do not set the size.
    """
    values, counts = np.unique(sizes, return_counts=True)
    least = int(values[counts >= RARE * len(sizes)].min(initial=int(values[-1])))
    return least if (sizes % least == 0).mean() >= 1 - RARE else 1


def _trainer_state(file: Path) -> dict[str, Any]:
    """TRL's trainer_state.json. Raises UserError or TaskError if it is none."""
    state = parse_json(read_bytes(file), str(file))
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise UserError(f"{file} is not a trainer_state.json: it has no log_history")
    return state


def _newest_state(
    path: Path, files: Sequence[Path], notes: list[str], *, needed: bool
) -> dict[str, Any] | None:
    """The longest of a run's states: its own, and those of its checkpoints.

    One that cannot be read is left out, with a note, where the log holds more. Raises UserError for
    states of several runs.
    """
    runs = {f.parent.parent if f.parent.name.startswith("checkpoint-") else f.parent for f in files}
    runs = {run for run in runs if not runs & {*run.parents}}
    if len(runs) > 1:
        names = ", ".join(sorted(map(str, runs)))
        raise UserError(f"{path} holds several runs: write one of {names}")
    states = []
    for file in files:
        try:
            states.append(_trainer_state(file))
        except (UserError, TaskError) as error:
            if needed and len(files) == 1:
                raise
            notes.append(f"{file.name} is left out: {error}")
    return max(states, key=lambda state: len(state["log_history"]), default=None)


def _refuse_several(path: Path, files: Sequence[Path]) -> None:
    """Raises UserError if files of metrics have updates in common: they are of several runs."""
    seen = set[int]()
    for file in files:
        steps = {step for row in _metric_rows([file]) if isinstance(step := row.get("step"), int)}
        if steps & seen:
            names = ", ".join(map(str, files))
            raise UserError(f"{path} holds metrics of several runs: write one of {names}")
        seen |= steps


def _refuse_rollouts(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises UserError if rows of metrics are rather those of completions, whose prompts are not
    known: the reward of an update is there more than twice on average."""
    rewarded = [row["step"] for row in rows if columns_in_role("reward", row)]
    if len(rewarded) > 2 * len({*rewarded}):
        names = ", ".join(dict.fromkeys(str(name) for row in rows for name in row))
        raise UserError(
            f"{path} has several rows per update, and no column is known as that of the prompts: "
            f"write the columns update, prompt and reward; it has: {names:.200}"
        )


def _has_metrics(file: Path) -> bool:
    """Whether a .jsonl file holds metrics by update."""
    return bool(metrics_of(_flat(row) for row in islice(_json_rows(file), METRIC_ROWS)))


def _metric_rows(files: Iterable[Path]) -> list[Mapping[str, Any]]:
    return [_flat(row) for file in files for row in _json_rows(file)]


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of metrics; verl's file logger has them in `data`."""
    return {"step": row.get("step"), **json_object(row.get("data", row))}


def metrics_of(history: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """The metrics under Decile's names, by update; a later row of an update replaces an earlier."""
    metrics: dict[str, dict[int, float]] = {}
    longest = set[Any]()
    for row in history:
        step = row.get("step")
        if not isinstance(step, int):
            continue
        for name, metric in METRICS.items():
            logged = (row.get(alias) for alias in metric.logged_as)
            numbers = (number for value in logged if (number := _logged(value)) is not None)
            if (value := next(numbers, None)) is not None:
                metrics.setdefault(name, {})[step] = value
        longest.add(number_of(row.get("response_length/max")))
        validation = (number_of(row[key]) for key in row if key.startswith("val-core/"))
        if (score := next(validation, None)) is not None:
            metrics.setdefault("evaluation", {})[step] = score
    if len(longest) > 2:  # verl counts those as long as the longest of the batch, whatever it is
        metrics.pop("truncated", None)
    return metrics


def _logged(value: Any) -> float | None:
    """A logged number, also one that is not finite, or its text; None for anything else."""
    if not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _is_lora(path: Path) -> bool | None:
    """Whether the run's folder has an adapter; None where it has no weights."""
    folder = path if path.is_dir() else path.parent
    if next(folder.rglob("adapter_config.json"), None):
        return True
    return False if next(folder.rglob("model*.safetensors"), None) else None
