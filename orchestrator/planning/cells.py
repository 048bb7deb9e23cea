"""Specifications of probes and cells, stored as JSON, with ids that hash their content. Pure."""

import operator
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from orchestrator.config import library_settings as settings
from orchestrator.config.entries import AllocationEntry, PolicyEntry
from orchestrator.config.experiment import (
    MAX_LOGP_DIFFERENCE,
    REWARDS,
    Axes,
    Refresh,
    Resources,
    value_text,
)
from orchestrator.config.grpo import GrpoBatch, GrpoSettings
from orchestrator.config.probe import PASS_AT, Probe
from orchestrator.planning.pools import Dataset, Split
from orchestrator.sampling.engine_args import changing_args
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.proof import canonical_hash
from tasks.reward_functions import reward_function


class Spec(BaseModel):
    """Base of what is passed to workers and stored as JSON next to its results."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)


class ProbeSpec(Spec):
    """One probe: a base model on one split of a dataset, under fixed sampling settings.

    The probe of a training pool measures difficulty. The probe of a test set, under the
    evaluation's settings, is the base model's evaluation, which cells share.
    """

    model: ModelSource
    dataset: Dataset
    split: Split
    settings: Probe
    template: str
    marker: str

    @property
    def identity(self) -> dict[str, Any]:
        """What the key hashes. Not the marker, the pool or K, which do not change any sample."""
        settings = self.settings
        not_in_key = {"samples", "adaptive", "count_truncated", "gpus"}
        not_in_key |= {"engine_args", "engine_python"}
        if not settings.stop:
            not_in_key.add("stop")  # added later: keys of probes without it stay as they were
        sampling = settings.model_dump(mode="json", exclude=not_in_key)
        if engine_args := changing_args(settings.engine, settings.engine_args):
            sampling["engine_args"] = engine_args  # also added later
        return {
            "model": self.model.key(),
            "template": self.template,
            "task": self.dataset.task,
            "sampling": sampling,
        }

    @cached_property
    def key(self) -> str:
        """The name of the folder of the samples in the store."""
        return canonical_hash(self.identity)


class ExtraEval(Spec):
    """One more evaluation of a cell: greedy answers to its own test set, or another test set."""

    probe: ProbeSpec
    dataset: str  # empty for the cell's own test set
    greedy: bool
    test_hash: str

    @property
    def identity(self) -> list[Any]:
        """What the cell's id hashes. The marker of the cell's own dataset is hashed elsewhere."""
        marker = [self.probe.marker] if self.dataset else []
        return [self.probe.key, self.probe.settings.samples, self.test_hash, *marker]


class DifficultySource(Spec):
    """What a cell's prompts are ranked by, if not by the pass rates of its own probe.

    by: pass rates by the golds, or agreement. probe: that of another model; None: the cell's own.
    file: a table or scores by prompt in place of a probe, with the hash of its content.
    """

    by: Literal["gold", "agreement"] = "gold"
    probe: ProbeSpec | None = None
    file: str = ""
    file_hash: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        """What the key of a subset hashes."""
        if self.file:
            return {"file": self.file_hash}
        if self.probe is None:
            return {"by": self.by}
        settings = self.probe.settings
        return {
            "by": self.by,
            "probe_key": self.probe.key,
            "samples": settings.samples,
            "marker": self.probe.marker,
            "count_truncated": settings.count_truncated,
        }

    @property
    def title(self) -> str:
        """For people: `agreement`, `pass rate of qwen3-4b`, `agreement of qwen3-4b`, `scores.csv`.

        What is true of the cell's own model is not named.
        """
        if self.file:
            return Path(self.file).name
        return source_title(self.by, self.probe.model.name if self.probe else "")

    @property
    def option(self) -> str:
        """As a word of a command line: see `difficulty_option`."""
        if self.file or self.probe is None:
            return self.file or self.by
        return f"{'model' if self.by == 'gold' else self.by}:{self.probe.model.name}"


def own_source(by: Literal["gold", "agreement"]) -> DifficultySource | None:
    """What a cell is ranked by whose difficulty is that of its own model."""
    return None if by == "gold" else DifficultySource(by=by)


def source_title(by: str, model: str = "") -> str:
    """What prompts are ranked by: `pass rate`, or `agreement of MODEL`."""
    name = "pass rate" if by == "gold" else by
    return f"{name} of {model}" if model else name


# The fields of a cell that are no part of its treatment: what is trained on, how it is measured,
# where it runs, and what it is called. Every other field is one: `Cell.treatment`.
NO_TREATMENT = frozenset(
    {
        *("probe", "policy", "rule", "stream", "seed", "size", "match", "train_hash"),
        *("columns_hash", "online_version"),
        "golds",
        "difficulty",
        *("baseline", "extra_evals", "pass_at", "test_hash", "evaluate_every", "evaluate_engine"),
        *("resources", "max_logp_difference", "provenance", "swept"),
    }
)


class Cell(Spec):
    """One (model, dataset, policy, seed, and any other axis) with every setting resolved."""

    probe: ProbeSpec
    baseline: ProbeSpec
    extra_evals: list[ExtraEval] = Field(  # "also" in stored cells
        default=[], validation_alias=AliasChoices("extra_evals", "also"), serialization_alias="also"
    )
    pass_at: tuple[int, ...] = PASS_AT
    policy: str
    rule: PolicyEntry  # what selects the subset
    stream: str = Field(default="", exclude_if=operator.not_)  # from which `rule` draws
    online: PolicyEntry | None = Field(default=None, exclude_if=operator.not_)  # chooses from it
    online_version: int = Field(default=1, exclude_if=lambda version: version == 1)
    # None: pass rates of its own probe, or its prompts are the same whatever they are ranked by.
    difficulty: DifficultySource | None = Field(default=None, exclude_if=operator.not_)
    seed: int
    size: int
    match: list[PolicyEntry] = []
    train_hash: str
    # The hash of the columns of the user's data that its policies and its allocation read; empty
    # where they read none.
    columns_hash: str = Field(default="", exclude_if=operator.not_)
    # Prompts of the pool with a gold answer; 0 in cells that earlier versions have stored.
    golds: int = 0
    test_hash: str
    mask_dead_groups: bool = False
    reward: dict[str, float] = Field(default={}, exclude_if=operator.not_)  # empty: the score
    allocation: AllocationEntry | None = Field(default=None, exclude_if=operator.not_)
    rollouts_by: Literal["decile", "trl"] = "decile"
    grpo: dict[str, Any]
    lora: dict[str, Any]
    evaluate_every: int
    refresh: Refresh | None = Field(default=None, exclude_if=operator.not_)  # None: never
    evaluate_engine: str | None = None  # None: the trainer's own model evaluates, during training
    resources: Resources
    max_logp_difference: float = MAX_LOGP_DIFFERENCE
    provenance: dict[str, str] = {}
    # Settings that are axes, dotted name -> value. The id hashes what they set, not their names.
    swept: Axes = Field(default={}, exclude_if=operator.not_)

    @model_validator(mode="before")
    @classmethod
    def _without_rivals(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Leave out `rivals`, which stored cells may have: it never changed a result."""
        return {name: value for name, value in values.items() if name != "rivals"}

    def changed(self, **changes: Any) -> "Cell":
        """A copy with other values of some fields, and hashes of its own."""
        return type(self).model_validate(
            {name: getattr(self, name) for name in type(self).model_fields} | changes
        )

    @property
    def subset_identity(self) -> dict[str, Any]:
        """What determines which prompts are selected."""
        columns = {"columns": self.columns_hash} if self.columns_hash else {}
        source = {"difficulty": self.difficulty.identity} if self.difficulty else {}
        stream = {"stream": self.stream} if self.stream else {}
        return {**columns, **source, **stream} | {
            "probe_key": self.probe.key,
            "samples": self.probe.settings.samples,
            "marker": self.probe.marker,
            "pool": self.train_hash,
            "policy": self.rule.policy,
            "options": self.rule.options,
            "size": self.size,
            "match": [rule.model_dump() for rule in self.match],
            "seed": self.seed,
            "count_truncated": self.probe.settings.count_truncated,
            "group_size": self.batch.group_size,
        }

    @property
    def ranked_by(self) -> str:
        """What its prompts are ranked by, with the model: `pass rate of tiny`, or a file's name."""
        source = self.difficulty
        probe = source and source.probe or self.probe
        return source.title if source and source.file else self._ranked_by(probe.model.name)

    @property
    def difficulty_title(self) -> str:
        """The same without its own model; empty where its pass rates are what counts."""
        source = self.difficulty
        if source is None or source.file:
            return source.title if source else ""
        return self._ranked_by(source.probe.model.name if source.probe else "")

    def _ranked_by(self, model: str) -> str:
        by = self.difficulty.by if self.difficulty else "gold"
        return source_title(self.rule.build().ranks_by or by, model)

    @property
    def reads_golds(self) -> bool:
        """Whether the choice of its prompts depends on gold answers of the pool."""
        rule, source = self.rule.build(), self.difficulty
        without = source is not None and (source.by == "agreement" or bool(source.file))
        return rule.reads_golds and (rule.excludes_suspected or not without)

    @cached_property
    def subset_key(self) -> str:
        """The name of the subset's file in the store."""
        return canonical_hash(self.subset_identity)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change the result. CPU and GPU shares cannot.

        The default of `rollouts_by` is not part of it: cells of earlier versions, whose rollouts
        TRL drew, keep their ids. The distribution is the same, only the draws differ. Which of the
        two drew a finished cell stands among the versions in its result.
        """
        version = {"online_version": self.online_version} if self.online_version > 1 else {}
        return (
            version
            | self.treatment
            | {
                "subset": self.subset_identity,
                "evaluation": self.evaluation_identity,
                "also": [extra.identity for extra in self.extra_evals],
                "every": self.evaluate_every,
            }
        )

    @property
    def treatment(self) -> dict[str, Any]:
        """Everything that training does to a subset: every field that is not in `NO_TREATMENT`.

        A field that is left out of a stored cell at its default (`exclude_if`) is left out here,
        too, so that cells of earlier versions keep their ids.
        """
        fields = self.model_dump(include=type(self).model_fields.keys() - NO_TREATMENT)
        if self.rollouts_by == "decile":
            del fields["rollouts_by"]
        return fields | {"workers": self.resources.workers}

    @property
    def treatment_settings(self) -> dict[str, Any]:
        """The treatment by the names of the experiment file, for people; also in MLflow."""
        names = {"rollouts_by": "rollouts"}
        return {names.get(name, name): value for name, value in self.treatment.items()}

    @property
    def evaluation_identity(self) -> list[Any]:
        """What determines the scores of the cell's own test set, given the trained model."""
        return [self.baseline.key, self.baseline.settings.samples, self.test_hash]

    @cached_property
    def cell_id(self) -> str:
        """Hash of the identity."""
        return canonical_hash(self.identity)

    @property
    def earlier(self) -> "list[Cell]":
        """The same as earlier versions of its policies have it, which may be stored, newest first.

        One whose online version is the same has the same code: it can also be continued.
        """
        streams = dict.fromkeys((self.stream, ""))
        versions = range(self.online_version, 0, -1)
        same = [(stream, version) for version in versions for stream in streams][1:]
        return [self.changed(stream=stream, online_version=version) for stream, version in same]

    @property
    def probes(self) -> list[ProbeSpec]:
        """Every probe that it reads: of its pool, of what it is ranked by, and evaluations."""
        ranks = [self.difficulty.probe] if self.difficulty and self.difficulty.probe else []
        return [self.probe, *ranks, self.baseline, *(each.probe for each in self.extra_evals)]

    @property
    def why_trl_draws(self) -> str:
        """The setting because of which TRL draws the rollouts; empty where Decile does."""
        return settings.why_trl_draws(self.grpo, self.rollouts_by, self.probe.settings.stop)

    @property
    def name(self) -> str:
        """Display name: model/dataset/policy/seed, the probe's seed if it is not 0, other axes."""
        probe = self.probe.settings.seed
        name = f"{self.probe.model.name}/{self.probe.dataset.name}/{self.policy}/s{self.seed}"
        return "/".join([name, *([f"p{probe}"] if probe else []), *axis_names(self.swept)])

    @property
    def axes(self) -> Axes:
        """The swept axes, settings by their dotted names."""
        return self.fixed_axes | self.swept

    @property
    def fixed_axes(self) -> Axes:
        """The axes that every grid has."""
        return {
            "model": self.probe.model.name,
            "dataset": self.probe.dataset.name,
            "policy": self.policy,
            "seed": self.seed,
            "probe_seed": self.probe.settings.seed,
        }

    @property
    def axes_json(self) -> Axes:
        """The axes, those that are settings under "axes", so that no name is used twice."""
        return self.fixed_axes | ({"axes": self.swept} if self.swept else {})

    @property
    def batch(self) -> GrpoBatch:
        """How TRL divides its rollouts."""
        return GrpoBatch.of(self.grpo_settings, self.resources.workers)

    @property
    def grpo_settings(self) -> GrpoSettings:
        """What Decile reads of the GRPO settings."""
        return GrpoSettings.of(self.grpo)

    @property
    def updates(self) -> int:
        """Optimizer updates of the trial."""
        return self.batch.updates

    def evaluates_after(self, update: int) -> bool:
        """Whether the model is evaluated after so many updates."""
        every = self.evaluate_every
        return update == self.updates or (every > 0 and update > 0 and update % every == 0)

    @property
    def prompts_per_update(self) -> int:
        """Groups per update."""
        return self.batch.prompts_per_update

    @property
    def rollouts(self) -> int:
        """Completions that the trial generates to train on; several updates may use one."""
        return self.batch.rollouts

    @property
    def times_drawn(self) -> int:
        """Completions drawn of a prompt for each that is trained on."""
        return self.allocation.build().times if self.allocation else 1

    @property
    def discards(self) -> bool:
        """Whether some of the completions drawn may not be trained on."""
        return self.times_drawn > 1 or (
            self.online is not None and self.online.build_online().discards
        )

    @property
    def min_rollouts(self) -> int:
        """Completions that the trial generates for training, at least."""
        return self.rollouts * self.times_drawn

    @property
    def max_rollouts(self) -> int:
        """Completions that the trial generates for training, at most, with those of refreshes."""
        draws = self.online.build_online().max_draws if self.online else 1
        return self.min_rollouts * draws + self.refresh_rollouts

    def labels_before(self, size: int) -> int | None:
        """Gold answers that it uses before its first update, with a subset of `size` prompts.

        None: none, and then those of each prompt that it draws, groups that it discards and
        refreshes included. That is an online policy that reads no pass rates of the probe, and
        chooses from a subset whose choice has read no gold answer.
        """
        if any(rule.build().reads_golds for rule in self.match):
            return self.golds
        if (shown := self.rule.build().label_count(self.golds)) is not None:
            return shown
        if self.reads_golds:
            return self.golds
        if self.online is None:
            return size if self.trains_on_golds else 0
        return size if self.online.build_online().reads_golds else None

    @property
    def most_labels(self) -> int:
        """Gold answers that it uses in all, at most."""
        before = self.labels_before(self.size)
        if before is not None:
            return before
        assert self.online is not None, "others know before their first update"
        groups = self.rollouts // self.batch.group_size * self.online.build_online().max_draws
        again = self.refresh_rollouts // self.refresh.samples if self.refresh else 0
        return min(self.size, groups + again)

    @property
    def trains_on_golds(self) -> bool:
        """Whether training uses the gold answers of its prompts, as far as can be known.

        It does not where nothing that is rewarded needs a mark: the reward `random`, and functions
        of the user's own that are given neither the answer nor columns of the data.
        """
        if self.mask_dead_groups or self.allocation or self.online or not self.reward:
            return True
        return any(
            name != "random" if name in REWARDS else reward_function(name).may_read_golds
            for name in self.reward
        )

    @property
    def refresh_rollouts(self) -> int:
        """Completions that refreshes generate, if the subset has its full size."""
        return self.refresh.rollouts(self.size, self.updates) if self.refresh else 0


