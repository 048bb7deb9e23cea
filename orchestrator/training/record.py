"""A trial's measurements so far, and how they survive a kill.

The record (groups, evaluations, trainer log, ledger) is written into each checkpoint after the
trainer's own files. A manifest that lists all files is written last. If a checkpoint lacks its
manifest, or a file fails verification, the previous checkpoint is used. At the end the same tables
move to the cell's folder, and `result.json` is written last: a cell is finished once that file
exists.

The ledger, the cell's consumption, is counted during training, and again from the stored tables at
the end; both agree. `report/fairness.py` compares the ledgers of cells.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, NotRequired, Self, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.evaluation.groups import (
    GroupRecorder,
    Tally,
    group_table,
    learnable_drawn_pct,
    learnable_pct,
    total,
)
from orchestrator.evaluation.metrics import by_update, evaluation_metrics
from orchestrator.planning.cells import Cell
from orchestrator.planning.result import Ledger, Result, Timing
from orchestrator.plugins.counts import counted
from orchestrator.sampling.gpu_peaks import Phase
from orchestrator.selection.stored import subset_size
from orchestrator.storage.proof import FileProof
from orchestrator.storage.schema import EVALUATIONS, LOG
from orchestrator.storage.store import Store
from orchestrator.training.cell_folder import (
    DISCARDED,
    FINAL_ADAPTER,
    LEDGER,
    MANIFEST,
    README,
    REFRESHED,
    STARTED,
    CellFolder,
    Checkpoint,
    Progress,
    write_tables,
)

OF_CHOICES = ("gate", "stratum")  # prefixes of names in the log that are not TRL's own


class LogRow(TypedDict):
    """A number that TRL logged after an update (schema LOG): its own, or of a policy's choices."""

    update: int
    name: str
    value: float


def logged_name(row: LogRow) -> str:
    """The name in MLflow: train/… for choices of a policy, trl/… for TRL's own."""
    return f"{'train' if row['name'].startswith(OF_CHOICES) else 'trl'}/{row['name']}"


class LedgerEntries(TypedDict):
    """A cell's consumption so far; optional entries may be missing.

    Rollouts and tokens include those of groups that were discarded or trained on in part, and of
    refreshes (prompts probed again during training). Prompts and kinds of groups do not.
    """

    prompts: int
    """Distinct prompts trained on."""
    labels: int
    """Gold answers that selection and training have used, each counted once: all of the pool if the
    choice of the subset reads them, or as many as the policy's option `labels` allows; else those
    of the subset, or of the prompts drawn so far (`Cell.labels_before`)."""
    epochs: float
    """Passes over the subset."""
    rollouts: int
    """Completions."""
    prompt_tokens: int
    """Tokens of prompts, once per completion."""
    generated_tokens: int
    """Tokens of completions."""
    live_tokens: int
    """Tokens generated in live groups."""
    truncated_tokens: int
    """Tokens of completions that were cut without an answer."""
    updates: int
    """Updates of the optimiser."""
    live: int
    """Groups with different correctness."""
    all_right: int
    """Groups that are all correct."""
    all_wrong: int
    """Groups that are all wrong."""
    unmarked: int
    """Groups in which marking failed."""
    all_wrong_truncated: int
    """All-wrong groups with at least half of the completions cut."""
    kl_only_updates: int
    """Updates without a live group, with beta > 0 pulling towards the base model."""
    seconds: float
    """Seconds of training, without evaluations."""
    gpu_seconds: float
    """GPU-seconds over all workers."""
    smallest_group: NotRequired[int]
    """Size of the smallest group trained on, if an allocation divides an update's rollouts."""
    largest_group: NotRequired[int]
    """Size of the largest group trained on."""
    rewarded: NotRequired[int]
    """Groups with different rewards, if rewards are not correctness."""
    phantom: NotRequired[int]
    """Those of them with equal correctness."""
    discarded: NotRequired[int]
    """Groups that were discarded, or trained on in part."""
    discarded_live: NotRequired[int]
    """Live groups among them."""
    discarded_rollouts: NotRequired[int]
    """Completions of them."""
    discarded_tokens: NotRequired[int]
    """Tokens of these completions."""
    refreshed: NotRequired[int]
    """Prompts that were probed again."""
    refreshed_rollouts: NotRequired[int]
    """Completions of refreshes."""
    refreshed_tokens: NotRequired[int]
    """Tokens of these completions."""
    turns: NotRequired[int]
    """Turns of the model, in multi-turn tasks."""
    tool_calls: NotRequired[int]
    """Tool calls, in multi-turn tasks."""
    tool_errors: NotRequired[int]
    """Tool calls answered with an error."""
    tool_tokens: NotRequired[int]
    """Tokens written by the environment, not generated."""
    environment_seconds: NotRequired[float]
    """Seconds of the environments' calls."""


