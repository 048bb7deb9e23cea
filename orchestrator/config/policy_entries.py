"""Policies and the difficulty that they rank by, as written in the file."""

import operator
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from orchestrator.config.problems import Problem
from orchestrator.config.settings import Settings
from orchestrator.config.wording import shown
from orchestrator.storage.errors import UserError, shortened
from policies import (
    BuiltOnlinePolicy,
    Policy,
    PolicyError,
    get_online_policy,
    get_policy,
    policy_parts,
)
from policies.online import WHOLE_POOL

_DIFFICULTY = "write gold, agreement, {model: NAME}, {model: NAME, by: agreement}, or {file: PATH}"


class DifficultyEntry(Settings):
    """Source of the difficulty that a policy ranks by, if not its own model's pass rates.

    Either a file, or a model of the file of experiments: the cell's own if `model` is None.

    With agreement, a prompt's most frequent answer counts as its gold answer: samples with this
    answer are successes, other answers are wrong, and unparsed and truncated samples stay.
    Agreement overestimates the pass rate, more so with fewer samples. `base_wrong` and `base_right`
    are refused. A file is identified by its content; prompts that it lacks come last, in random
    order. The pass rates in subsets and exports, and suspected golds, stay those of the cell's own
    model. `match_sizes` needs one source for all policies.
    """

    model: str | None = None
    by: Literal["gold", "agreement"] = "gold"
    file: str | None = None

    @classmethod
    def of(cls, written: Any) -> "DifficultyEntry | None":
        """The source that `difficulty` names; None for gold, the cell's own pass rates."""
        entry = {"by": written} if isinstance(written, str) else written
        names = {*entry} if isinstance(entry, dict) else set()
        known = names in ({"by"}, {"model"}, {"model", "by"}, {"file"})
        if not known or (names == {"by"} and not isinstance(written, str)):
            raise Problem("invalid-difficulty", f"difficulty is {shown(written)}: {_DIFFICULTY}")
        for name, value in entry.items():
            if not isinstance(value, str) or not value:
                message = f"{name} is {shown(value)}: write a text"
                raise Problem("invalid-difficulty", message, name)
        if entry.get("by", "gold") not in ("gold", "agreement"):
            message = f"{shown(entry['by'])}: {_DIFFICULTY}"
            raise Problem("invalid-difficulty", message, *(["by"] if "model" in entry else []))
        return None if written == "gold" else cls(**entry)


def difficulty_option(text: str) -> "Difficulty":
    """A word of a command line: gold, agreement, model:NAME, agreement:NAME or a file.

    Raises UserError for an empty one.
    """
    kind, colon, model = text.partition(":")
    if text in ("gold", "agreement"):
        return text
    if not text or (kind in ("model", "agreement") and colon and not model):
        word = shortened(text)
        raise UserError(f"difficulty {word}: write gold, agreement, model:NAME or a file")
    if kind == "model":
        return {"model": model}
    return {"model": model, "by": kind} if kind == "agreement" else {"file": text}


Difficulty = str | dict[str, str]  # as written: see DifficultyEntry
DIFFICULTIES = ["agreement", {"model": "qwen3-4b"}, {"file": "scores.parquet"}]  # examples


class PolicyEntry(Settings):
    """A policy with its options."""

    policy: str = Field(examples=["hard"])
    """A policy's name (decile ls policies), or package.module:attribute."""
    options: dict[str, Any] = Field(default_factory=dict, examples=[{"low": 0.2}])
    """The policy's own options, such as low: 0.2."""
    difficulty: Difficulty | None = Field(
        default=None, exclude_if=operator.not_, examples=DIFFICULTIES
    )
    """Source of the difficulty that it ranks by, in place of the experiment's."""

    @field_validator("difficulty", mode="before")
    @classmethod
    def _known_difficulty(cls, difficulty: Any) -> Any:
        if difficulty is not None:
            DifficultyEntry.of(difficulty)
        return difficulty

    @model_validator(mode="after")
    def _known_policy(self) -> Self:
        try:
            (static, of_static), online = policy_parts(self.policy, self.options)
        except PolicyError as error:
            raise Problem("invalid-policy", str(error)) from error
        settled = of_static  # equal meaning, equal hash
        if online:
            of = {static: of_static} if of_static else static
            settled = online[1] | ({} if of == WHOLE_POOL else {"of": of})
        self.options.clear()
        self.options.update(settled)
        return self

    @cached_property
    def parts(self) -> tuple["PolicyEntry", "PolicyEntry | None"]:
        """The policy that selects before training, and the one that chooses during it, if any."""
        (static, of_static), online = policy_parts(self.policy, self.options)
        if online is None:
            return self.model_copy(update={"difficulty": None}), None
        chooses = PolicyEntry(policy=online[0], options=online[1])
        return PolicyEntry(policy=static, options=of_static), chooses

    @property
    def reads_columns(self) -> list[str]:
        """The columns of the user's data that either part reads."""
        static, online = self.parts
        columns = {*static.build().reads_columns}
        if online:
            columns |= {*online.build_online().reads_columns}
        return sorted(columns)

    def build(self) -> Policy:
        """A new static policy each time, since a user's own may keep state."""
        return Policy(self.policy, get_policy(self.policy, **self.options))

    def build_online(self) -> BuiltOnlinePolicy:
        """A new online policy each time."""
        return BuiltOnlinePolicy(self.policy, get_online_policy(self.policy, **self.options))
