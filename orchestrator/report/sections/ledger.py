"""Tables from rows and their ledgers: results, consumption, live and dead groups."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from orchestrator.config.experiment import value_text
from orchestrator.evaluation.groups import GroupShares
from orchestrator.report.compare import Family
from orchestrator.report.content import Table
from orchestrator.report.rows import Row, training_tiers
from orchestrator.report.sections.tables import NONE, effect_text
from orchestrator.training.record import pulls_to_base

LEDGER = {  # column headings
    "prompts": "prompts",
    "epochs": "epochs",
    "rollouts": "rollouts",
    "discarded_rollouts": "discarded rollouts",
    "generated_tokens": "generated tokens",
    "discarded_tokens": "discarded tokens",
    "truncated_tokens": "truncated tokens",
    "updates": "updates",
    "live": "live",
    "all_right": "all correct",
    "all_wrong": "all wrong",
    "kl_only_updates": "KL-only updates",
    "seconds": "seconds",
    "gpu_seconds": "GPU seconds",
}
SPLIT = ("live", "all correct", "all wrong", "of these truncated")


def results(rows: Sequence[Row]) -> Table:
    """Every cell by itself."""
    swept = list(dict.fromkeys(axis for row in rows for axis in row.cell.swept))
    discards = any("learnable_drawn_pct" in row.result for row in rows)
    of_drawn = ("of drawn", "rollouts", "discarded %") * discards
    head = (
        *("model", "dataset", "policy", "seed", *swept, "accuracy", "gain in points [95 %]"),
        *("learnable %", *of_drawn, "updates", "generated tokens", "seconds", "tied at cutoff"),
    )
    drawn = (
        " Learnable % is the share of live groups among those trained on; of drawn: among all that "
        "were drawn. Rollouts and tokens include the discarded ones."
    )
    return Table(
        "Every cell",
        head,
        [_result(row, swept, discards) for row in rows],
        "Gain: final minus base accuracy of this run, with its 95 % interval over questions; it "
        "does not cover other seeds. Generated tokens: those of training. Tied at cutoff: prompts "
        "chosen at random among those whose score equals that of the last chosen one."
        + drawn
        * discards,
    )


def _result(row: Row, swept: Sequence[str], discards: bool) -> tuple[str, ...]:
    result, ledger = row.result, row.result["ledger"]
    lost = ledger.get("discarded_rollouts", 0)
    of_drawn = (
        f"{result.get('learnable_drawn_pct', result['learnable_pct']):.1f}",
        f"{ledger['rollouts']:,}",
        f"{100 * lost / max(1, ledger['rollouts']):.1f}",
    )
    return (
        *(result["model"], result["dataset"], result["policy"], str(result["seed"])),
        *(value_text(row.cell.swept.get(axis, NONE)) for axis in swept),
        " → ".join(
            f"{value:.3f}" if isfinite(value) else NONE
            for value in (result["accuracy_base"], result["accuracy_final"])
        ),
        effect_text(row.gain),
        f"{result['learnable_pct']:.1f}",
        *(of_drawn if discards else ()),
        str(result["updates"]),
        f"{ledger['generated_tokens']:,}",
        f"{ledger['seconds']:.0f}",
        f"{row.ties['chosen']} of {row.ties['pool']}" if row.ties else NONE,
    )


def ledgers(rows: Sequence[Row]) -> Table:
    """What each cell consumed."""
    shown = [name for name in LEDGER if any(name in row.result["ledger"] for row in rows)]
    body = [
        (row.cell.name, *(_amount(row.result["ledger"].get(name)) for name in shown))
        for row in rows
    ]
    return Table(
        "Ledger",
        ("cell", *(LEDGER[name] for name in shown)),
        body,
        "What each cell consumed. live, all correct and all wrong count groups; truncated tokens "
        "are those of answers cut off by the token limit. Rollouts and tokens include those that "
        "an online policy drew and discarded; prompts and groups are those trained on. KL-only "
        "updates had no live group, so that only the KL term changed the weights. Seconds are "
        "training time without evaluations.",
    )


def _amount(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def groups(families: Sequence[Family]) -> Table:
    """Live and dead groups, and the shares of tokens and updates with a learning signal."""
    body = []
    discards = any("discarded" in row.result["ledger"] for f in families for row in f.rows)
    for family in families:
        for policy, rows in family.by_policy().items():
            ledgers = [row.result["ledger"] for row in rows]
            live = [each["live_tokens"] / max(1, each["generated_tokens"]) for each in ledgers]
            drawn = [(e["live"] + e.get("discarded_live", 0)) / max(1, _groups(e)) for e in ledgers]
            lost = [e.get("discarded", 0) / max(1, _groups(e)) for e in ledgers]
            dead = [[shares.live == 0 for shares in row.shares.values()] for row in rows]
            kl_only = NONE
            if any(pulls_to_base(row.cell) for row in rows):
                kl_only = _percent([e["kl_only_updates"] / max(1, e["updates"]) for e in ledgers])
            body.append(
                (
                    family.title,
                    policy,
                    *_split([_shares(ledger) for ledger in ledgers]),
                    *((_percent(drawn), _percent(lost)) if discards else ()),
                    _percent(live),
                    _percent([float(np.mean(updates or [False])) for updates in dead]),
                    kl_only,
                )
            )
    return Table(
        "Live and dead groups",
        (
            *("model and data", "policy", *SPLIT, *(("live of drawn", "discarded") * discards)),
            *("live tokens", "dead updates", "KL only"),
        ),
        body,
        "% of groups, of generated tokens and of updates, mean over seeds. Truncated: all wrong, "
        "and at least half of the answers were cut off by the token limit. Live tokens: the share "
        "of generated tokens with a nonzero advantage. Dead updates have no live group: only the "
        "KL term changes the weights where beta > 0 and dead groups are not masked; otherwise "
        "nothing does (–)."
        + discards
        * " Kinds of groups are those of groups trained on; live of drawn and discarded are "
        "shares of all groups drawn, while learnable % averages over updates.",
    )


def groups_by_tier(families: Sequence[Family]) -> Table:
    """The same split for each tier of the training prompts; empty where they have none."""
    body = []
    for family in families:
        for tier in training_tiers(family.rows):
            for policy, rows in family.by_policy().items():
                shares = [row.tier_shares[tier] for row in rows if tier in row.tier_shares]
                if shares:
                    body.append((family.title, tier, policy, *_split(shares)))
    caption = "% of the groups of that tier, mean over the seeds that had any."
    head = ("model and data", "tier", "policy", *SPLIT)
    return Table("Groups by tier", head, body, caption, folded=True)


def _groups(ledger: dict[str, Any]) -> int:
    """Groups that were drawn."""
    kinds = ("live", "all_right", "all_wrong", "unmarked", "discarded")
    return sum(ledger.get(kind, 0) for kind in kinds)


def _shares(ledger: dict[str, Any]) -> GroupShares:
    kinds = ("live", "all_right", "all_wrong", "all_wrong_truncated", "unmarked")
    counts = [ledger.get(kind, 0) for kind in kinds]
    groups = max(1, sum(counts) - counts[3])  # truncated groups are all wrong too
    return GroupShares(*(count / groups for count in counts))


def _split(shares: Sequence[GroupShares]) -> list[str]:
    """live, all correct, all wrong and truncated in %, mean over seeds."""
    return [f"{100 * value:.1f}" for value in np.mean(np.array(shares), axis=0)[:4]]


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * float(np.mean(shares)):.1f}"
