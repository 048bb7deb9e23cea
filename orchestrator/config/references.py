"""Checks of the names in an experiment, and of settings that must fit each other. Pure.

They run when the file is read. Checks of the prompts of a pool are in `planning.checks`.
"""

import numpy as np

from orchestrator.config.claims import resolved_claim
from orchestrator.config.experiment import GRID_AXES, Experiment
from orchestrator.config.policy_entries import DifficultyEntry, PolicyEntry
from orchestrator.config.problems import Problem, below
from orchestrator.config.schema import Config
from orchestrator.config.vllm_rollouts import model_problem
from orchestrator.config.wording import one_of
from orchestrator.storage.errors import shortened
from policies import Groups, PolicyError
from tasks import TaskError


def check_references(config: Config) -> None:
    """Raise the first Problem of any experiment."""
    for name, policy in config.policies.items():
        with below("policies", name, "difficulty"):
            _check_difficulty_entry(config, policy)
    for name, experiment in config.experiments.items():
        with below("experiments", name):
            _check_names(config, experiment)
            for axes, variant in experiment.variants:
                with below(axes=axes):
                    for check in VARIANT_CHECKS:
                        check(config, variant)
            for index, claim in enumerate(experiment.claims):
                with below("claims", index):
                    resolved_claim(claim, experiment)


def _check_names(config: Config, experiment: Experiment) -> None:
    """Raise Problem unless the models, data sets and policies of the grid exist."""
    grid = experiment.grid
    for index, model in enumerate(grid.model):
        if model not in config.models:
            known = one_of([*config.models], model)
            message = f"unknown model {shortened(model)}: write {known}"
            raise Problem("unknown-model", message, "grid", "model", index)
    for index, dataset in enumerate(grid.dataset):
        with below("grid", "dataset", index):
            _check_dataset(config, dataset)
    for index, policy in enumerate(grid.policy):
        try:
            config.policy(policy)
        except PolicyError as error:
            raise Problem("unknown-policy", str(error), "grid", "policy", index) from error


def _check_dataset(config: Config, name: str) -> None:
    try:
        config.dataset(name)
    except TaskError as error:
        raise Problem("unknown-dataset", str(error)) from error


def _check_test_sets(config: Config, experiment: Experiment) -> None:
    """Raise Problem unless the out-of-distribution test sets exist."""
    for index, dataset in enumerate(experiment.evaluate.ood):
        with below("evaluate", "ood", index):
            _check_dataset(config, dataset)


def _check_quantization(config: Config, experiment: Experiment) -> None:
    """Raise Problem if the engine would also quantize a model that is loaded in 4 bits."""
    for block, settings in experiment.sampled.items():
        for index, model in enumerate(experiment.grid.model):
            if config.models[model].load_in_4bit and "quantization" in settings.engine_args:
                message = (
                    f"model {model!r} is loaded in 4 bits: remove "
                    f"{block}.engine_args.quantization, or remove load_in_4bit"
                )
                raise Problem("quantized-twice", message, "grid", "model", index)


def _check_vllm(config: Config, experiment: Experiment) -> None:
    """Raise Problem if vLLM would draw rollouts with a different model than the trained one."""
    if not experiment.grpo_settings.use_vllm:
        return
    for name in experiment.grid.model:
        model = config.models[name]
        lora = experiment.full_lora(model.target_modules)
        if problem := model_problem(lora, in_4bit=model.load_in_4bit):
            raise problem


def _check_online_policies(config: Config, experiment: Experiment) -> None:
    """Raise Problem if policies that choose the prompts of every update cannot do so."""
    for index, policy in enumerate(experiment.grid.policy):
        with below("grid", "policy", index):
            _check_online_policy(config, experiment, policy)


