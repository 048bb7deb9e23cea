"""Replays recorded completions: a probe without a model.

A file of recorded completions (Parquet or JSON lines) has the columns `question` and `responses` (a
list of texts, one row per question), and optionally the lists `tokens` (lengths in tokens) and
`finish` ("stop", "length" or "error"). Sample i of a prompt is its i-th response, so a replay does
not depend on batching or resuming.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from orchestrator.plugins.counts import counted
from orchestrator.sampling.base import FINISHES, Completion, Request, Sampler, SamplingSettings
from orchestrator.sampling.model import ModelSource
from tasks import TaskError
from tasks.sources.files import Row, or_list, read_file


class RecordedSampler(Sampler):
    """Holds all responses of a file by question."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows = recorded_rows(file)

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None) -> Self:
        """The file of the source. Raises TaskError if it has a different format."""
        return cls(Path(source.location))

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, the recorded responses with these indices; missing ones are errors."""
        missing = Completion("", 0, "error")
        drawn = []
        for request in requests:
            recorded = self.rows.get(request.question, [])
            drawn.append([recorded[i] if i < len(recorded) else missing for i in request.samples])
        return drawn


def recorded_rows(file: Path) -> dict[str, list[Completion]]:
    """A recording by question. Raises TaskError if the file has a different format."""
    read = read_file(file, ("question", "responses"))
    rows: dict[str, list[Completion]] = {}
    places: dict[str, str] = {}
    for place, row in zip(read.places, read.rows, strict=True):
        if problem := _problem(row):
            raise TaskError(f"{place}: {problem}")
        question, texts = row["question"], row["responses"]
        tokens = row.get("tokens") or [0] * len(texts)
        finish = row.get("finish") or ["stop"] * len(texts)
        completions = [*map(Completion, texts, tokens, finish)]
        first = places.setdefault(question, place)
        if rows.setdefault(question, completions) != completions:
            raise TaskError(
                f"{place} has other responses to the question of {first}: write all responses to "
                "a question in one row"
            )
    return rows


def _problem(row: Row) -> str | None:
    """The problem with a row of a recording; None if valid."""
    if not isinstance(row["question"], str):
        return f"question is {row['question']!r:.60}: write a text"
    texts = row["responses"]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return "responses must be a list of texts"
    for name in ("tokens", "finish"):
        values = row.get(name)
        if values is not None and not (isinstance(values, list) and len(values) == len(texts)):
            return f"{name} must be a list as long as responses ({len(texts)}), or left out"
    for count in row.get("tokens") or ():
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**31:
            return f"tokens holds {count!r:.60}: write integers from 0"
    for finish in row.get("finish") or ():
        if finish not in FINISHES:
            return f"finish holds {finish!r:.60}: write {or_list(FINISHES)}"
    return None


def missing_responses(
    rows: Mapping[str, Sequence[Completion]], questions: Sequence[str], samples: int
) -> str | None:
    """A message if a recording has fewer than `samples` responses per question, else None."""
    missing = sum(question not in rows for question in questions)
    if missing:
        return (
            f"has no responses to {missing:,} of the {counted(len(questions), 'training question')}"
        )
    fewest = min((len(rows[q]) for q in questions), default=samples)
    if fewest < samples:
        return f"has {fewest} responses to some question: write probe: {{samples: {fewest}}}"
    return None
