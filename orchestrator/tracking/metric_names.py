"""The names of the metrics and tags in MLflow, with their meaning. Pure.

Words in capitals stand for names of the sweep. Metrics with a name of their own are described where
they are set: those of groups, of refreshes, and `final/…`. `ledger/…` are the fields of
`training.record.LedgerEntries`.
"""

from collections.abc import Mapping

# Of an evaluation's test set, under eval/ of the cell's own and ood/DATASET/ of another one.
OF_TEST_SET: Mapping[str, str] = {
    "accuracy": "mean over questions of the share of correct samples, from 0 to 1; errors are left "
    "out",
    "score": "mean score, where the marker gives other scores than correctness",
    "pass_at_K": "pass@k",
    "pass_at_K_left_out": "questions that errors leave with fewer than k samples",
    "turns": "of episodes: turns of the model per episode",
    "tool_calls": "of episodes: tool calls per episode",
    "tool_errors_pct": "of episodes: % of the tool calls that were answered by an error",
    "mean_tokens": "tokens of a completion, mean",
    "p95_tokens": "tokens of a completion, 95 % quantile",
}
# The factors of an accuracy, under eval/ and source/SOURCE/.
FACTORS: Mapping[str, str] = {
    "finished": "share of the marked samples that are not truncated",
    "parsed_where_finished": "share of the finished samples of which an answer was read",
    "correct_where_parsed": "share of the parsed samples that are correct",
}
OF_EVALUATIONS: Mapping[str, str] = {
    **{f"eval/{name}": meaning for name, meaning in OF_TEST_SET.items()},
    "eval/accuracy_other_reading": "accuracy under the other marking (strict or lenient)",
    "eval/greedy_accuracy": "accuracy of one answer per question at temperature 0",
    "eval/OUTCOME": "share of the samples with this outcome",
    **{f"eval/{name}": meaning for name, meaning in FACTORS.items()},
    **{f"ood/DATASET/{name}": f"on that test set: {text}" for name, text in OF_TEST_SET.items()},
    "tier/TIER/accuracy": "accuracy on the test questions of a tier",
    "source/SOURCE/accuracy": "accuracy on the test questions of a source",
    **{f"source/SOURCE/{name}": f"of a source: {text}" for name, text in FACTORS.items()},
    "band/BAND/accuracy": "accuracy on the low, middle or high third of the base model's pass "
    "rates",
}
OF_TRAINING: Mapping[str, str] = {
    "train/reward/NAME": "mean of a component of the reward",
    "train/gate/NAME/open": "share of the prompts that a gate lets pass before the first choice",
    "train/gate/NAME/METRIC": "what a gate of your own logs",
    "train/gates/open": "share of the prompts that all gates let pass before the first choice",
    "train/gates/taken_closed": "share of the prompts chosen for this update that were closed",
    "train/stratum/VALUE/share": "with `within`: share of the chosen prompts with this value",
    "trl/NAME": "logged by the TRL trainer; `trl/live_rows/…` counts completions in live groups "
    "only",
}
PER_CELL: Mapping[str, str] = {
    "final/gain_from_FACTOR": "what a factor of the accuracy adds to the gain; absent if unknown",
}
PER_SWEEP: Mapping[str, str] = {
    "final/accuracy/MODEL/DATASET/POLICY": "mean final accuracy over the finished seeds",
    "final/gain/MODEL/DATASET/POLICY": "mean gain",
    "final/learnable_pct/MODEL/DATASET/POLICY": "mean learnable %",
    "final/gain_from_FACTOR/MODEL/DATASET/POLICY": "what a factor adds to the mean gain",
    "best/points_over_random/MODEL/DATASET": (
        "largest difference between a subset and `random`, in percentage points; the whole pool is "
        "excluded"
    ),
    "best/points_over_random_low/MODEL/DATASET": "lower end of its 95 % interval; absent if "
    "infinite",
    "best/points_over_random_high/MODEL/DATASET": "upper end of that interval",
    "best/p_holm/MODEL/DATASET": "its two-sided p, Holm-corrected over all comparisons of the "
    "report",
}
TAGS: Mapping[str, str] = {
    "decile.best/MODEL/DATASET": "the policy of best/points_over_random, and its verdict",
    "decile.difficulty/DATASET/SOURCE and SOURCE": (
        "rank correlation and shared hardest tenth of two sources of difficulty"
    ),
    "decile.collapsed": "`true` for a cell that ended below its base model beyond chance",
    "decile.error": "why a cell failed",
    "decile.cell_id": "the cell",
    "decile.synced": "a hash of what MLflow shows of the run, written last",
    "decile.cpus": "CPUs per worker",
    "decile.gpus": "GPUs per worker",
    "decile.sweep": "of the parent run: the experiment",
    "decile.settings": "of the parent run: a hash of the settings that its cells share",
    "decile.grid.AXIS": "of the parent run: the values of an axis",
    "decile.about": "of the parent run: the description of the experiment",
}
