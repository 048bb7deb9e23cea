"""Second pass of planning: the prompts of the datasets, checked against the experiment.

Models and data sets of the hub are read at pinned commits; what is missing on this machine is named
with the command that fetches it.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from orchestrator.config import library_settings as settings
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.entries import PolicyEntry, build_policy
from orchestrator.config.experiment import Experiment
from orchestrator.planning.pools import Pool, load_pool
from orchestrator.planning.resolve import Resolved
from orchestrator.plugins.counts import counted
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.recorded import missing_responses, recorded_rows
from policies import PolicyError, capacity_of, capacity_text, is_whole, needs_of, policy_errors
from tasks import Task, TaskError
from tasks.prompt_table import PromptTable
from tasks.sources.hub import NotCached, Repository, cached_folder, not_cached, unreachable
from tasks.sources.source import ReadTask


def repositories(
    models: Iterable[ModelSource], tasks: Mapping[str, Task]
) -> dict[Repository, list[str]]:
    """The repositories that models, and tasks by their dataset, are read from.

    Each with the names in the file that need it. What the code of a user's own task downloads is
    not known.
    """
    names: dict[Repository, dict[str, None]] = {}
    for model in models:
        if model.repository:
            names.setdefault(model.repository, {})[model.name] = None
    for name, task in tasks.items():
        for repository in task.downloads if isinstance(task, ReadTask) else []:
            names.setdefault(repository, {})[name] = None
    return {repository: list(users) for repository, users in names.items()}


def check_models(loaded: LoadedConfig, experiment: str, models: Iterable[ModelSource]) -> None:
    """Raise UserError at the line of the first model that is neither cached nor reachable."""
    absent = [
        (repository, names)
        for repository, names in repositories(models, {}).items()
        if cached_folder(repository) is None
    ]
    if absent and (reason := unreachable()):
        repository, names = absent[0]
        message = f"{not_cached(repository, reason)}: {fetch_advice(loaded, experiment)}"
        raise loaded.error(message, "models", names[0])


def fetch_advice(loaded: LoadedConfig, experiment: str) -> str:
    """What to do where files are missing and the hub cannot be reached."""
    return f"run {fetch_command(loaded, experiment)} on a machine with internet access"


def fetch_command(loaded: LoadedConfig, experiment: str) -> str:
    """The command that downloads what an experiment reads."""
    return shlex.join(["decile", "fetch", str(loaded.file), "-e", experiment])


def load_pools(
    loaded: LoadedConfig, experiment: Experiment, resolved: Resolved, budget_path: tuple[str, ...]
) -> dict[str, Pool]:
    """The pool of every dataset by name. Raises UserError at the line of what does not fit."""
    pools: dict[str, Pool] = {}
    for name, dataset in {**resolved.datasets, **resolved.test_sets}.items():
        try:
            pool = pools[name] = load_pool(dataset)
        except TaskError as error:
            advice = (
                f"; {fetch_advice(loaded, budget_path[1])}" if isinstance(error, NotCached) else ""
            )
            raise loaded.error(f"{error}{advice}", "datasets", name) from error
        if name in resolved.datasets:
            if not pool.train:
                message = "has no training prompts: it is for evaluation only"
                if pool.dropped_prompts:
                    duplicates = " or near duplicates of them" if dataset.drop_overlap else ""
                    message = (
                        f"has no training prompts left, because all {pool.dropped_prompts:,} are "
                        f"test questions{duplicates}: use different questions for training and test"
                    )
                elif left_out := [note for note in pool.notes if note.startswith("train: ")]:
                    message = f"has no training prompts left: {'; '.join(left_out)}"
                raise loaded.error(message, "datasets", name)
            capacities = _known_capacities(resolved.policies, pool.train)
            parts = [entry.parts for entry in resolved.policies.values()]
            chosen = any(online and not is_whole(build_policy(rule)) for rule, online in parts)
            for axes, variant in experiment.variants:
                if pool.task.environment and (problem := _check_episodes(variant, resolved)):
                    raise loaded.error(problem, "datasets", name, axes=axes)
                if problem := _check_budget(variant, len(pool.train), chosen):
                    raise loaded.error(problem, *budget_path, axes=axes)
                if problem := _check_capacities(variant, len(pool.train), capacities):
                    setting = "match_sizes" if variant.match_sizes else "budget"
                    raise loaded.error(problem, *budget_path[:-1], setting, axes=axes)
        if not pool.test:
            message = "its test set is empty: accuracy cannot be measured"
            raise loaded.error(message, "datasets", name)
    samples = max(variant.probe.samples for _, variant in experiment.variants)
    for model in resolved.models.values():
        if not model.recorded:
            continue
        try:
            rows = recorded_rows(Path(model.location))
        except TaskError as error:
            raise loaded.error(str(error), "models", model.name) from error
        for name in resolved.datasets:
            questions = [prompt.question for prompt in pools[name].train]
            if missing := missing_responses(rows, questions, samples):
                message = f"{model.location} {missing} (dataset {name})"
                raise loaded.error(message, "models", model.name)
    return pools


def _check_episodes(experiment: Experiment, resolved: Resolved) -> str | None:
    """Why a task of several turns cannot be played under these settings; None if it can."""
    if any(model.recorded for model in resolved.models.values()):
        return "has several turns, and a recorded model has one answer: leave that model out"
    if experiment.probe.stop:
        return "has several turns, which end with the model's end token: leave probe.stop out"
    probe, evaluate = experiment.probe.engine_args, experiment.evaluate.engine_args
    args = {"probe": probe, "evaluate": evaluate}
    if named := next((name for name, own in args.items() if own.get("api") == "chat"), None):
        return (
            "has several turns, whose prompts are token ids: write "
            f"{named}.engine_args: {{api: completions}}"
        )
    grpo = experiment.full_grpo()
    if by_trl := settings.why_trl_draws(grpo, experiment.rollouts, experiment.probe.stop):
        return f"has several turns, which Decile plays in training as well: leave out {by_trl}"
    return None


def _check_budget(experiment: Experiment, total: int, chosen: bool) -> str | None:
    """Why the budget does not fit a pool of `total` prompts; None if it fits.

    No prompt is repeated where an online policy chooses from a subset of this size (`chosen`), or
    where an allocation divides an update's rollouts among its prompts.
    """
    size = experiment.subset_size(total)
    if not 0 < size <= total:
        return (
            f"budget {experiment.budget} selects {counted(size, 'prompt')} from a pool of {total}: "
            f"write a share up to 1.0 or a count up to {total}"
        )
    divided = experiment.allocation_entry is not None
    repeats = isinstance(experiment.budget, int) and not (chosen or divided)
    if problem := experiment.batch.problem(size, repeats=repeats):
        return f"budget {experiment.budget} selects {problem}"
    return None


def _known_capacities(
    policies: Mapping[str, PolicyEntry], train: PromptTable
) -> list[tuple[int, str]]:
    """The capacities that need no probe, those of tiers, as numbers and in words."""
    table = pa.table({name: train.column(name) for name in ("prompt_id", "tier")})
    capacities = []
    for rule, _ in (entry.parts for entry in policies.values()):
        policy = build_policy(rule)
        if needs_of(policy) == "nothing" and not is_whole(policy):
            # A policy of the user's own may read other columns: it is checked after the probe.
            with suppress(PolicyError), policy_errors(policy, rule.policy):
                capacity = capacity_of(policy, table)
                capacities.append((capacity, capacity_text(policy, rule.policy, table)))
    return capacities


def _check_capacities(
    experiment: Experiment, total: int, capacities: Sequence[tuple[int, str]]
) -> str | None:
    """Why policies cannot fill the budget, or an update with match_sizes; None if they can."""
    size = experiment.subset_size(total)
    capacity, text = min(capacities, default=(size, ""))
    if capacity >= size:
        return None
    if not experiment.match_sizes:
        return (
            f"budget {experiment.budget} selects {counted(size, 'prompt')}, and "
            f"{text}: write a smaller "
            "budget, match_sizes: true, or another policy"
        )
    if problem := experiment.batch.problem(capacity):
        return f"{text}, so match_sizes selects {problem}"
    return None
