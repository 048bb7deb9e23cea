"""The sections about a pool: those of a probe's page, and the one of a sweep's page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from math import isnan
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.difficulty.outcomes import BANDS, band_of, outcome_counts
from orchestrator.difficulty.probe_table import table_file
from orchestrator.difficulty.proportions import counts
from orchestrator.difficulty.remedies import (
    form_counts,
    form_note,
    form_remedies,
    pool_warning,
    reading_remedies,
)
from orchestrator.difficulty.summary import fit_warning, shares_text
from orchestrator.planning.plan import Plan
from orchestrator.plugins.counts import counted
from orchestrator.report.content import (
    NONE,
    Block,
    Figure,
    FigureRow,
    Page,
    Paragraph,
    Section,
    ShareTable,
    Table,
    one_line,
)
from orchestrator.report.difficulty_sources import SourceMatrix, source_matrices
from orchestrator.report.probe_analysis import (
    AGREED,
    Example,
    PoolAnalysis,
    PoolOutcomes,
    analyse_pool,
)
from orchestrator.report.sample_blocks import AllPrompts, Command, Completions, PromptList
from orchestrator.report.sections.completions import card, origin_text
from orchestrator.report.sections.difficulty_sources import difficulty_section
from orchestrator.report.sections.figures import (
    agreement_histogram,
    failure_histogram,
    outcome_bars,
)
from orchestrator.report.sentences import UNKNOWN, rising, ties_text
from orchestrator.stats.rankings import hardest_overlap, rank_correlation
from orchestrator.storage.store import Store
from policies import labelled_rows
from tasks import OUTCOMES, Prompt

ADAPTIVE = (
    "The probe was adaptive: prompts that could no longer change the subset were sampled less, so "
    "the figure shows the samples as drawn, which are not estimates of their pass rates."
)
BROWSABLE = 10_000  # prompts of a table on a page, of a quarter of a kilobyte each
_SHARES = ("pass_rate", "agreement")
_BROWSED = ["prompt_id", "tier", "suspected", *_SHARES, *OUTCOMES[1:]]
LISTED = 20  # prompts of a list; the difficulty table has all of them
DOUBTFUL = 0.2  # share of a subset that was never solved, or is suspected, worth a warning
PARTS = ("tier", "source")
MAX_PARTS = 30  # lines of a table; the smallest tiers or sources share the last one
POLICIES = (
    "Each policy of the grid with its first seed. Expected pass rate: of new samples of the "
    "subset; the samples that chose it exaggerate. Learnable %: the expected share of groups of "
    "{group} completions whose rewards differ, before any training. Unsolved: prompts without a "
    "correct sample. Tied at cutoff: prompts chosen at random among those whose score equals that "
    "of the last chosen one. Suspected: prompts whose samples agree on an answer other than the "
    "gold one, in a pool where most such gold answers are expected to be wrong. Retest overlap: "
    "the expected share of the subset that is also in the subset of a second probe of the same "
    "size; – where second probes are not simulated."
)
DISPUTED = (
    "At least two thirds of the completions with an answer (at least three) agree on an answer "
    "other than the gold one. A mistake that the model often makes looks the same: read the "
    "prompts. The expected number of such mistakes is estimated from how alike the wrong answers "
    "are where the model also finds the gold one. Evidence: the lower end of the Wilson 95 % "
    "interval of the share by which the agreed answer leads over the gold one. exclude: suspected "
    "leaves out the suspected ones, if there are any."
)
EXAMPLES = (
    "For each outcome, the first such completion of the prompts whose ids come first. Ids are "
    "hashes, so the choice does not depend on success."
)
EPISODES = (
    "For each line of the table of turns, the prompt whose id comes first, with its first episode "
    "of each outcome; and the first episode of each outcome that none of them has. Ids are hashes, "
    "so the choice within a line does not depend on success."
)
TURNS = (
    "Prompts by the share of their episodes that are correct. Turns and tool calls: mean per "
    "episode. Tool errors: calls that were answered by an error. Truncated: episodes that a limit "
    "ended before they were correct. Failed: episodes whose environment failed."
)


@dataclass(frozen=True)
class ProbeReport(Page):
    """The page of an experiment's probes; pools: those of training pools with stored samples.

    sources: their sources of difficulty, compared.
    """

    pools: tuple[PoolAnalysis, ...] = ()
    sources: tuple[SourceMatrix, ...] = ()


def probe_report(plan: Plan, store: Store, page: Path | None = None) -> ProbeReport:
    """Analyse what the store holds of a plan's training probes.

    Commands of the report select from the difficulty tables beside `page`; None: no commands.
    """
    specs = plan.training_probes
    analyses = (
        analyse_pool(plan, store, spec, table_file(plan, spec, page) if page else None)
        for spec in specs
    )
    pools = tuple(filter(None, analyses))
    drawn = f"{counted(sum(pool.drawn for pool in pools), 'sample')} of training prompts"
    status = f"{drawn} in {len(pools)} of {counted(len(specs), 'probe')}."
    empty = Section("difficulty", "Difficulty", (Paragraph("No sample is stored yet."),))
    sources = tuple(source_matrices(plan, store)) if pools else ()
    files = [table_file(plan, pool.spec, page).name for pool in pools] if page else []
    every = [*pool_sections(pools, files), difficulty_section(sources)]
    sections = tuple(section for section in every if section.blocks) or (empty,)
    about, file = plan.experiment.about, plan.source.file
    return ProbeReport(plan.name, about, status, sections, file=file, pools=pools, sources=sources)


def pool_sections(pools: Sequence[PoolAnalysis], files: Sequence[str] = ()) -> Iterable[Section]:
    """All sections of all pools; files: the names of their difficulty tables."""
    for number, pool in enumerate(pools):
        file = files[number] if files else ""
        suffix = f": {pool.title}" if len(pools) > 1 else ""
        what = "episodes" if pool.turns else "completions"
        subsets = {p.policy: p.summary.outcomes for p in pool.policies if p.summary}
        difficulty = [
            *(Paragraph(f"{line[0].upper()}{line[1:]}.") for line in facts(pool)),
            pool_figures(pool.title, pool.table, pool.samples, subsets),
            *(part_table(pool.table, kind) for kind in PARTS),
            turn_table(pool),
        ]
        policies: list[Block] = [policy_table(pool), source_table(pool)]
        policies += [Paragraph(f"{p.policy}: {p.note}") for p in pool.policies if p.note]
        if text := advice(pool):
            policies.append(Paragraph(f"{text[0].upper()}{text[1:]}."))
        if commands := [Command(p.command) for p in pool.policies if p.command]:
            about = purpose(pool)
            policies += [Paragraph(f"{about[0].upper()}{about[1:]}:"), *commands]
        for name, title, blocks in (
            ("difficulty", "Difficulty of the pool", difficulty),
            ("policies", "Subsets", policies),
            ("unsolved", "Prompts that no completion solved", _unsolved(pool)),
            ("gold", pool.disputed.title, _disputed(pool)),
            ("prompts", "All prompts", [_all_prompts(pool, file)]),
            ("completions", f"Example {what}", _completions(pool)),
        ):
            yield Section.of(f"{name}-{number}", f"{title}{suffix}", *blocks)


def _all_prompts(pool: PoolAnalysis, file: str) -> Block:
    """Every prompt with its values in the probe; for a large pool, where to find them."""
    table, where = pool.table, file or "the difficulty table"
    if table.num_rows > BROWSABLE:
        count = counted(table.num_rows, "prompt")
        return Paragraph(f"{where} has a row for each of the {count}.")
    questions = pool.prompts.column("question").take(pool.prompts.rows_of(table["prompt_id"]))
    sources = [""] * table.num_rows
    if "source" in table.column_names:
        sources = table["source"].fill_null("").to_pylist()
    policies = [policy for policy in pool.policies if policy.chosen]
    rows = []
    for question, source, row in zip(
        questions.to_pylist(), sources, table.select(_BROWSED).to_pylist(), strict=True
    ):
        failures = {name: row[name] or 0 for name in OUTCOMES[1:]}
        failure = max(failures, key=failures.__getitem__)
        names = [policy.policy for policy in policies if row["prompt_id"] in policy.chosen]
        suspected = {None: None, True: "suspected", False: ""}[row["suspected"]]
        shares = [None if row[name] is None else round(row[name], 3) for name in _SHARES]
        shown = [one_line(question), *shares, failure if failures[failure] else "", suspected]
        rows.append([*shown, source, row["tier"] or "", ", ".join(names)])
    known = ("question", "pass rate", "agreement", "most frequent failure", "gold answer")
    head = (*known, "source", "tier", "chosen by")
    # The last column stays, since a page filters by it.
    filled = [any(row[at] for row in rows) for at in range(len(head) - 1)] + [True]
    return AllPrompts(
        head=tuple(compress(head, filled)),
        rows=[[*compress(row, filled)] for row in rows],
        policies=tuple(policy.policy for policy in policies),
        file=where,
        caption=f"All columns are in {where}." if file else "",
    )


def purpose(pool: PoolAnalysis) -> str:
    """What the commands of a pool's policies do."""
    if any("--to-label" in policy.command for policy in pool.policies):
        return "to list prompts for annotators"
    return "to select a subset from the pool's difficulty table, one row per prompt"


