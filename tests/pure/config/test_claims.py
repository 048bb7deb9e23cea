"""Claims: what parses, what is refused before a sweep runs and how, and the verdicts."""

import re
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import small_plan
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.catalog import load_config
from orchestrator.config.claims import (
    BASE_SIDE,
    COSTS,
    OVER,
    SIGNS,
    Claim,
    ClaimError,
    Part,
    Reading,
    parse_claim,
    resolved_claim,
    side_text,
)
from orchestrator.config.experiment import Experiment
from orchestrator.planning.plan import make_plan
from orchestrator.report.claim_verdicts import judge_claim
from orchestrator.report.fairness import AXES
from orchestrator.stats.changes import compare_with_base
from orchestrator.stats.comparison import Comparison, compare_policies
from orchestrator.stats.correlation import RSquared, independent_points, r_squared
from orchestrator.stats.inference import SeedSpread, mean_effect
from orchestrator.storage.errors import UserError


def side(*names: str, **axes: str) -> tuple[tuple[str, Any], ...]:
    return (*(("", name) for name in names), *axes.items())


HARD, RANDOM = side("hard"), side("random")
PARSED: dict[str, Claim] = {
    "hard > random on gsm8k": Claim("", "accuracy", HARD, ">", RANDOM, test_set="gsm8k"),
    "hard>random by 3": Claim("", "accuracy", HARD, ">", RANDOM, 3.0),
    "easy < hard by 2.5 points": Claim("", "accuracy", HARD, ">", side("easy"), 2.5),
    "learnable hard>easy by 10 pp for qwen3-4b on math": Claim(
        "", "learnable", HARD, ">", side("easy"), 10, test_set="math", only=side("qwen3-4b")
    ),
    "gain  hard = middle on a/b:c within 2 %": Claim(
        "", "gain", HARD, "=", side("middle"), 2, test_set="a/b:c"
    ),
    "hard=middle within 2": Claim("", "accuracy", HARD, "=", side("middle"), 2),
    "hard > base on aime2025-I pass@8": Claim(
        "", "pass@8", HARD, ">", side("base"), test_set="aime2025-I"
    ),
    "grpo.beta=0 > grpo.beta=0.1 learnable": Claim(
        "", "learnable", (("grpo.beta", "0"),), ">", (("grpo.beta", "0.1"),)
    ),
    "low, x=1 = full, x=[a, b] in every tier within 1": Claim(
        "", "accuracy", side("low", x="1"), "=", side("full", x="[a, b]"), 1, part=Part("tier", "*")
    ),
    "hard >= random within 1 in tier 5": Claim(
        "", "accuracy", HARD, ">=", RANDOM, 1, part=Part("tier", "5")
    ),
    "hard >= random in every source within 1": Claim(
        "", "accuracy", HARD, ">=", RANDOM, 1, part=Part("source", "*")
    ),
    """hard >= random in source "a/b:  c's" within 1""": Claim(
        "", "accuracy", HARD, ">=", RANDOM, 1, part=Part("source", "a/b:  c's")
    ),
    "hard >= random in tier 'größe ✓'\n within 1": Claim(
        "", "accuracy", HARD, ">=", RANDOM, 1, part=Part("tier", "größe ✓")
    ),
    """'hard' > "x"="b c" on 'd'""": Claim("", "accuracy", HARD, ">", side(x="b c"), test_set="d"),
    "hard <= random": Claim("", "accuracy", RANDOM, ">=", HARD),
    "hard != random by 2": Claim("", "accuracy", HARD, "!=", RANDOM, 2),
    "hard > random at update 300": Claim(
        "", "accuracy", HARD, ">", RANDOM, at=Reading("updates", 300)
    ),
    "hard > random at 1.5M tokens for a, x=2": Claim(
        "", "accuracy", HARD, ">", RANDOM, at=Reading("tokens", 1.5e6), only=side("a", x="2")
    ),
    "hard > random over rollouts": Claim("", "accuracy", HARD, ">", RANDOM, over="rollouts"),
    "gain per 1.5M tokens hard > random by 250": Claim(
        "", "gain", HARD, ">", RANDOM, 250, per=Reading("tokens", 1.5e6)
    ),
    "hard > random per hour gain": Claim(
        "", "gain", HARD, ">", RANDOM, per=Reading("seconds", 3600)
    ),
    "gain hard > random per label at update 3": Claim(
        "", "gain", HARD, ">", RANDOM, at=Reading("updates", 3), per=Reading("labels", 1)
    ),
    "r2 > 0.5 on gsm8k": Claim("", "r2", (), ">", (), level=0.5, test_set="gsm8k"),
    "R² = 0.66 within 0.05": Claim("", "r2", (), "=", (), 0.05, level=0.66),
    # Words of the grammar are names where they stand for a side.
    "learnable > gain": Claim("", "accuracy", side("learnable"), ">", side("gain")),
}


