"""The page of a comparison of item-level results."""

from functools import partial

from orchestrator.plugins.counts import counted
from orchestrator.report.content import (
    NONE,
    Figure,
    FigureRow,
    Page,
    Paragraph,
    Section,
    Table,
    one_line,
)
from orchestrator.report.item_comparison import ItemAnalysis
from orchestrator.report.layout import wrapped
from orchestrator.report.sections.axes import difference_intervals
from orchestrator.report.sentences import (
    PART_HEAD,
    effect_text,
    in_points,
    part_texts,
    range_text,
    rate_text,
    sentence,
)
from orchestrator.report.terminal import as_text
from orchestrator.report.verdict_blocks import FamilyVerdict, PairVerdict, verdict_lines
from orchestrator.stats.inference import Effect
from orchestrator.stats.power import MOST_ITEMS, MOST_SEEDS

MOST_QUESTIONS = 20
MOST_NAMED = 4  # arms of a title
MOST_PAIRS = 45  # of a figure: ten arms
METHOD = (
    "Each pair is compared on the questions that have a score in both; a question's samples are "
    "averaged within a run, and runs are paired by question. Related questions are averaged "
    "within their group. In brackets: the 95 % interval of this pair alone, for new questions "
    "and, with several runs, for new seeds; p is two-sided. Holm's correction covers all pairs of "
    "this page. One arm beats another if the interval excludes zero and the corrected p is at "
    "most .05. For two arms with one run each, that is a statement about these models. If one arm "
    "has several runs, it is about policies and needs several runs of both. The sample size "
    "stated as needed detects a difference of the observed size with 80 % power at the strictest "
    "level of Holm's correction."
)


CONSISTS = (
    "In points, from the second arm to the first. Finished: by completions that do not end at the "
    "token limit without an answer. Parsed: by answers that are parsed from these. Correct: by "
    "right answers among these. The three parts (Shapley's values) add up to the difference over "
    "the questions whose outcomes are known on both sides. In brackets: 95 % intervals, as for "
    "the difference. Then the three shares in %, of the second arm and of the first. Unknown: a "
    "share of nothing."
)


def item_page(analysis: ItemAnalysis) -> Page:
    """The page: verdicts, arms, pairs, the questions on which arms differ most, files."""
    names = [arm.name for arm in analysis.arms]
    verdicts = (item_verdict(analysis), Paragraph(METHOD, "note"))
    shown = [c.leader_first for c in analysis.comparisons[:MOST_PAIRS]]
    pairs = {f"{c.a} − {c.b}": (c.effect, c.low, c.high) for c in shown}
    figure = Figure(
        "Differences in points with their 95 % intervals, not corrected for the number of pairs",
        partial(difference_intervals, pairs),
    )
    title = f"Comparison: {', '.join(names)}"
    if len(names) > MOST_NAMED:
        title = f"Comparison of {counted(len(names), 'arm')}"
    return Page(
        title,
        "Item-level results, paired by question.",
        f"{counted(len(names), 'arm')}, {counted(sum(analysis.seeds.values()), 'run')}.",
        (
            Section("verdicts", "Verdicts", verdicts),
            Section(
                "results",
                "Results",
                (
                    arms_table(analysis),
                    pairs_table(analysis),
                    *more_tables(analysis),
                    *([Paragraph(text, "note")] if (text := unknown_text(analysis)) else []),
                    FigureRow((figure,)),
                ),
            ),
            Section("questions", "Questions", (questions_table(analysis),)),
            Section("files", "Files", (files_table(analysis),)),
        ),
    )


def item_verdict(analysis: ItemAnalysis) -> FamilyVerdict:
    """The conclusions in words, as the report of a sweep has them, and what limits them."""
    ordered = sorted(
        analysis.comparisons, key=lambda c: (c.verdict == "inconclusive", c.spans_zero)
    )
    return FamilyVerdict(
        ", ".join(arm.name for arm in analysis.arms),
        "mean score of each question's samples",
        tuple(PairVerdict(c, sentence(c)) for c in ordered),
        single="",
        below_base=(),
        matches=(),
        caveats=tuple(analysis.caveats),
    )