def pool_section(pool: PoolOutcomes) -> Section:
    """The figures of one training probe; a paragraph in their place while samples are missing."""
    anchor = f"difficulty-{pool.spec.key}-{pool.spec.dataset.variant_key.replace(' ', '-')}"
    blocks: list[Block] = [Paragraph(pool.missing)]
    if pool.table is not None:
        samples = pool.spec.settings.samples
        blocks = [Paragraph(ADAPTIVE)] if pool.stops_early else []
        blocks.append(pool_figures(pool.title, pool.table, samples, pool.subsets))
    return Section.of(anchor, f"Difficulty: {pool.title}", *blocks)


def pool_figures(
    title: str, table: pa.Table, samples: int, subsets: Mapping[str, Mapping[str, int]]
) -> FigureRow:
    """The pool by correct completions, and its outcomes beside those of `subsets` (by name).

    Between them the pool by agreement, where answers were read.
    """
    histogram = Figure(
        f"Prompts of the pool by correct completions, {title}: "
        f"{counted(table.num_rows, 'prompt')}, by "
        "the outcome of their completions",
        partial(failure_histogram, table, samples),
    )
    outcomes = Figure(
        f"Outcomes of the base model's completions, {title}: in the pool and in each subset",
        partial(outcome_bars, {"pool": outcome_counts(table), **subsets}),
    )
    if not table["agreement"].null_count < table.num_rows:
        return FigureRow((histogram, outcomes))
    agreement = Figure(
        f"Prompts of the pool by agreement, {title}: completions that give the most frequent "
        "answer, whatever the gold answer is",
        partial(agreement_histogram, table, samples),
    )
    return FigureRow((histogram, agreement, outcomes))


