"""Simulated runs as files of trainers, with every column and metric, or without some of them.

A writer gets a folder, the rows of completions and the metrics by update, and returns the path for
`decile diagnose`. `without` names columns of rows and metrics that are left out if a format has
them; OPTIONAL lists all that can be left out. Fields are those of the trainers' source (see
tests/pure/evaluation/test_run_logs.py).
"""

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.simulated_runs import USUAL, Row
from orchestrator.evaluation.run_log import METRICS

Series = Mapping[str, Any]  # name of Decile -> [updates]
Without = frozenset[str]
COLUMNS = (
    *("reward", "correct", "tokens", "truncated", "text", "gold", "source", "version", "group"),
    *("advantage", "format"),
)
OPTIONAL = (*COLUMNS, *USUAL, "dead", "reward_std", "reward_high")


def of_updates(rows: list[Row]) -> list[tuple[int, list[Row]]]:
    """The rows of each update."""
    ordered = sorted(rows, key=lambda row: row["update"])
    return [(update, [*own]) for update, own in groupby(ordered, key=lambda row: row["update"])]


def without_columns(row: Row, without: Without) -> Row:
    """A row as in a table."""
    text = {"completion": f"so \\boxed{{{row['answer']}}}"} if "text" not in without else {}
    own = {name: row[name] for name in row if name not in {"answer", *without}}
    return own | text


def metrics_of(rows: list[Row], series: Series, without: Without, verl: bool) -> list[Row]:
    """A row of metrics per update, under the names of TRL or verl: rewards and others."""
    lines = []
    for update, own in of_updates(rows):
        rewards = np.array([row["reward"] for row in own])
        deviations = [
            np.std([row["reward"] for row in of])
            for _, of in groupby(own, lambda row: row["prompt"])
        ]
        values = {name: each[update - 1] for name, each in series.items() if update <= len(each)}
        values |= {"reward": rewards.mean(), "tokens": np.mean([row["tokens"] for row in own])}
        values |= {"truncated": np.mean([row["truncated"] for row in own])}
        if verl:
            values |= {"reward_high": rewards.max(), "reward_low": rewards.min()}
        else:
            values |= {"dead": np.mean(np.equal(deviations, 0)), "reward_std": np.mean(deviations)}
        line: Row = {"step": update}
        for name, value in values.items():
            names = METRICS[name].logged_as
            own_name = [
                each for each in names if each.startswith(("actor/", "critic/", "response"))
            ]
            if name not in without:
                line[own_name[0] if verl and own_name else names[0]] = float(value)
        functions = {
            name: [row[name] for row in own] for name in ("correct", "format") if name in own[0]
        }
        if not verl and not without & {"reward", "format"}:
            other = [row["reward"] - row["correct"] for row in own]
            functions |= {"other": other} if np.any(other) else {}
            line |= {f"rewards/{n}/mean": float(np.mean(each)) for n, each in functions.items()}
        lines.append(line)
    return lines


