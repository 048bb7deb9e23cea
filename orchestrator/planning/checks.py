"""Checks of the prompts of a pool, before sampling. Pure.

Checks without prompts are in `config.references`; those that construct objects of a library are in
`training.settings_check`.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.config.experiment import Experiment
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.config.problems import Problem, below
from orchestrator.planning.flaws import Cleaning
from orchestrator.planning.pools import Pool
from orchestrator.planning.resolve import Resolved
from orchestrator.planning.score_file import read_scores
from orchestrator.plugins.counts import counted
from orchestrator.sampling.model import ModelSource
from orchestrator.sampling.recorded import missing_responses, recorded_rows
from orchestrator.storage.errors import UserError
from policies import History, PolicyError
from policies.base import MalformedError
from policies.partition import column_texts
from tasks import TaskError
from tasks.reward_functions import reward_function

TRIED = 1_000  # prompts that an online policy is tried on
OF_CODE = (AttributeError, ImportError, NameError, TypeError)  # errors that no pass rate causes


def check_pools(
    name: str,
    experiment: Experiment,
    resolved: Resolved,
    pools: Mapping[str, Pool],
    *,
    trains: bool,
) -> None:
    """Raise Problem if pools do not allow what an experiment requests.

    trains: pools are also trained on and tested.
    """
    policies = resolved.policies
    for dataset, pool in pools.items():
        training = dataset in resolved.datasets
        _check_splits(pool, training=training, tested=trains)
        if trains and training:
            recorded = any(model.recorded for model in resolved.models.values())
            _check_subsets(name, experiment, policies, pool, recorded=recorded)
    trained = [pools[dataset] for dataset in resolved.datasets]
    recordings = [model for model in resolved.models.values() if model.recorded]
    _check_recordings(experiment, recordings, trained)
    _check_difficulty_files(name, experiment, policies, trained)


def _check_splits(pool: Pool, *, training: bool, tested: bool) -> None:
    """Raise Problem for a pool without the training prompts or test questions that it needs."""
    with below("datasets", pool.dataset.name):
        if training and not pool.train:
            raise Problem("no-training-prompts", _why_empty(pool))
        if tested and not pool.test and not pool.task.optional_answers:
            message = "its test set is empty, so accuracy cannot be measured: add test questions"
            raise Problem("no-test-questions", message)


def _why_empty(pool: Pool) -> str:
    if pool.dropped_prompts and pool.dataset.cleaning == Cleaning():
        duplicates = " or near duplicates of them" if pool.dataset.drop_overlap else ""
        return (
            f"has no training prompts left, because all {pool.dropped_prompts:,} are test "
            f"questions{duplicates}: use different questions for training and test"
        )
    if left_out := [note for note in pool.notes if note.startswith(("train: ", "dropped: "))]:
        return f"has no training prompts left ({'; '.join(left_out)}): correct its rows"
    return "has no training prompts, for evaluation only: write it below evaluate.ood"


def _check_subsets(
    name: str,
    experiment: Experiment,
    policies: Mapping[str, PolicyEntry],
    pool: Pool,
    *,
    recorded: bool,
) -> None:
    """Raise Problem if an experiment cannot train on a subset of a pool.

    recorded: a model is a recording.
    """
    allocations = [variant.allocation_entry for _, variant in experiment.variants]
    read = [entry.reads_columns for entry in policies.values()]
    read += [entry.build().reads_columns for entry in allocations if entry]
    table = pool.unprobed(columns=any(read))
    for index, (policy, entry) in enumerate(policies.items()):
        place: tuple[str | int, ...] = ("policies", policy)
        if entry.policy == policy:  # it has no entry
            place = ("experiments", name, "grid", "policy", index)
        with below(*place):
            _check_policy(entry, experiment.variants[0][1], table, pool.dataset.name)
    capacities = _known_capacities(policies, table)
    parts = [entry.parts for entry in policies.values()]
    chosen = any(online and not rule.build().takes_all for rule, online in parts)
    for axes, variant in experiment.variants:
        if pool.task.environment:
            with below("datasets", pool.dataset.name, axes=axes):
                _check_episodes(variant, recorded=recorded)
        with below("experiments", name, axes=axes):
            _check_budget(variant, len(pool.train), chosen=chosen)
            _check_labels(variant, policies, table)
            _check_capacities(variant, len(pool.train), capacities)
            _check_rewards(variant, pool)
            _check_allocation(variant, table, pool.dataset.name)


def _check_episodes(experiment: Experiment, *, recorded: bool) -> None:
    """Raise Problem if a multi-turn task cannot be played under these settings."""
    if recorded:
        message = "is multi-turn, but a recorded model has one answer: leave that model out"
        raise Problem("episodes-of-a-recording", message)
    if experiment.probe.stop:
        message = "is multi-turn, and turns end with the model's end token: leave probe.stop out"
        raise Problem("episodes-with-stop", message)
    for block, settings in experiment.sampled.items():
        if settings.engine_args.get("api") == "chat":
            raise Problem(
                "episodes-by-chat",
                "is multi-turn, and needs prompts as token ids: write "
                f"{block}.engine_args: {{api: completions}}",
            )
    if by_trl := experiment.why_trl_draws:
        message = f"is multi-turn, which needs Decile's decoder in training: leave out {by_trl}"
        raise Problem("episodes-need-decoder", message)


def _check_budget(experiment: Experiment, total: int, *, chosen: bool) -> None:
    """Raise Problem unless the budget fits a pool of `total` prompts.

    Prompts are not repeated if an online policy chooses from a subset of this size (`chosen`), or
    if an allocation divides an update's rollouts among its prompts.
    """
    size = experiment.subset_size(total)
    if not 0 < size <= total:
        raise Problem(
            "budget-exceeds-pool",
            f"budget {experiment.budget} selects {counted(size, 'prompt')} from a pool of {total}: "
            f"write a share up to 1.0 or a count up to {total}",
            "budget",
        )
    divided = experiment.allocation_entry is not None
    repeats = isinstance(experiment.budget, int) and not (chosen or divided)
    if problem := experiment.batch.problem(size, repeats=repeats):
        message = f"budget {experiment.budget} selects {problem}"
        raise Problem("budget-does-not-fill-updates", message, "budget")


def _check_labels(
    experiment: Experiment, policies: Mapping[str, PolicyEntry], table: pa.Table
) -> None:
    """Raise Problem unless the gold answers that policies see suffice for the budget."""
    for name, entry in policies.items():
        rule = entry.parts[0].build()
        try:
            rule.check_labels(table, experiment.subset_size(table.num_rows))
        except PolicyError as error:
            raise Problem("labels-do-not-fit", f"policy {name}: {error}", "budget") from error
        if experiment.match_sizes and rule.label_count(table.num_rows) is not None:
            message = (
                f"match_sizes reads the gold answers of the whole pool, but policy {name} is shown "
                "some of them by its option labels: leave one of the two out"
            )
            raise Problem("labels-with-match-sizes", message, "match_sizes")


def _known_capacities(
    policies: Mapping[str, PolicyEntry], table: pa.Table
) -> list[tuple[int, str]]:
    """The capacities known without a probe (tiers and columns), as numbers and in words."""
    capacities = []
    for rule, _ in (entry.parts for entry in policies.values()):
        policy = rule.build()
        if policy.at_random:
            # A user's own policy may read other columns: it is checked after the probe.
            with suppress(PolicyError):
                capacities.append((policy.capacity(table), policy.capacity_text(table)))
    return capacities


def _check_capacities(
    experiment: Experiment, total: int, capacities: list[tuple[int, str]]
) -> None:
    """Raise Problem unless policies can fill the budget, or an update with match_sizes."""
    size = experiment.subset_size(total)
    capacity, text = min(capacities, default=(size, ""))
    if capacity >= size:
        return
    if not experiment.match_sizes:
        raise Problem(
            "budget-exceeds-policy",
            f"budget {experiment.budget} selects {counted(size, 'prompt')}, but {text}: write a "
            "smaller budget, match_sizes: true, or another policy",
            "budget",
        )
    if problem := experiment.batch.problem(capacity):
        message = f"{text}, so match_sizes selects {problem}"
        raise Problem("matched-size-does-not-fill-updates", message, "match_sizes")


def _check_rewards(experiment: Experiment, pool: Pool) -> None:
    """Raise Problem unless the prompts have the columns that reward functions need."""
    for function in experiment.reward_functions:
        columns = json.loads(pool.train[0].info or "{}")  # check_pool: there is one
        try:
            reward_function(function).check_columns(
                (*columns, pool.task.answer_name), f"dataset {pool.dataset.name}"
            )
        except TaskError as error:
            message = f"{error}: name existing ones in the dataset's option columns"
            raise Problem("reward-lacks-column", message, "reward") from error


def _of_subset(prompts: pa.Table) -> pa.Table:
    """The columns that a subset has too: training reads only these."""
    return prompts.select([name for name in prompts.column_names if name != "labelled"])


def _check_policy(
    policy: PolicyEntry, experiment: Experiment, prompts: pa.Table, dataset: str
) -> None:
    """Raise Problem unless prompts have a policy's columns and its code can choose among them."""
    static, online = policy.parts
    try:
        static.build().check_columns(prompts)
        if online:
            online.build_online().check_columns(_of_subset(prompts))
    except PolicyError as error:
        raise Problem("policy-lacks-column", f"{error} (dataset {dataset})") from error
    if online and experiment.batch.prompts_per_update <= prompts.num_rows:
        _try_online(online, experiment, prompts)


