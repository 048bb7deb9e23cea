"""What `--json` prints: one object for every command, and what its keys mean.

Each object has `command` and `version`, and the keys of its form below. A null is a value that is
not known or does not apply; nan and infinity are null, too. New keys may be added in any version.
"""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator import __version__
from orchestrator.plugins.json_values import json_value
from tasks.marking import marks

EVERY: Mapping[str, str] = {
    "command": "the command that printed it",
    "version": "the version of Decile",
}
ROWS = "rows `read`, `left_out` by reason, and `written`"
NOTES = "what a user should know, as sentences"
_OF_A_SWEEP = {
    "experiment": "its name",
    "planned_cells": "number of cells of the grid",
    "datasets": "row counts by data set",
    "cells": "a row per finished cell: its axes, accuracies and gain (shares), learnable %, ledger",
    "comparisons": "a row per pair of policies: effect, interval and p of each measure, and "
    "verdict",
    "claims": "each claim with its verdict, reason, number of cells and date",
    "left_out": "ids of cells that a cap leaves out",
    "pools": "until a cell is finished: the entries that `decile probe` prints",
}
# Form of the output -> its keys, with their meaning. A form is a command, or one way to call it.
FORMS: Mapping[str, Mapping[str, str]] = {
    "plan": {
        "experiment": "its name",
        "about": "its description",
        "storage": "where results are stored",
        "notes": NOTES,
        "cells": "a row per cell: its axes, size, updates, rollouts, labels, and how far it is",
        "cells_to_run": "number of cells that are not finished",
        "changed": "by cell: settings that differ from those of a stored cell, then and now",
        "probes": "a row per probe: its key, split, samples, and how many are missing",
        "updates_to_run": "updates of all cells",
        "rollouts_to_run": "completions that training draws",
        "rollouts_to_run_at_most": "the same, if every group that may be discarded is",
        "refresh_rollouts_to_run": "completions of refreshes among them",
        "datasets": "by data set: sizes, provenance, overlap and containment, row counts, notes",
        "not_downloaded": "models and data sets that are not on this machine",
        "fetch_command": "the command that downloads them",
        "detectable_points": "by family: the difference in points that the seeds can detect",
        "collapse_seen": "the fall below the base model that a cell's test can detect",
        "tokens_to_run": "tokens that cells and probes still read and generate",
        "tokens_at_most": "whether that is an upper bound",
        "flops_to_run": "of these tokens; null for a model of unknown size",
        "eta_seconds": "null where no speed was measured; likewise the next four",
        "probe_seconds": "null also where another engine draws: then `eta_seconds` is without "
        "probes",
        "gpu_hours": "of cells and probes",
        "gpu_price": "of a GPU-hour, as given",
        "cost": "of these GPU-hours",
        "room": "what the cells run on, and how many at a time",
        "sources": "by model: where its speed comes from",
        "packing": "the chart of the schedule, a row per device",
        "memory": "by model: the memory that a cell needs, and the GPU's",
        "dropped": "the cap that closes the queue, and the cells that it leaves out",
        "problem": "why no trial fits the cluster; empty if one fits",
    },
    "fetch": {
        "experiment": "its name",
        "cache": "the folder of the downloads",
        "repositories": "each model and data set: its Hub id, revision, folder, files and bytes",
    },
    "run": {
        **_OF_A_SWEEP,
        "failed": "cells that failed, with the reason",
        "results": "where results are stored",
    },
    "probe": {
        "experiment": "its name",
        "datasets": "row counts by data set",
        "pools": "of each pool: completions by outcome, prompts by how often they are solved, and "
        "a row per policy with its subset",
        "files": "the files that were written",
    },
    "evaluate": {
        "model": "its name",
        "dataset": "its name",
        "weights": "the adapter or checkpoint; null for the base model",
        "identity": "what identifies these weights",
        "questions": "number of test questions",
        "samples": "completions per question",
        "accuracy": "from 0 to 1",
        "low": "lower end of its 95 % interval",
        "high": "upper end",
        "outcomes": "completions by outcome",
        "row_counts": ROWS,
        "notes": NOTES,
    },
    "report": {**_OF_A_SWEEP, "page": "the HTML page"},
    "select": {
        "policy": "its name",
        "options": "its options",
        "difficulty": "what it ranks by, where the policy says so",
        "size": "number of prompts",
        "asked": "the size that the budget asks for",
        "seed": "that breaks ties",
        "ties": "prompts with the score of the last chosen one: in the pool, and chosen; or null",
        "ranked_by": "what it ranked by, if not by pass rates of the cell's model",
        "form_note": "how many of the chosen prompts fail by form",
        "notes": NOTES,
        "row_counts": ROWS,
        "source": "of files: the probe or difficulty table",
        "probe_key": "the key of the probe",
        "…": "of an experiment: what the key of the stored subset hashes (metrics.md)",
    },
    "select --to-label": {
        "file": "the file for annotators",
        "prompt_ids": "the prompts in it",
        "notes": NOTES,
        "row_counts": ROWS,
    },
    "mark": {
        **{name: f"completions: {text}" for name, text in marks.MEANINGS.items()},
        "row_counts": ROWS,
    },
    "mark --attack": {
        "marker": "the id of the marker",
        "attacks": "by kind: golds that were attacked, accepted ones, an example, the mean score",
        "row_counts": ROWS,
    },
    "mark --against": {
        "markers": "the ids of both markers",
        "completions": "number of completions",
        "same": "those with equal outcomes",
        "kappa": "Cohen's kappa; null where chance alone explains all",
        "outcomes": "completions by both outcomes",
        "examples": "completions with different outcomes",
        "row_counts": ROWS,
    },
    "import": {
        "kind": "samples or rates",
        "source": "the file, with its SHA-256",
        "layout": "the layout of the source",
        "task": "the task",
        "marker": "the id of its marker",
        "prompts": "number of prompts",
        "rows": "rows that were written",
        "decile": "the version of Decile, as in the written file",
        "notes": NOTES,
        "row_counts": ROWS,
    },
    "export": {
        "layout": "of the file",
        "rows": "number of prompts",
        "subset": "the record of the selection, as of select",
        "task": "its name, version, marker and prompt preset",
        "decile": "the version of Decile, as in the provenance",
        "file": "of a subset's file: its name and SHA-256",
        "order": "of the rows, and whether the trainer keeps it",
        "data": "the provenance of the data",
        "probe": "the identity of the probe",
        "import": "of --texts: the summary of the import",
        "sha256": "of the written file",
        "row_counts": ROWS,
    },
    "compare": {
        "arms": "each arm: its accuracy with interval, questions, samples, factors, runs, row "
        "counts",
        "comparisons": "a row per pair of arms: effect, interval, p and verdict of each measure",
        "caveats": "what limits the comparison",
    },
    "diagnose": {"runs": "an entry per run"},
    "replay": {"runs": "an entry per run"},
    "replay --rates": {
        "models": "both names",
        "prompts": "prompts with a rate of both",
        "ranking": "agreement of the two rankings",
        "exchanges": "what choosing by the other model's rates costs each policy",
        "refused": "policies that cannot choose, and why",
        "row_counts": ROWS,
    },
    "ls": {
        "tasks": "name -> description; the key is the word after `ls`",
        "policies": "likewise",
        "models": "likewise",
        "experiments": "likewise",
    },
    "doctor": {"checks": "each check: its `name`, whether it is `ok`, and the `detail`"},
    "doctor --storage": {"checks": "each line: its `status` (ok, FAIL or note) and the `detail`"},
}
# Each entry of `runs`.
RUNS: Mapping[str, Mapping[str, str]] = {
    "diagnose": {
        "name": "of the run",
        "layout": "the trainer, or table",
        "correctness": "what in the log is correctness; null if nothing is",
        "updates": "number of updates",
        "planned_updates": "of the trainer's settings; null if the log lacks them",
        "running": "whether the run goes on",
        "prompts": "number of prompts drawn",
        "groups": "groups by kind: live, all right, all wrong, phantom, …",
        "live": "share of live groups; null if unknown",
        "taught_nothing": "what was spent on groups that are not live",
        "sources": "by source: groups, and the share that was live",
        "reward_weights": "weights of the reward functions",
        "findings": "each with `code`, `bad` (a problem, or else a warning), `text` and `remedy`",
        "unchecked": "by code: why the check could not be made",
        "prompts_without_signal": "prompts that were drawn often and never live",
        "disputed_golds": "gold answers with the answer on which completions agree",
        "suspected_golds": "the same, if they are suspected",
        "golds_doubt": "why they are not suspected",
        "series": "by metric: its value by update",
        "absent": "what the log does not hold",
        "row_counts": ROWS,
        "notes": NOTES,
    },
    "replay": {
        "run": "its name",
        "layout": "the trainer, or table",
        "prompts": "number of prompts",
        "visits": "visits of each prompt",
        "group_size": "completions of a group",
        "chosen_by_visits": "the first visits by which policies choose",
        "probe_rollouts": "completions of these visits; null with a probe",
        "policies": "by policy: its size, the live groups of its choice with interval, by visit, "
        "and compared with random; half-life and passes to repay",
        "refused": "policies that cannot choose, and why",
        "crossings": "where one policy's choice becomes better than another's",
        "forecasts": "what the probe's estimator predicts, and what came",
        "drift": "agreement of pass rates between visits",
        "changed": "prompts whose pass rates changed most",
        "online": "policies that choose during training; null without --online",
        "predictions": "how well online estimates predict; null without --online",
        "parts": "by column of the data: the same for its values",
        "notes": NOTES,
        "row_counts": ROWS,
    },
}


def json_text(command: str, values: Mapping[str, Any]) -> str:
    """The object that a command prints."""
    head = {"command": command, "version": __version__}
    return json.dumps(json_value({**head, **values}), indent=2, allow_nan=False)