def write_json_lines(file: Path, rows: Iterable[Any]) -> Path:
    """Write a value per line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def write_by_file(lines: Mapping[Path, list[Row]]) -> None:
    """Write the lines of each file."""
    for file, own in lines.items():
        write_json_lines(file, own)


def write_table(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """A table of JSON lines, without metrics."""
    return write_json_lines(folder / "log.jsonl", (without_columns(r, without) for r in rows))


def write_csv(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """A table of texts in other spellings: 1.0 as update, yes and no, nan for unknown formats."""
    folder.mkdir(parents=True)
    own = [without_columns(row, without) | {"update": float(row["update"])} for row in rows]
    for row in own:
        if "correct" in row:
            row["correct"] = "yes" if row["correct"] else "no"
    names = [*dict.fromkeys(name for row in own for name in row), "note"]
    with (folder / "log.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(row | {"note": "nan"} for row in own)
    return folder / "log.csv"


def write_parquet(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """A table of Parquet, with the grade in percent."""
    folder.mkdir(parents=True)
    own = [without_columns(row, without) for row in rows]
    own = [row | ({"correct": 100 * row["correct"]} if "correct" in row else {}) for row in own]
    pq.write_table(pa.Table.from_pylist(own), folder / "log.parquet")
    return folder / "log.parquet"


def write_trl(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """trainer_state.json and completions/*.parquet."""
    write_trl_state(folder, rows, series, without)
    if {"reward", "correct"} <= without and "advantage" in without:
        return folder
    for update, own in of_updates(rows):
        groups = np.array([row["prompt"] for row in own])
        rewards = np.array([row["reward"] for row in own])
        means = np.array([rewards[groups == group].mean() for group in groups])
        table: dict[str, Any] = {
            "step": [update] * len(own),
            "prompt": [[{"role": "user", "content": row["prompt"]}] for row in own],
            "completion": [
                "" if "text" in without else f"so \\boxed{{{r['answer']}}}" for r in own
            ],
            "advantage": rewards - means,
        }
        if "correct" not in without:
            table["correct"] = [float(row["correct"]) for row in own]
            if np.any(rewards != table["correct"]) and "reward" not in without:
                table["other"] = rewards - table["correct"]
        elif "reward" not in without:
            table["reward_function"] = rewards
        for name in {"gold", "source"} - without:
            table["ground_truth" if name == "gold" else name] = [row[name] for row in own]
        if "format" in own[0] and "format" not in without:
            table["format"] = [row["format"] for row in own]
        file = folder / "completions" / f"completions_{update:05d}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(table), file)
    return folder


def write_trl_state(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """Only trainer_state.json, as written by TRL up to 0.27."""
    folder.mkdir(parents=True)
    history = metrics_of(rows, series, without, verl=False)
    if not any("loss" in line or len(line) > 1 for line in history):
        history = [line | {"reward": 0.0} for line in history]
    state = {"global_step": len(history), "max_steps": len(history), "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def write_trl_old(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """trainer_state.json of TRL up to 0.19, which has no share of dead groups."""
    return write_trl_state(folder, rows, series, without | {"dead"})


def write_swift(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """logging.jsonl and completions.jsonl of ms-swift."""
    history = metrics_of(rows, series, without, verl=False)
    lines = [
        {**line, "global_step/max_steps": f"{line.pop('step')}/{len(history)}"} for line in history
    ]
    write_json_lines(folder / "logging.jsonl", lines)
    batches = []
    for update, own in of_updates(rows):
        batch = {
            "step": [str(update)] * len(own),
            "prompt": [row["prompt"] for row in own],
            "completion": [
                "" if "text" in without else f"so \\boxed{{{r['answer']}}}" for r in own
            ],
            "advantages": [row["reward"] for row in own],
        }
        if "correct" not in without:
            batch["correct"] = [float(row["correct"]) for row in own]
            batch["other"] = [row["reward"] - row["correct"] for row in own]
        if "gold" not in without:
            batch["solution"] = [row["gold"] for row in own]
        batches.append(batch)
    write_json_lines(folder / "completions.jsonl", batches)
    return folder


def write_verl(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """Dumps of rollouts, and the metrics of the file logger."""
    lines = defaultdict[Path, list[Row]](list)
    for row in rows:
        name = f"{row['group']}_0_0"
        line = {"input": row["prompt"], "score": row["reward"], "step": row["update"]}
        line |= {"output": "" if "text" in without else f"so \\boxed{{{row['answer']}}}"}
        optional = {"correct": ("acc", row["correct"]), "group": ("uid", name)}
        optional |= {"gold": ("gts", row["gold"]), "source": ("data_source", row["source"])}
        line |= dict(pair for column, pair in optional.items() if column not in without)
        lines[folder / f"{row['update']}.jsonl"].append(line)
    write_by_file(lines)
    return write_verl_metrics(folder, rows, series, without)


def write_verl_metrics(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """The metrics of the file logger."""
    lines = metrics_of(rows, series, without, verl=True)
    pairs = ({"step": line.pop("step"), "data": line} for line in lines)
    write_json_lines(folder / "metrics.jsonl", pairs)
    return folder


def write_prime(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """Episodes of prime-rl, each with one trace."""
    lines = defaultdict[Path, list[Row]](list)
    for row in rows:
        text = "" if "text" in without else f"so \\boxed{{{row['answer']}}}"
        trace: Row = {
            "trainable": True,
            "nodes": [{"sampled": True, "message": {"role": "assistant", "content": text}}],
            "rewards": {},
        }
        if "correct" not in without:
            trace["rewards"]["correct"] = {"score": float(row["correct"]), "weight": 1.0}
        if "reward" not in without:
            rest = row["reward"] - (0 if "correct" in without else row["correct"])
            trace["rewards"]["other"] = {"score": rest, "weight": 1.0}
        if "truncated" not in without:
            trace["calls"] = [{"finish_reason": "length" if row["truncated"] else "stop"}]
        if "tokens" not in without:
            trace["num_output_tokens"] = row["tokens"]
        data = {"answer": row["gold"]} if "gold" not in without else {}
        data |= {"source": row["source"]} if "source" not in without else {}
        episode = {"task": {"key": row["prompt"], "data": data}, "traces": [trace]}
        episode["run"] = {"type": "train", "work": {"type": "train", "step": row["update"]}}
        if "group" not in without:
            episode["group"] = {"id": row["group"]}
        step = folder / "rollouts" / f"step_{row['update']}" / "train" / "all"
        lines[step / "traces.jsonl"].append(episode)
    write_by_file(lines)
    return folder


def write_verifiers(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """results.jsonl of an evaluation, which has no updates."""
    lines = []
    for row in rows:
        text = "" if "text" in without else f"so \\boxed{{{row['answer']}}}"
        line = {"example_id": row["prompt"], "prompt": row["prompt"], "completion": text}
        line |= {"reward": row["reward"], "is_truncated": row["truncated"], "answer": row["gold"]}
        line |= {
            "metrics": {"correct": row["correct"]},
            "token_usage": {"output_tokens": row["tokens"]},
        }
        names = {"correct": "metrics", "tokens": "token_usage", "truncated": "is_truncated"}
        names |= {"gold": "answer"}
        dropped = {names[name] for name in without if name in names}
        lines.append({name: value for name, value in line.items() if name not in dropped})
    write_json_lines(folder / "results.jsonl", lines)
    return folder


def write_nemo(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """train_data_stepN.jsonl of NeMo-RL."""
    lines = defaultdict[Path, list[Row]](list)
    for row in rows:
        text = "" if "text" in without else f"so \\boxed{{{row['answer']}}}"
        line = {
            "content": [[row["prompt"], text]],
            "rewards": [row["reward"]],
            "input_lengths": [9],
        }
        if "tokens" not in without:
            line["token_loss_mask"] = [[1.0] * row["tokens"]]
        lines[folder / f"train_data_step{row['update']}.jsonl"].append(line)
    write_by_file(lines)
    return folder


def write_rllm(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """episodes of rLLM, a file each."""
    for number, row in enumerate(rows):
        task = {"ground_truth": row["gold"], "data_source": row["source"]}
        names = {"gold": "ground_truth", "source": "data_source"}
        for name in without & {*names}:
            del task[names[name]]
        episode = {"training_step": row["update"], "task_hash": row["prompt"], "task": task}
        episode["termination_reason"] = "max_tokens" if row["truncated"] else "env_done"
        if "correct" not in without:
            episode["is_correct"] = bool(row["correct"])
        reward = {} if "reward" in without else {"reward": row["reward"]}
        episode["trajectories"] = [reward]
        file = folder / f"train_step_{row['update']}_epoch_0" / f"episode_{number}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(episode))
    return folder


def write_areal(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """rollout/V/T.jsonl of AReaL."""
    lines = defaultdict[Path, list[Row]](list)
    for row in rows:
        line = {"task_id": row["group"], "seqlen": 4 + row["tokens"], "prompt_len": 4}
        line |= {"tail_version": row["update"], "reward": row["reward"], "prompt": row["prompt"]}
        line["completion"] = "" if "text" in without else f"so \\boxed{{{row['answer']}}}"
        if "version" not in without:
            line["head_version"] = row["version"]
        lines[folder / "rollout" / str(row["update"]) / f"{row['group']}.jsonl"].append(line)
    write_by_file(lines)
    return folder


def write_open_instruct(folder: Path, rows: list[Row], series: Series, without: Without) -> Path:
    """RUN_rollouts_N.jsonl of open-instruct."""
    lines = []
    for row in rows:
        line = {"step": row["update"], "prompt_idx": row["group"], "reward": row["reward"]}
        line |= {"prompt_tokens": [row["prompt"]], "response_tokens": [0] * row["tokens"]}
        line |= {"finish_reason": "length" if row["truncated"] else "stop"}
        line |= {} if "gold" in without else {"ground_truth": row["gold"]}
        line |= {} if "source" in without else {"dataset": row["source"]}
        lines.append(line)
    write_json_lines(folder / "run_rollouts_000000.jsonl", lines)
    return folder


WRITERS: Mapping[str, Callable[[Path, list[Row], Series, Without], Path]] = {
    "table": write_table,
    "table of texts (CSV)": write_csv,
    "table (Parquet)": write_parquet,
    "TRL": write_trl,
    "TRL, state alone": write_trl_state,
    "TRL up to 0.19, state alone": write_trl_old,
    "ms-swift": write_swift,
    "verl": write_verl,
    "verl, metrics alone": write_verl_metrics,
    "prime-rl": write_prime,
    "verifiers": write_verifiers,
    "NeMo-RL": write_nemo,
    "rLLM": write_rllm,
    "AReaL": write_areal,
    "open-instruct": write_open_instruct,
}
