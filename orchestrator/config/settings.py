"""The base of every block of the file, and the limits of its numbers."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.config.problems import Problem
from orchestrator.config.wording import one_of
from orchestrator.storage.errors import shortened

# Upper limits are far above any useful value: a typo must not fill a disk or a queue.
MAX_SAMPLES = 10_000
MAX_TOKENS = 1_000_000
MAX_UPDATES = 10_000_000
MAX_RESOURCES = 100_000  # CPUs, GPUs or workers
MAX_WAIT = 7 * 24 * 3600  # seconds that one worker waits for another
MAX_LISTED = 1_000  # values of an axis of the grid
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # NumPy's and transformers' limit


class Settings(BaseModel):
    """Base of every block of the file: unknown keys are refused by name."""

    model_config = ConfigDict(
        strict=True,  # no conversion: neither 'true' nor 1 is a boolean, nor '10' a number
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in value:
            if key not in known:
                raise Problem(
                    "unknown-setting",
                    f"unknown setting {shortened(str(key))}: write {one_of(known, str(key))}",
                    str(key),
                )
        return value
