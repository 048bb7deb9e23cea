"""The content of a finished cell's `result.json`. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat, PlainSerializer

from orchestrator.sampling.gpu_peaks import Phase

Number = int | float  # keeps its type in the file: 3 is not written as 3.0
Amount = Annotated[int, Field(ge=0)] | Annotated[FiniteFloat, Field(ge=0)]
Moment = Annotated[
    AwareDatetime,
    Field(strict=False),
    PlainSerializer(lambda at: at.isoformat(timespec="milliseconds")),
]


class _Stored(BaseModel):
    """A part of a result. Some entries exist only for some cells."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    def as_json(self) -> dict[str, Any]:
        """The stored form: entries by name, without missing ones."""
        return dict(sorted(self.model_dump(exclude_unset=True).items()))


class Ledger(_Stored):
    """What a cell consumed: entries used in computations, and further ones of `training.record`."""

    __pydantic_extra__: dict[str, int | FiniteFloat] = Field(init=False)

    prompts: Amount
    rollouts: Amount
    prompt_tokens: int | FiniteFloat
    generated_tokens: Amount
    updates: Amount
    seconds: Amount

    def get(self, name: str, default: float | None = None) -> Any:
        """An entry by its name."""
        return getattr(self, name, default)

    @property
    def groups(self) -> int:
        """Groups that were trained on, of every kind."""
        live, dead = self.get("live", 0), self.get("all_right", 0) + self.get("all_wrong", 0)
        return int(live + dead + self.get("unmarked", 0))

    @property
    def units(self) -> dict[str, float]:
        """Cost that a gain is divided by -> amount used, without costs of 0."""
        hours = "GPU hour" if self.get("gpu_seconds") else "hour"
        used = {
            hours: (self.get("gpu_seconds") or self.seconds) / 3600,
            "1M generated tokens": self.generated_tokens / 1e6,
            "100 labels": self.get("labels", 0) / 100,
        }
        return {name: amount for name, amount in used.items() if amount}


class GpuMemory(NamedTuple):
    """GPU memory that the first worker of a cell measured; `done`: over all updates.

    reserved_gib: the maximum that PyTorch's allocator has reserved. allocated_gib: at the peak of
    each phase; unknown in results of earlier versions.
    """

    reserved_gib: float
    allocated_gib: Mapping[Phase, float]
    done: bool


class Timing(_Stored):
    """Measurements besides the ledger that cost and memory estimates of similar cells need."""

    start_seconds: Number
    evaluation_seconds: Number
    evaluations: int
    answers: int
    answer_tokens: int
    decode_steps: Number
    peak_gib: Number
    peaks_gib: dict[Phase, Number] = Field(default_factory=dict)

    @property
    def memory(self) -> GpuMemory | None:
        """The GPU memory of the cell; None on a CPU."""
        return GpuMemory(self.peak_gib, self.peaks_gib, done=True) if self.peak_gib else None


class Result(_Stored):
    """The result of a cell. Setting axes are further entries, by their dotted names.

    A share is nan if no answer could be scored. Fields with a default exist for some cells only.
    same_as: the cell that the files were copied from.
    """

    model: str
    dataset: str
    policy: str
    seed: int
    probe_seed: int
    cell_id: str
    updates: int
    size: int
    learnable_pct: Number
    learnable_drawn_pct: Number | None = None
    accuracy_base: Number
    accuracy_final: Number
    gain: Number
    base: dict[str, Number]
    final: dict[str, Number]
    ledger: Ledger
    timing: Timing
    versions: dict[str, str]
    finished_at: Moment
    same_as: str | None = None
