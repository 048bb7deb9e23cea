"""What the papers report for a claim, next to its verdict. Pure: plain numbers.

Paper A is that of `orchestrator.report.paper`. Paper B: Yadav, Yadav, Goyal, "Limits of Difficulty
Scaling: Hard Samples Yield Diminishing Returns in GRPO-Tuned SLMs".
"""

import re

from orchestrator.config.claims import BASE, BASE_SIDE, CORRELATION, Claim
from orchestrator.embedded import is_embedded
from orchestrator.planning.cells import Cell
from orchestrator.report import paper
from orchestrator.stats.sentences import in_points

# Paper B, abstract: points by which training on GSM8K beats training on MATH, on numeric MATH.
CROSS_DATASET = {"1.5b": 5.0, "3b": 3.0}
AIME_K = 8  # of pass@k in table 4
# Paper A's authors, in their blog: one sample per prompt, average over models.
ONE_SAMPLE = {
    ("base_wrong", "full"): "+3.0 (85 against 82 %)",
    ("base_wrong", "base_right"): "+14.3 % relative",
}


def published_text(claim: Claim, a: Cell | None, b: Cell | None) -> str:
    """The published difference that corresponds to a claim; empty where there is none.

    a, b: a cell of each side; the base model has one of the other side. Of a correlation, any cell
    that it is about is enough. Where the model is not one of the paper's, the range over its
    models; nothing is comparable with an embedded model, which is a toy.
    """
    if any(cell and is_embedded(cell.probe.model.location) for cell in (a, b)):
        return ""
    if claim.metric == CORRELATION:
        fit = paper.published_r_squared()
        return f"{paper.STATED_R_SQUARED} (its tables: {fit.value:.2f})"
    if a is None or b is None or a.online or b.online or claim.at or claim.over or claim.tier:
        return ""
    if claim.axes == {"dataset"}:
        return _cross_dataset(claim, a, b)
    if not claim.axes <= {"policy", "model"}:
        return ""
    pair = tuple(
        BASE if side == BASE_SIDE else cell.rule.policy
        for side, cell in ((claim.a, a), (claim.b, b))
    )
    tested, task = _tested_on(claim, a), a.probe.dataset.task
    if pair in ONE_SAMPLE and tested == "gsm8k":
        return ONE_SAMPLE[pair]
    if tested == "aime2025" and task == "gsm8k" and claim.pass_at == AIME_K:
        solved = [{BASE: paper.AIME_BASE, **paper.AIME_SOLVED}.get(name) for name in pair]
        if None in solved:
            return ""
        points = 100 * (solved[0] - solved[1]) / paper.AIME_QUESTIONS  # type: ignore[operator]
        return f"{in_points(points)} ({solved[0]} against {solved[1]} of {paper.AIME_QUESTIONS})"
    return "" if claim.pass_at or tested != task else _from_tables(claim, pair, a, b)


def _from_tables(claim: Claim, pair: tuple[str, ...], a: Cell, b: Cell) -> str:
    """The difference in tables 1 to 3."""
    if "model" in claim.axes and claim.metric == "accuracy":
        return ""  # it does not give the accuracy of the base models
    by_model = {row.model.casefold(): row for row in paper.ALL if row.task == a.probe.dataset.task}
    own = [by_model.get(_hub_name(cell).casefold()) for cell in (a, b)]
    rows = [tuple(own)]
    if None in own:
        rows = [] if "model" in claim.axes else [(row, row) for row in by_model.values()]
    points = []
    for sides in rows:
        values = [
            {BASE: 0.0, **row.gain}.get(name)
            if claim.metric != "learnable"
            else row.learnable.get(name)
            for row, name in zip(sides, pair, strict=True)
            if row
        ]
        if None in values:
            return ""
        points.append(values[0] - values[1])  # type: ignore[operator]
    if len(points) > 1:
        return f"{in_points(min(points))} to {in_points(max(points))} ({len(points)} models)"
    return in_points(points[0]) if points else ""


def _cross_dataset(claim: Claim, a: Cell, b: Cell) -> str:
    """Paper B: GSM8K minus MATH on numeric MATH, where the model has its size."""
    tasks = (a.probe.dataset.task, b.probe.dataset.task)
    size = re.search(r"[\d.]+b\b", _hub_name(a).casefold())
    points = CROSS_DATASET.get(size[0]) if size else None
    if {*tasks} != {"gsm8k", "math"} or _tested_on(claim, a) != "math" or points is None:
        return ""
    return f"about {in_points(points if tasks[0] == 'gsm8k' else -points)}"


def _tested_on(claim: Claim, cell: Cell) -> str:
    """The task of the test set."""
    if claim.test_set in (None, cell.probe.dataset.name):
        return cell.probe.dataset.task
    sets = {extra.dataset: extra.probe.dataset.task for extra in cell.extra_evals}
    return sets.get(str(claim.test_set), "")


def _hub_name(cell: Cell) -> str:
    """The last part of a model's Hub id."""
    return cell.probe.model.location.rpartition("/")[2]