class HasAxes(Protocol):
    """A cell, or anything with the axes of one."""

    @property
    def axes(self) -> Mapping[str, Any]:
        """model, dataset, policy, seed, probe_seed, and settings by their dotted names."""


def axis_names(swept: Mapping[str, Any]) -> list[str]:
    """The settings that are axes as parts of a cell's name: `grpo.beta=0.1`."""
    return [f"{axis}={value_text(value)}" for axis, value in swept.items()]


def axes_without(cell: HasAxes, *left_out: str) -> tuple[str, ...]:
    """The values of all other axes, as a key: the same for cells that differ in no other axis."""
    return tuple(repr(value) for axis, value in sorted(cell.axes.items()) if axis not in left_out)


def block_of(cell: HasAxes) -> tuple[str, ...]:
    """What the cells of a block have in common: every axis but the policy."""
    return axes_without(cell, "policy")


def cells_of(cells: Sequence[Cell], spec: ProbeSpec) -> list[Cell]:
    """The cells of whose model a probe is; of an adaptive probe, those with its K."""
    return [cell for cell in cells if same_probe(cell.probe, spec)]


def cells_ranked_by(cells: Sequence[Cell], spec: ProbeSpec) -> list[Cell]:
    """The cells of other models whose prompts are ranked by a probe."""
    sources = ((cell, cell.difficulty.probe) for cell in cells if cell.difficulty)
    return [cell for cell, probe in sources if probe and same_probe(probe, spec)]


def readers_of(cells: Sequence[Cell], spec: ProbeSpec) -> list[Cell]:
    """The cells of a probe.

    Of a model that no cell trains: those that rank by its probe, as if they were of that model.
    """
    return cells_of(cells, spec) or [
        cell.changed(probe=source.probe, difficulty=own_source(source.by))
        for cell in cells_ranked_by(cells, spec)
        if (source := cell.difficulty)
    ]


def same_probe(one: ProbeSpec, other: ProbeSpec) -> bool:
    """Whether two specifications are drawn as one probe; of an adaptive one, with the same K."""
    if (one.key, one.dataset.title) != (other.key, other.dataset.title):
        return False
    return not other.settings.adaptive or needed_samples(one) == needed_samples(other)


def needed_samples(spec: ProbeSpec) -> tuple[int, str]:
    """What, besides its key, determines which samples an adaptive probe needs."""
    return spec.settings.samples, spec.settings.count_truncated