def turn_table(pool: PoolAnalysis) -> Table:
    """Turns and tool calls by pass rate; empty for a task of one answer."""
    prompts = np.bincount(band_of(pool.table), minlength=len(BANDS))
    body = [
        (
            *(BANDS[band], f"{prompts[band]:,}"),
            *(f"{total / turns.episodes:.2f}" for total in (turns.turns, turns.tool_calls)),
            NONE if isnan(turns.error_share) else f"{100 * turns.error_share:.1f}",
            *(f"{100 * n / turns.episodes:.1f}" for n in (turns.truncated, turns.failed)),
        )
        for band, turns in sorted(pool.turns.items())
    ]
    return Table(
        "Turns by pass rate",
        (
            *("pass rate", "prompts", "turns", "tool calls"),
            *("tool errors %", "truncated %", "failed %"),
        ),
        body,
        TURNS,
    )


def facts(pool: PoolAnalysis) -> list[str]:
    """What the probe shows, one sentence per fact, without full stops."""
    table, k = pool.table, pool.samples
    lines = [
        f"{counted(table.num_rows, 'prompt')} × {counted(k, 'sample')}: "
        f"{shares_text(outcome_counts(table))}"
    ]
    if pool.stops_early:
        lines.append(f"samples needed: {pool.drawn:,} of {pool.expected:,}. {ADAPTIVE[:-1]}")
    elif not pool.complete:
        lines.append(
            f"the probe is incomplete. Samples stored: {pool.drawn:,} of {pool.expected:,}. "
            "Rerun decile probe to draw the rest"
        )
    scorable, solved = counts(table, "scorable"), counts(table, "successes")
    labelled = labelled_rows(table)
    if not labelled.all():
        lines.append(f"with a gold answer: {_count(int(np.count_nonzero(labelled)), table)}")
    if labelled.any():
        lines.append(
            f"never solved: {_count(len(pool.unsolved), table)}; "
            f"always solved: {_count(pool.always_solved, table)}"
        )
    if pool.unsolved_forms:
        forms = (f"{form} ({counted(n, 'prompt')})" for form, n in pool.unsolved_forms.items())
        lines.append(
            f"no completion is correct where answers are {', '.join(forms)}: the questions "
            "or the marker may prevent a model from giving such answers, so read some of them"
        )
    lines += form_lines(pool) + (agreement_lines(table) if pool.complete else [])
    unmarked = labelled & (scorable == 0) & (counts(table, "n") > 0)
    if unknown := int(np.count_nonzero(unmarked)):
        lines.append(f"no sample could be marked: {_count(unknown, table)}")
    if len(pool.unfinished):
        never = len(np.intersect1d(pool.unfinished, pool.unsolved))
        never_text = f", {never:,} of them never solved" if never else ""
        limit = f"{counted(pool.spec.settings.max_completion_length, 'token')}"
        what = f"episodes that reach a limit ({limit}, or the task's turns)"
        if not pool.turns:
            what = f"completions that reach the limit of {limit}"
        lines.append(
            f"the only failures are {what}: {_count(len(pool.unfinished), table)}{never_text}; "
            f"{'higher limits' if pool.turns else 'a larger probe.max_completion_length'} may "
            "solve them"
        )
    sizes = [p.summary.size for p in pool.policies if p.summary]
    by_outcome, limit = outcome_counts(table), pool.spec.settings.limit_text
    smallest, known = min(sizes, default=0), (solved[labelled], scorable[labelled])
    if labelled.any() and (warning := pool_warning(*known, smallest, by_outcome, limit)):
        lines.append(warning)
    if pool.complete and pool.reliability is not None:
        lines.append(
            f"reliability {pool.reliability:.2f}: the expected correlation of pass rates with "
            "those of a second probe"
        )
    if pool.complete and (warning := fit_warning(table)):
        lines.append(warning)
    return lines