def ledger(
    cell: Cell, size: int, groups: GroupRecorder, log: Sequence[LogRow], seconds: float
) -> LedgerEntries:
    """The ledger of a cell from its groups so far and its log (rows of update, name, value).

    size: prompts in its subset, which may be smaller than the budget.
    """
    counts = total(groups.tallies.values())
    lost = total(groups.discarded_tallies.values())
    again = groups.refreshed_tally
    drawn = total([counts, lost, again])
    logged = log[-1]["update"] if log else 0
    processed = (int(row["value"]) for row in reversed(log) if row["name"] == "num_tokens")
    all_tokens = next(processed, drawn.generated_tokens)  # with those of prompts
    updates = max([logged, *groups.tallies])
    labels = cell.labels_before(size)
    entries = LedgerEntries(
        prompts=len(groups.seen),
        labels=len(groups.drawn) if labels is None else labels,
        epochs=groups.seen.total() / size,
        rollouts=drawn.rollouts,
        prompt_tokens=all_tokens - drawn.generated_tokens,
        generated_tokens=drawn.generated_tokens,
        live_tokens=counts.live_tokens,
        truncated_tokens=drawn.truncated_tokens,
        updates=updates,
        live=counts.live,
        all_right=counts.all_right,
        all_wrong=counts.all_wrong,
        unmarked=counts.unmarked,
        all_wrong_truncated=counts.all_wrong_truncated,
        kl_only_updates=_kl_only(groups.tallies, updates) if pulls_to_base(cell) else 0,
        seconds=round(seconds, 3),
        gpu_seconds=round(seconds * cell.resources.gpus * cell.resources.workers, 3),
    )
    if cell.allocation:
        entries["smallest_group"] = min(groups.sizes, default=0)
        entries["largest_group"] = max(groups.sizes, default=0)
    if counts.shaped:
        entries["rewarded"] = counts.rewarded
        entries["phantom"] = counts.phantom
    if groups.discarded is not None:
        entries["discarded"] = lost.groups
        entries["discarded_live"] = lost.live
        entries["discarded_rollouts"] = lost.rollouts
        entries["discarded_tokens"] = lost.generated_tokens
    if groups.refreshed is not None:
        entries["refreshed"] = again.groups
        entries["refreshed_rollouts"] = again.rollouts
        entries["refreshed_tokens"] = again.generated_tokens
    if drawn.turns:
        entries["turns"] = drawn.turns
        entries["tool_calls"] = drawn.tool_calls
        entries["tool_errors"] = drawn.tool_errors
        entries["tool_tokens"] = drawn.tool_tokens
        entries["environment_seconds"] = round(drawn.environment_seconds, 3)
    return entries


def pulls_to_base(cell: Cell) -> bool:
    """Whether a dead group still moves the weights, by the KL term (TRL issue 5588)."""
    return cell.grpo_settings.beta > 0 and not cell.mask_dead_groups


def _kl_only(tallies: Mapping[int, Tally], updates: int) -> int:
    """Updates without a live group; updates that reuse a generation share its groups."""
    starts = sorted(tallies)
    ends = [*starts[1:], updates + 1]
    return sum(
        end - start
        for start, end in zip(starts, ends, strict=True)
        if tallies[start].groups and not tallies[start].live
    )


