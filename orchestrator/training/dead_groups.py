"""Why updates teach nothing, and which setting of the cell would change that. Pure."""

from orchestrator.evaluation.groups import Tally
from orchestrator.planning.cells import Cell

# An update is explained when at most this share of its groups is live.
HARDLY_ANY = 1 / 8
# What to change in the choice of prompts, by the cell's policy; empty: no other policy would help.
EASIER = {
    **dict.fromkeys(("middle", "learnable", "easy", "base_right"), ""),
    "tiers": "choose easier tiers",
    "band": "choose a band of higher pass rates",
    "curriculum": "start with first: easy",
    **dict.fromkeys(("dynamic", "balanced", "pools", "predicted"), "choose from an easier subset"),
}
HARDER = {
    **dict.fromkeys(("hard", "hardest_nonzero", "base_wrong"), ""),
    **dict.fromkeys(("middle", "learnable"), "use policy hard"),
    "tiers": "choose harder tiers",
    "band": "choose a band of lower pass rates",
    "curriculum": "start with first: hard",
    **dict.fromkeys(("dynamic", "balanced", "pools", "predicted"), "choose from a harder subset"),
}


ALL_DISCARDED = "every group drawn was discarded: raise max_draws, or choose from another subset"


def explain_dead_groups(cell: Cell, tally: Tally) -> str | None:
    """Why these groups teach nothing and what to change in this cell; None where enough are live.

    For people: "7 of 8 groups all wrong, 5 of them truncated: raise grpo.max_completion_length
    (250)".
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
    return f"{', '.join(parts)}: {_advice(cell, tally, kinds[0])}"


def _advice(cell: Cell, tally: Tally, kind: str) -> str:
    policy, temperature = (cell.online or cell.rule).policy, float(cell.grpo["temperature"])
    if kind == "unmarked":
        return "the marker fails, run decile doctor"
    if kind == "all wrong" and 2 * tally.all_wrong_truncated >= tally.all_wrong:
        return f"raise grpo.max_completion_length ({cell.grpo['max_completion_length']})"
    if kind == "all wrong":
        changes = [EASIER.get(policy, "use policy middle")]
        changes += [f"lower grpo.temperature ({temperature:g})"] if temperature > 1 else []
    else:
        changes = [HARDER.get(policy, "use policy middle or hard")]
        changes += [f"raise grpo.temperature ({temperature:g})"] if temperature < 1 else []
    changes.append(f"raise grpo.num_generations ({cell.grpo['num_generations']})")
    return ", or ".join(change for change in changes if change)