@pytest.mark.parametrize("text", PARSED)
def test_claims_are_parsed(text: str) -> None:
    assert parse_claim(text) == PARSED[text]


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("a > b by 3", (3, float("inf"))),
        ("a >= b within 3", (-3, float("inf"))),
        ("a = b within 3", (-3, 3)),
        ("r2 < 0.5", (float("-inf"), 0.5)),
        ("r2 <= 0.5 within 0.1", (float("-inf"), 0.6)),
        ("r2 = 0.5 within 0.25", (0.25, 0.75)),
    ],
)
def test_the_claimed_region(text: str, region: tuple[float, float]) -> None:
    assert parse_claim(text).region == region


# ---- refused


OOD = ["aime2025", "math", "gsm8k"]


def experiment(**changes: Any) -> Experiment:
    content = {
        "grid": {
            "model": ["qwen3-4b", "tiny"],
            "dataset": ["gsm8k", "math"],
            "policy": ["hard", "easy", "random"],
            "seed": [0, 1],
            "probe.samples": [1, 10],
            "grpo.beta": [0, 0.1],
            "lora.target_modules": [["q_proj", "v_proj"], ["q_proj"]],
        },
        "grpo": {"max_steps": 400},
        "evaluate": {
            "every": 100,
            "samples": 4,
            "ood": ["aime2025", "math", "gsm8k"],
            "ood_samples": 8,
        },
    }
    return Experiment.model_validate(content | changes)


EXPERIMENT = experiment()
REFUSED = {
    "hard beats random on gsm8k": "does not compare two policies: write for example 'hard > rando",
    "": "does not compare two policies",
    "hard > random on gsm8k by three": "cannot parse 'by three'",
    "hard > random > easy on gsm8k": "cannot parse '> easy on gsm8k'",
    "hard > random at noon": "cannot parse 'at noon'",
    "hard > random on gsm8k on math": "'on' appears twice: remove one",
    "hard > random on gsm8k within 3": "'>' takes 'by', not 'within'",
    "hard = random on gsm8k by 3": "'=' takes 'within', not 'by'",
    "hard = random on gsm8k": "add 'within 2'",
    "hard = random on gsm8k within 0": "add 'within 2'",
    "gain hard > easy learnable": "it has two metrics: remove 'learnable'",
    "speed hard > easy on gsm8k": "unknown metric 'speed': write one of accuracy, gain, learnable",
    "lernable hard > easy": "did you mean 'learnable'?",
    "hard > random per label": "write gain, not accuracy",
    "learnable hard > easy per 1k tokens": "write gain, not learnable",
    "r2 > 0.5 per label": "write gain, not r2",
    "gain hard > easy over tokens per label": "both 'per' and 'over'",
    "gain per 1k tokens hard > easy per label": "'per' appears twice",
    "gain hard > easy per 0 labels": "divided by 0",
    "gain hard > easy per prompt": "cannot parse 'per prompt'",
    "hard > random on ²": "'²'",
    "hard > random at update 0": "write a later point",
    f"{'a' * 501} > b": "write at most 500 characters",
    "hard > hard on gsm8k": "it compares hard with itself",
    "hrad > easy": "unknown policy, dataset or model 'hrad': write one of hard, easy, random, gsm",
    "hard > esay": "did you mean 'easy'?",
    "hard > easy on gsm8": "are not tested on 'gsm8': write one of gsm8k, aime2025, math; did you",
    "hard > easy for qwen": "did you mean 'qwen3-4b'?",
    "probe.sample=1 > probe.samples=10": "unknown axis 'probe.sample': write one of model, dataset",
    "probe.samples=1 > probe.samples=5": "probe.samples has no value '5': write one of 1, 10",
    "hard, policy=easy > random": "policy is set twice: remove 'easy'",
    "seed=0 > seed=1": "claims are judged over all seeds: remove seed=0",
    "hard, probe.samples=1 > random": "only one sets probe.samples: write it on both",
    "hard > random for easy": "the sides set policy: remove it from 'for'",
    "gsm8k > math": "are compared on one test set: write on SET",
    "learnable gsm8k > math on math": "remove 'on math'",
    "learnable hard > base": "the base model trains on nothing",
    "learnable hard > easy in tier 5": "learnable covers whole training runs: remove 'in tier'",
    "r2 > 0.5 at update 100": "r2 covers whole training runs: remove 'at'",
    "hard > easy at update 100 over tokens": "both 'at' and 'over'",
    "hard > easy on gsm8k pass@8": "pass@8 needs 8 samples per question of gsm8k, not 4: write eva",
    "hard > easy on aime2025 pass@9": "evaluate: {ood_samples: 9}",
    "hard > easy on aime2025 pass@0": "cannot parse 'pass@0'",
    "hard > easy by 101": "sizes are percentage points: write at most 100",
    "r2 > 1.5": "R² lies from 0 to 1: write at most 1",
    "r2 = .5 within 2": "R² lies from 0 to 1",
    "hard > easy on aime2025 at update 100": "before and after training only: remove 'at'",
    "hard > easy at update 150": "no evaluation after update 150: write at update 100 or at update",
    "hard > easy at update 401": "a cell has 400 updates, not 401: write at most 400",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_wrong_claim_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ClaimError) as error:
        resolved_claim(text, EXPERIMENT)
    assert REFUSED[text] in str(error.value)