CARD = """# {name}

A LoRA adapter for `{base}`, trained{start} with GRPO on {prompts} of `{dataset}` that the policy
`{policy}` {selected} (training seed {seed}, {updates}).

| | |
|---|---|
| accuracy before → after | {before:.3f} → {after:.3f} |
| learnable % | {learnable:.1f} |
| prompts, subset | {size}, `subsets/{subset}.parquet` |
| cell | `{cell_id}` |
| versions | {versions} |

One training seed proves little: the report of the sweep (`decile report`) has intervals, and states
which differences are significant.

## Load

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained({load})
model = PeftModel.from_pretrained(base, "adapter")  # this folder
```

## Files

| file | content |
|---|---|
| `adapter/` | the adapter after the last update (safetensors) |
| `cell.json` | every setting |
| `result.json`, `ledger.json` | the numbers, and what the cell consumed |
| `groups.parquet` | the completions' rewards, group by group |
| `evaluations.parquet` | every completion of the test sets, marked |
| `log.parquet` | the trainer's metrics |
"""


def model_card(cell: Cell, result: Result) -> str:
    """Markdown: the adapter's model, data and results, and how to load it."""
    model = cell.probe.model
    on_hub = model.revision is not None
    return CARD.format(
        name=cell.name,
        base=f"{model.location} @ {model.revision}" if on_hub else model.name,
        start=f" from {model.start}" if model.start else "",
        load=f'"{model.location}"' + (f', revision="{model.revision}"' if on_hub else ""),
        dataset=cell.probe.dataset.name,
        policy=cell.policy,
        selected="chose from during training" if cell.online else "selected",
        seed=cell.seed,
        updates=counted(cell.updates, "update"),
        prompts=counted(result.size, "prompt"),
        size=result.size,
        subset=cell.subset_key,
        cell_id=cell.cell_id,
        before=result.accuracy_base,
        after=result.accuracy_final,
        learnable=result.learnable_pct,
        versions=", ".join(" ".join(pair) for pair in result.versions.items()),
    )


def recorded_groups(tables: Mapping[str, pa.Table]) -> GroupRecorder:
    """The groups in a cell's stored tables; `tables` are by name."""
    lists = (
        tables[name].to_pylist() if name in tables else None for name in (DISCARDED, REFRESHED)
    )
    return GroupRecorder(tables["groups"].to_pylist(), *lists)


def with_label_count(cell: Cell, result: Result, tables: Mapping[str, pa.Table]) -> Result:
    """A finished cell's result, with the ledger entry `labels` that earlier versions left out."""
    if result.ledger.get("labels") is not None:
        return result
    before = cell.labels_before(result.size)
    labels = len(recorded_groups(tables).drawn) if before is None else before
    return result.model_copy(update={"ledger": result.ledger.model_copy(update={"labels": labels})})


