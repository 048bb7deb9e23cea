"""What policies would have chosen in a recorded run: lines, tables, and a page."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING

from cluster.terminal import printable_line
from orchestrator.evaluation.replay import (
    ENDS,
    REFERENCE,
    Replay,
    Replayed,
    always,
    end_visits,
    mean_live,
    never,
    repeated,
)
from orchestrator.plugins.counts import counted
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
from orchestrator.report.sections.panels import moving_mean
from orchestrator.report.terminal import as_text, indented
from orchestrator.stats.resampled import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

LIMITS = (
    "One run, which trained on the prompts that its trainer chose: another choice would have "
    "changed the training, and so the later visits. A live group is not a gain in accuracy, which "
    "is not measured here. Intervals (95 %) cover other prompts of this kind, not other runs or "
    "models."
)


def shares_text(estimate: Estimate) -> str:
    """A share with its interval, in %."""
    if isnan(estimate.value):
        return NONE
    return (
        f"{number_text(estimate.value)} [{number_text(estimate.low)}, {number_text(estimate.high)}]"
    )


def number_text(share: float) -> str:
    """A share in %, with the sign that tables have."""
    if not isfinite(share):
        return NONE
    return f"{round(100 * share) or 0}".replace("-", "−")


def decimals(estimate: Estimate, places: int) -> str:
    """A number with its interval."""
    if isnan(estimate.value):
        return NONE
    value, low, high = (
        f"{each:.{places}f}".replace("-", "−") if isfinite(each) else NONE for each in estimate
    )
    return f"{value} [{low}, {high}]"


def _percent(share: float) -> str:
    return f"{number_text(share)} %" if isfinite(share) else NONE


def _points(estimate: Estimate) -> str:
    """A difference of shares in points, with its interval."""
    if isnan(estimate.value):
        return NONE
    value, low, high = (
        f"{round(100 * each):+}".replace("-", "−") if isfinite(each) else NONE for each in estimate
    )
    return f"{value} [{low}, {high}]"


def run_lines(replay: Replay) -> list[str]:
    """The run, and the data that choices are based on."""
    run = replay.recording
    by = f"the mean of the first {replay.looks} visits" if replay.looks > 1 else "the first visit"
    if replay.probe is not None:
        by = "a probe"
    return [
        f"{counted(len(run.prompt_ids), 'prompt')}, {counted(run.visits, 'visit')} that at least "
        f"90 % of them have, {counted(run.group_size, 'completion')} per group",
        f"choices of {counted(replay.budget, 'prompt')} by {by}, groups counted at the later ones",
        *run.notes,
    ]


def policy_table(replay: Replay) -> Table:
    """A row per policy: its live groups, and what its choice is made of."""
    reference = replay.replayed.get(REFERENCE)
    body = []
    for name, each in replay.replayed.items():
        compared = NONE
        if reference is not None and each is not reference:
            compared = _points(each.less(reference, mean_live))
        passes = replay.passes_to_repay(each)
        body.append(
            (
                name,
                f"{each.size:,}",
                shares_text(each.later),
                compared,
                f"{number_text(each.start.value)} → {number_text(each.end.value)}",
                half_life_text(replay, each),
                number_text(each.estimate(never).value),
                number_text(each.estimate(always).value),
                number_text(each.estimate(repeated).value),
                NONE if passes is None else "never" if passes == inf else f"{passes:.1f}",
            )
        )
    head = (
        *("policy", "prompts", "live % [95 %]", f"minus {REFERENCE}"),
        *("first → last", "half-life", "never", "always", "repeated", "probe repaid"),
    )
    count = end_visits(replay.recording.visits - replay.looks)
    ends = f"of the {count} first and the {count} last of these" if count else "of several visits"
    caption = (
        "Live: groups with a correct and a wrong completion, at the visits after the choice, % of "
        f"all. First → last: {ends}. "
        f"Half-life: visits after which half of the difference to {REFERENCE} is left, if it "
        "is beyond chance at first. Never, always: % of "
        "the prompts that no, or every, later completion solves. Repeated: % of the choice that "
        "the next look would choose again. Probe repaid: passes over the choice after which the "
        "rollouts of the probe are saved, because random prompts take more rollouts for as many "
        "live groups."
    )
    return Table("Choices", head, body, caption)


def conclusion_lines(replay: Replay) -> list[str]:
    """What is beyond chance, in words: live groups against random ones, and crossings."""
    lines = []
    reference = replay.replayed.get(REFERENCE)
    for name, each in replay.replayed.items():
        if reference is None or each is reference:
            continue
        less = each.less(reference, mean_live)
        if less.low > 0 or less.high < 0:
            word = "more" if less.value > 0 else "fewer"
            ends = sorted((abs(less.low), abs(less.high)))
            lines.append(
                f"{name} has {word} live groups than {REFERENCE}: {100 * abs(less.value):.0f} "
                f"points [{100 * ends[0]:.0f}, {100 * ends[1]:.0f}]"
            )
    lines += [
        f"after visit {each.visit.value:.0f} [{each.visit.low:.0f}, {each.visit.high:.0f}], "
        f"{each.second} has more live groups than {each.first}, which had more before"
        for each in replay.crossings
    ]
    return lines or ["no difference between policies is beyond chance"]


def forecast_table(replay: Replay) -> Table:
    """The forecasts of the probe's estimator beside the observed shares."""
    body = [
        (
            str(each.samples),
            _percent(each.predicted),
            _percent(each.observed),
            _points(each.error),
            decimals(each.brier, 3),
            f"{each.plain.value:.3f}",
        )
        for each in replay.forecasts
    ]
    head = ("completions", "forecast", "came", "error, points [95 %]", "Brier [95 %]", "plain rate")
    caption = (
        f"Live groups at the {ENDS} visits that follow, forecast by the probe's estimator from "
        "that many completions of each prompt. Brier: the mean squared error of single groups; "
        "plain rate: the same for 1 − pᴳ − (1 − p)ᴳ with the share p of correct completions."
    )
    return Table("Forecasts", head, body, caption)


