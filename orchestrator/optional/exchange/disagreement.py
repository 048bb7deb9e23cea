"""Two markers side by side: a table of their outcomes, and completions to read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from cluster.terminal import printable_line
from orchestrator.plugins.counts import counted
from orchestrator.plugins.row_counts import RowCounts
from orchestrator.report.layout import table_text, wrapped
from tasks import OUTCOMES

END = 200  # characters of a question, and of the end of a completion, in an example


class Example(NamedTuple):
    """A completion to which two markers give different outcomes; `completion` is its end."""

    prompt_id: str
    sample: int
    question: str
    answer: str
    outcomes: tuple[str, str]
    extracted: tuple[str | None, str | None]
    rules: tuple[str, str]
    completion: str


class Disagreement(NamedTuple):
    """How two markers mark the same completions.

    `counts` are completions by the outcomes of both. `examples` are completions with different
    outcomes, one for each prompt and pair of outcomes, in the order of the file. `rows`: the rows
    of the file.
    """

    markers: tuple[str, str]
    counts: Mapping[tuple[str, str], int]
    examples: Sequence[Example]
    rows: RowCounts

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, Any]],
        questions: Sequence[str],
        markers: tuple[str, str],
        read: RowCounts,
    ) -> Self:
        """The disagreement in rows with the columns of `mark.COMPARED` and the question of each.

        read: the rows of the file.
        """
        examples: dict[tuple[str, tuple[str, str]], Example] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for row, question in zip(rows, questions, strict=True):
            outcomes = row["outcome"], row["against_outcome"]
            counts[outcomes] += 1
            key = row["prompt_id"], outcomes
            if outcomes[0] != outcomes[1] and key not in examples:
                examples[key] = Example(
                    row["prompt_id"],
                    row["sample"],
                    question[:END],
                    row["answer"],
                    outcomes,
                    (row["extracted"], row["against_extracted"]),
                    (row["rule"], row["against_rule"]),
                    row["completion"][-END:],
                )
        return cls(markers, counts, [*examples.values()], read)

    @property
    def total(self) -> int:
        """Completions."""
        return sum(self.counts.values())

    @property
    def same(self) -> int:
        """The number of completions to which both give the same outcome."""
        return sum(count for (one, two), count in self.counts.items() if one == two)

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa of the outcomes (Cohen 1960); None if both give only one outcome."""
        first, second = Counter[str](), Counter[str]()
        for (one, two), count in self.counts.items():
            first[one] += count
            second[two] += count
        chance = sum(first[name] * second[name] for name in first) / self.total**2
        return None if chance == 1 else (self.same / self.total - chance) / (1 - chance)

    def to_dict(self, most: int) -> dict[str, Any]:
        """As JSON values, with up to `most` examples of each pair of outcomes."""
        names = self._outcomes
        table = {one: {two: self.counts.get((one, two), 0) for two in names} for one in names}
        examples = [example._asdict() for _, some in self._kinds(most) for example in some]
        return {
            "markers": [*self.markers],  # the ids of both markers
            "completions": self.total,  # number of completions
            "same": self.same,  # those with equal outcomes
            "kappa": self.kappa,  # Cohen's kappa; null where chance alone explains all
            "row_counts": self.rows.to_dict(),
            "outcomes": table,  # completions by both outcomes
            "examples": examples,  # completions with different outcomes
        }

    def text(self, most: int, width: int | None) -> str:
        """The table, the share of equal outcomes, and up to `most` examples of each pair."""
        first, second = self.markers
        rows = []
        for one in self._outcomes:
            counts = [self.counts.get((one, two), 0) for two in self._outcomes]
            rows.append([one, *(f"{count:,}" for count in (*counts, sum(counts)))])
        sums = [
            sum(count for (_, two), count in self.counts.items() if two == name)
            for name in self._outcomes
        ]
        rows.append(["all", *(f"{count:,}" for count in (*sums, self.total))])
        kappa = "" if self.kappa is None else f", Cohen's kappa {self.kappa:.3f}"
        share = f"{self.same / self.total:.1%} ({self.same:,} of {self.total:,})"
        parts = [
            wrapped(f"rows:     {first}\ncolumns:  {second}", width, indent=10),
            table_text(["", *self._outcomes, "all"], rows, width),
            wrapped(f"same outcome: {share}{kappa}", width),
        ]
        for (one, two), some in self._kinds(most):
            count = counted(self.counts[one, two], "completion")
            lines = [f"{one} by the first, {two} by the second: {count}"]
            for example in some:
                readings = zip(example.extracted, example.rules, strict=True)
                read = "; ".join(f"{_quoted(text)} by {rule}" for text, rule in readings)
                place = printable_line(f"{example.prompt_id}, sample {example.sample}: {read}")
                lines.append(f"  {place}")
                if example.question:
                    lines.append(f"    question: {_quoted(example.question)}")
                lines.append(f"    gold: {_quoted(example.answer)}")
                lines.append(f"    end of the completion: {example.completion!r}")
            parts.append(wrapped("\n".join(lines), width, indent=4))
        return "\n\n".join(parts)

    @property
    def _outcomes(self) -> list[str]:
        """The outcomes that either marker gives."""
        return [name for name in OUTCOMES if any(name in pair for pair in self.counts)]

    def _kinds(self, most: int) -> list[tuple[tuple[str, str], list[Example]]]:
        """The pairs of different outcomes with some examples, the most frequent pair first."""
        pairs = sorted(self.counts, key=lambda pair: (-self.counts[pair], pair))
        return [
            (pair, [each for each in self.examples if each.outcomes == pair][:most])
            for pair in pairs
            if pair[0] != pair[1]
        ]


def _quoted(text: str | None) -> str:
    return "nothing" if text is None else f"{text[:END]!r}"
