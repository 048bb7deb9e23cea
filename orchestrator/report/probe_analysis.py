"""A training probe's results on its pool, as values; page and terminal only render them.

A probe's own report analyses all of its samples, which may be incomplete: then the numbers cover
the drawn ones. A sweep's report has its cells' subsets beside the pool. Only training prompts are
read.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.config.experiment import axes_text
from orchestrator.difficulty.disputed import DisputedGold, DisputedGolds
from orchestrator.difficulty.estimates import reliability
from orchestrator.difficulty.outcomes import band_of, outcome_counts
from orchestrator.difficulty.probe_table import CellTables, difficulty_of
from orchestrator.difficulty.proportions import counts
from orchestrator.difficulty.remedies import form_note
from orchestrator.difficulty.summary import Summary, summarise
from orchestrator.difficulty.suspects import no_suspects
from orchestrator.evaluation.turns import Turns, episode_numbers, turns_by
from orchestrator.planning.cells import Cell, ProbeSpec, needed_samples, readers_of
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import Pool
from orchestrator.plugins.json_values import json_value
from orchestrator.probing.answers import Answers
from orchestrator.probing.outcomes import Outcomes
from orchestrator.probing.probe import targets_of
from orchestrator.probing.probe_folder import KNOWN, ProbeFolder
from orchestrator.report.rows import AnswerText
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.selection.stored import read_subset, request_of
from orchestrator.selection.subsets import reason, select, unranked
from orchestrator.storage.errors import UserError
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from policies import Policy, PolicyError
from tasks import OUTCOMES, Prompt
from tasks.prompt_table import PromptTable
from tasks.sources.answer_kinds import answer_form, kind_of

Ints = npt.NDArray[np.integer]

EXAMPLES = 3  # completions to read of each outcome
CANDIDATES_READ = 5  # disputed gold answers shown with a completion
FEWEST = 5  # prompts of a form of answers that are worth a warning if none is solved
AGREED = "agreed"  # the key of completions that agree against the gold answer
SIMULATED_PROMPTS = 200_000  # of all second probes together: a large pool has fewer
UNSAFE = re.compile(r"[^\w.+-]")  # in a file name
# Settings outside of the block probe that decide which prompts are selected.
_OF_SUBSETS = ("budget", "difficulty", "match_sizes", "grpo.num_generations")


def subset_cells(plan: Plan, spec: ProbeSpec) -> dict[str, Cell]:
    """Each subset that a probe's cells train on, with its first seed: name -> the first such cell.

    The name is the policy's, with those axes that change the subset.
    """
    cells, first = readers_of(plan.cells, spec), dict[str, Cell]()
    axes = [a for a in cells[0].setting_axes if a in _OF_SUBSETS or a.startswith("probe.")]
    varying = [
        a for a in axes if any(cell.setting_axes[a] != cells[0].setting_axes[a] for cell in cells)
    ]
    for cell in cells:
        text = axes_text({axis: cell.setting_axes[axis] for axis in varying})
        first.setdefault(", ".join(filter(None, [cell.policy, text])), cell)
    return first


@dataclass(frozen=True)
class PoolOutcomes:
    """A pool's difficulty, and the outcomes of its samples in each stored subset (first seed).

    table: None while samples are missing; `missing` says which.
    """

    spec: ProbeSpec
    title: str
    stops_early: bool
    table: pa.Table | None = None
    subsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    missing: str = ""


def pool_outcomes(plan: Plan, store: Store, spec: ProbeSpec) -> PoolOutcomes:
    """Read the samples of a training probe, and the subsets that are stored."""
    pool, title = plan.pool(spec), plan.pool_title(spec)
    stops_early = targets_of(plan, spec) is not None
    try:
        folder = ProbeFolder(store, spec, pool.train, pool.task)
        outcomes = folder.outcomes(partial=stops_early)
        table = difficulty_of(plan, spec, outcomes)
    except RuntimeError as error:
        return PoolOutcomes(spec, title, stops_early, missing=str(error))
    subsets: dict[str, dict[str, int]] = {}
    for name, cell in subset_cells(plan, spec).items():
        if (subset := read_subset(store, cell)) is not None:
            chosen = pc.is_in(table["prompt_id"], value_set=subset["prompt_id"].combine_chunks())
            subsets[name] = outcome_counts(table.filter(chosen))
    return PoolOutcomes(spec, title, stops_early, table, subsets)


def form_notes(plan: Plan, store: Store, spec: ProbeSpec) -> dict[str, str]:
    """Stored subset of a training probe -> its note on failures by form, if it has one."""
    notes = {}
    for name, cell in (subset_cells(plan, spec) if spec.split == "train" else {}).items():
        if (subset := read_subset(store, cell)) is not None:
            notes[name] = reason(subset).get("form_note", "")
    return {name: note for name, note in notes.items() if note}


class PolicyOutlook(NamedTuple):
    """What a policy takes from the pool with its first seed; `note` says why it is not known."""

    policy: str
    summary: Summary | None
    command: str
    note: str = ""
    sources: Mapping[str, int] = MappingProxyType({})  # prompts of each source that it takes
    chosen: frozenset[str] = frozenset()  # ids of the prompts that it takes


class Example(NamedTuple):
    """A completion to read; `extracted` is the answer that the marker found in it."""

    prompt: Prompt
    sample: int
    extracted: str | None
    answer: AnswerText


@dataclass(frozen=True)
class PoolAnalysis:
    """A probe of a training pool. `table` has the schema DIFFICULTY.

    drawn: stored samples, out of `expected`; an adaptive probe that stops early needs fewer.
    unsolved: rows of prompts without a correct sample; unfinished: rows of prompts that failed only
    by truncation. prompts: the whole pool. examples: completions to read, by outcome; under AGREED,
    those that agree on an answer other than the gold one. turns: position in BANDS of a pass rate
    -> the episodes of its prompts; empty for single-turn tasks. unsolved_forms: forms of gold
    answers, such as letters, without a correct completion -> how many prompts have one.
    """

    title: str
    spec: ProbeSpec
    table: pa.Table
    drawn: int
    stops_early: bool
    group_size: int
    reliability: float | None  # None if the data do not determine it
    policies: tuple[PolicyOutlook, ...]
    disputed: DisputedGolds
    unsolved: np.ndarray
    unfinished: np.ndarray
    prompts: PromptTable
    examples: Mapping[str, list[Example]]
    turns: Mapping[int, Turns] = field(default_factory=dict)
    unsolved_forms: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints of it: completions by outcome, prompts, a row per policy."""
        policies = [
            {
                "policy": each.policy,
                "note": each.note,
                "command": each.command,
                "sources": each.sources,
                "subset": each.summary and asdict(each.summary),
            }
            for each in self.policies
        ]
        values: dict[str, Any] = json_value(
            {
                "model": self.spec.model.title,
                "dataset": self.spec.dataset.name,
                "prompts": self.table.num_rows,
                "samples_per_prompt": self.samples,
                "drawn": self.drawn,
                "complete": self.complete,
                "outcomes": outcome_counts(self.table),
                "never_solved": len(self.unsolved),
                "always_solved": self.always_solved,
                "reliability": self.reliability,
                "policies": policies,
            }
        )
        return values

    @property
    def always_solved(self) -> int:
        """Prompts that every scorable sample solves."""
        scorable = counts(self.table, "scorable")
        solved = counts(self.table, "successes")
        return int(np.count_nonzero((solved == scorable) & (scorable > 0)))

    def prompt(self, prompt_id: str) -> Prompt:
        """A prompt of the pool."""
        return self.prompts.with_ids([prompt_id])[prompt_id]

    @property
    def samples(self) -> int:
        """K: the samples of each prompt."""
        return self.spec.settings.samples

    @property
    def expected(self) -> int:
        """The samples of a complete probe."""
        return int(self.table.num_rows) * self.samples

    @property
    def complete(self) -> bool:
        """Whether every sample is drawn, so that pass rates can be estimated."""
        return self.drawn == self.expected


