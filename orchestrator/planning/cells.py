"""Specifications of probes and cells, stored as JSON, with ids that hash their content. Pure."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from orchestrator.config import library_settings as settings
from orchestrator.config.allocation_entry import AllocationEntry
from orchestrator.config.experiment import (
    GRID_AXES,
    MAX_LOGP_DIFFERENCE,
    PROBE_SEED,
    REWARDS,
    Axes,
    Refresh,
    Resources,
    value_text,
)
from orchestrator.config.grpo import GrpoBatch, GrpoSettings
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.config.probe import PASS_AT, Probe
from orchestrator.planning.pools import Dataset
from orchestrator.sampling.engine_args import changing_args
from orchestrator.sampling.model import ModelSource
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.schema import Split
from tasks.reward_functions import reward_function


@dataclass(frozen=True)
class Part:
    """What a field is part of; every field of a specification declares it in its annotation.

    of: the identity that hashes the field, or "" with the reason why none does. hashed: the entries
    that its value adds to the identity; by default one, under `key` or the field's name. shown: the
    entries in MLflow and `decile plan`, by the names of the experiment file; by default the value,
    under `name` or the field's name.
    """

    of: Literal["probe", "subset", "treatment", "evaluation", "cell", ""]
    why: str = ""
    key: str = ""
    hashed: Callable[[Any], dict[str, Any]] | None = None
    shown: Callable[[Any], dict[str, Any]] | None = None


class Spec(BaseModel):
    """Base of what is passed to workers and stored as JSON next to its results."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    @classmethod
    @cache
    def parts(cls) -> Mapping[str, Part]:
        """The declared part of each field."""
        return {
            name: next(each for each in field.metadata if isinstance(each, Part))
            for name, field in cls.model_fields.items()
        }

    def hashed(self, of: str) -> dict[str, Any]:
        """The entries that the identity `of` hashes, in the order of its fields."""
        entries: dict[str, Any] = {}
        for name, part in self.parts().items():
            if part.of == of:
                entries |= self._entries(name, part.hashed, part.key or name)
        return entries

    @property
    def settings_shown(self) -> dict[str, Any]:
        """Everything that the ids hash, nested, by the names of the experiment file."""
        settings: dict[str, Any] = {}
        for name, part in self.parts().items():
            more = self._entries(name, part.shown or part.hashed, name) if part.of else {}
            for key, value in more.items():
                nested = isinstance(value, dict) and isinstance(settings.get(key), dict)
                settings[key] = settings[key] | value if nested else value
        return settings

    def _entries(
        self, name: str, of_value: Callable[[Any], dict[str, Any]] | None, key: str
    ) -> dict[str, Any]:
        """The entries of a field; none for a field that stored JSON omits (`exclude_if`).

        So ids of earlier versions, which lack the field, do not change.
        """
        stored = [*self.model_dump(include={name}).values()]
        if not stored:
            return {}
        return {key: stored[0]} if of_value is None else of_value(getattr(self, name))


class ProbeSpec(Spec):
    """One probe: a base model on one split of a dataset, under fixed sampling settings.

    The probe of a training pool measures difficulty. The probe of a test set, under the
    evaluation's settings, is the base model's evaluation, which cells share.
    """

    model: Annotated[ModelSource, Part("probe", hashed=lambda model: {"model": model.key()})]
    dataset: Annotated[Dataset, Part("probe", hashed=lambda dataset: {"task": dataset.task})]
    split: Annotated[Split, Part("", "parts of both splits are in one folder, and name theirs")]
    settings: Annotated[Probe, Part("probe", hashed=lambda probe: {"sampling": _sampling(probe)})]
    template: Annotated[str, Part("probe")]
    marker: Annotated[str, Part("", "stored samples are marked again; subsets hash it")]

    @property
    def identity(self) -> dict[str, Any]:
        """What the key hashes; not the marker, the pool or K, which do not change any sample."""
        return self.hashed("probe")

    @cached_property
    def key(self) -> str:
        """The name of the folder of the samples in the store."""
        return canonical_hash(self.identity)