def calibration_table(replay: Replay) -> Table:
    """Forecasts by tenths of the prompts."""
    body = [
        (str(each.samples), f"{count:,}", _percent(predicted), _percent(observed))
        for each in replay.forecasts
        for count, predicted, observed in each.bins
    ]
    head = ("completions", "prompts", "forecast", "came")
    return Table("Calibration of the forecasts", head, body, folded=True)


def drift_table(replay: Replay) -> Table:
    """How alike two visits are, by their distance."""
    body = [
        (
            str(each.distance),
            decimals(each.correlation, 2),
            shares_text(each.shared),
        )
        for each in replay.drift
    ]
    head = ("visits apart", "rank correlation [95 %]", "shared tenth, % [95 %]")
    caption = (
        "Of the pass rates of two visits of each prompt. Shared tenth: of the hardest prompts, 10 "
        "% by chance, as expected with ties broken at random. Both are limited by the few "
        "completions of a visit, so only their fall with the distance is drift."
    )
    return Table("Drift", head, body, caption)


def half_life_text(replay: Replay, each: Replayed) -> str:
    """The visits after which half of a choice's difference to the reference is left."""
    half_life = replay.half_life(each)
    if half_life is None:
        return NONE
    return f"> {len(each.live)}" if half_life == inf else f"{half_life:.0f}"


def online_tables(replay: Replay) -> list[Table]:
    """What online policies would have drawn, and how well the next group is predicted."""
    if replay.online is None:
        return []
    body = [
        (
            each.policy,
            *map(shares_text, (each.live, each.avoided, each.rollouts)),
            number_text(each.reached.value),
            number_text(each.unanswered),
        )
        for each in replay.online.played
    ]
    head = (
        *("policy", "live % [95 %]", "dead avoided %", "rollouts %", "reached %"),
        "not recorded %",
    )
    caption = (
        f"Each visit is an update, for which a policy draws {counted(replay.online.size, 'group')} "
        "or more; it learns from them as in training. Live: of the groups drawn, including "
        "discarded ones. Dead avoided: of the dead groups among as many random ones. Rollouts: "
        "needed for as many live groups, where random choices need 100, with the probe. Reached: "
        "of the prompts that are ever live, those with a live group drawn. Not recorded: groups "
        "that the log lacks."
    )
    predictions = [
        (
            each.by,
            *(decimals(value, 3) for value in (each.brier, each.log)),
            f"{each.rate.value:.4f}" if isfinite(each.rate.value) else NONE,
            number_text(each.largest_error),
        )
        for each in replay.online.predictions
    ]
    of_all = (
        "Whether the next group of each prompt is live, from all groups before it. Brier: mean "
        "squared error; log score: mean negative log-likelihood in nats, chances within .01 and "
        ".99. Rate: mean squared error of the next pass rate. Worst tenth: the largest difference "
        "between prediction and observation, in points, of tenths of the predictions."
    )
    names = ("predicted by", "Brier [95 %]", "log score [95 %]", "rate", "worst tenth")
    return [
        Table("Online policies", head, body, caption),
        Table("Predictions of the next group", names, predictions, of_all),
    ]


def changed_table(replay: Replay) -> Table:
    """The prompts that changed most."""
    body = [
        (one_line(each.prompt_id), _percent(each.start), _percent(each.end))
        for each in replay.changed
    ]
    count = counted(end_visits(replay.recording.visits), "visit")
    head = ("prompt", f"first {count}", f"last {count}")
    title = "Prompts whose pass rate changed most"
    return Table(title, head, body, "Chosen as the largest of all changes.", folded=True)


