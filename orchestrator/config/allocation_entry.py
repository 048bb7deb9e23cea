"""How the completions of an update are divided, as a file names it."""

from typing import Any

from pydantic import Field

from orchestrator.config.settings import Settings
from orchestrator.storage.errors import shortened
from policies import (
    UNIFORM,
    BuiltAllocation,
    PolicyError,
    get_allocation,
    settled_options,
)


class AllocationEntry(Settings):
    """How the completions of an update are divided among its prompts, with options."""

    rule: str
    options: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def of(cls, written: Any) -> "AllocationEntry | None":
        """The allocation that an experiment names; None for groups of equal size."""
        name: Any = written
        options: Any = {}
        if isinstance(written, dict) and len(written) == 1:
            [(name, options)] = written.items()
        if not isinstance(name, str) or not isinstance(options, dict):
            raise PolicyError(
                f"allocation is {shortened(str(written))}: write uniform, a rule such as sqrt, or "
                "one with its options, such as {sqrt: {floor: 2}}"
            )
        if name == UNIFORM:
            if options:
                raise PolicyError("allocation uniform has no options: leave them out")
            return None
        return cls(rule=name, options=settled_options(get_allocation(name, **options), options))

    def build(self) -> BuiltAllocation:
        """The allocation, anew each time."""
        return BuiltAllocation(self.rule, get_allocation(self.rule, **self.options))
