"""Replays recorded completions: a probe without a model.

A file of recorded completions (Parquet or JSON lines) has the columns `question` and `responses` (a
list of texts, one row per question), and optionally the lists `tokens` (lengths in tokens) and
`finish` ("stop", "length" or "error"). Sample i of a prompt is its i-th response, so a replay does
not depend on batching or resuming.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from orchestrator.plugins.counts import counted
from orchestrator.sampling.base import FINISHES, Completion, Request, Sampler, SamplingSettings
from orchestrator.sampling.model import ModelSource
from tasks import TaskError
from tasks.sources.files import or_list, read_file


class RecordedSampler(Sampler):
    """Holds all responses of a file by question."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows = recorded_rows(file)

    @classmethod
    def load(cls, source: ModelSource, device: str | None = None) -> Self:
        """The file of the source; TaskError where it has another format."""
        return cls(Path(source.location))

    def count_tokens(self, requests: Sequence[Request]) -> list[int]:
        """0 for each: a recording has no prompt lengths."""
        return [0] * len(requests)

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        """Per request, the recorded responses with these indices; missing ones are errors."""
        drawn = []
        for request in requests:
            row = self.rows.get(request.question, {"responses": []})
            count = len(row["responses"])
            tokens = row.get("tokens") or [0] * count
            finish = row.get("finish") or ["stop"] * count
            recorded = [*map(Completion, row["responses"], tokens, finish)]
            missing = Completion("", 0, "error")
            drawn.append([recorded[i] if i < count else missing for i in request.samples])
        return drawn


def recorded_rows(file: Path) -> dict[str, dict[str, Any]]:
    """A recording by question. Raises TaskError where the file has another format."""
    read = read_file(file, ("question", "responses"))
    rows: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for place, row in zip(read.places, read.rows, strict=True):
        if problem := _problem(row):
            raise TaskError(f"{place}: {problem}")
        question = row["question"]
        other = rows.setdefault(question, row)
        first = places.setdefault(question, place)
        if any(row.get(name) != other.get(name) for name in ("responses", "tokens", "finish")):
            raise TaskError(
                f"{place} has other responses to the question of {first}: write all responses to "
                "a question in one row"
            )
    return rows


def _problem(row: dict[str, Any]) -> str | None:
    """What is wrong with a row of a recording; None if nothing is."""
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
    rows: dict[str, dict[str, Any]], questions: Sequence[str], samples: int
) -> str | None:
    """A message where a recording has fewer than `samples` responses per question, or None."""
    missing = sum(question not in rows for question in questions)
    if missing:
        return (
            f"has no responses to {missing:,} of the {counted(len(questions), 'training question')}"
        )
    fewest = min((len(rows[q]["responses"]) for q in questions), default=samples)
    if fewest < samples:
        return f"has {fewest} responses to some question: write probe: {{samples: {fewest}}}"
    return None