def _check_online_policy(config: Config, experiment: Experiment, policy: str) -> None:
    online = config.policy(policy).parts[1]
    if online is None:
        return
    workers = experiment.resources.workers
    if experiment.batch.updates_per_generation != 1:
        raise Problem(
            "several-updates-per-choice",
            f"policy {policy!r} chooses the prompts of every update, which needs a generation per "
            "update: leave out grpo.steps_per_generation, grpo.generation_batch_size and "
            "grpo.num_iterations",
        )
    if not online.build_online().discards:
        return
    if by_trl := experiment.why_trl_draws:
        raise Problem(
            "discards-need-decoder",
            f"policy {policy!r} discards rollouts, which needs those of Decile's decoder: "
            f"leave out {by_trl}",
        )
    if experiment.batch.group_size % workers:
        raise Problem(
            "group-among-workers",
            f"policy {policy!r} shares every group among the workers: write a "
            f"grpo.num_generations that is a multiple of resources.workers ({workers})",
        )


def _check_difficulty_entry(config: Config, policy: PolicyEntry) -> None:
    """Raise Problem unless a policy's own difficulty is of a known model and has an effect."""
    if policy.difficulty is None:
        return
    _check_model(config, DifficultyEntry.of(policy.difficulty))
    static, _ = policy.parts
    if static.build().needs == "nothing":
        message = f"{static.policy} selects prompts whatever their difficulty is: leave it out"
        raise Problem("unused-difficulty", message)


def _check_model(config: Config, difficulty: DifficultyEntry | None) -> None:
    if difficulty and difficulty.model and difficulty.model not in config.models:
        known = one_of([*config.models], difficulty.model)
        message = f"unknown model {shortened(difficulty.model)}: write {known}"
        raise Problem("unknown-model", message, "model")


def _check_difficulty(config: Config, experiment: Experiment) -> None:
    """Raise Problem if policies cannot rank by the difficulty that they are given."""
    with below("difficulty"):
        _check_model(config, DifficultyEntry.of(experiment.difficulty))
    ranked: dict[str, DifficultyEntry | None] = {}  # by the policies that rank by it
    for index, name in enumerate(experiment.grid.policy):
        policy = config.policy(name)
        needs = policy.parts[0].build().needs
        if needs == "nothing":
            continue
        difficulty = ranked[name] = experiment.difficulty_of(policy)
        if needs == "first" and difficulty and difficulty.by == "agreement":
            message = (
                f"policy {name!r} reads whether each prompt's first sample is correct, which "
                "agreement cannot tell: write another policy, or difficulty: gold"
            )
            raise Problem("no-first-sample", message, "grid", "policy", index)
        served = experiment.probe.engine_args.get("model")
        models = {*experiment.grid.model, *filter(None, [difficulty and difficulty.model])}
        if experiment.probe.engine == "server" and served and len(models) > 1:
            message = (
                f"{served!r:.80} is one model, and policy {name!r} ranks by another one: leave "
                "model out (each is then served under its Hub id)"
            )
            raise Problem("one-served-model", message, "probe", "engine_args", "model")
    if experiment.match_sizes and len({*map(repr, ranked.values())}) > 1:
        message = f"{' and '.join(ranked)} rank by several difficulties: write one for all policies"
        raise Problem("matched-difficulties", message, "match_sizes")