def test_a_curve_needs_evaluations() -> None:
    rare = experiment(evaluate={"samples": 2})
    with pytest.raises(ClaimError, match=r"\{every: N\}"):
        resolved_claim("hard > easy over updates", rare)
    with pytest.raises(ClaimError, match=" 100: .* 400"):
        resolved_claim("hard > easy at update 100", rare)


def test_every_setting_that_a_claim_is_about_is_checked() -> None:
    grid = {"model": ["tiny"], "dataset": ["gsm8k"], "policy": ["hard", "easy"]}
    swept = experiment(grid=grid | {"evaluate.every": [100, 250]})
    with pytest.raises(ClaimError, match="update 300"):
        resolved_claim("hard > easy at update 300", swept)
    assert resolved_claim("hard > easy at update 300 for evaluate.every=100", swept)


def test_names_are_looked_up_in_the_grid() -> None:
    def resolved(text: str) -> Claim:
        return resolved_claim(text, EXPERIMENT)

    claim = resolved("hard > random on gsm8k for tiny")
    assert claim.a == (("policy", "hard"),) and claim.test_set == "gsm8k"
    assert claim.only == (("dataset", "gsm8k"), ("model", "tiny")), "trained on gsm8k, too"
    assert resolved("gsm8k > math on gsm8k").only == ()
    assert resolved("hard > random on math for gsm8k").only == (("dataset", "gsm8k"),)
    assert resolved("hard > random on aime2025").only == ()
    assert resolved("learnable hard > random on math").test_set is None
    assert resolved("hard > base").b == BASE_SIDE
    claim = resolved("probe.samples=1, grpo.beta=0.10 > probe.samples=10, grpo.beta=0")
    assert claim.a == (("grpo.beta", 0.1), ("probe.samples", 1))
    assert claim.b == (("grpo.beta", 0), ("probe.samples", 10))
    modules = resolved("lora.target_modules=[q_proj, v_proj] > lora.target_modules=['q_proj']")
    assert modules.a == (("lora.target_modules", ["q_proj", "v_proj"]),)


def test_a_policy_named_base_is_the_policy() -> None:
    grid = {"model": ["tiny"], "dataset": ["gsm8k"], "policy": ["hard", "base"]}
    assert resolved_claim("hard > base", experiment(grid=grid)).b == (("policy", "base"),)


