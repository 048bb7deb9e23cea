"""The schema of experiments.yaml: its blocks, and the entries that names in an experiment refer to.

Every model forbids unknown keys. Every message states what is wrong and what to write instead.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field, PrivateAttr, field_validator, model_validator

from orchestrator.config.entries import DatasetEntry, ModelEntry
from orchestrator.config.experiment import Experiment
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.config.problems import Problem, below
from orchestrator.config.settings import Settings
from orchestrator.storage.errors import shortened
from policies import PolicyError, policy_parts
from tasks import find_task

# Names become file names in the storage, and appear in claims, metrics and figures.
_NAME = re.compile(r"(?!.*\.\.)\w[\w.+-]{0,79}")


class Config(Settings):
    """experiments.yaml: a catalogue of named sweeps."""

    storage: str = "./runs"
    """Where results are stored: a folder, or a URI that pyarrow supports (s3://…, gs://…)."""
    models: dict[str, ModelEntry] = Field(min_length=1)
    """Base models by name."""
    datasets: dict[str, DatasetEntry] = Field(default_factory=dict)
    """Tasks with options, by name; a task with default options needs no entry."""
    policies: dict[str, PolicyEntry] = Field(default_factory=dict)
    """Policies with options, by name; a policy with default options needs no entry."""
    experiments: dict[str, Experiment] = Field(min_length=1)
    """Sweeps by name."""
    _unnamed_policies: dict[str, PolicyEntry] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _named_shares(cls, content: Any) -> Any:
        """Write out the policies that a mixture names, each with its options."""
        policies = content.get("policies") if isinstance(content, dict) else None
        if not isinstance(policies, dict):
            return content
        written_out = {}
        for name, entry in policies.items():
            with below("policies", name):
                written_out[name] = _written_out(entry, policies)
        return {**content, "policies": written_out}

    @field_validator("models", "datasets", "policies", "experiments")
    @classmethod
    def _valid_names(cls, entries: dict[str, Settings]) -> dict[str, Settings]:
        for name in entries:
            if not _NAME.fullmatch(name):
                raise Problem(
                    "invalid-name",
                    f"{shortened(name)} is not a valid name: write at most 80 characters, letters, "
                    "digits and . _ - +, with no leading sign and no ..",
                    name,
                )
        return entries

    def policy(self, name: str) -> PolicyEntry:
        """The entry of that name, or the policy of that name with default options.

        Raises PolicyError.
        """
        if name in self.policies:
            return self.policies[name]
        if name not in self._unnamed_policies:
            try:
                policy_parts(name, {})
            except PolicyError as error:
                if self.policies:
                    raise PolicyError(f"{error} (policies: {', '.join(self.policies)})") from error
                raise
            self._unnamed_policies[name] = PolicyEntry(policy=name)
        return self._unnamed_policies[name]

    def dataset(self, name: str) -> DatasetEntry:
        """The entry of that name, or the task of that name with default options.

        Raises TaskError.
        """
        if name not in self.datasets:
            find_task(name)
            return DatasetEntry(task=name)
        return self.datasets[name]


def _written_out(entry: Any, policies: Mapping[str, Any]) -> Any:
    """A mixture with the named entries of `policies` written out; any other entry unchanged.

    Raises Problem if a share has a difficulty of its own.
    """
    options = entry.get("options") if isinstance(entry, dict) else None
    if not isinstance(options, dict) or entry.get("policy") != "mixture":
        return entry
    shares = options.get("shares")
    parts = []
    for mapping in shares if isinstance(shares, list) else [shares]:
        if not isinstance(mapping, dict):
            return entry
        for name, share in mapping.items():
            named = policies.get(name)
            own = (
                named.get("options", {}) if isinstance(named, dict) and "policy" in named else None
            )
            if isinstance(named, dict) and "difficulty" in named:
                message = f"the difficulty of {name} is ignored in a mixture: write it beside it"
                raise Problem("difficulty-of-a-part", message, "options", "shares")
            if isinstance(named, dict) and isinstance(own, dict):
                settings = share if isinstance(share, dict) else {"share": share}
                parts.append({named["policy"]: {**own, **settings}})
            else:
                parts.append({name: share})
    return {**entry, "options": {**options, "shares": parts}}


def json_schema() -> dict[str, Any]:
    """The JSON schema of the file, for completion and checks in editors (stored in docs/)."""
    return Config.model_json_schema()
