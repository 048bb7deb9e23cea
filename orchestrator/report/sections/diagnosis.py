"""What is wrong with the runs of a log: lines for a terminal, and a page."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cluster.terminal import printable_line
from orchestrator.evaluation.diagnosis import CHECKS, Diagnosis, percent
from orchestrator.evaluation.run_facts import Facts
from orchestrator.evaluation.run_log import METRICS
from orchestrator.plugins.counts import counted
from orchestrator.plugins.durations import duration
from orchestrator.report.content import (
    NONE,
    Block,
    Figure,
    FigureRow,
    Page,
    Paragraph,
    Section,
    Table,
    one_line,
)
from orchestrator.report.layout import wrapped
from orchestrator.report.sections.axes import COLOURS, new_axes
from orchestrator.report.sections.panels import moving_mean, new_panels
from orchestrator.report.terminal import as_text, indented

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

MOST_PROMPTS = 20
KINDS = {"live": COLOURS[2], "all correct": COLOURS[5], "all wrong": COLOURS[1], "dead": "#999999"}
METHOD = (
    "A group is live if some of its completions are correct and some are not. If a log does not "
    "mark completions as correct, a group is live if its rewards differ. Only live groups teach "
    "what a right answer is. A change is reported if the 99.9 % interval of the difference "
    "between the first and the last fifth of the updates excludes 0. The noise of one update is "
    "taken from differences of neighbouring updates. A fall in correctness is looked for only "
    "between visits of the same prompt. Checks that the log does not allow are listed as not "
    "checked."
)


def finding_lines(diagnosis: Diagnosis) -> list[str]:
    """The findings, the worst first, each with what to change."""
    lines = [
        f"{'problem' if finding.bad else 'warning'} {finding.code}: {finding.text}. "
        f"{finding.remedy[0].upper()}{finding.remedy[1:]}."
        for finding in diagnosis.findings
    ]
    if "dead" in diagnosis.not_made:
        why = dict(diagnosis.unchecked)["dead"]
        lines.append(f"unknown: whether rewards differ within groups ({why})")
    return lines or ["no problem found"]


def checks_line(diagnoses: Sequence[Diagnosis]) -> str:
    """How many checks were made, and how many a log does not allow."""
    not_made = sum(len(diagnosis.not_made) for diagnosis in diagnoses)
    return f"checks: {len(CHECKS) * len(diagnoses) - not_made:,} made, {not_made:,} not made"


def fact_lines(diagnosis: Diagnosis) -> list[str]:
    """What the run drew, and how much of it was in groups that are not live."""
    facts, kinds = diagnosis.facts, diagnosis.facts.kinds
    groups = len(facts.groups.update)
    drawn = [counted(len(facts.updates), "update")]
    if groups:
        rollouts = int(facts.groups.size.sum())
        drawn += [
            f"{counted(groups, 'group')} of {counted(len(facts.groups.prompts), 'prompt')}",
            counted(rollouts, "completion"),
        ]
    lines = [", ".join(drawn)]
    if not np.isnan(facts.live):
        shares = [f"{percent(facts.live)} of groups are live"]
        shares += [
            f"{percent(kinds[kind] / facts.judged)} {text}"
            for kind, text in (("all_right", "all correct"), ("all_wrong", "all wrong"))
            if kinds[kind]
        ]
        if kinds["phantom"]:
            phantom = percent(kinds["phantom"] / facts.judged)
            shares.append(f"{phantom} not live, but with different rewards")
        if left_out := groups - facts.judged:
            shares.append(f"{counted(left_out, 'group')} left out: one completion, or few rewards")
        lines.append(", ".join(shares))
    if facts.wasted:
        time = duration(float(np.nansum(facts.series("seconds"))))
        amounts = [
            f"{percent(share)} of {f'the time ({time})' if name == 'seconds' else name}"
            for name, share in facts.wasted.items()
        ]
        lines.append(f"in groups that are not live: {', '.join(amounts)}")
    lines += diagnosis.facts.log.notes
    return lines


def unknown_lines(diagnosis: Diagnosis) -> list[str]:
    """Which checks could not be made and why, and what the log lacks."""
    codes: dict[str, list[str]] = {}
    for code, why in diagnosis.unchecked:
        codes.setdefault(why, []).append(code)
    unchecked = "; ".join(f"{', '.join(each)} ({why})" for why, each in codes.items())
    lines = [f"not checked: {unchecked}"] if unchecked else []
    if absent := diagnosis.facts.absent:
        lines.append(f"not in the log: {'; '.join(absent)}")
    return lines


def run_table(diagnoses: Sequence[Diagnosis]) -> Table:
    """A row per run: its groups, the share that is not live, and the codes of its findings."""
    body = []
    for diagnosis in diagnoses:
        facts, kinds = diagnosis.facts, diagnosis.facts.kinds
        groups = facts.judged
        codes = [f"{f.code}{'!' if f.bad else ''}" for f in diagnosis.findings]
        body.append(
            (
                one_line(facts.log.name),
                facts.log.layout,
                f"{len(facts.updates):,}",
                NONE if np.isnan(facts.live) else percent(facts.live),
                *(
                    percent(kinds[kind] / groups) if groups and facts.log.by_correct else NONE
                    for kind in ("all_right", "all_wrong", "phantom")
                ),
                *(
                    percent(facts.wasted[name]) if name in facts.wasted else NONE
                    for name in ("rollouts", "tokens", "seconds")
                ),
                ", ".join(codes) or NONE,
                f"{len(diagnosis.not_made)} of {len(CHECKS)}",
            )
        )
    head = (
        *("run", "log of", "updates", "live", "all correct", "all wrong", "phantom"),
        *("dead rollouts", "dead tokens", "dead time", "findings", "not checked"),
    )
    caption = (
        "Live, all correct, all wrong: % of groups. Phantom: groups whose rewards differ and whose "
        "correctness does not. Dead: in groups that are not live. A finding with ! is a problem."
    )
    return Table("Runs", head, body, caption)


def diagnosis_page(diagnoses: Sequence[Diagnosis]) -> Page:
    """The page: all runs in one table, then each with its findings and figures."""
    problems = sum(diagnosis.bad for diagnosis in diagnoses)
    sections = [Section("runs", "Runs", (run_table(diagnoses), Paragraph(METHOD, "note")))]
    for number, diagnosis in enumerate(diagnoses, 1):
        name = diagnosis.facts.log.name
        sections.append(Section(f"run-{number}", one_line(name), _run_blocks(diagnosis)))
    return Page(
        "Diagnosis of training logs",
        "What GRPO runs learned from, what they wasted, and what is wrong with them.",
        f"{counted(len(diagnoses), 'run')}, {problems} with a problem.",
        tuple(sections),
    )


def _run_blocks(diagnosis: Diagnosis) -> tuple[Block, ...]:
    facts = diagnosis.facts
    blocks: list[Block] = [Paragraph(line) for line in fact_lines(diagnosis)]
    findings = [
        ("problem" if f.bad else "warning", f.code, f.text, f.remedy) for f in diagnosis.findings
    ]
    if findings:
        blocks.append(Table("Findings", ("", "code", "what", "what to change"), findings))
    else:
        blocks += [Paragraph(f"{line[0].upper()}{line[1:]}.") for line in finding_lines(diagnosis)]
    figures = [Figure("Groups by kind, % of each update", partial(kind_areas, facts))]
    if np.isnan(facts.live):
        figures = []
    blocks.append(FigureRow((*figures, Figure("Metrics by update", partial(curves, facts)))))
    if facts.without_signal:
        shown = [(one_line(prompt),) for prompt in facts.without_signal[:MOST_PROMPTS]]
        title = f"Prompts without a live group ({len(facts.without_signal):,}), the first"
        blocks.append(Table(title, ("prompt",), shown, folded=True))
    if facts.golds is not None and facts.golds.on_other:
        rows = [
            (one_line(gold.prompt_id), gold.answer, f"{gold.votes} of {gold.n}")
            for gold in facts.golds.candidates[:MOST_PROMPTS]
        ]
        head = ("prompt", "agreed answer", "completions")
        blocks.append(Table(facts.golds.title, head, rows, facts.golds.verdict, folded=True))
    for line in unknown_lines(diagnosis):
        blocks.append(Paragraph(line[0].upper() + line[1:] + ".", "note"))
    return tuple(blocks)


def kind_areas(facts: Facts) -> "MplFigure":
    """Share of groups by kind over updates, a moving mean over a twentieth of them."""
    figure, axes = new_axes(5.4, 3.3)
    live = 1 - facts.series("dead")
    correct = facts.groups.correct
    right = facts.mean_by_update(np.where(facts.groups.live == 0, correct == 1, 0.0))
    wrong = facts.mean_by_update(np.where(facts.groups.live == 0, correct == 0, 0.0))
    right, wrong = (np.where(np.isfinite(each), each, 0.0) for each in (right, wrong))
    shares = [live, right, wrong, 1 - live - right - wrong]
    known = np.isfinite(live)
    window = max(1, int(known.sum()) // 20)
    smooth = [100 * moving_mean(each[known], window) for each in shares]
    shown = [i for i, each in enumerate(smooth) if each.max(initial=0) > 1e-6]
    names = [*KINDS]
    axes.stackplot(
        facts.updates[known],
        [smooth[i] for i in shown],
        colors=[KINDS[names[i]] for i in shown],
        labels=[names[i] for i in shown],
        alpha=0.85,
        lw=0,
    )
    axes.set_ylim(0, 100)
    axes.margins(x=0)
    axes.set_xlabel("update")
    axes.set_ylabel("% of groups")
    figure.legend(frameon=False, ncols=len(shown), loc="outside upper center", fontsize=9)
    return figure


def curves(facts: Facts) -> "MplFigure":
    """A panel per metric that the log holds, a moving mean over a twentieth of the updates."""
    drawn = {name: facts.series(name) for name, metric in METRICS.items() if metric.panel}
    known = {name: each for name, each in drawn.items() if np.isfinite(each).any()}
    figure, panels = new_panels(max(1, len(known)), same_scale=False)
    for axes, (name, values) in zip(panels, known.items(), strict=False):
        finite = np.isfinite(values)
        axes.set_title(METRICS[name].text, size=9)
        smooth = moving_mean(values[finite], max(1, int(finite.sum()) // 20))
        axes.plot(facts.updates[finite], smooth, color=COLOURS[0], lw=1.4)
        axes.locator_params(axis="x", integer=True, nbins=5)
    figure.supxlabel("update", size=10)
    return figure


def terminal_diagnosis(diagnoses: Sequence[Diagnosis], width: int | None = None) -> str:
    """The runs of a log with their findings; of several runs, the table first."""
    parts = [as_text(run_table(diagnoses), width)] if len(diagnoses) > 1 else []
    for each in diagnoses:
        log = each.facts.log
        facts = [] if len(diagnoses) > 1 else fact_lines(each)
        lines = [*facts, *finding_lines(each)]
        if len(diagnoses) == 1:
            lines += unknown_lines(each)
        if each.findings or len(diagnoses) == 1:
            title = wrapped(printable_line(f"{log.name} ({log.layout})"), width)
            parts.append("\n".join([title, *indented(lines, width)]))
    return "\n\n".join(parts)