@pytest.mark.parametrize(
    ("claim", "named"),
    [
        ("hard > random at 1k rollouts", "tiny/small/hard/s0 has at most 800 rollouts"),
        ("hard > random at 1M tokens", "tiny/small/hard/s0 has at most 204,800 tokens"),
        ("hard > random at 7 rollouts", "before 800 rollouts, tiny/small/hard/s0 is"),
        ("random<hard at 800 rollouts", "twice"),
        ("hard > random in tier 9", "one of 3, 5, 7"),
        ("3", "claims holds 3: "),
        ("[hard > random]", "claims holds "),
    ],
)
def test_a_claim_is_refused_at_its_line(tmp_path: Path, claim: str, named: str) -> None:
    file = tmp_path / "experiments.yaml"
    file.write_text(f"""\
models: {{tiny: {{embedded: tiny}}}}
datasets: {{small: {{task: shuffled_objects, options: {{train: 40, test: 12}}}}}}
experiments:
  one:
    grid: {{model: [tiny], dataset: [small], policy: [hard, random]}}
    budget: 16
    claims:
      - hard > random at 800 rollouts
      - {claim}
""")
    with pytest.raises(UserError) as error:
        make_plan(load_config(file), "one")
    assert f"{file}:9: experiments.one.claims.1: " in str(error.value)
    assert named in str(error.value)


def test_a_gain_per_label_needs_labels(tmp_path: Path) -> None:
    claims = ["gain per label hard > base", "gain per 1k tokens random > base"]
    plan = small_plan(tmp_path, reward="random", claims=claims)
    assert [claim.per for claim in plan.claims] == [Reading("labels", 1), Reading("tokens", 1000)]
    with pytest.raises(UserError, match="random/s0 uses no labels"):
        small_plan(tmp_path, reward="random", claims=["gain per label hard > random"])


def test_costs_are_the_axes_of_the_ledger() -> None:
    assert COSTS == AXES


# ---- any claim

NAMES = st.sampled_from(["hard", "easy", "a/b:c", "qwen2.5-1.5b", "in", "r2", "base", "x@1", "-3"])
VALUES = st.one_of(NAMES, st.sampled_from(["0.1", "[a, b]", "[]", "true"]))
SETTINGS = st.lists(
    st.tuples(st.sampled_from(["", "grpo.beta", "lora.r"]), VALUES), min_size=1, max_size=3
)
SIZES = st.decimals(0, 100, places=3).map(float)
SHARES = st.decimals(0, 1, places=3).map(float)


PARTS = st.sampled_from(["*", "5", "tier-1"])


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    level = draw(st.one_of(st.none(), SHARES))
    sizes = SIZES if level is None else SHARES
    signs = [s for s in SIGNS if level is not None or s not in ("<", "<=")]
    sign = draw(st.sampled_from(signs))
    a, b = ((), ()) if level is not None else (tuple(draw(SETTINGS)), tuple(draw(SETTINGS)))
    metrics = ["accuracy", "gain", "learnable", "pass@8"] if level is None else ["r2"]
    readings = st.builds(Reading, st.sampled_from(COSTS), SIZES.filter(bool))
    return Claim(
        "",
        draw(st.sampled_from(metrics)),
        a,
        sign,
        b,
        draw(sizes.filter(bool) if sign == "=" else sizes),
        level,
        draw(st.one_of(st.none(), NAMES)),
        tuple(draw(st.one_of(st.just([]), SETTINGS))),
        draw(st.none() | st.builds(Part, st.sampled_from(["tier", "source"]), PARTS)),
        draw(st.one_of(st.none(), readings)),
        draw(st.one_of(st.none(), st.sampled_from(OVER))),
        draw(st.one_of(st.none(), readings)),
    )


def plain(number: float) -> str:
    """Without an exponent."""
    return format(Decimal(repr(number)).normalize(), "f")


def written(claim: Claim) -> str:
    """The claim in the order of the documentation."""
    pair = f"{side_text(claim.a)} {claim.sign} {side_text(claim.b)}"
    if claim.level is not None:
        pair = f"r2 {claim.sign} {plain(claim.level)}"
    elif claim.metric != "accuracy":
        pair = f"{claim.metric} {pair}"
    word = "by" if claim.sign in (">", "<", "!=") else "within"
    clauses = {
        f"on {claim.test_set}": claim.test_set,
        f"for {side_text(claim.only)}": claim.only,
        f"in {claim.part}": claim.part,
        f"at {claim.at and plain(claim.at.amount)} {claim.at and claim.at.cost}": claim.at,
        f"over {claim.over}": claim.over,
        f"per {claim.per and plain(claim.per.amount)} {claim.per and claim.per.cost}": claim.per,
        f"{word} {plain(claim.size)}": claim.size,
    }
    return " ".join([pair, *(text for text, given in clauses.items() if given)])


@given(claims())
def test_a_claim_is_parsed_as_it_is_written(claim: Claim) -> None:
    assert parse_claim(written(claim)) == claim


