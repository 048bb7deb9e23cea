"""The conclusions of comparisons as blocks of a page."""

from dataclasses import dataclass

from cluster.terminal import printable_line
from orchestrator.report.content import Block
from orchestrator.report.terminal import indented
from orchestrator.stats.comparison import Comparison


@dataclass(frozen=True)
class PairVerdict:
    """One comparison of two policies in words."""

    comparison: Comparison
    text: str

    @property
    def decided(self) -> bool:
        """Whether one policy is the better one."""
        return self.comparison.verdict != "inconclusive"


@dataclass(frozen=True)
class FamilyVerdict(Block):
    """The conclusions of one family, the decided pairs first, and their caveats.

    `read_at`: where accuracies were read. `single`: the sentence in place of pairs if only one
    policy is finished. `below_base`: the policies with cells that ended worse than they began.
    """

    title: str
    read_at: str
    pairs: tuple[PairVerdict, ...]
    single: str
    below_base: tuple[str, ...]
    matches: tuple[str, ...]
    caveats: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """Everything but the caveats, one sentence each."""
        pairs = [pair.text for pair in self.pairs] or [self.single]
        return [*pairs, *self.below_base, *self.matches]


def verdict_lines(verdict: FamilyVerdict, width: int | None) -> list[str]:
    """The verdict and its caveats for a terminal; lines fit `width` columns if it is given."""
    caveats = [f"caveat: {text}" for text in verdict.caveats]
    tests = max((pair.comparison.tests for pair in verdict.pairs), default=0)
    about = {"models": "these models", "policies": "policies"}
    scopes = dict.fromkeys(about[pair.comparison.scope] for pair in verdict.pairs)
    corrected = f"; intervals are those of a pair alone, p is corrected over {tests} pairs"
    title = f"{verdict.title} ({verdict.read_at}{corrected if tests > 1 else ''}"
    title += f"; about {' and '.join(scopes)})" if scopes else ")"
    return [printable_line(title), *indented([*verdict.lines, *caveats], width)]
