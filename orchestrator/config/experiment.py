"""An experiment: its settings, its grid, and its settings as axes of that grid. Pure.

    grid: {model: [tiny], …, budget: [0.05, 0.1], probe.samples: [1, 5, 10], grpo.beta: [0, 0.1]}

An axis is named like the setting, with the block before a dot. Every combination of values is an
experiment of its own, validated like one that is written out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Self

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from orchestrator.config import library_settings as settings
from orchestrator.config.allocation_entry import AllocationEntry
from orchestrator.config.corrections import first_problem
from orchestrator.config.grpo import GrpoBatch, GrpoSettings
from orchestrator.config.library_settings import check_name, declared
from orchestrator.config.policy_entries import (
    DIFFICULTIES,
    Difficulty,
    DifficultyEntry,
    PolicyEntry,
)
from orchestrator.config.probe import Evaluate, Probe
from orchestrator.config.problems import Problem
from orchestrator.config.settings import (
    MAX_LISTED,
    MAX_RESOURCES,
    MAX_SAMPLES,
    MAX_UPDATES,
    MAX_WAIT,
    Seed,
    Settings,
)
from orchestrator.config.vllm_rollouts import vllm_problem
from orchestrator.config.wording import shown
from orchestrator.plugins.counts import counted
from orchestrator.plugins.registry import suggest
from orchestrator.sampling.engine_args import changes_base, largest_rank, unsupported_lora
from orchestrator.storage.errors import shortened
from policies import PolicyError
from tasks import TaskError
from tasks.reward_functions import reward_function

GRID_AXES = ("model", "dataset", "policy", "seed")  # of every grid, in the order of a name
PROBE_SEED = "probe_seed"
# Settings outside blocks.
PLAIN = (
    "budget",
    "mask_dead_groups",
    "rollouts",
    "match_sizes",
    "label_noise",
    "label_noise_seed",
    "false_positive_rate",
    "false_negative_rate",
    "reward",
    "allocation",
    "difficulty",
)
CONTROLS = frozenset(["random", "format", "flipped"])  # rewards without right answers
REWARDS = ("score", *sorted(CONTROLS))
# Nats per token. bfloat16 causes 0.015 (TRL issue 5312) to 0.036 (SmolLM2-135M), and twice that
# with logits above 32; outdated weights caused 0.2 (TRL issue 5312).
MAX_LOGP_DIFFERENCE = 0.15
MOST_WEIGHT = 1e6  # of a reward, so that no sum overflows
_REWARD = (
    f"write one of {', '.join(REWARDS)}, package.module:function, or weights such as "
    "{score: 1.0, format: 0.1}"
)
BLOCKS = ("probe", "grpo", "lora", "evaluate", "refresh")
_OF_THE_SWEEP = "it applies to all cells of an experiment: set it on the experiment"
# Settings of an experiment that do not change results and are not parameters in MLflow.
NO_PARAMETERS = ("about", "resources", "max_logp_difference", "max_gpu_hours", "max_hours")
# Settings that cannot be axes; the text is what to do instead.
_REFUSED = {
    "about": "it is a description",
    "grid": "name the setting itself, such as grpo.beta",
    "claims": _OF_THE_SWEEP,
    "compare_at": _OF_THE_SWEEP,
    "max_gpu_hours": _OF_THE_SWEEP,
    "max_hours": _OF_THE_SWEEP,
    "max_logp_difference": _OF_THE_SWEEP,
    "max_marking_errors": _OF_THE_SWEEP,
    "marking": "it is a property of the data: write an experiment for each",
    "resources": _OF_THE_SWEEP,
    "probe.seed": "write probe_seed",
    "probe.gpus": "it does not change a result: set it on the experiment",
    "probe.engine_python": "it does not change a result: set it on the experiment",
    "evaluate.engine_python": "it does not change a result: set it on the experiment",
    "probe.adaptive": "an adaptive probe selects the same subsets: set it on the experiment",
}
_TEXT_LIMIT = 60  # characters of a value in a name


def check_axis(name: str) -> str | None:
    """Why an axis cannot have this name and what to write instead; None if it can."""
    block, dot, setting = name.partition(".")
    if reason := _REFUSED.get(name) or _REFUSED.get(block):
        return f"{shortened(name)} cannot be an axis: remove it ({reason})"
    if not dot and block in BLOCKS:
        settings = {"probe": "samples", "evaluate": "samples", "refresh": "every", "lora": "r"}
        example = f"{block}.{settings.get(block, 'beta')}"
        return f"{block} is a block: write an axis for each setting, such as {example}"
    if name in PLAIN:
        return None
    if dot and block in ("grpo", "lora"):
        return check_name(block, setting)
    if name in _known():
        return None
    known = [
        *(*GRID_AXES, PROBE_SEED, *_known()),
        *(f"{library}.{each}" for library in ("grpo", "lora") for each in declared(library)),
    ]
    near = next((k for k in known if k.rpartition(".")[2] == name), "")
    hint = f"; did you mean {near!r}?" if near else suggest(name, known)
    return (
        f"unknown axis {shortened(name)}: write one of {', '.join((*GRID_AXES, PROBE_SEED))}, "
        f"or a setting such as budget, probe.samples or grpo.beta{hint}"
    )


def _known() -> list[str]:
    """The axes that are Decile's own settings."""
    blocks: dict[str, type[Settings]] = {"probe": Probe, "evaluate": Evaluate, "refresh": Refresh}
    dotted = [
        f"{name}.{setting}" for name, block in blocks.items() for setting in block.model_fields
    ]
    return [*PLAIN, *(name for name in dotted if name not in _REFUSED)]