def form_lines(pool: PoolAnalysis) -> list[str]:
    """Which failures are of form: in the pool, and in the sources with the most of them."""
    table, limit = pool.table, pool.spec.settings.limit_text
    if form_counts(table) is None:
        return [f"failures by form: {UNKNOWN}, because no other reading of answers is stored"]
    lines = []
    if not reading_remedies(outcome_counts(table), limit):  # otherwise `pool_warning` reports it
        lines = [note] if (note := form_note(table, limit)) else []
    if "source" not in table.column_names:
        return lines
    source = pc.fill_null(table["source"], "")
    for name in rising(pc.unique(source).to_pylist()):
        own = table.filter(pc.equal(source, name))
        numbers = form_counts(own)
        mostly = numbers and 2 * sum(numbers.values()) >= own.num_rows
        if name and own.num_rows < table.num_rows and mostly:
            lines.append(f"source {one_line(name, 40)}: {form_note(own, limit)}")
    return lines


def agreement_lines(table: pa.Table) -> list[str]:
    """How far the completions of a prompt agree, and how that relates to pass rates."""
    known = table.filter(table["agreement"].is_valid())
    if not known.num_rows:
        return []
    agreement = known["agreement"].to_numpy()
    lines = [
        "agreement, the share of completions with the most frequent answer: "
        f"{agreement.mean():.2f} on average, 1 for "
        f"{_count(int(np.count_nonzero(agreement == 1)), table)}"
    ]
    rated = known.filter(known["pass_rate"].is_valid())
    agreement, rates = (rated[name].to_numpy() for name in ("agreement", "pass_rate"))
    if len(rates) > 1 and not isnan(rank := rank_correlation(agreement, rates)):
        shared, again = hardest_overlap(rates, agreement), hardest_overlap(rates, rates)
        lines.append(
            f"rank correlation of agreement and pass rate: {rank:.2f}. The least agreed tenth "
            f"contains {100 * shared:.0f} % of the hardest tenth. If ties are broken again, the "
            f"hardest tenth contains {100 * again:.0f} % of itself"
        )
    return lines