def arms_table(analysis: ItemAnalysis) -> Table:
    """Mean score of every arm, and on how many questions, samples and seeds."""
    body = []
    for arm in analysis.arms:
        level = NONE
        if (accuracy := arm.accuracy(analysis.groups)) is not None:
            mean, least, most, _ = accuracy
            level = f"{100 * mean:.1f} [{100 * least:.1f}, {100 * most:.1f}]"
        samples = "–".join(map(str, dict.fromkeys(arm.samples)))
        counts = (f"{len(arm.questions):,}", samples, str(len(arm.runs)), f"{arm.missing:,}")
        body.append((arm.name, arm.metric, level, *counts))
    return Table(
        "Arms",
        ("arm", "metric", "mean score, % [95 %]", "questions", "samples", "seeds", "no score"),
        body,
        "The mean over the questions that have a score in some run of the arm, with its 95 % "
        "interval for new questions and, with several runs, new seeds. Samples: per question. No "
        "score: samples with an error, which are left out.",
    )


def pairs_table(analysis: ItemAnalysis) -> Table:
    """Every pair: difference, test, p, verdict and needed sample."""
    body = []
    for c in (each.leader_first for each in analysis.comparisons):
        winner = {"a": c.a, "b": c.b}.get(c.verdict, "inconclusive")
        effect = Effect(c.effect / 100, c.low / 100, c.high / 100, c.p)
        least, most = c.needed_range
        needed = (
            range_text(least.seeds, most.seeds, MOST_SEEDS),
            range_text(least.items, most.items, MOST_ITEMS),
        )
        seeds = " / ".join(map(str, dict.fromkeys(c.runs)))
        groups = NONE if c.groups is None else f"{c.groups:,}"
        missing = bounds = NONE
        if any(c.missing):
            missing = " / ".join(f"{100 * share:.1f}" for share in c.missing)
            bounds = f"[{', '.join(map(in_points, c.bounds))}]"
        counts = (f"{c.items:,}", groups, f"{c.left_out:,}", missing, bounds, seeds)
        p_values = (f"{c.p:.3g}", f"{c.p_holm:.3g}")
        pair = f"{c.a} − {c.b}"
        body.append((pair, effect_text(effect), *counts, c.test, *p_values, winner, *needed))
    return Table(
        "Pairs",
        (
            *("pair", "points [95 %]", "questions", "groups", "left out", "missing %", "bounds"),
            *("seeds", "test", "p"),
            *("Holm's p", "better", "seeds needed", "questions needed"),
        ),
        body,
        "Groups: of related questions. Left out: questions without a score in one of the two. "
        "Missing: the share of samples without a score in each; bounds: the ends of the "
        "interval if these were all wrong in one and right in the other. Needed: seeds with these "
        "questions, or questions with these seeds, that would detect the difference with 80 % "
        "power; a range, because the difference and the spread between seeds are only estimates.",
    )


def more_tables(analysis: ItemAnalysis) -> list[Table]:
    """Questions that one arm alone answers, and what gains have cost; without empty tables."""
    alone = [
        (
            f"{c.a}, {c.b}",
            *(in_points(x, plus=False) for x in (own.gained, own.lost)),
            NONE if own.by_chance is None else in_points(own.by_chance, plus=False),
            f"{own.questions:,}",
        )
        for c, own in zip(analysis.comparisons, analysis.churns, strict=True)
        if own
    ]
    by_part = [
        (
            f"{c.a}, {c.b}",
            f"{kind} {name}",
            *(in_points(x, plus=False) for x in (part.gained, part.lost)),
            f"{part.questions:,}",
        )
        for c, parts in zip(analysis.comparisons, analysis.part_churns, strict=True)
        for kind, name, part in parts
    ]
    units = [*dict.fromkeys(unit for arm in analysis.arms for unit in arm.gain_per)]
    gains = [
        (arm.name, *(rate_text(arm.gain_per.get(unit)) for unit in units))
        for arm in analysis.arms
        if units
    ]
    consists, by_part_of = _consists(analysis)
    churn = Table(
        "Questions that one of two arms answers",
        ("arms", "only the first", "only the second", "by chance", "questions"),
        alone,
        "With several samples or seeds, a question counts by how often one sample of the first "
        "is correct and one of the second wrong, or the reverse. With several samples, those "
        "with the same number are not compared, because Decile draws them with the same random "
        "numbers. By chance: how many of each to expect if the arms were alike, from two samples "
        "of one run or, for an arm with several seeds, from two of its seeds. The test of the "
        "pair is that of the difference of both numbers.",
    )
    per_cost = Table(
        "Gain per cost",
        ("arm", *(f"per {unit}" for unit in units)),
        gains,
        "For cells: points of accuracy gained by training, divided by what it used: mean gain over "
        "seeds by mean cost, with its 95 % interval. A dash: the interval is wider than the value.",
    )
    parts = Table(
        "Questions that one of two arms answers, by tier and source",
        ("arms", "part", "only the first", "only the second", "questions"),
        by_part,
        folded=True,
    )
    every = (consists, by_part_of, churn, parts, per_cost)
    return [table for table in every if table.body]


