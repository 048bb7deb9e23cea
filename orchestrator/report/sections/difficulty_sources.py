"""Sources of difficulty, compared, as tables for every view."""

from collections.abc import Sequence

import numpy as np

from orchestrator.plugins.counts import counted
from orchestrator.report.compare import Arms
from orchestrator.report.content import NONE, Block, Paragraph, Section, Table
from orchestrator.report.difficulty_sources import SourceMatrix
from orchestrator.report.sentences import effect_text, in_points
from orchestrator.stats.inference import Effect, Interval

MATRIX = (
    "Above the diagonal: Spearman's rank correlation of two sources over the prompts that have a "
    "value in both. Below it: the share of the hardest tenth by one that is also in the hardest "
    "tenth by the other (10 % by chance), with ties broken at random. On the diagonal: the same "
    "share of a source with itself under different random ties, the most that can be expected. In "
    "brackets: 95 % intervals for other prompts of this kind. Hard by agreement are the prompts "
    "on which the answers agree least."
)
ARMS = (
    "Cells of one policy that differ only in what it ranks by. Accuracy: where the "
    "comparison reads it, a mean over seeds. Difference: to the first line of the policy on the "
    "same test questions, in points, with its 95 % interval. These pairs are not part of the "
    "verdicts; a claim may name the values of the axis."
)


def difficulty_section(matrices: Sequence[SourceMatrix], arms: Sequence[Arms] = ()) -> Section:
    """The sources of difficulty, and how cells fared by each; empty without several sources."""
    blocks: list[Block] = []
    for matrix in matrices:
        blocks.append(matrix_table(matrix))
        blocks += [Paragraph(f"{note}.", "note") for note in matrix.notes]
    name = "Sources of difficulty"
    return Section.of("difficulty-sources", name, *blocks, arms_table(arms))


def matrix_table(matrix: SourceMatrix) -> Table:
    """Every pair of sources: rank correlation above, shared hardest tenth below the diagonal."""
    own = {
        i: pair.own[side] for places, pair in matrix.pairs.items() for side, i in enumerate(places)
    }
    body = []
    for i, (name, known) in enumerate(zip(matrix.sources, matrix.known, strict=True)):
        entries = []
        for j in range(len(matrix.sources)):
            if i == j:
                entries.append(percent(own[i]))
                continue
            pair = matrix.pairs[min(i, j), max(i, j)]
            entries.append(
                correlation_text(pair.correlation, pair.correlation_interval)
                if i < j
                else shared_text(pair.shared, pair.shared_interval)
            )
        body.append((name, f"{known:,}", *entries))
    head = ("source", "prompts", *matrix.sources)
    return Table(f"Sources of difficulty: {matrix.title}", head, body, MATRIX)


def arms_table(arms: Sequence[Arms]) -> Table:
    """Accuracy by what a policy ranks by."""
    body = []
    for each in arms:
        for source, rows in each.rows.items():
            pair = each.comparisons.get(source)
            difference = NONE
            if pair is not None:
                effect, low, high = pair.oriented(source)
                difference = effect_text(Effect(effect / 100, low / 100, high / 100, pair.p))
            accuracy = np.mean([each.points[row.cell.cell_id].value for row in rows])
            gain = in_points(100 * float(np.mean([row.gain.mean for row in rows])))
            seeds = counted(len(rows), "seed")
            name = (each.data, each.policy, source, seeds)
            body.append((*name, f"{100 * accuracy:.1f} %", gain, difference))
    head = ("model and data", "policy", "ranked by", "seeds", "accuracy", "gain", "difference")
    return Table("Accuracy by source of difficulty", head, body, ARMS)


def correlation_text(value: float, interval: Interval) -> str:
    """`0.94 [0.92, 0.95]`."""
    if np.isnan(value):
        return NONE
    return f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]".replace("-", "−")


def shared_text(value: float, interval: Interval) -> str:
    """`61 % [55, 66]`."""
    if np.isnan(value):
        return NONE
    return f"{percent(value)} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


def percent(value: float) -> str:
    """A share in percent."""
    return NONE if np.isnan(value) else f"{100 * value:.0f} %"