def most_learnable(pool: PoolAnalysis) -> list[tuple[float, str]]:
    """The expected share of live groups of each policy for which it is known, largest first."""
    shares = ((p.summary.learnable, p.policy) for p in pool.policies if p.summary)
    known = [(share, policy) for share, policy in shares if share is not None]
    return sorted(known, key=lambda each: -each[0])


def advice(pool: PoolAnalysis) -> str:
    """What to do next, as one sentence without a full stop; empty while no subset is known.

    Answers that are not read come first. Then subsets with many prompts that were never solved or
    are suspected: wrong gold answers look the same, and neither gives a group to learn from.
    """
    limit = pool.spec.settings.limit_text
    remedies = reading_remedies(outcome_counts(pool.table), limit)
    if remedies := remedies or form_remedies(pool.table, DOUBTFUL, limit):
        return f"next: {', or '.join(remedies)}, and probe again before choosing prompts"
    subsets = {p.policy: p.summary for p in pool.policies if p.summary}
    if not (learnable := most_learnable(pool)):
        return ""
    shares = [f"{100 * share:.0f} %" for share, _ in learnable]
    text = f"next: {learnable[0][1]} has the most groups to learn from ({shares[0]})"
    if len(shares) > 1 and len({*shares}) == 1:
        text = f"next: all policies have equally many groups to learn from ({shares[0]})"
    doubtful = {name: max(s.unsolved, s.suspected or 0) for name, s in subsets.items()}
    worst = max(doubtful, key=lambda name: doubtful[name] / subsets[name].size)
    if doubtful[worst] < DOUBTFUL * subsets[worst].size:
        return text
    suspects = bool(subsets[worst].suspected)
    text = (
        f"{text}; {doubtful[worst]:,} of the {counted(subsets[worst].size, 'prompt')} of {worst} "
        f"were never solved{' or have a suspected gold answer' if suspects else ''}: read them "
        "before training on them"
    )
    left = counts(pool.table, "successes") > 0
    if suspects:
        left &= ~pc.fill_null(pool.table["suspected"], False).to_numpy()
    if np.count_nonzero(left) < subsets[worst].size:  # the option could not fill the subset
        return text
    options = "[suspected, unsolved]" if suspects else "unsolved"
    return f"{text}, or leave them out with exclude: {options}"


def _count(prompts: int, table: pa.Table) -> str:
    return f"{counted(prompts, 'prompt')} ({100 * prompts / table.num_rows:.1f} %)"


def part_table(table: pa.Table, kind: str, most: int = MAX_PARTS) -> ShareTable:
    """Pass rates by tier or source; without rows if all prompts have the same."""
    parts = table[kind] if kind in table.column_names else pa.nulls(table.num_rows, pa.string())
    prompts = pa.table({kind: pc.fill_null(parts, ""), "band": band_of(table)})
    grouped = prompts.group_by([kind, "band"]).aggregate([([], "count_all")])
    sizes: dict[str, np.ndarray] = {}
    for row in grouped.to_pylist():
        bands = sizes.setdefault(row[kind], np.zeros(len(BANDS), int))
        bands[row["band"]] = row["count_all"]
    names = sorted(sizes, key=lambda name: (-sizes[name].sum(), name))
    kept = names if len(names) <= most else names[: most - 1]
    by_tier = {name: sizes[name] for name in rising(kept)}
    if others := names[len(kept) :]:
        smaller = counted(len(others), f"smaller {kind}")
        by_tier[smaller] = np.sum([sizes[n] for n in others], axis=0)
    shown = len(BANDS) if any(band[-1] for band in by_tier.values()) else len(BANDS) - 1
    body = [
        (one_line(name, 40) or "none", int(band.sum()), tuple((band / band.sum())[:shown]))
        for name, band in by_tier.items()
    ]
    return ShareTable(
        f"Pass rates by {kind}",
        (kind, "prompts", *BANDS[:shown]),
        body if len(names) > 1 else [],
        f"In % of the {kind}'s prompts, by the share of their completions that are correct.",
    )


