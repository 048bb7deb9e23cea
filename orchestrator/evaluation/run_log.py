"""The log of a GRPO run of any trainer: a table of its completions, and metrics by update. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from orchestrator.plugins.row_counts import RowCounts

# One row per completion, sorted by group. A column that the log does not hold is null.
COMPLETIONS = pa.schema(
    {
        "update": pa.int32(),
        "group": pa.int64(),  # numbered within the run
        "prompt": pa.string(),
        "reward": pa.float64(),
        "correct": pa.bool_(),
        "tokens": pa.int32(),
        "truncated": pa.bool_(),
        "text": pa.large_string(),
        "advantage": pa.float64(),  # where it says more than the reward
        "gold": pa.string(),
        "source": pa.string(),
        "version": pa.int32(),  # of the weights that wrote it
        "named_group": pa.string(),  # as the log numbers groups
    }
)


class Metric(NamedTuple):
    """A number by update: its description, and its names in trainers' logs; the first one counts.

    text: "" if its absence is not reported. panel: whether it is drawn if a log has it.
    """

    text: str
    logged_as: tuple[str, ...] = ()
    panel: bool = False


# Metrics under one name, whatever the trainer calls them.
METRICS = {
    "reward": Metric(
        "mean reward",
        ("reward", "critic/score/mean", "train/agg/all/agent/reward/mean"),
        panel=True,
    ),
    "correct": Metric("share of correct completions", panel=True),
    "dead": Metric("share of groups whose rewards are equal", ("frac_reward_zero_std",)),
    "reward_std": Metric("", ("reward_std",)),
    "reward_high": Metric("", ("critic/score/max",)),
    "reward_low": Metric("", ("critic/score/min",)),
    "truncated": Metric(
        "share of completions that end at the token limit",
        (
            "completions/clipped_ratio",
            "response_length/clip_ratio",
            "train/agg/all/agent/is_truncated/mean",
        ),
        panel=True,
    ),
    "tokens": Metric(
        "mean tokens of a completion",
        ("completions/mean_length", "completion_length", "response_length/mean"),
        panel=True,
    ),
    "entropy": Metric(
        "entropy of the next token, in nats",
        ("entropy", "actor/entropy", "actor/entropy_loss", "entropy/all/mean"),
        panel=True,
    ),
    "kl": Metric(
        "KL divergence from the reference model",
        ("kl", "actor/kl_loss", "actor/reward_kl_penalty"),
        panel=True,
    ),
    "clipped": Metric(
        "share of tokens whose ratio is clipped",
        ("clip_ratio/region_mean", "clip_ratio", "actor/pg_clipfrac"),
    ),
    "logp_difference": Metric(
        "mean |log-probability of the sampler - of the trainer|",
        ("sampling/sampling_logp_difference/mean",),
    ),
    "stale": Metric(
        "number of updates between the weights that wrote completions and the trainer's",
        ("off_policy_level/all/mean", "batch/off_policy_level/mean"),
    ),
    "grad_norm": Metric(
        "norm of the gradient before clipping",
        ("grad_norm", "actor/grad_norm", "optim/grad_norm"),
        panel=True,
    ),
    "loss": Metric("loss", ("loss", "actor/pg_loss")),
    "learning_rate": Metric("learning rate", ("learning_rate", "actor/lr", "optim/lr")),
    "seconds": Metric(
        "seconds of an update",
        ("step_time", "timing_s/step", "perf/time_per_step", "time/step"),
    ),
    "evaluation": Metric("score on held-out questions", ("eval_reward",), panel=True),
}


@dataclass(frozen=True)
class RunLog:
    """What the files of one run hold. `metrics`: name of METRICS -> update -> value.

    planned: the planned number of updates; most_tokens: the token limit of a completion; lora:
    whether an adapter is trained; running: whether files were written a moment ago. None: unknown.
    `by_correct`: the column or rule that says which completions are correct; "" if none does.
    weights: of reward functions, by name; {} if they are unknown. unreadable: metrics and columns
    of COMPLETIONS with values that cannot be read. rows: the completions of the files, or the rows
    of metrics if they hold no completions.
    """

    name: str
    layout: str
    completions: pa.Table
    metrics: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    planned: int | None = None
    most_tokens: int | None = None
    lora: bool | None = None
    running: bool = False
    by_correct: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    rows: RowCounts = RowCounts(0)