def _consists(analysis: ItemAnalysis) -> tuple[Table, Table]:
    """The parts of the differences: for all questions, and for each tier and source."""
    every, parts = [], []
    for c, divided in zip(analysis.comparisons, analysis.divided, strict=True):
        for kind, name, gain in divided:
            texts = part_texts(gain)
            pair = f"{c.b} → {c.a}"
            if kind:
                parts.append((pair, f"{kind} {name}", *texts))
            else:
                every.append((pair, *texts))
    title = "What the differences consist of"
    head = ("difference", *PART_HEAD)
    return (
        Table(title, ("arms", *head), every, CONSISTS),
        Table(f"{title}, by tier and source", ("arms", "part", *head), parts, folded=True),
    )


def unknown_text(analysis: ItemAnalysis) -> str:
    """Why differences are not divided; empty if all are."""
    if not analysis.unknown_outcomes:
        return ""
    return (
        "What the differences consist of (completions that finish, answers that are parsed, right "
        "answers) is unknown: the column outcome is missing in rows of "
        f"{', '.join(analysis.unknown_outcomes)}, has a value that decile mark and "
        "decile evaluate do not write, or contradicts the score."
    )


def questions_table(analysis: ItemAnalysis) -> Table:
    """The questions on which the arms differ most."""
    shown = [each for each in analysis.differing if each.range > 0][:MOST_QUESTIONS]
    body = []
    for each in shown:
        text = analysis.questions.get(each.item, "")
        named = "" if text == each.item else one_line(text)
        means = (f"{100 * mean:.0f}" for mean in each.means)
        body.append((one_line(each.item), named, *means, in_points(100 * each.range, plus=False)))
    names = (arm.name for arm in analysis.arms)
    return Table(
        "Questions on which the arms differ most",
        ("question", "text", *names, "range"),
        body,
        "Mean score in % over runs and samples, and the largest difference in points; "
        f"{len(shown)} of {counted(len(analysis.differing), 'question')} scored in every arm.",
    )


def files_table(analysis: ItemAnalysis) -> Table:
    """The files of every run and their hashes."""
    return Table(
        "Files",
        ("arm", "seed", "file", "format", "questions", "SHA-256"),
        [
            (a.name, str(r.seed), f.path, f.format, f"{len(r.scores):,}", f.sha256[:16] or NONE)
            for a in analysis.arms
            for r in a.runs
            for f in r.files
        ],
    )


def terminal_items(analysis: ItemAnalysis, width: int | None = None) -> str:
    """The arms, what each pair concludes, and further tables. Lines fit `width` columns."""
    lines = verdict_lines(item_verdict(analysis), width)
    arms = as_text(arms_table(analysis), width)
    more = [line for t in more_tables(analysis) if not t.folded for line in ("", as_text(t, width))]
    unknown = unknown_text(analysis)
    more += ["", wrapped(unknown, width)] if unknown else []
    return "\n".join([arms, "", wrapped(lines[0], width), *lines[1:], *more])