def _try_online(online: PolicyEntry, experiment: Experiment, prompts: pa.Table) -> None:
    """Raise Problem unless an online policy and its gates can choose prompts with made-up pass
    rates.

    Only errors of their code and malformed results count. Other errors may be due to these rates,
    or to trying only the first prompts of the pool; `selection.candidates` checks them.
    """
    batch, policy = experiment.batch, online.build_online()
    part = prompts.slice(0, max(TRIED, batch.prompts_per_update)).sort_by("prompt_id")
    texts = {name: column_texts(part, name, policy.name) for name in policy.reads_columns}
    history = History(
        part["prompt_id"].combine_chunks(),
        np.full(part.num_rows, 4),
        np.arange(part.num_rows) % 5,
        seed=0,
        updates=batch.updates,
        group_size=batch.group_size,
        columns={name: each.to_numpy(zero_copy_only=False) for name, each in texts.items()},
    )
    try:
        policy.check(history, batch.prompts_per_update)
    except PolicyError as error:
        of_code = isinstance(error.__cause__, OF_CODE)
        if of_code or isinstance(error, MalformedError):
            message = f"{error}: correct its code" if of_code else str(error)
            raise Problem("policy-fails", message) from error


def _check_allocation(experiment: Experiment, table: pa.Table, dataset: str) -> None:
    """Raise Problem unless prompts have the columns and values that the allocation names."""
    if rule := experiment.allocation_entry:
        try:
            rule.build().check_columns(_of_subset(table))
        except PolicyError as error:
            message = f"{error} (dataset {dataset})"
            raise Problem("allocation-lacks-column", message, "allocation") from error