def part_tables(replay: Replay) -> list[Table]:
    """The share of each source or tier in every choice, and its live groups."""
    tables = []
    for column in replay.recording.columns:
        parts = replay.parts(column)
        values = [*dict.fromkeys(value for own in parts.values() for value in own)]
        body = [
            (
                name,
                *(
                    f"{number_text(own[value][0])} ({number_text(own[value][1])})"
                    for value in values
                ),
            )
            for name, own in parts.items()
        ]
        caption = "% of the choice, and in brackets % of its later groups that are live."
        head = ("policy", *map(one_line, values))
        tables.append(Table(f"Choices by {column}", head, body, caption))
    return tables


def refused_lines(replay: Replay) -> list[str]:
    """Policies that could not be replayed, and those that some resampled pools cannot fill."""
    lines = [
        f"the intervals of {name} leave out {counted(each.unfilled, 'resampled pool')} of "
        f"{len(each.resampled)}, from which it cannot choose"
        for name, each in replay.replayed.items()
        if each.unfilled
    ]
    return lines + reasons_lines("not replayed", replay.refused)


def reasons_lines(what: str, refused: Mapping[str, str]) -> list[str]:
    """Why policies are left out, a line each."""
    # What to write instead is only for users who named the policy.
    return [f"{what}: {reason.rsplit(': ', 1)[0]}" for reason in refused.values()]


def live_curves(replay: Replay) -> "MplFigure":
    """Live groups of every choice by visit, a moving mean."""
    figure, axes = new_axes(6.4, 3.6)
    policies: Sequence[Replayed] = [*replay.replayed.values()]
    for number, each in enumerate(policies):
        visits = range(replay.looks + 1, replay.looks + 1 + len(each.live))
        smooth = moving_mean(each.live, min(ENDS, len(each.live)))
        colour = COLOURS[number % len(COLOURS)]
        style = "-" if number < len(COLOURS) else "--"
        axes.plot(visits, 100 * smooth, style, color=colour, lw=1.4, label=each.policy)
    axes.set_ylim(0, 100)
    axes.set_xlabel("visit of a prompt")
    axes.set_ylabel("live groups, %")
    figure.legend(frameon=False, ncols=4, loc="outside upper center", fontsize=9)
    return figure


def replay_page(replays: Sequence[Replay]) -> Page:
    """The page: a section per run."""
    sections = []
    for number, replay in enumerate(replays, 1):
        figure = Figure("Live groups of each choice by visit", partial(live_curves, replay))
        blocks: tuple[Block, ...] = (
            *map(Paragraph, run_lines(replay)),
            policy_table(replay),
            *map(Paragraph, [*conclusion_lines(replay), *refused_lines(replay)]),
            FigureRow((figure,)),
            *part_tables(replay),
            forecast_table(replay),
            calibration_table(replay),
            drift_table(replay),
            *online_tables(replay),
            changed_table(replay),
        )
        title = one_line(replay.recording.name)
        sections.append(Section.of(f"run-{number}", title, *blocks))
    sections.append(Section("limits", "Limits", (Paragraph(LIMITS, "note"),)))
    return Page(
        "Replay of recorded runs",
        "What each policy would have chosen, and how many groups of its choice were live later.",
        f"{counted(len(replays), 'run')}.",
        tuple(sections),
    )


def runs_table(replays: Sequence[Replay]) -> Table:
    """Live groups of every policy, a column per run."""
    names = [*dict.fromkeys(name for replay in replays for name in replay.replayed)]
    body = [
        (
            name,
            *(
                shares_text(replay.replayed[name].later) if name in replay.replayed else NONE
                for replay in replays
            ),
        )
        for name in names
    ]
    head = ("policy", *(one_line(replay.recording.name) for replay in replays))
    return Table("Live groups of all runs, % [95 %]", head, body)


def terminal_replay(replays: Sequence[Replay], width: int | None = None) -> str:
    """Every run with its tables, then the limits; of several runs, one table of all first."""
    parts = [as_text(runs_table(replays), width)] if len(replays) > 1 else []
    for replay in replays:
        run = replay.recording
        title = wrapped(printable_line(f"{run.name} ({run.layout})"), width)
        lines = indented(run_lines(replay), width)
        parts.append("\n".join([title, *lines]))
        parts.append(as_text(policy_table(replay), width))
        parts.append("\n".join(indented(conclusion_lines(replay) + refused_lines(replay), width)))
        parts += [as_text(table, width) for table in part_tables(replay)]
        if replay.forecasts:
            parts.append(as_text(forecast_table(replay), width))
        if replay.drift:
            parts.append(as_text(drift_table(replay), width))
        parts += [as_text(table, width) for table in online_tables(replay)]
    return "\n\n".join([*parts, wrapped(LIMITS, width)])
