"""Meanings of the outcomes of a completion and of the columns of the difficulty table."""

from collections.abc import Mapping

from tasks.marking.marks import OUTCOMES, Outcome

OF_OUTCOMES: Mapping[Outcome, str] = {
    "correct": "the answer is right",
    "wrong": "an answer was read, but it is not right",
    "unparsed": "no answer was read",
    "truncated": "no answer was read, and generation reached the token limit",
    "error": "the marker or the environment failed; the score is null, never 0",
    "unlabelled": "an answer was read, but the prompt has no gold answer yet",
}
_NULL_LIKE_SUSPECTED = "null if answers are not read"
OF_DIFFICULTY: Mapping[str, str] = {
    "prompt_id": ("the prompt"),
    "tier": ("the task's own level"),
    "n": ("samples drawn"),
    "successes": ("samples that are correct"),
    "pass_rate": ("successes / scorable, 0 to 1; null without a scorable sample"),
    **{outcome: (f"samples of this outcome: {OF_OUTCOMES[outcome]}") for outcome in OUTCOMES[1:]},
    "low": ("lower end of the Wilson 95 % interval of `pass_rate`"),
    "high": ("upper end of that interval"),
    "scorable": (
        "n without errors, 0 without a gold answer; with `count_truncated: exclude` also without "
        "truncated samples"
    ),
    "labelled": ("whether the prompt has a gold answer, or does not need one"),
    "first": ("outcome of sample 0; null if it was not drawn"),
    "posterior": ("posterior mean of the pass rate, with a prior that is fitted to the pool"),
    "learnability": (
        "expected share of groups of G completions with different rewards; G is `num_generations`"
    ),
    "short": ("fewer samples than K were drawn: the probe was adaptive"),
    "suspected": (
        "samples agree on an answer that is not the gold answer, in a pool where most of such gold "
        f"answers are expected to be wrong; {_NULL_LIKE_SUSPECTED}"
    ),
    "dispute": (
        "evidence that the gold answer is wrong, 0 to 1; 0 if samples do not agree on a different "
        f"answer; {_NULL_LIKE_SUSPECTED}"
    ),
    "score": "mean score of the scorable samples: the pass rate unless markers score",
    "score_sd": ("standard deviation of their scores; null for fewer than two"),
    "agreement": (
        f"samples with the most frequent answer / samples without an error; {_NULL_LIKE_SUSPECTED}"
    ),
    "answers": (f"distinct answers of the samples; {_NULL_LIKE_SUSPECTED}"),
    "entropy": (
        "entropy of the shares of these answers, in nats; null without an answer, or if "
        "answers are not read"
    ),
    "tokens": ("mean of the generated tokens; null if unknown"),
    "tokens_sd": "standard deviation of the tokens; null for fewer than two samples",
    "form_failures": (
        "samples that failed by form: without a read answer, or with the gold answer in a form "
        "that the marker does not read; null if unknown"
    ),
    "other_form": ("failed samples with the gold answer in another form; null if unknown"),
}