@given(st.sampled_from([*PARSED, *REFUSED]), st.data())
def test_a_mutated_claim_is_resolved_or_refused(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    text = text[:start] + data.draw(st.text(max_size=6)) + text[end:]
    with suppress(ClaimError):
        claim = resolved_claim(text, EXPERIMENT)
        assert resolved_claim(written(claim), EXPERIMENT) == claim


# ---- judged


def of_interval(effect: float, low: float, high: float, **sample: Any) -> Any:
    """A comparison with this interval in points, by default of three seeds each."""
    spread = SeedSpread(0.01, 1, 2)
    given = {"runs": (3, 3), "items": 24, "left_out": 0, "spreads": (spread, spread)} | sample
    return Comparison("a", "b", effect=effect, low=low, high=high, **given)


@pytest.mark.parametrize(
    ("text", "interval", "verdict"),
    [
        ("a > b", (0.1, 8), "supported"),
        ("a > b", (0, 8), "inconclusive"),
        ("a > b", (-8, 0), "inconclusive"),
        ("a > b", (-8, -0.1), "refuted"),
        ("a > b by 3", (3.1, 9), "supported"),
        ("a > b by 3", (3, 9), "inconclusive"),
        ("a > b by 2.5", (-1, 2.4), "refuted"),
        ("a >= b within 3", (-2.9, 1), "supported"),
        ("a >= b within 3", (-3, 1), "inconclusive"),
        ("a >= b within 3", (-9, -3.1), "refuted"),
        ("a = b within 2", (-1.9, 1.9), "supported"),
        ("a = b within 2", (-2, 1), "inconclusive"),
        ("a = b within 2", (-1, 2), "inconclusive"),
        ("a = b within 2", (2, 4), "inconclusive"),
        ("a = b within 2", (-4, -2), "inconclusive"),
        ("a = b within 2", (2.1, 4), "refuted"),
        ("a = b within 2", (-4, -2.1), "refuted"),
        ("a != b by 2", (2.1, 4), "supported"),
        ("a != b by 2", (-4, -2.1), "supported"),
        ("a != b by 2", (1, 4), "inconclusive"),
        ("a != b by 2", (-1.9, 1.9), "refuted"),
        ("r2 < 0.5", (0.1, 0.49), "supported"),
        ("r2 < 0.5", (0.51, 0.9), "refuted"),
        ("r2 <= 0.5 within 0.1", (0.1, 0.59), "supported"),
        ("r2 = 0.66 within 0.05", (0.62, 0.7), "supported"),
    ],
)
def test_a_claim_is_supported_where_the_interval_lies_in_its_region(
    text: str, interval: tuple[float, float], verdict: str
) -> None:
    claim = parse_claim(text)
    measured = of_interval(sum(interval) / 2, *interval)
    if claim.metric == "r2":
        measured = RSquared(sum(interval) / 2, *interval, 24)
    assert judge_claim(claim, measured).verdict == verdict


def test_the_reason_states_both_sides_the_value_and_its_interval() -> None:
    claim = parse_claim("hard, x=2 > base on gsm8k by 3")
    assert judge_claim(claim, of_interval(4.46, -1, 10)).reason == (
        "hard, x=2 − base is +4.5 points [−1.0, +10.0]; claimed: above 3"
    )
    level = parse_claim("r2 > 0.5")
    reason = judge_claim(level, RSquared(0.404, 0.1, 0.6, 24)).reason
    assert reason.startswith("R² is 0.40 [0.10, 0.60]; claimed: above 0.5; over 24 policies")
    for text, claimed in (
        ("a >= b within 3", "at least −3"),
        ("a = b within 2", "within 2"),
        ("a != b by 2", "more than 2 from 0"),
        ("r2 < 0.5", "below 0.5"),
        ("r2 <= 0.5 within 0.1", "at most 0.6"),
        ("r2 = 0.66 within 0.05", "within 0.05 of 0.66"),
    ):
        reason = judge_claim(parse_claim(text), of_interval(0.4, 0.1, 0.6)).reason
        assert reason.partition("; claimed: ")[2] == claimed


@pytest.mark.parametrize(
    ("sample", "verdict", "notes"),
    [
        ({"runs": (2, 2)}, "supported", ""),
        ({"runs": (1, 1), "spreads": (None, None)}, "inconclusive", "; needs more seeds"),
        (
            {"runs": (1, 1), "spreads": (SeedSpread(0.01, 5, 6), SeedSpread(0.01, 5, 6))},
            "supported",
            "; .* 12 stored runs",
        ),
        (
            {"runs": (1, 1), "item": "update", "spreads": (None, None)},
            "inconclusive",
            "; over 40 updates of one seed; needs more seeds",
        ),
        ({"runs": (3, 5), "left_out": 2}, "supported", "; 2 questions left out, .*"),
    ],
)
def test_one_seed_supports_no_claim_and_limits_are_named(
    sample: dict[str, Any], verdict: str, notes: str
) -> None:
    result = judge_claim(parse_claim("a > b"), of_interval(5, 1, 9, items=40, **sample))
    assert result.verdict == verdict
    assert re.fullmatch(notes, result.reason.partition("above 0")[2])


def test_a_claim_about_r2_names_the_policies() -> None:
    result = judge_claim(parse_claim("r2 > 0"), RSquared(0.5, 0.1, 0.9, 40))
    assert result.verdict == "supported" and "; over 40 policies, " in result.reason
    assert judge_claim(parse_claim("r2 > 0"), RSquared(0.5, 0.1, 0.9, 40, 2)).sample == (
        "40 policies in 2 blocks"
    )


NOTHING = (float("nan"), float("-inf"), float("inf"))


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (of_interval(*NOTHING, items=0), "no question"),
        (RSquared(*NOTHING, 7), "R² .* 8 policies .* 7 "),
        (RSquared(*NOTHING, 8), "R² is not"),
    ],
)
def test_a_claim_without_a_number_is_inconclusive(measured: Any, reason: str) -> None:
    result = judge_claim(parse_claim("a > b"), measured)
    assert (result.verdict, result.value) == ("inconclusive", "–")
    assert re.match(reason, result.reason)