def _sampling(probe: Probe) -> dict[str, Any]:
    """The settings that can change a completion."""
    others = {"samples", "adaptive", "count_truncated", "gpus", "engine_args", "engine_python"}
    if not probe.stop:
        others.add("stop")  # added later: keys of probes without it do not change
    sampling = probe.model_dump(mode="json", exclude=others)
    if engine_args := changing_args(probe.engine, probe.engine_args):
        sampling["engine_args"] = engine_args  # also added later
    return sampling


class ExtraEval(Spec):
    """One more evaluation of a cell: greedy answers to its own test set, or another test set."""

    probe: ProbeSpec
    dataset: str  # empty for the cell's own test set
    greedy: bool
    test_hash: str

    @property
    def identity(self) -> list[Any]:
        """What the cell's id hashes; the marker of the cell's own dataset is hashed elsewhere."""
        marker = [self.probe.marker] if self.dataset else []
        return [self.probe.key, self.probe.settings.samples, self.test_hash, *marker]

    @property
    def settings(self) -> dict[str, Any]:
        """The same in readable form."""
        marker = {"marker": self.probe.marker} if self.dataset else {}
        samples = {"key": self.probe.key, "samples": self.probe.settings.samples}
        return {"dataset": self.dataset, **samples, "test_hash": self.test_hash, **marker}


class DifficultySource(Spec):
    """What a cell's prompts are ranked by, if not the pass rates of its own probe.

    by: pass rates from gold answers, or agreement. probe: another model's; None for the cell's own.
    file: a table, or scores by prompt, in place of a probe, with the hash of its content.
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

        The cell's own model is not named.
        """
        if self.file:
            return Path(self.file).name
        return source_title(self.by, self.probe.model.name if self.probe else "")

    @property
    def option(self) -> str:
        """As a word of a command line: see `difficulty_option`."""
        if self.file or self.probe is None:
            return self.file or self.by
        by = "model" if self.by == "gold" else self.by
        return f"{by}:{self.probe.model.name}"


def own_source(by: Literal["gold", "agreement"]) -> DifficultySource | None:
    """The source for a cell whose difficulty comes from its own model."""
    return None if by == "gold" else DifficultySource(by=by)


def source_title(by: str, model: str = "") -> str:
    """What prompts are ranked by: `pass rate`, or `agreement of MODEL`."""
    name = "pass rate" if by == "gold" else by
    return f"{name} of {model}" if model else name


def _subset_of_probe(spec: ProbeSpec) -> dict[str, Any]:
    return {
        "probe_key": spec.key,
        "samples": spec.settings.samples,
        "marker": spec.marker,
        "count_truncated": spec.settings.count_truncated,
    }


def _probe_shown(spec: ProbeSpec) -> dict[str, Any]:
    identity, settings = spec.identity, spec.settings
    counted = {"samples": settings.samples, "count_truncated": settings.count_truncated}
    probe = identity["sampling"] | counted | {"key": spec.key}
    shown = {name: identity[name] for name in ("model", "task", "template")}
    return shown | {"probe": probe, "marker": spec.marker}


def _evaluation_shown(spec: ProbeSpec) -> dict[str, Any]:
    sampling = spec.identity["sampling"]
    return {"evaluate": {**sampling, "samples": spec.settings.samples, "key": spec.key}}


def _dumped(entries: Sequence[BaseModel]) -> list[dict[str, Any]]:
    return [entry.model_dump() for entry in entries]


