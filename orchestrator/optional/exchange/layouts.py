"""Detects a file's layout by its columns, and reads its rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from orchestrator.optional.exchange.columns import (
    BIG_MATH_RATE,
    KNOWN_ANSWERS,
    OUTPUTS,
    TEXTS,
    Columns,
    counts_in,
    rate_names,
    read_big_math,
    read_columns,
)
from orchestrator.optional.exchange.placed_rows import Notes, PlacedRow, nested
from orchestrator.optional.exchange.readers import (
    read_inspect,
    read_lm_eval,
    read_nemo_gym,
    read_rllm,
    read_rollouts,
    read_skywork,
    read_verifiers,
    read_verl,
)
from orchestrator.optional.exchange.records import Hints, Records
from orchestrator.optional.exchange.source_files import SourceFile, located
from tasks import TaskError
from tasks.sources.roles import ROLES, columns_in_role, spelling

Reader = Callable[[Sequence[PlacedRow], Hints, Notes], Records]


class Input(NamedTuple):
    """A layout that `decile import` reads: its required columns, its tool, and its contents.

    gives: completions, solve rates or prompts. columns: those of its texts, which a user may also
    name; None if it has a reader of its own.
    """

    needs: str
    of: str
    gives: str
    columns: Columns | None = None


_CUT = "; one that the token limit cut counts as unparsed or wrong, as it is not recorded"
INPUTS: Mapping[str, Input] = {
    "completions": Input(
        "question, answer, and completion, completions or responses",
        "any table with these columns",
        "completions",
        Columns(("question",), ("answer",), TEXTS),
    ),
    "solve-rates": Input(
        "question or problem, answer, and a solve rate (or samples and successes)",
        "any table with these columns",
        "solve rates",
        Columns(ROLES["question"].names, KNOWN_ANSWERS),
    ),
    "columns": Input(
        "a question and an answer under known names, or --question and --answer",
        "any other table",
        "completions, solve rates or prompts, depending on the named columns",
        Columns(ROLES["question"].names, KNOWN_ANSWERS, TEXTS),
    ),
    "trl": Input(
        "prompt or messages, and an answer; with a model's completions: completion",
        "TRL (prompt-only, prompt-completion, messages), data sets of verifiers, open-instruct's "
        "difficulty map (at dd99f97)",
        "prompts; completions with `completion`; solve rates with `pass_count`",
        # Prompt-only, prompt-completion and language modeling, as messages or as texts. The same
        # columns are those of verifiers' data sets, with `info`.
        Columns(("question", "prompt", "messages", "conversations"), KNOWN_ANSWERS, TEXTS),
    ),
    "openrlhf": Input(
        "input or context_messages, and label",
        "OpenRLHF",
        "prompts",
        # --data.input_key is input by default, context_messages in its examples (at 3c3be62)
        Columns(("input", "context_messages"), ("label", "answer")),
    ),
    "big-math": Input(f"problem, answer, {BIG_MATH_RATE}", "Big-Math", "solve rates"),
    "skywork": Input(
        "prompt, reward_model, extra_info with model_difficulty",
        "Skywork-OR1; --model names the rated model",
        "solve rates",
    ),
    "verl": Input(
        "prompt, reward_model with ground_truth",
        "data sets of verl, DAPO and rLLM",
        "prompts, and solve rates if there are any",
    ),
    "verl-rollouts": Input(
        "input, output, score, step",
        "verl's trainer.rollout_data_dir and validation_data_dir",
        f"completions{_CUT}",
    ),
    "rllm": Input(
        "a run's folder or results.json: an object with items",
        "rllm eval",
        "completions if episodes were saved, else solve rates, which cannot be exported",
    ),
    "rllm-data": Input(
        "question, ground_truth",
        "data sets of rLLM",
        "prompts",
        Columns(("question",), ("ground_truth",)),  # transforms.py of rLLM (at 9beb6e0)
    ),
    "verifiers": Input(
        "prompt, completion, reward (results.jsonl), or task with nodes or traces",
        "verifiers 0.1 (results.jsonl) and 0.4 (traces.jsonl), prime-rl's rollouts (at 559b447)",
        "completions",
    ),
    "nemo-gym": Input(
        "responses_create_params, or sample and mean/reward (*_reward_profiling.jsonl)",
        "NeMo-Gym 0.5.1: rollouts, *_materialized_inputs.jsonl, reward profiles",
        "completions; prompts of inputs; solve rates of profiles",
    ),
    "lm-eval": Input(
        "doc, target, resps (samples_TASK_DATE.jsonl of --log_samples)",
        "lm-evaluation-harness",
        f"completions{_CUT}",
    ),
    "inspect": Input(
        "a log of inspect_ai: a .eval file, or .json with eval and samples",
        "Inspect, which need not be installed",
        "completions",
    ),
}
BY_COLUMNS = {name for name, each in INPUTS.items() if each.columns}
ALIASES = {"dapo": "verl", "open-instruct": "trl"}
GENERAL = {"skywork": "verl", "big-math": "solve-rates"}  # a layout, and its more general layout
READERS: Mapping[str, Reader] = {
    "big-math": read_big_math,
    "skywork": read_skywork,
    "verl": read_verl,
    "verl-rollouts": read_rollouts,
    "verifiers": read_verifiers,
    "lm-eval": read_lm_eval,
    "inspect": read_inspect,
}


def detect_layout(source: SourceFile, layout: str | None, hints: Hints) -> str:
    """The named `layout`, or the only one that fits. Raises TaskError with the fitting layouts."""
    name = None if layout is None else ALIASES.get(layout, layout)
    if name is not None and name not in INPUTS:
        raise TaskError(f"layout {layout!r} is unknown: write {', '.join((*INPUTS, *ALIASES))}")
    if hints.columns:  # the user names the columns
        if source.layout or name not in (None, *BY_COLUMNS):
            options = ", ".join(f"--{option.replace('_', '-')}" for option in hints.columns)
            raise TaskError(
                f"{source.file}: {options} cannot be used with the layout {source.layout or name}, "
                "which has its own columns: leave the options out, or write --layout columns"
            )
        fits = [fit for fit in _fitting(source, hints) if fit in BY_COLUMNS]
        return name or (fits[0] if len(fits) == 1 else "columns")
    fits = _fitting(source, hints)
    if name is None and len(fits) == 1:
        return fits[0]
    if name is not None and (name in fits or [name] == [GENERAL.get(fit) for fit in fits]):
        return name
    columns = ", ".join(source.columns) or "one object with items"
    if name is not None:
        raise TaskError(
            f"{source.file} does not have the layout {name}, which needs {INPUTS[name].needs}; "
            f"it has: {columns}"
        )
    if fits:
        raise TaskError(
            f"{source.file} fits several layouts ({', '.join(fits)}); it has: {columns}: choose "
            f"one: --layout {fits[0]}"
        )
    required = "; ".join(f"{known}: {each.needs}" for known, each in INPUTS.items())
    raise TaskError(
        f"{source.file} has no known layout; it has: {columns}. Name its columns with --question "
        f"and --answer (and --completions); layouts need {required}"
    )


def _fitting(source: SourceFile, hints: Hints) -> list[str]:
    if source.layout:
        return [source.layout]
    columns = set(source.columns)
    if "responses_create_params" in columns or {"sample", "mean/reward"} <= columns:
        return ["nemo-gym"]  # its rows also have the fields of their data set
    counted = counts_in(columns, "samples") and counts_in(columns, "successes")
    rated = bool(hints.rate in columns or rate_names(columns) or counted)
    answered = bool(columns & {"question", "problem"}) and "answer" in columns
    skywork = any("model_difficulty" in nested(row, "extra_info") for _, row in source.rows)
    big_math = {"problem", "answer", BIG_MATH_RATE} <= columns
    big_math &= hints.rate in (None, BIG_MATH_RATE)
    evaluated = {"prompt", "completion", "reward"} <= columns and "question" not in columns
    completions = {"question", "answer"} <= columns and bool(
        columns & {"completion", "completions", "responses"}
    )
    chat = bool(columns & {"prompt", "messages", "conversations"}) and not answered
    fits = {
        "completions": completions,
        "solve-rates": answered and rated and not big_math,
        "columns": answered and not (rated or completions or big_math),
        "trl": chat and not evaluated and "reward_model" not in columns,
        "openrlhf": ("input" in columns and bool(columns & {"label", "answer"}))
        or "context_messages" in columns,
        "big-math": big_math,
        "skywork": {"prompt", "reward_model"} <= columns and skywork,
        "verl": {"prompt", "reward_model"} <= columns and not skywork,
        "verl-rollouts": {"input", "output", "score", "step"} <= columns,
        "rllm-data": {"question", "ground_truth"} <= columns and not answered and not chat,
        "verifiers": {"prompt", "completion", "reward"} <= columns
        or ("task" in columns and bool(columns & {"nodes", "traces"})),
        "lm-eval": {"doc", "resps", "target"} <= columns,
    }
    fitting = [name for name, fit in fits.items() if fit]
    if not fitting and columns_in_role("question", columns):
        answers = {spelling(name) for name in columns} & {*KNOWN_ANSWERS, *OUTPUTS}
        return ["columns"] if answers else []
    return fitting


def read_layout(source: SourceFile, layout: str, hints: Hints, notes: Notes) -> Records:
    """The source's records, read in the given layout."""
    try:
        if source.rllm_run is not None:
            return read_rllm(source.rllm_run, source.file, notes)
        if layout == "nemo-gym":
            return read_nemo_gym(source.rows, source.file, notes)
        if columns := INPUTS[layout].columns:
            return read_columns(source.rows, columns, hints, notes)
        return READERS[layout](source.rows, hints, notes)
    except TaskError as error:
        raise located(source.file, error) from error
