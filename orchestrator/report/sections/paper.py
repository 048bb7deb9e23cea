"""Comparison with paper A: published next to measured numbers. Claims judge its orderings.

Policies are matched by their rule (`hard`, whatever its name in the grid), data by task.
"""

from collections.abc import Callable, Sequence

from orchestrator.report import published as paper
from orchestrator.report.compare import Family
from orchestrator.report.content import Table
from orchestrator.report.rows import Row
from orchestrator.report.sections.tables import gain_text, learnable_text
from orchestrator.stats.inference import Interval
from orchestrator.stats.sentences import NONE, in_points

TASKS = {"gsm8k": "GSM8K", "shuffled_objects": "shuffled objects"}
PUBLISHED = "paper A"
MEASURED = "measured"
ABOUT = (
    'Paper A: Pikus, Tiwari and Ye, "Hard Examples Are All You Need: Maximizing GRPO Post-Training '
    'Under Annotation Budgets".'
)
NOT_APPLICABLE = (
    "Paper A has no matching numbers: it trains on GSM8K and shuffled objects with the policies "
    "hard, easy, middle and random."
)


def tables(families: Sequence[Family]) -> list[Table]:
    """Gains and learnable % side by side; none without rows."""
    return [table for table in (gains(families), learnable(families)) if table.body]


def policy_names(family: Family) -> dict[str, str]:
    """The paper's policy -> its name in the grid; the first where a rule occurs twice."""
    names: dict[str, str] = {}
    for row in family.rows:
        if row.cell.online is None and row.cell.rule.policy in paper.POLICIES:
            names.setdefault(row.cell.rule.policy, row.cell.policy)
    return names


def gains(families: Sequence[Family]) -> Table:
    """Tables 1 and 3 of the paper next to the measured gains."""

    def published(row: paper.Published, policy: str) -> str:
        value = row.gain[policy]
        return _with_interval(value, paper.published_interval(value, row.questions))

    caption = (
        "In points, with 95 % intervals. The paper's intervals are the narrowest possible: they "
        "assume that all changed questions changed in one direction, and no variance between "
        "training runs. Models and questions differ: compare the order, not the size."
    )
    title = "Gain in accuracy, paper A and measured"
    return _side_by_side(families, title, published, gain_text, caption)


def learnable(families: Sequence[Family]) -> Table:
    """Tables 2 and 3 of the paper next to the measured learnable %."""

    def published(row: paper.Published, policy: str) -> str:
        value = row.learnable[policy]
        return _with_interval(value, paper.learnable_interval(value), plus=False)

    caption = (
        "In %, with 95 % intervals. The paper's cover 1,000 groups, assumed independent; the "
        "measured ones cover new seeds and need at least two."
    )
    title = "Learnable %, paper A and measured"
    return _side_by_side(families, title, published, learnable_text, caption)


def _side_by_side(
    families: Sequence[Family],
    title: str,
    published: Callable[[paper.Published, str], str],
    measured: Callable[[Sequence[Row]], str],
    caption: str,
) -> Table:
    """Rows by task: the paper's models, then this store's."""
    body = []
    for task in dict.fromkeys(row.task for row in paper.ALL):
        own = [family for family in families if family.rows[0].cell.probe.dataset.task == task]
        for row in (row for row in paper.ALL if row.task == task and own):
            entries = (published(row, policy) for policy in paper.POLICIES)
            body.append((TASKS[task], row.model, PUBLISHED, *entries))
        for family in own:
            names, groups = policy_names(family), family.by_policy()
            entries = (
                measured(groups[names[policy]]) if policy in names else NONE
                for policy in paper.POLICIES
            )
            body.append((family.dataset, _model(family), MEASURED, *entries))
    return Table(title, ("data", "model", "source", *paper.POLICIES), body, caption)


def _model(family: Family) -> str:
    """The model, the probe's seed where it is not 0, and other axes."""
    return ", ".join(filter(None, [family.model, family.variant]))


def _with_interval(value: float, interval: Interval, plus: bool = True) -> str:
    mean, low, high = (in_points(x, plus) for x in (value, *interval))
    return f"{mean} [{low}, {high}]"
