"""The claims of an experiment with their names looked up, and checked against its cells. Pure."""

from collections.abc import Mapping, Sequence

from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.claim_check import resolved_claim
from orchestrator.config.claims import BASE_SIDE, EVERY_TIER, AxisValues, Claim, ClaimError
from orchestrator.config.corrections import one_of
from orchestrator.planning.cells import Cell
from orchestrator.planning.pools import Pool


def load_claims(
    loaded: LoadedConfig, name: str, pools: Mapping[str, Pool], cells: Sequence[Cell]
) -> list[Claim]:
    """The claims of an experiment.

    Raises UserError at the line of one that stands twice, has an unknown tier, or is read where no
    cell is evaluated.
    """
    experiment = loaded.experiment(name)
    claims: list[Claim] = []
    for index, text in enumerate(experiment.claims):
        claim = resolved_claim(text, experiment)
        sides = [side for side in (claim.a, claim.b) if side != BASE_SIDE]
        about = [
            cell
            for cell in (cells if claim.tier or claim.at else ())
            if has_values(cell, claim.only) and any(has_values(cell, side) for side in sides)
        ]
        twice = "it is stated twice: remove one" if claim in claims else ""
        if problem := twice or _unknown_tier(claim, about, pools) or _unreachable(claim, about):
            error = ClaimError(text, problem)
            raise loaded.error(str(error), "experiments", name, "claims", index)
        claims.append(claim)
    return claims


def has_values(cell: Cell, values: AxisValues) -> bool:
    """Whether a cell has these values of its axes."""
    axes = cell.axes
    return all(repr(axes[axis]) == repr(value) for axis, value in values)


def tiers_of(pool: Pool) -> dict[str, str]:
    """Every test question of a data set, by prompt_id, and its tier."""
    return {prompt.prompt_id: prompt.tier for prompt in pool.test}


def _unknown_tier(claim: Claim, cells: Sequence[Cell], pools: Mapping[str, Pool]) -> str:
    if claim.tier in (None, EVERY_TIER):
        return ""
    for test_set in {claim.test_set or cell.probe.dataset.name: None for cell in cells}:
        tiers = sorted({*tiers_of(pools[test_set]).values()})
        if claim.tier not in tiers:
            return f"{test_set} has no tier {claim.tier}: write {one_of(tiers, '')}"
    return ""


def _unreachable(claim: Claim, cells: Sequence[Cell]) -> str:
    if claim.at is None or claim.at.cost not in ("rollouts", "tokens"):
        return ""
    cost, amount = claim.at
    for cell in cells:
        most = cell.max_rollouts * (cell.grpo["max_completion_length"] if cost == "tokens" else 1)
        if amount > most:
            return f"{cell.name} has at most {most:,} {cost}: write at most {most:,}"
        first = 1 if claim.metric == "learnable" else cell.evaluate_every or cell.updates
        least = cell.rollouts // cell.updates * min(first, cell.updates)  # and as many tokens
        if amount < least:
            return (
                f"before {least:,} {cost}, {cell.name} is the base model: write at least {least:,}"
            )
    return ""
