"""The contents of data columns: roles, and the names under which each is known.

Every command that reads a user's rows looks up its columns here: `init`, `task: file`, `import`,
`mark`, `compare`, `diagnose` and `replay`. Names are in order of preference. A published format
with columns of its own (`verl`, `lm-eval`, …) is described where it is read.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tasks.words import word_list


class Role(NamedTuple):
    """Names of columns, the most specific first, and the content of a cell."""

    names: tuple[str, ...]
    holds: str


# Names of the gold answer, whatever other columns a row has. `answer` may be the model's in a file
# of results; `output`, `response` and `completion` may be the model's in a file of completions.
GOLDS = word_list(
    "gold, gold_answer, ground_truth, expected_answer, correct_answer, reference_answer, "
    "answerkey, target, reference"
)
ROLES: Mapping[str, Role] = {
    "question": Role(
        word_list(
            "question, problem, prompt, query, instruction, input, context_messages, "
            "question_text, text, messages, conversations"
        ),
        "a text, or chat messages",
    ),
    "answer": Role(
        (
            *("answer", "final_answer", *GOLDS),
            *word_list("label, solution, solutions, answers, output, response, completion"),
            "reward_model.ground_truth",
        ),
        "a text, a number, a list of texts, or the reply in chat messages",
    ),
    "answer beside completions": Role(
        (
            *word_list("answer, solution, ground_truth, final_answer, label"),
            *(name for name in GOLDS if name != "ground_truth"),
            *word_list("solutions, answers"),
            "reward_model.ground_truth",
        ),
        "as an answer, if other columns have a model's text",
    ),
    # Inside an object that is an answer; several of these are ambiguous.
    "answer field": Role(
        word_list("ground_truth, answer, final_answer, value, gold, target, solution"),
        "as an answer, inside an object",
    ),
    "completion": Role(
        word_list(
            "completion, completions, responses, response, output, outputs, generation, "
            "generations, text"
        ),
        "a text, chat messages, or a list of them",
    ),
    "id": Role(
        word_list(
            "prompt_id, question_id, problem_id, item_id, example_id, doc_id, task_id, qid, id, "
            "uid, uuid, unique_id, idx, index, extra_info.index"
        ),
        "a text or a whole number, one per question",
    ),
    "correct": Role(
        word_list("correct, is_correct, acc, accuracy, passed"),
        "true or false, yes or no, 1 or 0",
    ),
    "outcome": Role(
        ("outcome",), "`correct`, `wrong`, `unparsed`, `truncated`, `error` or `unlabelled`"
    ),
    "score": Role(word_list("score, reward"), "a number"),
    "reward": Role(word_list("reward, score, rewards"), "a number"),
    "samples": Role(
        word_list(
            "n, samples, num_samples, n_samples, rollouts, num_rollouts, total_rollouts, attempts"
        ),
        "a whole number: of completions per question",
    ),
    "successes": Role(
        word_list(
            "successes, num_correct, n_correct, pass_count, num_passed, n_passed, solved, "
            "correct_count, total_correct_rollouts"
        ),
        "a whole number: of correct completions",
    ),
    "rate": Role(
        word_list("pass_rate, solve_rate, success_rate, passrate"),
        "a share from 0 to 1, or `7/8`; also with a model's name, and as `avg@8_MODEL`",
    ),
    "update": Role(word_list("update, step, global_step, training_step"), "a whole number"),
    "visit": Role(word_list("visit, epoch"), "a whole number: of a prompt's groups in their order"),
    "group": Role(word_list("group, group_id"), "a text or a number"),
    "advantage": Role(word_list("advantage, advantages"), "a number"),
    "version": Role(
        word_list("version, policy_version, model_version, weights_version, weight_version"),
        "a whole number: of the weights that wrote a completion",
    ),
    "tokens": Role(word_list("tokens, num_tokens, completion_tokens"), "a whole number"),
    "finish": Role(word_list("finish, finish_reason, stop_reason"), "`stop`, `length` or `error`"),
    "truncated": Role(word_list("truncated, is_truncated"), "true or false"),
    "seed": Role(("seed",), "a whole number"),
    "sample": Role(word_list("sample, sample_id, sample_index"), "a whole number"),
    "tier": Role(word_list("tier, level, difficulty, n_steps, steps"), "a text or a number"),
    "source": Role(word_list("source, data_source, dataset, domain, subject, category"), "a text"),
    "description": Role(
        word_list("model, split, language, lang, url, link, length, key, code, tests, test_list"),
        "a text or a number about the row, never its answer",
    ),
    "context": Role(
        word_list(
            "article, passage, context, paragraph, story, document, premise, support, "
            "background, input"
        ),
        "a text that questions are about",
    ),
}


# The columns that a command needs: one role of each group. Ids and texts both identify questions;
# in logs texts come first, because a column `id` may number completions.
NEEDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "init": (("question",), ("answer",)),
    "import": (
        ("question",),
        ("answer beside completions",),
        ("completion", "rate", "successes"),
    ),
    "mark": (("answer beside completions",), ("completion",)),
    "compare": (("id", "question"), ("correct", "score")),
    "diagnose": (("update",), ("question", "id"), ("reward", "correct", "advantage")),
    "replay": (("id", "question"), ("visit", "update"), ("rate", "correct", "reward")),
}


def columns_in_role(role: str, columns: Iterable[str], *apart_from: str | None) -> list[str]:
    """The columns with a name of the role, the most specific name first, except `apart_from`."""
    return columns_named(ROLES[role].names, (name for name in columns if name not in apart_from))


def columns_named(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """The columns that have one of the names, in the order of the names.

    Case does not matter, nor whether words are joined by spaces, hyphens or underscores. A column
    with exactly the name comes before other spellings.
    """
    spellings: dict[str, list[str]] = {}
    for column in dict.fromkeys(columns):
        spellings.setdefault(spelling(column), []).append(column)
    return [
        column
        for name in names
        for column in sorted(spellings.get(spelling(name), ()), key=lambda column: column != name)
    ]


def has_grades(columns: Iterable[str]) -> bool:
    """Whether a column grades a model's text, so that an output is the model's."""
    columns = [*columns]
    return any(columns_in_role(role, columns) for role in ("correct", "score", "reward"))


def spelling(column: str) -> str:
    """A column's name in lower case, its words joined by underscores."""
    return re.sub(r"[\s-]+", "_", str(column).strip().lower())