Axes = dict[str, Any]  # values by the names of axes: model, dataset, …, or of settings, dotted


def combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[Axes]:
    """Every combination of the axes' values, the last axis varying fastest."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def path_of(name: str) -> tuple[str, ...]:
    """The path of a setting below its experiment."""
    return tuple(name.split(".", 1))


def with_values(content: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's content with the settings of one combination in place of its own."""
    changed = dict(content)
    for name, value in values.items():
        block, *setting = path_of(name)
        if not setting:
            changed[block] = value
        elif isinstance(settings := changed.get(block, {}), dict):  # otherwise refused as it is
            changed[block] = settings | {setting[0]: value}
    return changed


def value_text(value: Any) -> str:
    """An axis' value in a name: as in the file, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"


def axes_text(values: Mapping[str, Any]) -> str:
    """`budget 0.1, grpo.beta 0`; empty without an axis."""
    return ", ".join(f"{name} {value_text(value)}" for name, value in values.items())


_MAX_CELLS = 10_000


class Grid(Settings):
    """The swept axes. A sweep has a cell for every combination of their values.

    Further axes are settings of the experiment, such as budget, probe.samples or grpo.beta.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[
        str,
        Annotated[list[Any], Field(min_length=1, max_length=MAX_LISTED, examples=[[0.05, 0.1]])],
    ]

    model: list[str] = Field(min_length=1, max_length=MAX_LISTED, examples=[["tiny"]])
    """Names from `models`."""
    dataset: list[str] = Field(min_length=1, max_length=MAX_LISTED, examples=[["shuffled_objects"]])
    """Names from `datasets`, or tasks with default options."""
    policy: list[str] = Field(min_length=1, max_length=MAX_LISTED, examples=[["hard", "random"]])
    """Names from `policies`, policies with default options, or package.module:attribute."""
    seed: list[Seed] = Field(default=[0], min_length=1, max_length=MAX_LISTED)
    """Seeds of subset selection and training."""
    probe_seed: list[Seed] = Field(default=[], max_length=MAX_LISTED)
    """Seeds of the probe, to measure how much results vary between probes. Default: probe.seed."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if name not in cls.model_fields and (problem := check_axis(str(name))):
                raise Problem("invalid-axis", problem, str(name))
        return value

    @model_validator(mode="after")
    def _no_repeats(self) -> Self:
        for name, values in self.model_dump().items():
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise Problem(
                        "listed-twice", f"{shown(value)} is listed twice: remove one", name, index
                    )
        return self

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if self.cells > _MAX_CELLS:
            raise Problem(
                "too-many-cells",
                f"the grid has {counted(self.cells, 'cell')}: write at most {_MAX_CELLS:,}, "
                "or several experiments",
            )
        return self

    @property
    def cells(self) -> int:
        """Combinations of the values of all axes."""
        axes: list[list[Any]] = [self.model, self.dataset, self.policy, self.seed]
        axes += [self.probe_seed or [0], *self.setting_axes.values()]
        return prod(len(axis) for axis in axes)

    @property
    def setting_axes(self) -> dict[str, list[Any]]:
        """The axes that are settings of the experiment: dotted name -> values."""
        return self.__pydantic_extra__ or {}


Axis = Literal["updates", "rollouts", "tokens", "seconds", "labels"]
_MAX_BUDGET = 1_000_000_000


class Refresh(Settings):
    """Probes part of the prompts again while a cell trains, with its current adapter.

    The prompts come from the subset, or from the candidates of an online policy. Their order is
    random and depends on the seed: every prompt is drawn once before any is repeated, and cells
    with the same seed and pool refresh the same prompts. `predicted`, `pools` and `pairs` use the
    new pass rates; a static subset does not change. The completions count as rollouts. There are no
    refreshes before the first update, after the last one, or in the middle of a generation. Needs
    Decile's decoder.
    """

    every: int = Field(default=0, ge=0, le=MAX_UPDATES)
    """Updates between two refreshes; 0 disables them."""
    samples: int = Field(default=4, ge=1, le=MAX_SAMPLES)
    """Completions per prompt, under the probe's sampling settings."""
    share: float = Field(default=0.1, gt=0, le=1)
    """Share of the subset, or of an online policy's candidates, to probe in each refresh."""

    def prompts(self, count: int) -> int:
        """Prompts of each refresh, out of `count`."""
        return max(1, int(self.share * count + 1e-9))

    def rollouts(self, count: int, updates: int) -> int:
        """Completions of all refreshes."""
        times = (updates - 1) // self.every if self.every else 0
        return times * self.prompts(count) * self.samples


