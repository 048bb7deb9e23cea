"""The block grid of an experiment: its axes."""

from math import prod
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from orchestrator.config.axes import check_axis
from orchestrator.config.corrections import shown
from orchestrator.config.entries import MAX_LISTED, Seed, Settings, setting_error

_MAX_CELLS = 10_000


class Grid(Settings):
    """The swept axes; a sweep has a cell for every combination.

    Further axes are settings of the experiment, such as budget, probe.samples or grpo.beta.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[
        str,
        Annotated[
            list[Any],
            Field(min_length=1, max_length=MAX_LISTED, examples=[[0.05, 0.1]]),
        ],
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
                raise setting_error(problem, str(name))
        return value

    @model_validator(mode="after")
    def _no_repeats(self) -> Self:
        for name, values in self.model_dump().items():
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise setting_error(f"{shown(value)} is listed twice: remove one", name, index)
        return self

    @model_validator(mode="after")
    def _countable(self) -> Self:
        axes: list[list[Any]] = [self.model, self.dataset, self.policy, self.seed]
        axes += [self.probe_seed or [0], *self.swept.values()]
        cells = prod(len(axis) for axis in axes)
        if cells > _MAX_CELLS:
            raise setting_error(
                f"the grid has {cells:,} cells: write at most {_MAX_CELLS:,}, "
                "or several experiments"
            )
        return self

    @property
    def swept(self) -> dict[str, list[Any]]:
        """The axes that are settings of the experiment: dotted name -> values."""
        return self.__pydantic_extra__ or {}