def analyse_pool(
    plan: Plan, store: Store, spec: ProbeSpec, table_file: Path | None = None
) -> PoolAnalysis | None:
    """Analyse the stored samples of a training probe; None without any.

    `table_file` is where the difficulty table will be written: commands select from it.
    """
    pool = plan.pool(spec)
    folder = ProbeFolder(store, spec, pool.train, pool.task)
    outcomes, answers = folder.with_answers()
    if not outcomes.drawn:
        return None
    group_size = readers_of(plan.cells, spec)[0].batch.group_size
    tables = CellTables(
        outcomes, folder, answers, lambda other: PlanProbe(plan, store, other).tables
    )
    table = tables.with_group(spec, group_size, answers=True)
    complete = outcomes.complete
    disputed = tables.disputed(spec, group_size)
    turns = _turns(folder, table) if pool.task.environment is not None else {}
    pairs = _chosen_examples(outcomes, table, answers, disputed.candidates, by_band=bool(turns))
    solved, scorable = counts(table, "successes"), counts(table, "scorable")
    reliable = reliability(solved, scorable, spec.settings.samples)
    return PoolAnalysis(
        title=plan.pool_title(spec),
        spec=spec,
        table=table,
        drawn=outcomes.drawn,
        stops_early=targets_of(plan, spec) is not None,
        group_size=group_size,
        reliability=None if isnan(reliable) else reliable,
        policies=tuple(_policies(plan, store, spec, tables if complete else None, table_file)),
        disputed=disputed,
        unsolved=_rows(table, some="scorable", none=("successes",)),
        unfinished=_rows(table, some="truncated", none=("wrong", "unparsed", "unlabelled")),
        prompts=pool.train,
        examples=_read_examples(store, spec, pool, pairs),
        turns=turns,
        unsolved_forms={} if turns else _unsolved_forms(table, pool.train),
    )