@below("allocation")
def _check_allocation(config: Config, experiment: Experiment) -> None:
    """Raise Problem if the completions of an update cannot be divided under these settings."""
    if (rule := experiment.allocation_entry) is None:
        return
    batch, allocation = experiment.batch, rule.build()
    needs = f"allocation {rule.rule!r} needs"
    if batch.workers > 1:
        message = f"{needs} one worker: write resources: {{workers: 1}}, or allocation: uniform"
        raise Problem("allocation-needs-one-worker", message)
    if by_trl := experiment.why_trl_draws:
        message = f"{needs} rollouts of Decile's decoder: leave out {by_trl}"
        raise Problem("allocation-needs-decoder", message)
    if batch.updates_per_generation != 1:
        raise Problem(
            "several-updates-per-division",
            f"{needs} a generation per update: leave out grpo.steps_per_generation, "
            "grpo.generation_batch_size and grpo.num_iterations",
        )
    if experiment.grpo_settings.multi_objective_aggregation != "sum_then_normalize":
        message = f"{needs} grpo.multi_objective_aggregation: sum_then_normalize, or leave it out"
        raise Problem("allocation-needs-sums", message)
    for policy in experiment.grid.policy:
        online = config.policy(policy).parts[1]
        if online and online.build_online().discards:
            raise Problem(
                "discards-and-divides",
                f"policy {policy!r} discards groups, so allocation {rule.rule!r} cannot divide "
                "those of an update: write one of the two",
            )
    # Try the rule on an update with prompts that are unknown, never, half and always solved, to
    # find options that cannot divide the rollouts of an update.
    rates = np.resize([np.nan, 0.0, 0.5, 1.0], batch.prompts_per_update)
    no_counts = np.zeros(len(rates), np.int64)
    groups = Groups(
        rate=np.nan_to_num(rates, nan=0.5),
        last=rates,
        drawn=no_counts,
        correct=no_counts,
        left=batch.completions * allocation.times,
        size=batch.group_size,
        updates=batch.updates,
        columns={name: np.full(len(rates), "") for name in allocation.reads_columns},
    )
    try:
        allocation.more(groups)
    except PolicyError as error:
        raise Problem("invalid-division", str(error)) from error


def _check_start(config: Config, experiment: Experiment) -> None:
    """Raise Problem if the cells that an experiment starts from are not in the file, or several."""
    start = experiment.start
    if start is None:
        return
    for block, settings in experiment.sampled.items():
        if settings.engine == "server":
            message = "engine server draws with weights of its own: write another, or no start"
            raise Problem("start-on-server", message, block, "engine")
    for index, name in enumerate(experiment.grid.model):
        if config.models[name].recorded:
            message = f"model {name} is recorded, so no adapter belongs to it: leave start out"
            raise Problem("recorded-start", message, "grid", "model", index)
    if experiment.grpo.get("deepspeed"):
        message = "DeepSpeed needs an adapter that TRL makes: leave deepspeed out, or start"
        raise Problem("start-with-deepspeed", message, "grpo", "deepspeed")
    if start.adapter:
        return
    if start.from_ not in config.experiments:
        known = one_of([*config.experiments], start.from_)
        message = f"unknown experiment {shortened(start.from_)}: write {known}"
        raise Problem("unknown-experiment", message, "start", "from")
    stages = [first := config.experiments[start.from_]]
    while (before := stages[-1].start) is not None and before.from_ in config.experiments:
        stages.append(config.experiments[before.from_])
        if len(stages) > len(config.experiments):
            message = f"{start.from_} starts from itself: write an experiment that does not"
            raise Problem("start-from-itself", message, "start", "from")
    grid = experiment.grid
    if first.grid.setting_axes or len(first.grid.probe_seed) > 1:
        message = (
            f"{start.from_} has several cells for each model, data set, policy and seed: write an "
            "experiment whose grid has no other axis"
        )
        raise Problem("several-starts", message, "start", "from")
    for axis in GRID_AXES:
        values = [start.policy] if axis == "policy" else getattr(grid, axis)
        for index, value in enumerate(values):
            if value not in (known := getattr(first.grid, axis)):
                path = ("start", "policy") if axis == "policy" else ("grid", axis, index)
                message = (
                    f"{start.from_} has no cell with {axis} {value}: write "
                    f"{one_of([*map(str, known)], str(value))}, or add it there"
                )
                raise Problem("no-such-start", message, *path)


VARIANT_CHECKS = (
    _check_test_sets,
    _check_quantization,
    _check_vllm,
    _check_online_policies,
    _check_allocation,
    _check_difficulty,
    _check_start,
)
