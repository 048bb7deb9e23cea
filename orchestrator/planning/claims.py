"""The claims of an experiment with their names looked up, and checked against its test sets."""

from collections.abc import Mapping

from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.claim_check import resolved_claim
from orchestrator.config.claims import EVERY_TIER, Claim, ClaimError
from orchestrator.config.corrections import one_of
from orchestrator.planning.pools import Pool


def load_claims(loaded: LoadedConfig, name: str, pools: Mapping[str, Pool]) -> list[Claim]:
    """The claims of an experiment. Raises UserError at the line of an unknown tier."""
    experiment = loaded.experiment(name)
    claims = []
    for index, text in enumerate(experiment.claims):
        claim = resolved_claim(text, experiment)
        if claim.tier not in (None, EVERY_TIER):
            trained_on = dict(claim.only).get("dataset")
            sets = [claim.test_set or trained_on or each for each in experiment.grid.dataset]
            for test_set in dict.fromkeys(sets):
                tiers = sorted({*tiers_of(pools[test_set]).values()})
                if claim.tier not in tiers:
                    problem = f"{test_set} has no tier {claim.tier}: write {one_of(tiers, '')}"
                    error = ClaimError(text, problem)
                    raise loaded.error(str(error), "experiments", name, "claims", index)
        claims.append(claim)
    return claims


def tiers_of(pool: Pool) -> dict[str, str]:
    """Every test question of a data set, by prompt_id, and its tier."""
    return {prompt.prompt_id: prompt.tier for prompt in pool.test}
