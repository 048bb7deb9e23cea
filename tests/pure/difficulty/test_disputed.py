"""Answers on which completions agree, for and against the gold answer."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.difficulty import disputed as module
from orchestrator.difficulty.answers import votes_of
from orchestrator.difficulty.disputed import (
    DEVIATIONS,
    LEAST,
    PRECISION,
    SHARE,
    DisputedGolds,
    disputed_golds,
)
from orchestrator.difficulty.proportions import wilson
from orchestrator.difficulty.suspects import DOUBT
from orchestrator.difficulty.table import difficulty
from orchestrator.selection.subsets import SubsetRequest, policy_entry, select
from orchestrator.storage.schema import SAMPLES

RIGHT = ("correct", "gold")
LOST = ("truncated", None)


def samples_of(prompts: dict[str, list[tuple[str, str | None]]]) -> pa.Table:
    rows = [
        {"prompt_id": prompt_id, "sample": i, "outcome": outcome, "extracted": extracted}
        for prompt_id, answers in prompts.items()
        for i, (outcome, extracted) in enumerate(answers)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def wrong(*answers: str) -> list[tuple[str, str | None]]:
    return [("wrong", answer) for answer in answers]


def disputed_of(**prompts: list[tuple[str, str | None]]):
    samples = samples_of(prompts)
    table = difficulty(samples)
    return disputed_golds(votes_of(samples, table), table)


def test_a_prompt_whose_answered_completions_agree_on_another_answer_is_suspect() -> None:
    disputed = disputed_of(
        unanimous=wrong("\\dfrac12", "\\frac{1}{2}", "\\frac{1}{2}"),
        most=[*wrong("8", "8", "8", "9"), LOST, *wrong("8")],
        divided=wrong("1", "2", "3"),
        half=[*wrong("4", "4", "4"), LOST, LOST, LOST],
        solved_once=[*wrong("5", "5", "5", "5"), RIGHT],
        solved_twice=[*wrong("5", "5", "5"), RIGHT, RIGHT],
        solved=[RIGHT, RIGHT, RIGHT],
    )
    assert [gold[:4] for gold in disputed.candidates] == [
        ("half", "4", 3, 6),
        ("unanimous", "\\frac{1}{2}", 3, 3),
        ("most", "8", 4, 6),
        ("solved_once", "5", 4, 5),
    ]
    assert [gold.evidence for gold in disputed.candidates] == pytest.approx(
        [wilson(np.array(lead), np.array(n))[0] for lead, n in ((3, 3), (3, 3), (4, 5), (3, 5))]
    )
    assert (disputed.on_gold, disputed.on_other) == (1, 4)
    # in the order of their ids: divided, half, most, solved, solved_once, solved_twice, unanimous
    assert disputed.disputed.tolist() == [False, True, True, False, True, False, True]
    assert not disputed.credible, "the model agrees on the gold answer of one prompt only"
    assert "on 4 prompts, " in disputed.doubt and disputed.doubt in disputed.verdict
    assert not disputed.suspected.any()


def test_few_or_unparsed_answers_are_no_agreement() -> None:
    for prompts in (
        {},
        {"two": wrong("1", "1"), "lost": [LOST] * 5, "unparsed": [("unparsed", None)] * 5},
    ):
        disputed = disputed_of(**prompts)
        assert (disputed.on_gold, disputed.on_other, disputed.candidates) == (0, 0, [])
        assert disputed.by_mistake == 0 and not disputed.disputed.any()
        assert not disputed.credible and not disputed.doubt


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.lists(st.sampled_from([RIGHT, LOST, *wrong("1", "2"), ("error", None)]), min_size=1),
        min_size=1,
    )
)
def test_disputed_golds_are_outvoted_and_sorted(prompts) -> None:
    disputed = disputed_of(**prompts)
    for gold in disputed.candidates:
        answers = prompts[gold.prompt_id]
        assert answers.count(("wrong", gold.answer)) == gold.votes >= LEAST
        answered = [answer for answer in answers if answer[0] in ("correct", "wrong")]
        assert gold.votes >= SHARE * len(answered) - 1e-9
        assert answers.count(RIGHT) < gold.votes
    evidence = [gold.evidence for gold in disputed.candidates]
    assert evidence == sorted(evidence, reverse=True)
    assert len(evidence) == disputed.disputed.sum() == disputed.on_other
    assert 0 <= disputed.precision <= 1 or not disputed.on_other
    assert disputed.by_mistake >= 0
    assert disputed.suspected.any() == disputed.credible
    assert bool(disputed.doubt) == (disputed.on_other > 0 and not disputed.credible)


def chances(
    rng: np.random.Generator, rates: np.ndarray, kind: str, attracted: float = 0
) -> np.ndarray:
    """[prompts, answers]: the chance of each; the first one is right, with these pass rates.

    Of a share of the prompts, 70 % of the wrong answers are the second one.
    """
    others, each = {"letters": (4, 1.0), "numbers": (60, 3 / 60), "scattered": (60, 100)}[kind]
    drawn = rng.gamma(each, size=(len(rates), others)) + 1e-12
    shares = drawn / drawn.sum(axis=1, keepdims=True)
    if attracted:
        same = rng.random(len(rates)) < attracted
        shares[same] = 0.3 * shares[same] + 0.7 * (np.arange(others) == 0)
    return np.concatenate([rates[:, None], (1 - rates)[:, None] * shares], axis=1)


def completions(
    rng: np.random.Generator, answers: np.ndarray, samples: int, wrong_golds: np.ndarray
) -> dict[str, list[tuple[str, str | None]]]:
    """The answers of a probe; a wrong gold is one that no completion gives."""
    ends = answers.cumsum(axis=1) / answers.sum(axis=1, keepdims=True)
    given = (rng.random((len(answers), samples, 1)) > ends[:, None]).sum(axis=2)
    right = (given == 0) & ~wrong_golds[:, None]
    return {
        f"p{i:05}": [
            ("correct" if is_right else "wrong", f"answer {a}")
            for a, is_right in zip(row, rights, strict=True)
        ]
        for i, (row, rights) in enumerate(zip(given, right, strict=True))
    }


def test_disputed_golds_are_suspected_beyond_chance_alone() -> None:
    most = int(10 + DEVIATIONS * 4)
    agreed = DisputedGolds(most + 2, most + 1, 10.0, 4.0, PRECISION, np.zeros(0), [])
    assert agreed.credible and agreed.most_by_mistake == most
    for change in ({"on_other": most}, {"on_gold": most + 1}, {"precision": PRECISION - 1e-9}):
        assert not agreed._replace(**change).credible


def test_a_share_of_wrong_golds_is_claimed_beyond_chance_alone() -> None:
    few = DisputedGolds(100, 6, 6.4, 3.0, 0.0, np.zeros(0), [])
    many = few._replace(on_other=20, precision=0.3)
    assert "%" not in few.verdict and "6.4" in few.verdict and "12" in few.verdict
    assert "30 %" in many.verdict and "50 %" in many.verdict
    assert "%" not in many._replace(on_gold=20).verdict
    suspected = many._replace(precision=0.8)
    assert suspected.title != many.title and "80 %" in suspected.verdict and not suspected.doubt


@pytest.mark.parametrize("samples", [4, 10])
@pytest.mark.parametrize("kind", ["letters", "numbers"])
def test_right_golds_are_not_suspected_by_a_model_that_often_errs(kind: str, samples: int) -> None:
    """A third of its answers is right; 5 to 25 % of the golds are disputed, by mistake."""
    for seed in range(3):
        rng = np.random.default_rng([seed, samples])
        answers = chances(rng, rng.beta(0.3, 0.6, 1000), kind)
        agreed = disputed_of(**completions(rng, answers, samples, np.zeros(1000, bool)))
        assert agreed.on_other > 40
        assert agreed.by_mistake == pytest.approx(agreed.on_other, abs=2 * agreed.deviation)
        assert not agreed.suspected.any() and agreed.doubt


@pytest.mark.parametrize("samples", [8, 32])
def test_attractive_wrong_answers_are_no_wrong_golds(samples: int) -> None:
    """Two to three times as many golds are disputed as the mode of scattered answers explains."""
    rng = np.random.default_rng(samples)
    answers = chances(rng, rng.beta(0.5, 0.5, 600), "scattered", attracted=0.3)
    right = np.zeros(600, bool)
    agreed = disputed_of(**completions(rng, answers, samples, right))
    assert agreed.on_other > 15 and not agreed.suspected.any()
    assert agreed.by_mistake == pytest.approx(agreed.on_other, abs=2 * agreed.deviation)


@pytest.mark.parametrize("samples", [5, 10])
def test_wrong_golds_are_suspected_where_the_model_is_mostly_right(samples: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng([seed, samples])
        answers, bad = chances(rng, rng.beta(4, 0.5, 1000), "numbers"), rng.random(1000) < 0.06
        agreed = disputed_of(**completions(rng, answers, samples, bad))
        hits = (agreed.suspected & bad).sum()
        assert agreed.precision == pytest.approx(hits / agreed.suspected.sum(), abs=0.15)
        assert hits > 0.7 * bad.sum() and not agreed.doubt


def test_the_expected_precision_does_not_depend_on_the_ids_of_prompts() -> None:
    rng = np.random.default_rng(0)
    prompts = completions(
        rng, chances(rng, rng.beta(1, 0.5, 300), "numbers"), 8, rng.random(300) < 0.1
    )
    one, order = disputed_of(**prompts), rng.permutation(300)
    other = disputed_of(**{f"p{i:05}": prompts[f"p{old:05}"] for i, old in enumerate(order)})
    assert other[:5] == pytest.approx(one[:5], rel=1e-9) and 0 < one.precision < 1
    assert (other.evidence == one.evidence[order]).all()


def test_a_selection_says_why_exclude_suspected_has_no_effect() -> None:
    rng = np.random.default_rng(0)
    answers = chances(rng, rng.beta(0.3, 0.6, 300), "numbers")
    drawn = completions(rng, answers, 8, np.zeros(300, bool))
    table = difficulty(samples_of(drawn))
    request = SubsetRequest(policy_entry("hard", {"exclude": ["suspected", "unsolved"]}), 30)
    [note] = select(table, request)[1]["notes"]
    doubt = table.schema.metadata[DOUBT].decode()
    assert "suspected" in note and doubt in note
    [note] = select(table.replace_schema_metadata(None), request)[1]["notes"]
    assert "suspected" in note and doubt not in note
    for policy in ("hard", "least_agreed"):
        why = select(table, SubsetRequest(policy_entry(policy, {}), 30))[1]
        assert [note[:13] for note in why.get("notes", [])] in ([], ["never solved:"])
    drawn |= {f"bad{i:03}": wrong(*["1"] * 8) for i in range(200)}
    drawn |= {f"good{i:03}": [RIGHT] * 8 for i in range(600)}
    assert "notes" not in select(difficulty(samples_of(drawn)), request)[1]


def same(one: module.DisputedGolds, two: module.DisputedGolds) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_pool_that_is_compared_in_parts_has_the_same_agreement(monkeypatch) -> None:
    """As many wrong answers in each part, with other spellings and some that are solved."""
    pool = {f"p{i:02}": wrong(*["Ä", "a", "ä", "A"][: 3 + i % 2], "a", "A") for i in range(20)}
    pool |= {f"q{i}": [*wrong("3", "3", "3"), *[RIGHT] * (i % 2)] for i in range(10)}
    whole = disputed_of(**pool)
    monkeypatch.setattr(module, "ROWS", 7)
    assert same(disputed_of(**pool), whole)
    monkeypatch.setattr(module, "MOST", 4)
    assert same(disputed_of(**pool), whole._replace(candidates=whole.candidates[:4]))
    assert whole.on_other > 4
