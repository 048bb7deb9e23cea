"""Whether the settings of an experiment allow its online policies. Pure."""

from orchestrator.config import library_settings as settings
from orchestrator.config.entries import PolicyEntry, build_online_policy
from orchestrator.config.experiment import Experiment
from orchestrator.config.generations import updates_per_generation
from policies import discards


def online_problem(name: str, entry: PolicyEntry, experiment: Experiment) -> str | None:
    """Why a policy cannot choose prompts under these settings and what to write; None if it can."""
    online = entry.parts[1]
    if online is None:
        return None
    grpo, workers = experiment.full_grpo(), experiment.resources.workers
    if updates_per_generation(grpo, workers) != 1:
        return (
            f"policy {name!r} chooses the prompts of every update, which needs a generation per "
            "update: leave out grpo.steps_per_generation, grpo.generation_batch_size and "
            "grpo.num_iterations"
        )
    if not discards(build_online_policy(online)):
        return None
    if by_trl := settings.why_trl_draws(grpo, experiment.rollouts, experiment.probe.stop):
        return (
            f"policy {name!r} discards rollouts, which needs those of Decile's decoder: "
            f"leave out {by_trl}"
        )
    if grpo["num_generations"] % workers:
        return (
            f"policy {name!r} shares every group among the workers: write a "
            f"grpo.num_generations that is a multiple of resources.workers ({workers})"
        )
    return None
