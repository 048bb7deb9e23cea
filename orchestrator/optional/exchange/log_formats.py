"""The logs that `decile diagnose` and `decile replay` read, for the reference.

`run_logs.LAYOUTS` reads these logs; a test compares the names of both.
"""

from collections.abc import Mapping
from typing import NamedTuple

_OF_REWARD = "the reward, if it is 0 and 1"
_OF_FUNCTION = "a reward function of 0 and 1"


class LogFormat(NamedTuple):
    """The versions that were tested, the files of a log, and its source of correctness."""

    versions: str
    files: str
    correctness: str = _OF_REWARD


FORMATS: Mapping[str, LogFormat] = {
    "TRL": LogFormat(
        "0.14 to 1.16",
        "`trainer_state.json` of the newest checkpoint; from 0.28 on `completions/*.parquet` "
        "(`log_completions=True`, `logging_steps=1`)",
        _OF_FUNCTION,
    ),
    "verl": LogFormat(
        "0.5 to 0.9",
        "the folders `trainer.rollout_data_dir` and `validation_data_dir` (with `val` in its "
        "name), `PROJECT/EXPERIMENT.jsonl` of the file logger",
        "`acc`, or a score of 0 and 1, or of −1 and 1",
    ),
    "prime-rl": LogFormat("0.7", "`rollouts/step_N/train/all/traces.jsonl`, `metrics.jsonl`"),
    "verifiers": LogFormat("0.1", "`results.jsonl`, an evaluation without updates"),
    "NeMo-RL": LogFormat("at 7ea279a", "`train_data_stepN.jsonl`"),
    "rLLM": LogFormat("0.3", "`episodes/train_step_N_epoch_E/`", "`is_correct`"),
    "AReaL": LogFormat("1.0", "`rollout/V/T.jsonl`"),
    "ms-swift": LogFormat("3, 4", "`logging.jsonl`, `completions.jsonl`", _OF_FUNCTION),
    "open-instruct": LogFormat(
        "at e6c3044",
        "`RUN_rollouts_N.jsonl`; by default without groups of equal rewards, so that all look live",
    ),
    "table": LogFormat(
        "",
        "any table with `update`, `prompt` and `reward`; optionally `correct`, `tokens`, "
        "`truncated`, `completion`, `group`, `advantage`, `gold`, `source`, `version`",
        "`correct`",
    ),
}