class Start(Settings):
    """What every cell starts from in place of the base model: an adapter, which it trains further.

    The pool is probed with it, so that policies choose by what the model can do then, and accuracy
    is measured before and after. Its LoRA settings must be those of the experiment. To rank prompts
    by the base model, give a policy `difficulty: {model: NAME}`.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    from_: str = Field(default="", alias="from", examples=["first_stage"])
    """An experiment of the file. A cell starts from its finished cell with the same model, data set
    and seed, and with `policy`."""
    policy: str = Field(default="", examples=["hard"])
    """The policy of that cell."""
    adapter: str = Field(default="", examples=["adapters/mine"])
    """In place of both: the folder of a LoRA adapter in PEFT's layout, for every cell."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.from_) == bool(self.adapter) or bool(self.from_) != bool(self.policy):
            message = "write {from: EXPERIMENT, policy: POLICY}, or {adapter: FOLDER}"
            raise Problem("one-start", message)
        return self


class Resources(Settings):
    """Resources of one trial; as many trials run concurrently as fit."""

    cpus: float = Field(default=1, gt=0, le=MAX_RESOURCES)
    """CPUs per worker; may be a fraction."""
    gpus: float = Field(default=0, ge=0, le=MAX_RESOURCES)
    """GPUs per worker, at most 1 (TRL supports one GPU per process); may be a fraction."""
    workers: int = Field(default=1, ge=1, le=MAX_RESOURCES)
    """Processes that train one cell, through Ray Train."""
    timeout: int = Field(default=600, ge=5, le=MAX_WAIT)
    """Seconds that workers may wait for each other in one exchange of data. After that, they are
    considered to hang: all are ended, and the cell is retried."""

    @model_validator(mode="after")
    def _one_gpu_per_worker(self) -> Self:
        if self.gpus > 1:
            raise Problem(
                "gpus-per-worker",
                f"gpus is {self.gpus:g} per worker: write gpus: 1 and workers: {round(self.gpus)}",
                "gpus",
            )
        return self