@dataclass
class CellRecord:
    """All measurements of a trial."""

    groups: GroupRecorder = field(default_factory=GroupRecorder)
    evaluations: pa.Table = field(default_factory=lambda: EVALUATIONS.empty_table())
    log: list[LogRow] = field(default_factory=list)
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    peak_gib: float = 0.0  # of GPU memory, on the first worker; 0 on a CPU
    base_weights: str = ""  # their fingerprint (`guards.fingerprint`)
    peaks_gib: dict[Phase, float] = field(default_factory=dict)  # allocated, by phase
    start_seconds: float = 0.0  # loading libraries, model and data, in the last execution

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """The record in a checkpoint."""
        _, manifest, tables = checkpoint
        return cls(
            recorded_groups(tables),
            tables["evaluations"],
            tables["log"].to_pylist(),
            manifest["seconds"],
            manifest["evaluation_seconds"],
            manifest["peak_gib"],
            manifest.get("base_weights", ""),  # of earlier versions
            {**manifest.get("peaks_gib", {})},
            manifest.get("start_seconds", 0.0),  # of a finished cell
        )

    def add_evaluation(self, evaluation: pa.Table) -> None:
        """Append one evaluation (schema EVALUATIONS)."""
        self.evaluations = pa.concat_tables([self.evaluations, evaluation])

    def choice_metrics(self, update: int) -> dict[str, float]:
        """Metrics of the gates and strata of the last update, by their names in MLflow."""
        rows = takewhile(lambda row: row["update"] == update, reversed(self.log))
        return {logged_name(r): r["value"] for r in rows if r["name"].startswith(OF_CHOICES)}

    def has_evaluation(self, update: int) -> bool:
        """Whether the model after `update` updates was evaluated."""
        return bool(pc.index(self.evaluations["update"], update).as_py() >= 0)

    def tables(self) -> dict[str, pa.Table]:
        """The stored tables by name."""
        more = {DISCARDED: self.groups.discarded, REFRESHED: self.groups.refreshed}
        return {
            "groups": self.groups.table(),
            "evaluations": self.evaluations,
            "log": pa.Table.from_pylist(self.log, schema=LOG),
            **{name: group_table(rows) for name, rows in more.items() if rows is not None},
        }

    def ledger(self, cell: Cell, size: int) -> LedgerEntries:
        """The cell's consumption with a subset of `size`, recounted from the recorded groups."""
        return ledger(cell, size, recorded_groups(self.tables()), self.log, self.seconds)

    def running_ledger(self, cell: Cell, size: int) -> LedgerEntries:
        """The same from counts kept while recording, without tables."""
        return ledger(cell, size, self.groups, self.log, self.seconds)

    def save(
        self,
        store: Store,
        cell_id: str,
        update: int,
        spent: Mapping[str, object] | None = None,
        files: Mapping[str, FileProof] | None = None,
    ) -> None:
        """Write the record into the checkpoint of `update`; the manifest comes last.

        spent: the ledger so far. files: those that the trainer has written.
        """
        place = CellFolder(store, cell_id).checkpoint_place(update)
        written = {name: proof for name, proof in (files or {}).items() if name != MANIFEST}
        written |= write_tables(store, place, self.tables())
        if spent is not None:
            written[LEDGER] = store.write_json(dict(spent), place, LEDGER)
        manifest: dict[str, Any] = {
            "seconds": self.seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "peak_gib": self.peak_gib,
            "base_weights": self.base_weights,
            "update": update,
        }
        if self.peaks_gib:
            manifest["peaks_gib"] = self.peaks_gib
        store.write_json(manifest, place, MANIFEST, files=written)


def result_of(
    store: Store, cell: Cell, record: CellRecord, versions: Mapping[str, str], same_as: str | None
) -> Result:
    """The result of a trained cell; accuracy is a share, learnable_pct a percentage."""
    size = subset_size(store, cell)
    steps = by_update(record.evaluations)
    base, final = (evaluation_metrics(steps[u], steps[0], cell.pass_at) for u in (0, cell.updates))
    tables = record.tables()
    groups, lost = tables["groups"], tables.get(DISCARDED)
    of_some: dict[str, Any] = {}
    if lost is not None:
        of_some["learnable_drawn_pct"] = learnable_drawn_pct(groups, lost)
    if same_as is not None:
        of_some["same_as"] = same_as
    return Result(
        **cell.axes,
        cell_id=cell.cell_id,
        updates=cell.updates,
        size=size,
        learnable_pct=learnable_pct(groups, lost),
        accuracy_base=base["eval/accuracy"],
        accuracy_final=final["eval/accuracy"],
        gain=final["eval/accuracy"] - base["eval/accuracy"],
        base=base,
        final=final,
        ledger=Ledger.model_validate(record.ledger(cell, size)),
        timing=Timing.model_validate(timing(record)),
        versions={**versions, "rollouts": "trl" if cell.why_trl_draws else "decile"},
        finished_at=datetime.now(UTC),
        **of_some,
    )


def timing(record: CellRecord) -> dict[str, Any]:
    """Measurements besides the ledger that cost and memory estimates of similar cells need.

    decode_steps: sum over generations of the longest completion. evaluations: number of evaluations
    of trained weights; answers and answer_tokens: their completions. peak_gib: reserved GPU memory.
    peaks_gib: allocated GPU memory by phase, if there is a GPU.
    """
    trained = record.evaluations.filter(pc.greater(record.evaluations["update"], 0))
    longest = [row["value"] for row in record.log if row["name"] == "completions/max_length"]
    peaks = {phase: round(gib, 3) for phase, gib in record.peaks_gib.items()}
    return {
        "start_seconds": round(record.start_seconds, 3),
        "evaluation_seconds": round(record.evaluation_seconds, 3),
        "evaluations": len(pc.unique(trained["update"])),
        "answers": trained.num_rows,
        "answer_tokens": pc.sum(trained["tokens"]).as_py() or 0,
        "decode_steps": sum(longest),
        "peak_gib": round(record.peak_gib, 3),
        **({"peaks_gib": peaks} if peaks else {}),
    }