def _turns(folder: ProbeFolder, table: pa.Table) -> dict[int, Turns]:
    """Position in BANDS of a pass rate -> the stored episodes of its prompts, read part by part."""
    read = ProbeFolder(folder.store, folder.spec, folder.prompts, folder.task)
    parts = [episode_numbers(SAMPLES.empty_table())]
    for rows in folder.rows((*KNOWN, "episode")):
        new = read.add(rows)  # several parts may hold the same sample
        parts.append(episode_numbers(rows.samples.filter(pa.array(new))))
    numbers = pa.concat_tables(parts)
    row = pc.index_in(numbers["prompt_id"], value_set=table["prompt_id"].combine_chunks())
    bands = pa.array(band_of(table)).take(row.combine_chunks())
    return turns_by(numbers.append_column("band", pa.chunked_array([bands])), "band")


def _unsolved_forms(table: pa.Table, prompts: PromptTable) -> dict[str, int]:
    """Forms of gold answers without a correct completion, and their prompts, FEWEST or more."""
    golds = prompts.column("answer").take(pa.array(prompts.rows_of(table["prompt_id"])))
    solved = counts(table, "successes") > 0
    tried = ~solved & (counts(table, "scorable") > 0)
    forms: Counter[str] = Counter()
    for each in pc.value_counts(golds.filter(pa.array(tried))).to_pylist():
        if kind_of(each["values"]) != "none":  # no gold answer, or tests of a program
            forms[answer_form(each["values"])] += each["counts"]
    for gold in pc.unique(golds.filter(pa.array(solved))).to_pylist():
        if not forms:
            break
        forms.pop(answer_form(gold), None)
    return {form: count for form, count in forms.most_common() if count >= FEWEST}


def _rows(table: pa.Table, some: str, none: Sequence[str]) -> np.ndarray:
    """The rows with a count above 0 in one column and without any in the others."""
    kept = counts(table, some) > 0
    for name in none:
        kept &= counts(table, name) == 0
    return np.flatnonzero(kept)