class Experiment(Settings):
    """One named sweep.

    For settings that are axes of the grid, the experiment itself has the first value.
    """

    _variants: tuple["Variant", ...] = PrivateAttr(default=())

    about: str = ""
    """A one-line description."""
    grid: Grid
    """The swept axes."""
    budget: int | float = 0.10
    """Size of each subset: a share of the pool (0.10) or a number of prompts (80). A number below
    the prompts per update must divide them; each update then has every prompt several times."""
    compare_at: Axis = "updates"
    """What the report keeps equal when it compares policies. The default is rollouts if the grid
    has an online policy. labels: gold answers that selection and training have used."""
    mask_dead_groups: bool = False
    """Exclude groups from the loss if all of their completions are correct, or none. If the reward
    is not correctness, only correctness then decides which groups count."""
    rollouts: Literal["decile", "trl"] = "decile"
    """What draws the completions of an update: Decile's decoder, or TRL's call of `generate`. TRL
    also draws if a setting needs it (use_vllm, min_p, fsdp, deepspeed …; `decile run` prints
    which). trl changes a cell's id."""
    allocation: str | dict[str, dict[str, Any]] = Field(
        default="uniform", examples=["sqrt", {"knapsack": {"most": 32}}]
    )
    """How the completions of an update are divided among its prompts: uniform
    (grpo.num_generations each), sqrt, knapsack, until_correct, pods or package.module:attribute."""
    difficulty: Difficulty = Field(default="gold", examples=DIFFICULTIES)
    """Source of the difficulty that policies rank by: gold (pass rates of the cell's own model),
    agreement (of its answers, without gold answers), {model: NAME} (pass rates of another model in
    the file; with by: agreement, its agreement), or {file: PATH} (a difficulty table, or scores by
    prompt_id)."""
    start: Start | None = Field(default=None, examples=[{"from": "first_stage", "policy": "hard"}])
    """What the cells start from in place of the base model: the adapters of another experiment's
    cells, or one adapter."""
    claims: tuple[str, ...] = Field(default=(), strict=False, examples=[["hard > random on gsm8k"]])
    """Claims to test, stated in advance, such as "hard > random on gsm8k by 3"."""
    match_sizes: bool = False
    """If a policy cannot fill the budget, reduce all subsets to the size that it can fill."""
    label_noise: float = Field(default=0, ge=0, le=0.5, examples=[0.1])
    """Replace this share of the training pools' gold answers with wrong ones, to measure the effect
    of label noise on each policy. Test sets are unchanged."""
    label_noise_seed: Seed = 0
    """Seed that determines which gold answers are replaced, and by which wrong ones."""
    false_positive_rate: float = Field(default=0, ge=0, le=1, examples=[0.1])
    """Share of the wrong completions that get the reward of a correct one in training, as with an
    imperfect verifier. Marks, selection and evaluation are unchanged."""
    false_negative_rate: float = Field(default=0, ge=0, le=1, examples=[0.1])
    """Share of the correct completions that get the reward of a wrong one in training."""
    reward: str | dict[str, float] = Field(default="score", examples=["random"])
    """The reward in training: score (1 for a correct completion and 0 otherwise, unless the task's
    marker gives other scores), a control, package.module:function (a reward function with TRL's
    signature), or weights of several, such as {score: 1.0, "my_rewards:brevity": 0.2}. The controls
    are random (1 with probability one half), format (1 for any answer) and flipped (1 minus the
    score)."""
    marking: Literal["lenient", "strict"] = "lenient"
    """How answers are read for rewards and accuracy."""
    max_marking_errors: float = Field(default=0.1, ge=0, le=1)
    """Stop with an error if the marker fails on more than this share of a batch."""
    max_logp_difference: float = Field(default=MAX_LOGP_DIFFERENCE, gt=0)
    """Stop a cell if the log-probabilities of its rollouts' tokens differ from those in the loss by
    more than this many nats on average: the engine then draws from different weights."""
    probe: Probe = Probe()
    """How difficulty is measured."""
    grpo: dict[str, Any] = Field(default_factory=dict, examples=[{"max_steps": 50}])
    """Settings of TRL's GRPOConfig."""
    lora: dict[str, Any] = Field(default_factory=dict, examples=[{"r": 32}])
    """Settings of PEFT's LoraConfig."""
    evaluate: Evaluate = Field(default=Evaluate(), examples=[{"every": 25, "samples": 4}])
    """How accuracy is measured."""
    refresh: Refresh = Field(default=Refresh(), examples=[{"every": 10, "samples": 4}])
    """How often difficulty is measured again during training."""
    resources: Resources = Resources()
    """Resources of one trial."""
    max_gpu_hours: float | None = Field(default=None, gt=0)
    """Start no further block of policies if the forecast exceeds this many GPU-hours."""
    max_hours: float | None = Field(default=None, gt=0)
    """Start no further block of policies if the forecast exceeds this many hours of run time."""

    @model_validator(mode="wrap")
    @classmethod
    def _every_combination(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate the experiment once for every combination of the settings that are axes."""
        try:
            grid = Grid.model_validate(value.get("grid") if isinstance(value, dict) else None)
        except ValidationError:
            return handler(value)  # reports what is wrong with the grid
        if not grid.setting_axes:
            return handler(value)
        content = value | {"grid": Grid(**{n: getattr(grid, n) for n in Grid.model_fields})}
        variants: list[Variant] = []
        for axes in combinations(grid.setting_axes):
            try:
                variants.append(Variant(axes, cls.model_validate(with_values(content, axes))))
            except ValidationError as error:
                cls._raise_at_axis(error, grid, axes, first=not variants)
        experiment = handler(with_values(value, variants[0].axes) | {"grid": grid})
        experiment._variants = tuple(variants)
        return experiment

    @classmethod
    def _raise_at_axis(
        cls, error: ValidationError, grid: Grid, axes: Axes, *, first: bool
    ) -> NoReturn:
        """Raise the first error of a combination at the axis that caused it."""
        problem = first_problem(error, cls)
        axis = next((a for a in axes if problem.path[: len(path_of(a))] == path_of(a)), None)
        if axis is None:
            if first:  # probably with any value of the axes
                raise error
            axis = next(reversed([a for a, v in axes.items() if v != grid.setting_axes[a][0]]))
            problem.message = f"{problem.message} (with {axes_text(axes)})"
        place = grid.setting_axes[axis].index(axes[axis])
        raise Problem(problem.code, problem.message, "grid", axis, place)

    @field_validator("budget", mode="before")
    @classmethod
    def _budget(cls, budget: Any) -> Any:
        if isinstance(budget, bool) or not isinstance(budget, int | float) or not budget > 0:
            raise Problem(
                "invalid-budget",
                f"invalid budget {shown(budget)}: write a share (0.10) or a count (80)",
            )
        if isinstance(budget, float) and budget > 1:
            raise Problem(
                "budget-above-one", f"budget {budget} exceeds the pool: write a share up to 1.0"
            )
        if budget > _MAX_BUDGET:
            raise Problem(
                "budget-too-large", f"budget {shortened(budget)}: write at most {_MAX_BUDGET:,}"
            )
        return budget

    @field_validator("reward", mode="before")
    @classmethod
    def _known_rewards(cls, reward: Any) -> Any:
        weights = {reward: 1.0} if isinstance(reward, str) else reward
        if not isinstance(weights, dict) or not weights:
            raise Problem("invalid-reward", f"invalid reward {shown(reward)}: {_REWARD}")
        for name, weight in weights.items():
            if name not in REWARDS and ":" not in str(name):
                near = suggest(str(name), REWARDS)
                raise Problem("unknown-reward", f"unknown reward {shown(name)}: {_REWARD}{near}")
            if name not in REWARDS:
                try:
                    reward_function(name)
                except TaskError as error:
                    raise Problem("invalid-reward-function", str(error)) from error
            number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not number or not abs(weight) <= MOST_WEIGHT:
                raise Problem(
                    "invalid-reward-weight",
                    f"the weight of {name} is {shown(weight)}: write a number of at most "
                    f"{MOST_WEIGHT:g}",
                )
        if not any(weights.values()):
            raise Problem("no-reward", f"every weight is 0: {_REWARD}")
        return reward

    @field_validator("allocation", mode="before")
    @classmethod
    def _known_allocation(cls, allocation: Any) -> Any:
        try:
            AllocationEntry.of(allocation)
        except PolicyError as error:
            raise Problem("invalid-allocation", str(error)) from error
        return allocation

    @field_validator("difficulty", mode="before")
    @classmethod
    def _known_difficulty(cls, difficulty: Any) -> Any:
        DifficultyEntry.of(difficulty)
        return difficulty

    @field_validator("grpo", "lora")
    @classmethod
    def _library_settings(cls, values: dict[str, Any], info: Any) -> dict[str, Any]:
        for name, value in values.items():
            if message := settings.check_setting(info.field_name, name, value):
                raise Problem("invalid-library-setting", message, name)
        return values

    @model_validator(mode="after")
    def _batch_fits(self) -> Self:
        if message := self.batch.group_problem():
            raise Problem("group-size", message, "grpo", "num_generations")
        return self

    @model_validator(mode="after")
    def _one_model_per_served_name(self) -> Self:
        for name, block in self.sampled.items():
            served = block.engine_args.get("model") if block.engine == "server" else None
            if served and len(self.grid.model) > 1:
                raise Problem(
                    "one-served-model",
                    f"{served!r:.80} is one model, but the grid has {len(self.grid.model)}: leave "
                    "model out (each is then served under its Hub id), or write an experiment "
                    "for each",
                    name,
                    "engine_args",
                    "model",
                )
        return self

    @model_validator(mode="after")
    def _engine_applies_adapters(self) -> Self:
        engine = self.evaluate.engine
        # The base model of one engine cannot change for each of several adapters.
        swapped = "init_lora_weights" if changes_base(self.lora) else ""
        if engine and (name := unsupported_lora(engine, self.lora) or swapped):
            raise Problem(
                "engine-without-lora-setting",
                f"engine {engine} of evaluate does not apply it to adapters: leave evaluate.engine "
                "out, and the trainer's own model evaluates",
                "lora",
                name,
            )
        largest, rank = largest_rank(engine or ""), self.full_lora()["r"]
        if largest and rank > largest:
            raise Problem(
                "engine-without-lora-rank",
                f"r is {rank}, and engine {engine} of evaluate takes at most {largest}: write a "
                "smaller one, or leave evaluate.engine out, and the trainer's own model evaluates",
                "lora",
                "r",
            )
        return self

    @model_validator(mode="after")
    def _vllm_can_draw(self) -> Self:
        gpus, workers = self.resources.gpus, self.resources.workers
        cells = self.grid.cells
        if problem := vllm_problem(self.full_grpo(), gpus=gpus, workers=workers, cells=cells):
            raise problem
        return self

    @model_validator(mode="after")
    def _verifier_noise_acts(self) -> Self:
        if {"score", "flipped"}.isdisjoint(self.reward_weights or {"score": 1.0}):
            for name in ("false_positive_rate", "false_negative_rate"):
                if getattr(self, name):
                    message = f"the reward {value_text(self.reward)} has no score: leave {name} out"
                    raise Problem("noise-without-score", message, name)
        return self

    @model_validator(mode="after")
    def _generation_kwargs_are_free(self) -> Self:
        if problem := settings.generation_kwargs_problem(self.grpo.get("generation_kwargs")):
            raise Problem("overrides-own-setting", problem, "grpo", "generation_kwargs")
        return self

    @model_validator(mode="after")
    def _refresh_is_possible(self) -> Self:
        every, updates = self.refresh.every, self.grpo_settings.max_steps
        shared = self.batch.updates_per_generation
        if not every:
            return self
        if by_trl := self.why_trl_draws:
            raise Problem(
                "refresh-needs-decoder",
                f"every is {every}, but a refresh needs Decile's decoder: leave out {by_trl}, or "
                "write every: 0",
                "refresh",
                "every",
            )
        if every % max(1, shared):
            raise Problem(
                "refresh-in-a-generation",
                f"every is {every}, in the middle of a generation, which serves {shared:g} "
                f"updates: write a multiple of {shared:g}",
                "refresh",
                "every",
            )
        if every >= updates:
            raise Problem(
                "nothing-is-refreshed",
                f"every is {every}, and there are {counted(updates, 'update')}, so "
                "that nothing is refreshed "
                f"before the last: write at most {max(1, updates - 1)}, or 0",
                "refresh",
                "every",
            )
        return self

    @property
    def variants(self) -> "tuple[Variant, ...]":
        """Every combination of the settings that are axes."""
        return self._variants or (Variant({}, self),)

    @property
    def sampled(self) -> "dict[str, Probe | Evaluate]":
        """The blocks with the settings of sampling, by name."""
        return {"probe": self.probe, "evaluate": self.evaluate}

    @property
    def ood_sets(self) -> list[str]:
        """Every out-of-distribution test set of any cell."""
        return list(
            dict.fromkeys(name for each in self.variants for name in each.settings.evaluate.ood)
        )

    def shared_settings(self) -> dict[str, Any]:
        """All settings that are not axes, with Decile's defaults filled in, as JSON."""
        shared = self.model_dump(mode="json", exclude={"grid"})
        shared |= {"grpo": self.full_grpo(), "lora": self.full_lora()}
        for name in self.grid.setting_axes:
            block, *setting = path_of(name)
            if setting:
                shared[block] = {n: v for n, v in shared[block].items() if n != setting[0]}
            else:
                del shared[block]
        return shared

    def full_grpo(self) -> dict[str, Any]:
        """GRPO settings, with Decile's defaults filled in."""
        return settings.GRPO_DEFAULTS | settings.settled("grpo", self.grpo)

    @property
    def reward_weights(self) -> dict[str, float]:
        """Reward -> its weight, by name; empty for the score alone."""
        named = {self.reward: 1.0} if isinstance(self.reward, str) else self.reward
        weights = {name: float(named[name]) for name in sorted(named) if named[name]}
        return {} if weights == {"score": 1.0} else weights

    @property
    def allocation_entry(self) -> AllocationEntry | None:
        """How the completions of an update are divided; None for groups of one size."""
        return AllocationEntry.of(self.allocation)

    def difficulty_of(self, policy: PolicyEntry) -> DifficultyEntry | None:
        """What a policy ranks by, from its entry or else from the experiment; None for gold."""
        own = policy.difficulty
        return DifficultyEntry.of(self.difficulty if own is None else own)

    @property
    def reward_functions(self) -> list[str]:
        """The rewards that are the user's functions."""
        return [name for name in self.reward_weights if name not in REWARDS]

    @property
    def batch(self) -> GrpoBatch:
        """How TRL divides the rollouts of its cells."""
        return GrpoBatch.of(self.grpo_settings, self.resources.workers)

    @property
    def grpo_settings(self) -> GrpoSettings:
        """The GRPO settings that Decile reads."""
        return GrpoSettings.of(self.full_grpo())

    @property
    def why_trl_draws(self) -> str:
        """The setting that makes TRL draw the rollouts; empty if Decile draws them."""
        return settings.why_trl_draws(self.full_grpo(), self.rollouts, self.probe.stop)

    def full_lora(self, target_modules: Sequence[str] = ()) -> dict[str, Any]:
        """LoRA settings, with Decile's defaults and the model's target modules filled in."""
        modules = {"target_modules": list(target_modules)} if target_modules else {}
        return settings.LORA_DEFAULTS | modules | settings.settled("lora", self.lora)

    def subset_size(self, pool: int) -> int:
        """Prompts per subset: floor(share × pool), or the count (paper A: floor(p·N))."""
        return self.budget if isinstance(self.budget, int) else int(self.budget * pool + 1e-9)


class Variant(NamedTuple):
    """One combination of the settings that are axes: their values, and all settings with them."""

    axes: Mapping[str, Any]
    settings: Experiment
