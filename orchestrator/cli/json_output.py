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
_ROWS = {"row_counts": "rows `read`, `left_out` by reason, and `written`"}
_NOTES = {"notes": "what a user should know, as sentences"}
# Form of the output -> its keys, with their meaning. A form is a command, or one way to call it.
# Other keys are described where a function of MADE_BY sets them: by the comment beside or above.
FORMS: Mapping[str, Mapping[str, str]] = {
    "plan": {
        "experiment": "its name",
        "about": "its description",
        "storage": "where results are stored",
        **_NOTES,
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
    "evaluate": {**_ROWS, **_NOTES},
    "report": {"page": "the HTML page"},
    "select": {
        "policy": "its name",
        "options": "its options",
        "difficulty": "what it ranks by, where the policy says so",
        **_NOTES,
        **_ROWS,
        "source": "of files: the probe or difficulty table",
        "probe_key": "the key of the probe",
        "…": "of an experiment: what the key of the stored subset hashes (metrics.md)",
    },
    "select --to-label": {**_NOTES, **_ROWS},
    "mark": {
        **{name: f"completions: {text}" for name, text in marks.MEANINGS.items()},
        **_ROWS,
    },
    "mark --attack": {
        "marker": "the id of the marker",
        "attacks": "by kind: golds that were attacked, accepted ones, an example, the mean score",
        **_ROWS,
    },
    "mark --against": _ROWS,
    "import": {**_NOTES, **_ROWS},
    "export": {
        "data": "the provenance of the data",
        "probe": "the identity of the probe",
        "import": "of --texts: the summary of the import",
        **_ROWS,
    },
    "compare": {
        "arms": "each arm: its accuracy with interval, questions, samples, factors, runs, row "
        "counts",
        "comparisons": "a row per pair of arms: effect, interval, p and verdict of each measure",
        "caveats": "what limits the comparison",
    },
    "diagnose": {"runs": "an entry per run"},
    "replay": {"runs": "an entry per run"},
    "replay --rates": _ROWS,
    "ls": {
        "tasks": "name -> description; the key is the word after `ls`",
        "policies": "likewise",
        "models": "likewise",
        "experiments": "likewise",
    },
    "doctor": {"checks": "each check: its `name`, whether it is `ok`, and the `detail`"},
    "doctor --storage": {"checks": "each line: its `status` (ok, FAIL or note) and the `detail`"},
}
MADE_BY: Mapping[str, str] = {
    "run": "orchestrator.report.analysis:SweepAnalysis.to_dict",
    "evaluate": "orchestrator.pipeline.evaluate:EvaluatedModel.to_dict",
    "report": "orchestrator.report.analysis:SweepAnalysis.to_dict",
    "select": "orchestrator.selection.subsets:select",
    "select --to-label": "orchestrator.cli.commands:_write_to_label",
    "mark --against": "orchestrator.optional.exchange.disagreement:Disagreement.to_dict",
    "import": "orchestrator.optional.exchange.imports:Imported.summary",
    "export": "orchestrator.optional.exchange.exports:export_subset",
    "replay --rates": "orchestrator.evaluation.two_models:TwoModels.to_dict",
}
# Each entry of `runs`.
OF_RUN: Mapping[str, str] = {**_ROWS, **_NOTES}
RUNS_MADE_BY: Mapping[str, str] = {
    "diagnose": "orchestrator.evaluation.diagnosis:Diagnosis.to_dict",
    "replay": "orchestrator.evaluation.replay:Replay.to_dict",
}


def json_text(command: str, values: Mapping[str, Any]) -> str:
    """The object that a command prints."""
    head = {"command": command, "version": __version__}
    return json.dumps(json_value({**head, **values}), indent=2, allow_nan=False)
