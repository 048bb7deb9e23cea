"""What cells consumed, and how much of it could teach anything: tables from their ledgers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.evaluation.groups import GroupShares
from orchestrator.report.families import Family
from orchestrator.report.rows import Row
from orchestrator.report.tables import NONE, Table
from orchestrator.training.ledger import pulls_to_base

LEDGER = (
    "prompts",
    "epochs",
    "rollouts",
    "generated_tokens",
    "truncated_tokens",
    "updates",
    "live",
    "all_right",
    "all_wrong",
    "kl_only_updates",
    "seconds",
    "gpu_seconds",
)
SPLIT = ("live", "all right", "all wrong", "of these truncated")


def ledgers(rows: Sequence[Row]) -> Table:
    """What every cell consumed."""
    shown = [name for name in LEDGER if any(name in row.result["ledger"] for row in rows)]
    body = [
        (row.cell.name, *(_amount(row.result["ledger"].get(name)) for name in shown))
        for row in rows
    ]
    return Table(
        "Ledger",
        ("cell", *(name.replace("_", " ") for name in shown)),
        body,
        "What each cell consumed. live, all right, all wrong are groups; truncated tokens are of "
        "answers cut by the limit; KL only updates had no live group, so that only the pull to the "
        "base model moved the weights. Seconds are of training, without evaluations.",
    )


def _amount(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def groups(families: Sequence[Family]) -> Table:
    """Groups by what they can teach, and what of tokens and updates that leaves."""
    body = [
        (
            family.title,
            policy,
            *_split([_shares(row.result["ledger"]) for row in rows]),
            _percent([_live_tokens(row) for row in rows]),
            _percent([_dead_updates(row) for row in rows]),
            _kl_alone(rows),
        )
        for family in families
        for policy, rows in family.by_policy().items()
    ]
    return Table(
        "What the groups could teach",
        ("model and data", "policy", *SPLIT, "live tokens", "dead updates", "by KL alone"),
        body,
        "% of groups, of generated tokens and of updates, mean over seeds. Truncated: all wrong, "
        "and at least half of the answers were cut by the token limit, so there was too little "
        "room. Live tokens: the share of the loss's tokens that have an advantage. Dead updates "
        "have no live group: the KL term alone moves the weights where beta is above 0 and dead "
        "groups are not masked, and nothing does elsewhere (–).",
    )


def groups_by_tier(families: Sequence[Family]) -> Table:
    """The same split for each tier of the training prompts; empty where they have none."""
    body = []
    for family in families:
        for tier in tiers_of(family.rows):
            for policy, rows in family.by_policy().items():
                shares = [row.tier_shares[tier] for row in rows if tier in row.tier_shares]
                if shares:
                    body.append((family.title, tier, policy, *_split(shares)))
    note = "% of the groups of that tier, mean over the seeds that had any."
    return Table("Groups by tier", ("model and data", "tier", "policy", *SPLIT), body, note)


def tiers_of(rows: Sequence[Row]) -> list[str]:
    """The tiers of the prompts that were trained on, in rising order."""
    found = {tier for row in rows for tier in row.tier_shares if tier}
    return sorted(found, key=lambda name: (len(name), name))


def _shares(ledger: dict[str, Any]) -> GroupShares:
    kinds = ("live", "all_right", "all_wrong", "all_wrong_truncated", "unmarked")
    counts = [ledger.get(kind, 0) for kind in kinds]
    groups = max(1, sum(counts) - counts[3])  # truncated ones are among the all wrong
    return GroupShares(*(count / groups for count in counts))


def _split(shares: Sequence[GroupShares]) -> list[str]:
    """live, all right, all wrong and truncated in %, mean over seeds."""
    return [f"{100 * value:.1f}" for value in np.mean(np.array(shares), axis=0)[:4]]


def _live_tokens(row: Row) -> float:
    """Share of the generated tokens that stand in live groups."""
    ledger = row.result["ledger"]
    return float(ledger["live_tokens"] / max(1, ledger["generated_tokens"]))


def _dead_updates(row: Row) -> float:
    """Share of updates none of whose groups was live."""
    dead = [float(shares.live == 0) for shares in row.shares.values()]
    return float(np.mean(dead)) if dead else 0.0


def _kl_alone(rows: Sequence[Row]) -> str:
    if not any(pulls_to_base(row.cell) for row in rows):
        return NONE
    spent = [row.result["ledger"] for row in rows]
    return _percent([one["kl_only_updates"] / max(1, one["updates"]) for one in spent])


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * float(np.mean(shares)):.1f}"