def source_table(pool: PoolAnalysis, most: int = MAX_PARTS) -> Table:
    """Outcomes and suspected golds by source, and what each policy takes from each."""
    if "source" not in pool.table.column_names:
        return Table("", (), [])
    source = pc.fill_null(pool.table["source"], "")
    sizes = Counter(source.to_pylist())
    whole = outcome_counts(pool.table)
    occurring = [o for o in OUTCOMES if o != "unlabelled" or whole[o]]
    policies = {p.policy: p.sources for p in pool.policies if p.summary}
    known = form_counts(pool.table) is not None
    body = []
    for name, count in sizes.most_common(most):
        own = pool.table.filter(pc.equal(source, name))
        outcomes = outcome_counts(own)
        total = max(1, sum(outcomes.values()))
        suspected = pc.sum(own["suspected"]).as_py()
        body.append(
            (
                one_line(name, 40) or "none",
                f"{count:,}",
                *(f"{100 * outcomes[outcome] / total:.1f}" for outcome in occurring),
                f"{100 * counts(own, 'form_failures').sum() / total:.1f}" if known else NONE,
                NONE if suspected is None else f"{suspected:,}",
                *(f"{taken.get(name, 0):,}" for taken in policies.values()),
            )
        )
    smaller = len(sizes) - len(body)
    shown = f" The {most} largest of {len(sizes):,} sources." if smaller else ""
    return Table(
        "Outcomes and subsets by source",
        ("source", "prompts", *(f"{o} %" for o in occurring), "by form %", "suspected", *policies),
        body,
        "Outcomes of all completions. By form: completions without an answer that was read, or "
        "with the gold answer in another form. Under each policy: the prompts that it "
        f"takes.{shown}",
    )


def policy_table(pool: PoolAnalysis) -> Table:
    """What each policy takes."""
    body = []
    for policy, s in ((p.policy, p.summary) for p in pool.policies if p.summary):
        body.append(
            (
                policy,
                f"{s.size:,}",
                NONE if s.pass_rate is None else f"{100 * s.pass_rate:.1f} %",
                NONE if s.learnable is None else f"{100 * s.learnable:.1f}",
                NONE if s.pass_rate is None else f"{s.unsolved:,}",
                NONE if s.pass_rate is None or s.suspected is None else f"{s.suspected:,}",
                ties_text(*s.ties) if s.ties else NONE,
                NONE if s.overlap is None else f"{100 * s.overlap:.0f} %",
            )
        )
    return Table(
        "Subsets by policy",
        (
            *("policy", "prompts", "expected pass rate", "learnable %", "unsolved", "suspected"),
            *("tied at cutoff", "retest overlap"),
        ),
        body,
        POLICIES.format(group=pool.group_size),
    )


def subset_section(policy: str, subset: pa.Table, prompts: Sequence[Prompt]) -> Section:
    """The first prompts of a subset with their pass rates, by rank."""
    rates = subset["pass_rate"].to_pylist()
    body = [
        (
            str(rank),
            one_line(prompt.question),
            one_line(prompt.answer, 40),
            percent,
            origin_text(prompt, "") or NONE,
        )
        for rank, (prompt, rate) in enumerate(zip(prompts[:LISTED], rates, strict=False))
        for percent in [NONE if rate is None else f"{100 * rate:.0f} %"]
    ]
    title = _title(len(prompts), f"by {policy}", f"the first {LISTED}")
    table = Table(title, ("rank", "question", "answer", "pass rate in the probe", "from"), body)
    return Section("subset", "Subset", (table,))


