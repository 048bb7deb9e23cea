"""Why updates teach nothing, and which setting of the cell would change that. Pure."""

from collections.abc import Callable

from orchestrator.evaluation.groups import Tally
from orchestrator.planning.cells import Cell

# An update is explained when at most this share of its groups is live.
HARDLY_ANY = 1 / 8
# What to change in the choice of prompts, by the cell's policy; of all others, the policy itself.
SUBSET = ("dynamic", "balanced", "pools", "predicted", "curriculum")
EASIER = {
    "tiers": "choose easier tiers",
    "band": "choose a band of higher pass rates",
    **dict.fromkeys(SUBSET, "choose from an easier subset"),
}
HARDER = {
    "tiers": "choose harder tiers",
    "band": "choose a band of lower pass rates",
    **dict.fromkeys(SUBSET, "choose from a harder subset"),
}
# Policies that take the easiest or hardest prompts already, or the most learnable ones.
MIDDLING = ("middle", "learnable")
EASIEST = (*MIDDLING, "easy", "base_right")
HARDEST = ("hard", "hardest_nonzero", "base_wrong")

ALL_DISCARDED = "every group drawn was discarded: raise max_draws, or choose from another subset"

# policy -> mean pass rate of the prompts that it would choose, minus that of the cell's prompts
RateChange = Callable[[str], float]


def explain_dead_groups(cell: Cell, tally: Tally, rate_change: RateChange) -> str | None:
    """Why these groups teach nothing and what to change in this cell; None where enough are live.

    Other prompts are advised only where there are any: `rate_change` says how much easier (above
    0) or harder those of another policy are. For people: "7 of 8 groups all wrong, 5 of them
    truncated: raise grpo.max_completion_length (250)".
    """
    if cell.online and tally.groups == 0:
        return ALL_DISCARDED
    if tally.groups == 0 or tally.live > HARDLY_ANY * tally.groups:
        return None
    counts = {
        "all wrong": tally.all_wrong,
        "all correct": tally.all_right,
        "unmarked": tally.unmarked,
    }
    kinds = sorted((kind for kind in counts if counts[kind]), key=lambda kind: -counts[kind])
    parts = [f"{counts[kind]} {kind}" for kind in kinds]
    parts[0] = f"{counts[kinds[0]]} of {tally.groups} groups {kinds[0]}"
    if cut := tally.all_wrong_truncated:
        parts[kinds.index("all wrong")] += f", {cut} of them truncated"
    return f"{', '.join(parts)}: {_advice(cell, tally, kinds[0], rate_change)}"


def _advice(cell: Cell, tally: Tally, kind: str, rate_change: RateChange) -> str:
    temperature = float(cell.grpo["temperature"])
    if kind == "unmarked":
        return "the marker fails, run decile doctor"
    if kind == "all wrong" and 2 * tally.all_wrong_truncated >= tally.all_wrong:
        return f"raise grpo.max_completion_length ({cell.grpo['max_completion_length']})"
    if kind == "all wrong":
        changes = _easier(cell, rate_change)
        changes += [f"lower grpo.temperature ({temperature:g})"] if temperature > 1 else []
    else:
        changes = _harder(cell, rate_change)
        changes += [f"raise grpo.temperature ({temperature:g})"] if temperature < 1 else []
    changes.append(f"raise grpo.num_generations ({cell.grpo['num_generations']})")
    return ", or ".join(changes)


def _easier(cell: Cell, rate_change: RateChange) -> list[str]:
    policy, options = _policy(cell)
    if policy in EASIER:
        reordered = policy == "curriculum" and options.get("first") == "hard"
        change = "start with first: easy" if reordered else EASIER[policy]
        return [change] * (rate_change("easy") > 0)
    return ["use policy middle"] * (policy not in EASIEST and rate_change("middle") > 0)


def _harder(cell: Cell, rate_change: RateChange) -> list[str]:
    policy, options = _policy(cell)
    if policy in HARDER:
        reordered = policy == "curriculum" and options.get("first") != "hard"
        change = "start with first: hard" if reordered else HARDER[policy]
        return [change] * (rate_change("hard") < 0)
    others = () if policy in HARDEST else ("hard",) if policy in MIDDLING else ("middle", "hard")
    names = [other for other in others if rate_change(other) < 0]
    return [f"use policy {' or '.join(names)}"] * bool(names)


def _policy(cell: Cell) -> tuple[str, dict[str, object]]:
    entry = cell.online or cell.rule
    return entry.policy, entry.options
