"""What the outcomes of a completion and the columns of the difficulty table mean."""

from collections.abc import Mapping

from tasks.marking.marks import OUTCOMES, Outcome

OF_OUTCOMES: Mapping[Outcome, str] = {
    "correct": "the answer is right",
    "wrong": "an answer was read, and it is not right",
    "unparsed": "no answer was read",
    "truncated": "no answer was read, and generation reached the token limit",
    "error": "the marker or the environment failed; the score is null, never 0",
    "unlabelled": "an answer was read, and the prompt has no gold answer yet",
}
_NULL_LIKE_SUSPECTED = "null where answers are not read"
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
    "labelled": ("whether there is a gold answer, or none is needed"),
    "first": ("outcome of sample 0; null if it was not drawn"),
    "posterior": ("posterior mean of the pass rate, under a Beta prior that is fitted to the pool"),
    "learnability": (
        "expected share of groups of G completions whose rewards differ; G is `num_generations`"
    ),
    "short": ("fewer samples than K were drawn: the probe was adaptive"),
    "suspected": (
        "samples agree on another answer than the gold one, in a pool where most of such gold "
        f"answers are expected to be wrong; {_NULL_LIKE_SUSPECTED}"
    ),
    "dispute": (
        "evidence that the gold answer is wrong, 0 to 1; 0 where samples do not agree on another "
        f"answer; {_NULL_LIKE_SUSPECTED}"
    ),
    "score": "mean score of the scorable samples: the pass rate unless markers score",
    "score_sd": ("standard deviation of their scores; null for fewer than two"),
    "agreement": (
        "samples that give the most frequent answer / samples without an error; "
        f"{_NULL_LIKE_SUSPECTED}"
    ),
    "answers": (f"distinct answers of the samples; {_NULL_LIKE_SUSPECTED}"),
    "entropy": (
        "entropy of the shares of these answers, in nats; null without an answer, and where "
        "answers are not read"
    ),
    "tokens": ("mean of the generated tokens; null where they are not known"),
    "tokens_sd": "standard deviation of the tokens; null for fewer than two samples",
    "form_failures": (
        "samples that failed by form: without an answer that was read, or with the gold answer in "
        "another form than the marker reads; null where that is not known"
    ),
    "other_form": (
        "failed samples that hold the gold answer in another form; null where that is not known"
    ),
}