def _policies(
    plan: Plan,
    store: Store,
    spec: ProbeSpec,
    tables: CellTables | None,
    table_file: Path | None,
) -> list[PolicyOutlook]:
    """Each policy of the grid, with its first seed; `tables` is None for an incomplete probe.

    A probe that stops early has its subsets, but no estimates.
    """
    outlooks = []
    for policy, cell in subset_cells(plan, spec).items():
        if tables is None:
            if store.exists("subsets", file := f"{cell.subset_key}.parquet"):
                note = f"subset in {store.uri}/subsets/{file}"
                outlooks.append(PolicyOutlook(policy, None, "", note))
            continue
        # From a pool that cannot be trained on yet, prompts are chosen for annotators.
        unlabelled = not cell.reads_golds and spec.dataset.variant_key in plan.lacking_golds
        try:
            table = tables.of(cell, answers=True, unlabelled=unlabelled)
            own_table = tables.own_table(cell, answers=True, unlabelled=unlabelled)
            if not table.num_rows:
                note = "ranks prompts by gold answers, but the pool has none"
                outlooks.append(PolicyOutlook(policy, None, "", note))
                continue
            subset, _ = select(table, request_of(cell), own_table)
            summary = summarise(
                table,
                subset.num_rows,
                cell.static_policy.build(),
                cell.seed,
                cell.probe.settings.samples,
                repeats=min(50, max(2, SIMULATED_PROMPTS // table.num_rows)),
                group_size=cell.batch.group_size,
                own_table=own_table,
                stream=cell.stream,
            )
        except (PolicyError, UserError) as error:  # of another model's probe that is not finished
            outlooks.append(PolicyOutlook(policy, None, "", str(error)))
            continue
        rows = pc.index_in(subset["prompt_id"], value_set=table["prompt_id"]).to_numpy()
        command, rule, sources = "", cell.static_policy.build(), Counter[str]()
        notes = _notes(cell, rule, table, own_table, rows)
        if cell.difficulty:
            notes.append(f"ranked by {cell.difficulty_title}")
        elif spec.dataset.variant_key in plan.lacking_golds and not cell.online:
            command = _label_command(plan, spec, cell.policy)
        elif table_file and not cell.online and needed_samples(cell.probe) == needed_samples(spec):
            command = _select_command(policy, cell, subset.num_rows, table_file)
        if "source" in subset.column_names:
            sources.update(subset["source"].fill_null("").to_pylist())
        note = "; ".join(filter(None, notes))
        ids = frozenset(subset["prompt_id"].to_pylist())
        outlooks.append(PolicyOutlook(policy, summary, command, note, sources, ids))
    return outlooks


def _notes(
    cell: Cell, rule: Policy, table: pa.Table, own_table: pa.Table | None, rows: np.ndarray
) -> list[str]:
    """What is unusual about the rows that a cell's policy takes of a table; some may be empty."""
    notes = [*rule.notes(table, rows), *unranked(rule, table, rows, cell.difficulty_title)]
    if rule.excludes_suspected:
        notes.append(no_suspects(table))
    chosen = (own_table or table).take(pa.array(rows))
    notes.append(form_note(chosen, cell.probe.settings.limit_text))
    if cell.online:
        notes.append("chooses the prompts of each update among these, during training")
    return notes


def _label_command(plan: Plan, spec: ProbeSpec, policy: str) -> str:
    """The command line that lists the policy's prompts of a pool for annotators."""
    words = ["decile", "select", str(plan.source.file), "-e", plan.name, "--policy", policy]
    names, probes = [policy], plan.training_probes
    if len({each.model.title for each in probes}) > 1:
        names.append(spec.model.title)
        words += ["--model", spec.model.title]
    if len({each.dataset.variant_key for each in probes}) > 1:
        names.append(spec.dataset.variant_key)
        words += ["--dataset", spec.dataset.variant_key]
    return shlex.join([*words, "--to-label", f"{UNSAFE.sub('_', '-'.join(names))}.csv"])


def _select_command(name: str, cell: Cell, size: int, table_file: Path) -> str:
    """The command line that selects the cell's subset from the pool's difficulty table."""
    out = table_file.with_name(f"{table_file.stem}-{UNSAFE.sub('_', name)}.parquet")
    options = [
        ("--option", f"{name}={json.dumps(v)}") for name, v in cell.static_policy.options.items()
    ]
    arguments = [
        ("--probe", str(table_file)),
        ("--policy", cell.static_policy.policy),
        *options,
        ("--budget", str(size)),
        ("--seed", str(cell.seed)),
        ("--out", str(out)),
    ]
    return " ".join(["decile", "select", *(f"{n} {shlex.quote(v)}" for n, v in arguments)])


def _chosen_examples(
    outcomes: Outcomes,
    table: pa.Table,
    answers: Answers,
    candidates: Sequence[DisputedGold],
    *,
    by_band: bool,
) -> dict[str, list[tuple[str, int]]]:
    """Outcome -> (prompt_id, sample) of its first sample for the first EXAMPLES prompts.

    `by_band`: instead, for the first prompt of each of BANDS, and for another one where none of
    them has the outcome. Ids are hashes, so their order depends neither on success nor on the order
    of the source. AGREED -> one completion with the agreed answer, for the first candidates.
    """
    pairs: dict[str, list[tuple[str, int]]] = {}
    codes, order = outcomes.by_id, outcomes.prompts.order
    first_of_bands = np.unique(band_of(table), return_index=True)[1]
    for code, outcome in enumerate(OUTCOMES):
        rows = np.flatnonzero((codes == code).any(axis=1))
        of_bands = np.intersect1d(rows, first_of_bands)
        rows = rows[:EXAMPLES] if not by_band else of_bands if len(of_bands) else rows[:1]
        samples = np.argmax(codes[rows] == code, axis=1)
        ids = outcomes.prompts.ids(order[rows]).to_pylist()
        pairs[outcome] = list(zip(ids, samples.tolist(), strict=True))
    pairs[AGREED] = []
    for gold in candidates[:CANDIDATES_READ]:
        row = pc.index(table["prompt_id"], gold.prompt_id).as_py()
        same = answers.codes[row] == pc.index(answers.texts, gold.answer).as_py()
        wrong = codes[row] == OUTCOMES.index("wrong")
        pairs[AGREED].append((gold.prompt_id, int(np.argmax(same & wrong))))
    return pairs


def _read_examples(
    store: Store, spec: ProbeSpec, pool: Pool, pairs: Mapping[str, list[tuple[str, int]]]
) -> dict[str, list[Example]]:
    """The completions of these samples, under the same names; only their prompts are read."""
    samples_shown = {pair for group in pairs.values() for pair in group}
    ids = {prompt_id for prompt_id, _ in samples_shown}
    prompts = pool.train.with_ids(ids)
    rows = ProbeFolder(store, spec, [*prompts.values()], pool.task).samples(partial=True)
    by_pair = {(row["prompt_id"], row["sample"]): row for row in rows.to_pylist()}
    return {
        name: [
            Example(
                prompts[row["prompt_id"]],
                row["sample"],
                row["extracted"],
                AnswerText(row["completion"], row["outcome"], row["episode"]),
            )
            for pair in group
            if (row := by_pair.get(pair))
        ]
        for name, group in pairs.items()
    }