def _unsolved(pool: PoolAnalysis) -> list[Block]:
    groups = (
        ("never solved", pool.unsolved),
        ("with truncated completions as their only failures", pool.unfinished),
    )
    blocks: list[Block] = []
    for what, rows in groups:
        items = []  # question, and its gold answer with its outcomes
        for row in pool.table.take(pa.array(rows[:LISTED])).to_pylist():
            prompt = pool.prompt(row["prompt_id"])
            row["correct"] = row["successes"]
            outcomes = ", ".join(f"{row[name]} {name}" for name in OUTCOMES if row[name])
            about = (
                f"Gold answer: {one_line(prompt.answer)}; {counted(row['n'], 'sample')}: {outcomes}"
                f"{origin_text(prompt, '; from ')}"
            )
            items.append((one_line(prompt.question, 2 * 160), about))
        if items:
            title = _title(len(rows), what, f"the first {LISTED}")
            blocks.append(PromptList(title, tuple(items)))
    return blocks


def _title(prompts: int, what: str, shown: str) -> str:
    """The title of a list; `shown` says which are listed, if not all."""
    return f"{counted(prompts, 'prompt')} {what}" + (f"; {shown}" if prompts > LISTED else "")


def disputed_lines(pool: PoolAnalysis, most: int) -> list[tuple[str, str]]:
    """Question, and its gold and agreed answers with its place, of the first disputed golds."""
    lines = []
    for gold in pool.disputed.candidates[:most]:
        prompt = pool.prompt(gold.prompt_id)
        about = (
            f"gold answer {one_line(prompt.answer, 40)}, {gold.votes} of "
            f"{counted(gold.n, 'completion')} answer {one_line(gold.answer, 40)} "
            f"(evidence {gold.evidence:.2f}){origin_text(prompt, '; from ')}"
        )
        lines.append((prompt.question, about))
    return lines


def _disputed(pool: PoolAnalysis) -> list[Block]:
    if not pool.disputed.on_other:
        return []
    what = "suspected" if pool.disputed.credible else "disputed"
    title = _title(pool.disputed.on_other, what, f"the {LISTED} with the most evidence")
    items = tuple(
        (one_line(question, 2 * 160), f"{about[0].upper()}{about[1:]}")
        for question, about in disputed_lines(pool, LISTED)
    )
    return [
        Paragraph(DISPUTED),
        Paragraph(pool.disputed.verdict, "note"),
        PromptList(title, items, folded=False),
        *(_card([example]) for example in pool.examples.get(AGREED, [])),
    ]


def _completions(pool: PoolAnalysis) -> list[Block]:
    """The examples of all outcomes; those of one prompt side by side."""
    by_prompt: dict[str, list[Example]] = {}
    for outcome in OUTCOMES:
        for example in pool.examples.get(outcome, []):
            by_prompt.setdefault(example.prompt.prompt_id, []).append(example)
    if not pool.turns:
        return [Paragraph(EXAMPLES, "note"), *(_card(each) for each in by_prompt.values())]
    ids = pa.array(by_prompt, pa.string())
    rows = pool.table.filter(pc.is_in(pool.table["prompt_id"], value_set=ids))
    cards: list[Block] = []
    for band, row in sorted(zip(band_of(rows), rows.to_pylist(), strict=True), key=itemgetter(0)):
        rate = (
            f"Pass rate {BANDS[band]}: {row['successes']} of "
            f"{counted(row['scorable'], 'episode')} correct."
        )
        cards.append(_card(by_prompt[row["prompt_id"]], rate))
    return [Paragraph(EPISODES, "note"), *cards]


def _card(examples: Sequence[Example], about: str = "") -> Completions:
    """Completions of one prompt."""
    answers = []
    for each in examples:
        extracted = f", answer {one_line(each.extracted, 40)}" if each.extracted else ""
        answers.append((f"sample {each.sample}{extracted}", each.answer))
    return card(examples[0].prompt, answers, about)
