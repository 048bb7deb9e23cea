"""Claims: the grammar, and verdicts from intervals."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.claims import Claim, ClaimError, parse_claim
from orchestrator.stats.claims import judge_claim
from orchestrator.stats.comparison import Comparison, Run, compare_policies
from orchestrator.stats.inference import SeedSpread

RUN: Run = ("ab", np.array([0.0, 1.0]))
EQUAL = compare_policies(dict.fromkeys(("hard", "random"), {0: RUN, 1: RUN}))


def difference(low: float, high: float, a: str = "hard", b: str = "random") -> Comparison:
    """Policy a minus policy b with this interval."""
    return replace(EQUAL[0], a=a, b=b, effect=(low + high) / 2, low=low, high=high)


PARSED = {
    "hard > random on gsm8k": ("accuracy", "hard", ">", "random", 0.0, "gsm8k", None),
    "hard > random on gsm8k by 3": ("accuracy", "hard", ">", "random", 3.0, "gsm8k", None),
    "easy < hard on gsm8k by 2.5": ("accuracy", "hard", ">", "easy", 2.5, "gsm8k", None),
    "learnable hard>easy by 10 pp for qwen3-4b on math": (
        "learnable",
        "hard",
        ">",
        "easy",
        10.0,
        "math",
        "qwen3-4b",
    ),
    "gain  hard = middle on a/b:c within 2 points": (
        "gain",
        "hard",
        "=",
        "middle",
        2.0,
        "a/b:c",
        None,
    ),
}


@pytest.mark.parametrize("text", PARSED)
def test_claims_are_parsed(text: str) -> None:
    assert parse_claim(text) == Claim(" ".join(text.split()), *PARSED[text])


REFUSED = {
    "hard beats random on gsm8k": "does not compare two policies",
    "": "does not compare two policies",
    "hard > random": "does not name a dataset",
    "hard > random on gsm8k by three": "cannot parse 'by three'",
    "hard > random on gsm8k by -3": "cannot parse 'by -3'",
    "hard > random > easy on gsm8k": "cannot parse '> easy on gsm8k'",
    "hard > random on gsm8k on math": "'on' appears twice",
    "hard > random on gsm8k within 3": "'>' takes 'by', not 'within'",
    "hard = random on gsm8k by 3": "'=' takes 'within', not 'by'",
    "hard = random on gsm8k": "add 'within 2'",
    "hard = random on gsm8k within 0": "add 'within 2'",
    "hard > hard on gsm8k": "with itself",
    "speed hard > easy on gsm8k": "unknown metric 'speed' (known here: accuracy, gain, learnable)",
    "hardest > easy on gsm8k": "unknown policy 'hardest' (known here: hard, easy, random)",
    "hard > easy on gsm8": "unknown dataset 'gsm8' (known here: gsm8k, math)",
    "hard > easy on math for tiny": "unknown model 'tiny' (known here: qwen3-4b)",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_claim_that_does_not_parse_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ClaimError) as error:
        parse_claim(text, ["hard", "easy", "random"], ["gsm8k", "math"], ["qwen3-4b"])
    assert REFUSED[text] in str(error.value)
    assert "write for example 'hard > random on gsm8k by 3'" in str(error.value)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(ClaimError):
        assert parse_claim(text).dataset


@pytest.mark.parametrize(
    ("claim", "low", "high", "verdict"),
    [
        ("hard > random on d", 0.5, 3, "supported"),
        ("hard > random on d", -0.5, 3, "inconclusive"),
        ("hard > random on d", -3, -0.5, "refuted"),
        ("hard > random on d by 3", 3.5, 6, "supported"),
        ("hard > random on d by 3", 0.5, 6, "inconclusive"),
        ("hard > random on d by 3", 0.5, 2, "refuted"),
        ("hard < random on d", 0.5, 3, "refuted"),
        ("random < hard on d by 3", 3.5, 6, "supported"),
        ("random > hard on d", -3, -0.5, "supported"),
        ("hard = random on d within 2", -1, 1.5, "supported"),
        ("hard = random on d within 2", -1, 2.5, "inconclusive"),
        ("hard = random on d within 2", 2.5, 4, "refuted"),
        ("random = hard on d within 2", -4, -2.5, "refuted"),
        ("hard > random on d", float("-inf"), float("inf"), "inconclusive"),
    ],
)
def test_the_verdict_follows_the_whole_interval(
    claim: str, low: float, high: float, verdict: str
) -> None:
    assert judge_claim(parse_claim(claim), difference(low, high)).verdict == verdict


@given(st.floats(-50, 50), st.floats(0, 50), st.integers(0, 20))
def test_a_claim_and_its_mirror_agree(low: float, width: float, points: int) -> None:
    outcome = difference(low, low + width)
    turned = difference(-outcome.high, -outcome.low, "random", "hard")
    one, two = (
        parse_claim(t)
        for t in (f"hard > random on d by {points}", f"random < hard on d by {points}")
    )
    verdicts = {judge_claim(claim, n).verdict for claim in (one, two) for n in (outcome, turned)}
    assert len(verdicts) == 1


def test_the_reason_has_the_numbers_in_the_order_of_the_claim() -> None:
    outcome = judge_claim(parse_claim("random > hard on d by 3"), difference(1, 3))
    assert outcome.reason == "random − hard is −2.0 points [−3.0, −1.0]; claimed: above 3"


def test_a_learnable_percentage_of_one_seed_is_judged_by_its_updates() -> None:
    by_update = replace(difference(11, 15), seeds=1, items=40, item="update")
    claim = parse_claim("learnable hard > random on d by 10")
    outcome = judge_claim(claim, by_update)
    assert outcome.verdict == "inconclusive"
    assert outcome.reason.endswith("above 10; over 40 updates of one seed; needs more seeds")
    outcome = judge_claim(claim, replace(by_update, spread=SeedSpread(1e-4, 8, 12)))
    assert outcome.verdict == "supported"
    assert outcome.reason.endswith("of one seed; spread between seeds from 12 cells")


@pytest.mark.parametrize(("low", "high"), [(0.5, 3), (-3, -0.5)])
def test_a_single_seed_decides_no_claim(low: float, high: float) -> None:
    outcome = judge_claim(
        parse_claim("hard > random on d"), replace(difference(low, high), seeds=1)
    )
    assert outcome.verdict == "inconclusive" and outcome.reason.endswith("; needs more seeds")


def test_without_a_shared_question_the_verdict_is_inconclusive() -> None:
    empty: Run = ([], np.array([]))
    [pair] = compare_policies(dict.fromkeys(("hard", "random"), {0: empty}))
    outcome = judge_claim(parse_claim("hard > random on d"), pair)
    assert outcome[1:] == ("inconclusive", "no question was scored in every run of both")


def test_without_finished_cells_the_verdict_is_inconclusive() -> None:
    outcome = judge_claim(parse_claim("hard > random on d"), None)
    assert outcome[1:] == ("inconclusive", "no finished cells of both policies")


def test_numbers_of_another_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="not about hard and random"):
        judge_claim(parse_claim("hard > easy on d"), difference(0, 1))