class Cell(Spec):
    """One (model, dataset, policy, seed, and any other axis) with every setting resolved."""

    probe: Annotated[ProbeSpec, Part("subset", hashed=_subset_of_probe, shown=_probe_shown)]
    baseline: Annotated[
        ProbeSpec,
        Part(
            "evaluation",
            hashed=lambda spec: {"key": spec.key, "samples": spec.settings.samples},
            shown=_evaluation_shown,
        ),
    ]
    extra_evals: Annotated[
        list[ExtraEval],
        Part(
            "cell",
            hashed=lambda extra: {"also": [each.identity for each in extra]},
            shown=lambda extra: {"other_evaluations": [each.settings for each in extra]},
        ),
    ] = Field(  # "also" in stored cells
        default=[], validation_alias=AliasChoices("extra_evals", "also"), serialization_alias="also"
    )
    pass_at: Annotated[tuple[int, ...], Part("", "computed from samples that are stored")] = PASS_AT
    policy: Annotated[str, Part("", "a name: what it chooses is in `static_policy`")]
    # What selects the subset; "rule" in stored cells and where it is shown.
    static_policy: Annotated[
        PolicyEntry,
        Part(
            "subset",
            hashed=lambda entry: {"policy": entry.policy, "options": entry.options},
            shown=lambda entry: {"rule": {"policy": entry.policy, **entry.options}},
        ),
    ] = Field(validation_alias=AliasChoices("static_policy", "rule"), serialization_alias="rule")
    # From which `static_policy` draws.
    stream: Annotated[str, Part("subset")] = Field(default="", exclude_if=operator.not_)
    # Chooses from the subset.
    online: Annotated[PolicyEntry | None, Part("treatment")] = Field(
        default=None, exclude_if=operator.not_
    )
    online_version: Annotated[int, Part("cell")] = Field(
        default=1, exclude_if=lambda version: version == 1
    )
    # None: pass rates of its own probe, or its prompts are the same whatever they are ranked by.
    difficulty: Annotated[
        DifficultySource | None,
        Part("subset", hashed=lambda ranking: {"difficulty": ranking.identity}),
    ] = Field(default=None, exclude_if=operator.not_)
    seed: Annotated[int, Part("subset")]
    size: Annotated[
        int, Part("subset", hashed=lambda size: {"size": size}, shown=lambda size: {"budget": size})
    ]
    # Policies whose smallest capacity bounds every subset; "match" in stored cells.
    bounding_rules: Annotated[
        list[PolicyEntry],
        Part(
            "subset",
            hashed=lambda rules: {"match": _dumped(rules)},
            shown=lambda rules: {"match_sizes": _dumped(rules)},
        ),
    ] = Field(
        default=[],
        validation_alias=AliasChoices("bounding_rules", "match"),
        serialization_alias="match",
    )
    train_hash: Annotated[str, Part("subset", key="pool")]
    # The hash of the user's columns that its policies and its allocation read; empty if they read
    # none.
    columns_hash: Annotated[str, Part("subset", key="columns")] = Field(
        default="", exclude_if=operator.not_
    )
    # Prompts of the pool with a gold answer; 0 in cells stored by earlier versions.
    gold_count: Annotated[int, Part("", "counted in the pool, which `train_hash` hashes")] = Field(
        default=0,  # "golds" in stored cells
        validation_alias=AliasChoices("gold_count", "golds"),
        serialization_alias="golds",
    )
    test_hash: Annotated[str, Part("evaluation")]
    mask_dead_groups: Annotated[bool, Part("treatment")] = False
    # Empty: the score.
    reward: Annotated[dict[str, float], Part("treatment")] = Field(
        default={}, exclude_if=operator.not_
    )
    # Error rates of the verifier that gives rewards in training.
    false_positive_rate: Annotated[float, Part("treatment")] = Field(
        default=0.0, exclude_if=operator.not_
    )
    false_negative_rate: Annotated[float, Part("treatment")] = Field(
        default=0.0, exclude_if=operator.not_
    )
    allocation: Annotated[AllocationEntry | None, Part("treatment")] = Field(
        default=None, exclude_if=operator.not_
    )
    rollouts_by: Annotated[
        Literal["decile", "trl"],
        Part(
            "treatment",
            hashed=lambda by: {} if by == "decile" else {"rollouts_by": by},
            shown=lambda by: {} if by == "decile" else {"rollouts": by},
        ),
    ] = "decile"
    grpo: Annotated[dict[str, Any], Part("treatment")]
    lora: Annotated[dict[str, Any], Part("treatment")]
    evaluate_every: Annotated[
        int, Part("cell", key="every", shown=lambda every: {"evaluate": {"every": every}})
    ]
    # None: never.
    refresh: Annotated[Refresh | None, Part("treatment")] = Field(
        default=None, exclude_if=operator.not_
    )
    # None: the trainer's own model evaluates, during training.
    evaluate_engine: Annotated[str | None, Part("", "where the same samples are drawn")] = None
    # CPU and GPU shares do not change results.
    resources: Annotated[
        Resources,
        Part("treatment", hashed=lambda resources: {"workers": resources.workers}),
    ]
    max_logp_difference: Annotated[
        float, Part("", "stops a faulty cell, and changes no number of another")
    ] = MAX_LOGP_DIFFERENCE
    provenance: Annotated[
        dict[str, str], Part("", "the content is in `train_hash` and `test_hash`")
    ] = {}
    # Settings that are axes, dotted name -> value; "swept" in stored cells.
    setting_axes: Annotated[Axes, Part("", "names of settings that other fields hold")] = Field(
        default={},
        exclude_if=operator.not_,
        validation_alias=AliasChoices("setting_axes", "swept"),
        serialization_alias="swept",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_rivals(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Leave out `rivals`, which stored cells may have: it never changed a result."""
        return {name: value for name, value in values.items() if name != "rivals"}

    def changed(self, **changes: Any) -> "Cell":
        """A copy with some fields changed, and hashes of its own."""
        return type(self).model_validate(
            {name: getattr(self, name) for name in type(self).model_fields} | changes
        )

    @property
    def subset_identity(self) -> dict[str, Any]:
        """What determines which prompts are selected."""
        return self.hashed("subset") | {"group_size": self.batch.group_size}

    @property
    def ranked_by(self) -> str:
        """What its prompts are ranked by: `pass rate of tiny`, or a file's name.

        The same for all seeds, so it does not name an adapter that its model starts from.
        """
        ranking, probe = self.difficulty, self.probe
        if ranking and ranking.file:
            return ranking.title
        if ranking and ranking.probe:
            probe = ranking.probe
        started = " from its start" if probe.model.start else ""
        return self._ranked_by(f"{probe.model.name}{started}")

    @property
    def difficulty_title(self) -> str:
        """The same without its own model; empty if it is ranked by its own pass rates."""
        ranking = self.difficulty
        if ranking is None:
            return ""
        if ranking.file:
            return ranking.title
        return self._ranked_by(ranking.probe.model.name if ranking.probe else "")

    def _ranked_by(self, model: str) -> str:
        by = self.difficulty.by if self.difficulty else "gold"
        return source_title(self.static_policy.build().ranks_by or by, model)

    @property
    def reads_golds(self) -> bool:
        """Whether the choice of its prompts depends on gold answers of the pool."""
        rule, ranking = self.static_policy.build(), self.difficulty
        without = ranking is not None and (ranking.by == "agreement" or bool(ranking.file))
        return rule.reads_golds and (rule.excludes_suspected or not without)

    @cached_property
    def subset_key(self) -> str:
        """The name of the subset's file in the store."""
        return canonical_hash(self.subset_identity)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change the result. The default of `rollouts_by` is not part of it:
        cells of earlier versions, with rollouts drawn by TRL, keep their ids. The distribution is
        the same; only the draws differ. The versions in the result of a finished cell include which
        of the two drew it.
        """
        return (
            self.hashed("cell")
            | self.treatment
            | {"subset": self.subset_identity, "evaluation": self.evaluation_identity}
        )

    @property
    def treatment(self) -> dict[str, Any]:
        """Everything that training does to a subset."""
        return self.hashed("treatment")

    @property
    def evaluation_identity(self) -> list[Any]:
        """What determines the scores of the cell's own test set, given the trained model."""
        return [*self.hashed("evaluation").values()]

    @cached_property
    def cell_id(self) -> str:
        """Hash of the identity."""
        return canonical_hash(self.identity)

    @property
    def earlier(self) -> "list[Cell]":
        """The cell as earlier versions of its policies define it, newest first; results may be
        stored.

        If the online version is the same, so is the code: the stored cell can be continued.
        """
        streams = dict.fromkeys((self.stream, ""))
        versions = range(self.online_version, 0, -1)
        same = [(stream, version) for version in versions for stream in streams][1:]
        return [self.changed(stream=stream, online_version=version) for stream, version in same]

    @property
    def probes(self) -> list[ProbeSpec]:
        """Every probe that it reads: of its pool, of its ranking, and of its evaluations."""
        probes = [self.probe]
        if self.difficulty and self.difficulty.probe:
            probes.append(self.difficulty.probe)
        probes.append(self.baseline)
        return probes + [each.probe for each in self.extra_evals]

    @property
    def why_trl_draws(self) -> str:
        """The setting that makes TRL draw the rollouts; empty if Decile draws them."""
        return settings.why_trl_draws(self.grpo, self.rollouts_by, self.probe.settings.stop)

    @property
    def name(self) -> str:
        """Display name: model/dataset/policy/seed, the probe's seed if it is not 0, other axes."""
        parts = [self.probe.model.name, self.probe.dataset.name, self.policy, f"s{self.seed}"]
        if self.probe.settings.seed:
            parts.append(f"p{self.probe.settings.seed}")
        return "/".join(parts + axis_names(self.setting_axes))

    @property
    def axes(self) -> Axes:
        """The swept axes, settings by their dotted names."""
        return self.fixed_axes | self.setting_axes

    @property
    def fixed_axes(self) -> Axes:
        """The axes that every grid has."""
        values = (self.probe.model.name, self.probe.dataset.name, self.policy, self.seed)
        axes = dict(zip(GRID_AXES, values, strict=True))
        return axes | {PROBE_SEED: self.probe.settings.seed}

    @property
    def axes_json(self) -> Axes:
        """The axes; settings are under "axes", so that names cannot collide."""
        if not self.setting_axes:
            return self.fixed_axes
        return self.fixed_axes | {"axes": self.setting_axes}

    @property
    def batch(self) -> GrpoBatch:
        """How TRL divides its rollouts."""
        return GrpoBatch.of(self.grpo_settings, self.resources.workers)

    @property
    def grpo_settings(self) -> GrpoSettings:
        """The GRPO settings that Decile reads."""
        return GrpoSettings.of(self.grpo)

    @property
    def updates(self) -> int:
        """Optimizer updates of the trial."""
        return self.batch.updates

    def evaluates_after(self, update: int) -> bool:
        """Whether the model is evaluated after this update."""
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
        """Completions drawn for each one that is trained on."""
        return self.allocation.build().times if self.allocation else 1

    @property
    def discards(self) -> bool:
        """Whether some of the completions drawn may not be trained on."""
        return self.times_drawn > 1 or (
            self.online is not None and self.online.build_online().discards
        )

    @property
    def min_rollouts(self) -> int:
        """Minimum number of completions that the trial generates for training."""
        return self.rollouts * self.times_drawn

    @property
    def max_rollouts(self) -> int:
        """Maximum number of completions that the trial generates, including refreshes."""
        draws = self.online.build_online().max_draws if self.online else 1
        return self.min_rollouts * draws + self.refresh_rollouts

    def labels_before(self, size: int) -> int | None:
        """Gold answers that it uses before its first update, with a subset of `size` prompts. None
        if it uses a gold answer only when it draws the prompt, including discarded groups and
        refreshes: an online policy that does not read pass rates of the probe, on a subset that was
        chosen without gold answers.
        """
        if any(rule.build().reads_golds for rule in self.bounding_rules):
            return self.gold_count
        if (shown := self.static_policy.build().label_count(self.gold_count)) is not None:
            return shown
        if self.reads_golds:
            return self.gold_count
        if self.online is None:
            return size if self.trains_on_golds else 0
        return size if self.online.build_online().reads_golds else None

    @property
    def most_labels(self) -> int:
        """Maximum number of gold answers that it uses in total."""
        before = self.labels_before(self.size)
        if before is not None:
            return before
        assert self.online is not None, "only online policies label while they train"
        groups = self.rollouts // self.batch.group_size * self.online.build_online().max_draws
        again = self.refresh_rollouts // self.refresh.samples if self.refresh else 0
        return min(self.size, groups + again)

    @property
    def trains_on_golds(self) -> bool:
        """Whether training may use the gold answers of its prompts. It does not if no reward
        compares answers: `random`, `format`, and user functions that take neither the answer nor
        columns of the data.
        """
        if self.mask_dead_groups or self.allocation or self.online or not self.reward:
            return True
        if any(name in ("score", "flipped") for name in self.reward):
            return True
        own = [name for name in self.reward if name not in REWARDS]
        return any(reward_function(name).may_read_golds for name in own)

    @property
    def refresh_rollouts(self) -> int:
        """Completions that refreshes generate, if the subset has its full size."""
        return self.refresh.rollouts(self.size, self.updates) if self.refresh else 0


class HasAxes(Protocol):
    """A cell, or an object with the axes of one."""

    @property
    def axes(self) -> Mapping[str, Any]:
        """model, dataset, policy, seed, probe_seed, and settings by their dotted names."""


def axis_names(setting_axes: Mapping[str, Any]) -> list[str]:
    """The settings that are axes as parts of a cell's name: `grpo.beta=0.1`."""
    return [f"{axis}={value_text(value)}" for axis, value in setting_axes.items()]


def axes_without(cell: HasAxes, *left_out: str) -> tuple[str, ...]:
    """The values of all other axes, as a key: the same for cells that differ in no other axis."""
    return tuple(repr(value) for axis, value in sorted(cell.axes.items()) if axis not in left_out)


def block_of(cell: HasAxes) -> tuple[str, ...]:
    """What the cells of a block have in common: every axis but the policy."""
    return axes_without(cell, "policy")


def cells_of(cells: Sequence[Cell], spec: ProbeSpec) -> list[Cell]:
    """The cells whose own probe this is; for an adaptive probe, those with its K."""
    return [cell for cell in cells if same_probe(cell.probe, spec)]


def cells_ranked_by(cells: Sequence[Cell], spec: ProbeSpec) -> list[Cell]:
    """The cells of other models whose prompts are ranked by a probe."""
    sources = ((cell, cell.difficulty.probe) for cell in cells if cell.difficulty)
    return [cell for cell, probe in sources if probe and same_probe(probe, spec)]


def readers_of(cells: Sequence[Cell], spec: ProbeSpec) -> list[Cell]:
    """The cells of a probe. If no cell trains its model, the cells that rank by it, as if they were
    of that model.
    """
    return cells_of(cells, spec) or [
        cell.changed(probe=ranking.probe, difficulty=own_source(ranking.by))
        for cell in cells_ranked_by(cells, spec)
        if (ranking := cell.difficulty)
    ]


def same_probe(one: ProbeSpec, other: ProbeSpec) -> bool:
    """Whether two specifications are one probe; adaptive ones need the same K."""
    if (one.key, one.dataset.variant_key) != (other.key, other.dataset.variant_key):
        return False
    return not other.settings.adaptive or needed_samples(one) == needed_samples(other)


def needed_samples(spec: ProbeSpec) -> tuple[int, str]:
    """The settings besides its key that determine which samples an adaptive probe needs."""
    return spec.settings.samples, spec.settings.count_truncated
