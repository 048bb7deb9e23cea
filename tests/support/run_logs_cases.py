"""What the tests of run logs share."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

UPDATES, SIZE = 4, 4

# Of each update: a prompt that is all correct, one that is all wrong, and a live one.
MARKS = ((1, 1, 1, 1), (0, 0, 0, 0), (1, 0, 0, 1))


def rows() -> list[dict[str, Any]]:
    """One per completion, in the order of groups."""
    return [
        {"update": u, "prompt": f"What is {u} + {p}?", "place": p, "mark": m, "sample": s}
        for u in range(1, UPDATES + 1)
        for p, marks in enumerate(MARKS)
        for s, m in enumerate(marks)
    ]


def write_lines(file: Path, values: Sequence[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        stream.writelines(f"{json.dumps(value)}\n" for value in values)


def write_trl(folder: Path) -> None:
    history = []
    for update in range(1, UPDATES + 1):
        own = [row for row in rows() if row["update"] == update]
        table = {
            "step": [update] * len(own),
            "prompt": [[{"role": "user", "content": row["prompt"]}] for row in own],
            "completion": [[{"role": "assistant", "content": "so"}] for _ in own],
            "accuracy_reward": [float(row["mark"]) for row in own],
            "noise": [0.5] * len(own),  # of log_extra
            "advantage": [0.0] * len(own),
        }
        file = folder / "completions" / f"completions_{update:05d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), file)
        mean = sum(row["mark"] for row in own) / len(own)
        history.append({"step": update, "reward": mean, "rewards/accuracy_reward/mean": mean})
    state = {"global_step": UPDATES, "max_steps": UPDATES, "log_history": history}
    (folder / "checkpoint-4").mkdir()
    (folder / "checkpoint-4" / "trainer_state.json").write_text(json.dumps(state))


def write_verl(folder: Path, *, uid: bool = True) -> None:
    for row in rows():
        value = {"input": row["prompt"], "output": "so", "gts": "1", "score": 2.0 * row["mark"] - 1}
        value |= {"step": row["update"]}
        if uid:
            value["uid"] = f"{row['update']}a{row['place']}_{row['sample']}_0"
        write_lines(folder / f"{row['update']}.jsonl", [value])


def write_prime(folder: Path) -> None:
    for row in rows():
        data = {"idx": row["place"], "prompt": row["prompt"]}
        message = {"sampled": True, "message": {"role": "assistant", "content": "so"}}
        trace = {
            "agent": {"trainable": True},
            "trainable": True,
            "nodes": [message],
            "calls": [{"finish_reason": "stop"}],
            "rewards": {"correct": {"score": float(row["mark"]), "weight": 1.0}},
            "num_output_tokens": 5,
        }
        episode = {
            "task": {"key": row["prompt"], "data": data},
            "group": {"id": f"{row['update']}-{row['place']}"},
            "run": {"type": "train", "work": {"type": "train", "step": row["update"]}},
            "traces": [trace],
        }
        step = folder / "rollouts" / f"step_{row['update']}" / "train"
        write_lines(step / "all" / "traces.jsonl", [episode])
        if row["place"] == 2:  # only groups with an advantage are shipped
            write_lines(step / "effective" / "traces.jsonl", [episode])


def write_verifiers(folder: Path) -> None:
    write_lines(
        folder / "results.jsonl",
        [
            {
                "example_id": row["prompt"],
                "prompt": [{"role": "user", "content": row["prompt"]}],
                "completion": [{"role": "assistant", "content": "so"}],
                "reward": float(row["mark"]),
                "metrics": {"correct": float(row["mark"]), "num_turns": 1.0},
                "token_usage": {"output_tokens": 5},
                "is_truncated": False,
            }
            for row in rows()
        ],
    )


def write_nemo(folder: Path) -> None:
    for row in rows():
        value = {
            "content": [[row["prompt"], "so"]],
            "rewards": [float(row["mark"])],
            "input_lengths": [9],
            "token_loss_mask": [[0.0, 1.0, 1.0]],
        }
        write_lines(folder / f"train_data_step{row['update']}.jsonl", [value])


def write_rllm(folder: Path) -> None:
    for number, row in enumerate(rows()):
        file = folder / f"train_step_{row['update']}_epoch_0" / f"episode_hash{number}_id0.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        episode = {
            "training_step": row["update"],
            "task_hash": row["prompt"],
            "is_correct": bool(row["mark"]),
            "termination_reason": "env_done",
            "trajectories": [{"reward": float(row["mark"]), "steps": []}],
        }
        file.write_text(json.dumps(episode))


def write_areal(folder: Path) -> None:
    for row in rows():
        task = 3 * row["update"] + row["place"]
        value = {"task_id": task, "seqlen": 14, "prompt_len": 4, "tail_version": row["update"]}
        value |= {"reward": float(row["mark"]), "prompt": row["prompt"], "completion": "so"}
        write_lines(folder / "rollout" / str(row["update"]) / f"{task}.jsonl", [value])


def write_swift(folder: Path) -> None:
    for update in range(1, UPDATES + 1):
        own = [row for row in rows() if row["update"] == update]
        batch = {
            "step": [str(update)] * len(own),
            "prompt": [f"<|user|>{row['prompt']}" for row in own],
            "completion": ["so"] * len(own),
            "Accuracy": [float(row["mark"]) for row in own],
            "advantages": [0.0] * len(own),
        }
        write_lines(folder / "completions.jsonl", [batch])
        metrics = {"reward": 0.5, "reward_std": 0.3, "global_step/max_steps": f"{update}/{UPDATES}"}
        write_lines(folder / "logging.jsonl", [metrics])


WRITERS: dict[str, Callable[[Path], None]] = {
    "TRL": write_trl,
    "verl": write_verl,
    "prime-rl": write_prime,
    "verifiers": write_verifiers,
    "NeMo-RL": write_nemo,
    "rLLM": write_rllm,
    "AReaL": write_areal,
    "ms-swift": write_swift,
}


# Values of a wrong type, or of the right type and no sense, for every field of a row.
STRANGE = [None, "x", "\ud800", -1, 10**400, 2**40, float("nan"), float("inf"), True, [], [[]], {}]