def test_a_claim_and_a_comparison_have_one_judgement() -> None:
    """All of a few questions differ by a whole answer: the exact test decides for both."""
    for items in (1, 2, 5, 6, 14):
        ids = [f"q{i}" for i in range(items)]
        one, two = ({s: (ids, np.full(items, x)) for s in range(3)} for x in (1.0, 0.0))
        (pair,) = compare_policies({"a": one, "b": two})
        verdict = judge_claim(parse_claim("a > b"), pair).verdict
        assert (verdict == "supported") == (pair.verdict == "a") == (pair.p <= 0.05) == (items > 5)


def test_cells_are_compared_with_their_base_model_run_by_run() -> None:
    rng, ids = np.random.default_rng(4), [f"q{i}" for i in range(30)]
    changes = {s: (ids, rng.normal(0.1, 0.2, 30)) for s in range(3)}
    pair = compare_with_base(changes)
    expected = mean_effect(np.array([values for _, values in changes.values()]))
    assert (pair.effect, pair.low, pair.high) == pytest.approx([100 * x for x in expected[:3]])
    assert (pair.runs, pair.items, pair.covers_seeds, pair.stored) == ((3, 3), 30, True, {})
    assert not compare_with_base({0: changes[0]}).covers_seeds
    lacking = {**changes, 5: (ids[2:], changes[0][1][2:])}
    assert compare_with_base({**lacking, 6: (["x"], np.ones(1))}).left_out == 31
    assert np.isnan(compare_with_base({0: changes[0], 1: ([], np.array([]))}).effect)


def test_r2_of_unrelated_cells_is_rarely_supported() -> None:
    """Unrelated policies of 10 seeds each: their means are the points, and four are too few."""
    rng, supported = np.random.default_rng(0), 0
    claim = parse_claim("r2 > 0")
    for _ in range(400):
        points = rng.normal(size=(2, 10)).T
        supported += judge_claim(claim, r_squared(points)).verdict == "supported"
    assert supported / 400 <= 0.075
    assert judge_claim(claim, r_squared(points[:4])).verdict == "inconclusive"


def test_policies_with_the_same_prompts_are_one_point() -> None:
    policies = [
        {"a": (1.0, 2.0), "b": (3.0, 4.0)},
        {"c": (0.0, 1.0)},
        {"b": (3.0, 4.0), "d": (5.0, 0.0)},
        {"a": (1.0, 2.0), "b": (3.0, 4.0)},
    ]
    assert sorted(independent_points(policies)) == [(0.0, 1.0), (3.0, 2.0)]
    assert independent_points([]) == []
