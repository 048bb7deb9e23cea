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
    INEXACT,
    LEAST,
    PRECISION,
    SHARE,
    DisputedGolds,
    SuspectGold,
    disputed_golds,
)
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
    assert disputed.suspects == [
        SuspectGold("unanimous", "\\frac{1}{2}", 3, 3),
        SuspectGold("solved_once", "5", 4, 5),
        SuspectGold("most", "8", 4, 6),
        SuspectGold("half", "4", 3, 6),
    ]
    assert (disputed.on_gold, disputed.on_other) == (1, 4)
    # in the order of their ids: divided, half, most, solved, solved_once, solved_twice, unanimous
    assert disputed.disputed.tolist() == [False, True, True, False, True, False, True]
    assert not disputed.credible, "the model agrees on the gold answer of one prompt only"
    assert "on 4 prompts, " in disputed.doubt
    assert not disputed.suspected.any()


def test_few_or_unparsed_answers_are_no_agreement() -> None:
    for prompts in (
        {},
        {"two": wrong("1", "1"), "lost": [LOST] * 5, "unparsed": [("unparsed", None)] * 5},
    ):
        disputed = disputed_of(**prompts)
        assert (disputed.on_gold, disputed.on_other, disputed.suspects) == (0, 0, [])
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
def test_suspects_are_outvoted_and_sorted(prompts) -> None:
    disputed = disputed_of(**prompts)
    for suspect in disputed.suspects:
        answers = prompts[suspect.prompt_id]
        assert answers.count(("wrong", suspect.answer)) == suspect.votes >= LEAST
        answered = [answer for answer in answers if answer[0] in ("correct", "wrong")]
        assert suspect.votes >= SHARE * len(answered) - 1e-9
        assert answers.count(RIGHT) < suspect.votes
    shares = [s.votes / s.n for s in disputed.suspects]
    assert shares == sorted(shares, reverse=True)
    assert len(disputed.suspects) == disputed.disputed.sum() == disputed.on_other
    assert 0 <= disputed.precision <= 1 or not disputed.on_other
    assert disputed.by_mistake >= 0
    assert disputed.suspected.any() == disputed.credible
    assert bool(disputed.doubt) == (disputed.on_other > 0 and not disputed.credible)


def chances(rng: np.random.Generator, rates: np.ndarray, kind: str) -> np.ndarray:
    """[prompts, answers]: the chance of each; the first one is right, with these pass rates."""
    others, each = {"letters": (4, 1.0), "numbers": (60, 3 / 60)}[kind]
    drawn = rng.gamma(each, size=(len(rates), others)) + 1e-12
    shares = drawn / drawn.sum(axis=1, keepdims=True)
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
    most = int(10 + DEVIATIONS * np.sqrt(10 + (INEXACT * 10) ** 2))
    agreed = DisputedGolds(most + 2, most + 1, 10.0, PRECISION, np.zeros(0, bool), [])
    assert agreed.credible
    for change in ({"on_other": most}, {"on_gold": most + 1}, {"precision": PRECISION - 1e-9}):
        assert not agreed._replace(**change).credible


@pytest.mark.parametrize("samples", [4, 10])
@pytest.mark.parametrize("kind", ["letters", "numbers"])
def test_right_golds_are_not_suspected_by_a_model_that_often_errs(kind: str, samples: int) -> None:
    """A third of its answers is right; 5 to 25 % of the golds are disputed, by mistake."""
    for seed in range(3):
        rng = np.random.default_rng([seed, samples])
        answers = chances(rng, rng.beta(0.3, 0.6, 1000), kind)
        agreed = disputed_of(**completions(rng, answers, samples, np.zeros(1000, bool)))
        assert agreed.on_other > 40
        assert agreed.by_mistake == pytest.approx(agreed.on_other, rel=0.35)
        assert not agreed.suspected.any() and agreed.doubt


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
    assert other[:4] == pytest.approx(one[:4], rel=1e-9) and 0 < one.precision < 1
    assert (other.disputed == one.disputed[order]).all()


def test_a_selection_says_why_exclude_suspected_has_no_effect() -> None:
    rng = np.random.default_rng(0)
    answers = chances(rng, rng.beta(0.3, 0.6, 300), "numbers")
    drawn = completions(rng, answers, 8, np.zeros(300, bool))
    table = difficulty(samples_of(drawn))
    request = SubsetRequest(policy_entry("hard", {"exclude": ["suspected", "unsolved"]}), 30)
    [note] = select(table, request)[1]["notes"]
    assert "suspected" in note and "% of" in note
    [note] = select(table.replace_schema_metadata(None), request)[1]["notes"]
    assert "suspected" in note and "% of" not in note
    for policy in ("hard", "least_agreed"):
        assert "notes" not in select(table, SubsetRequest(policy_entry(policy, {}), 30))[1]
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
    assert same(disputed_of(**pool), whole._replace(suspects=whole.suspects[:4]))
    assert whole.on_other > 4