def _check_difficulty_files(
    name: str, experiment: Experiment, policies: Mapping[str, PolicyEntry], pools: Sequence[Pool]
) -> None:
    """Raise Problem if a difficulty file cannot be read, or has no prompt of a pool."""
    checked = set()
    for axes, variant in experiment.variants:
        for policy, entry in policies.items():
            difficulty = variant.difficulty_of(entry)
            if difficulty is None or difficulty.file is None or difficulty.file in checked:
                continue
            checked.add(difficulty.file)
            place = ("policies", policy) if entry.difficulty else ("experiments", name)
            with below(*place, "difficulty", "file", axes={} if entry.difficulty else axes):
                try:
                    read_scores(difficulty.file, *(pool.train for pool in pools))
                except (UserError, TaskError, OSError) as error:
                    raise Problem("invalid-difficulty-file", str(error)) from error


def _check_recordings(
    experiment: Experiment, recordings: Sequence[ModelSource], pools: Sequence[Pool]
) -> None:
    """Raise Problem if a recorded model lacks responses to prompts of a pool."""
    samples = max(variant.settings.probe.samples for variant in experiment.variants)
    for model in recordings:
        with below("models", model.name):
            try:
                rows = recorded_rows(Path(model.location))
            except TaskError as error:
                raise Problem("invalid-recording", str(error)) from error
            for pool in pools:
                questions = [prompt.question for prompt in pool.train]
                if missing := missing_responses(rows, questions, samples):
                    message = f"{model.location} {missing} (dataset {pool.dataset.name})"
                    raise Problem("missing-responses", message)