def finish(
    store: Store,
    cell: Cell,
    record: CellRecord,
    versions: Mapping[str, str],
    adapter: Mapping[str, FileProof] | None = None,
    same_as: str | None = None,
) -> None:
    """Move a finished cell's record to its folder, `result.json` last, and drop its checkpoints.

    The result lists the tables and the files of the `adapter`. same_as: the cell that they were
    copied from, if any.
    """
    folder = CellFolder(store, cell.cell_id)
    files = {f"{FINAL_ADAPTER}/{name}": proof for name, proof in (adapter or {}).items()}
    files |= write_tables(store, folder.place, record.tables())
    result = result_of(store, cell, record, versions, same_as)
    _write_copies(folder, cell, result, {LEDGER, README})
    folder.save_result(result, files)


def finish_trained(store: Store, cell: Cell) -> str:
    """Finish a cell from the checkpoint of its last update; returns the reason for a failure, or
    "".

    Evaluations after training are added to those of the checkpoint.
    """
    folder = CellFolder(store, cell.cell_id)
    newest = folder.latest()
    if newest is None or newest.update != cell.updates:
        return "its last checkpoint fails verification: rerun to train it again"
    record = CellRecord.of(newest)
    for update, (table, seconds) in folder.evaluations().items():
        if not record.has_evaluation(update):
            record.add_evaluation(table)
            record.evaluation_seconds += seconds
    due = [update for update in range(1, cell.updates + 1) if cell.evaluates_after(update)]
    if missing := [update for update in due if not record.has_evaluation(update)]:
        return f"the evaluation after update {missing[0]} is missing: rerun to repeat it"
    finish(store, cell, record, versions(), folder.keep_adapter(cell.updates))
    return ""


def copy_result_from(store: Store, cell: Cell, other: Cell) -> bool:
    """Finish a cell with the files of another one that trained on the same prompts.

    The result names that cell (`same_as`). Returns False and writes nothing if the other cell is
    not finished, its adapter is not sound, or a trial is training this cell.
    """
    own = CellFolder(store, cell.cell_id)
    source = CellFolder(store, other.cell_id)
    finished = source.finished()
    if finished is None or own.is_training() or (adapter := own.copy_adapter(source)) is None:
        return False
    result, tables = finished
    progress: Progress = {
        "seconds": result.ledger.seconds,
        "evaluation_seconds": result.timing.evaluation_seconds,
        "peak_gib": result.timing.peak_gib,
        "peaks_gib": result.timing.peaks_gib,
        "start_seconds": result.timing.start_seconds,
    }
    record = CellRecord.of(Checkpoint(result.updates, progress, tables))
    own.save_settings(cell)
    finish(store, cell, record, result.versions, adapter, same_as=other.cell_id)
    return True


def _write_copies(folder: CellFolder, cell: Cell, result: Result, names: set[str]) -> None:
    """Write the files of a finished cell that only repeat its settings and its result."""
    if STARTED in names:
        folder.save_settings(cell)
    if LEDGER in names:
        folder.store.write_json(result.ledger.as_json(), folder.place, LEDGER)
    if README in names:
        folder.store.write_text(model_card(cell, result), folder.place, README)


def tidy_finished(store: Store, cell: Cell) -> None:
    """Complete a finished cell: write missing copies, delete remaining checkpoints."""
    folder = CellFolder(store, cell.cell_id)
    missing = {STARTED, LEDGER, README} - {*store.names(folder.place)}
    if missing and (result := folder.result()):
        _write_copies(folder, cell, result, missing)
    folder.drop_checkpoints()


def versions() -> dict[str, str]:
    """Versions of the libraries that a result depends on."""
    names = ("torch", "transformers", "trl", "peft", "ray", "accelerate", "pyarrow", "numpy")
    return {name: importlib.metadata.version(name) for name in names}
