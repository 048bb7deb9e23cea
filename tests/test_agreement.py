"""Answers on which completions agree, for and against the gold answer."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.difficulty import agreement as module
from orchestrator.difficulty.agreement import LEAST, SHARE, SuspectGold, agreement
from orchestrator.difficulty.table import difficulty
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


def agreement_of(**prompts: list[tuple[str, str | None]]):
    samples = samples_of(prompts)
    return agreement(samples, difficulty(samples))


def test_a_prompt_whose_answered_completions_agree_on_another_answer_is_suspect() -> None:
    agreement = agreement_of(
        unanimous=wrong("7", "7", "7"),
        most=[*wrong("8", "8", "8", "9"), LOST, *wrong("8")],
        divided=wrong("1", "2", "3"),
        half=[*wrong("4", "4", "4"), LOST, LOST, LOST],
        solved_once=[*wrong("5", "5", "5", "5"), RIGHT],
        solved_twice=[*wrong("5", "5", "5"), RIGHT, RIGHT],
        solved=[RIGHT, RIGHT, RIGHT],
    )
    assert agreement.suspects == [
        SuspectGold("unanimous", "7", 3, 3),
        SuspectGold("solved_once", "5", 4, 5),
        SuspectGold("most", "8", 4, 6),
        SuspectGold("half", "4", 3, 6),
    ]
    assert (agreement.on_gold, agreement.on_other) == (1, 4)
    # in the order of their ids: divided, half, most, solved, solved_once, solved_twice, unanimous
    assert agreement.suspected.tolist() == [False, True, True, False, True, False, True]
    assert not agreement.credible, "the model agrees on the gold answer of one prompt only"


def test_spellings_of_one_answer_are_the_same() -> None:
    agreement = agreement_of(a=wrong("\\dfrac12", "\\frac{1}{2}", "\\frac{1}{2}"))
    assert [(s.answer, s.votes) for s in agreement.suspects] == [("\\dfrac12", 3)]


def test_few_or_unparsed_answers_are_no_agreement() -> None:
    agreement = agreement_of(
        two=wrong("1", "1"), lost=[LOST] * 5, unparsed=[("unparsed", None)] * 5
    )
    assert (agreement.on_gold, agreement.on_other, agreement.suspects) == (0, 0, [])
    assert not agreement.suspected.any()


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.lists(st.sampled_from([RIGHT, LOST, *wrong("1", "2"), ("error", None)]), min_size=1),
        min_size=1,
    )
)
def test_suspects_are_outvoted_and_sorted(prompts) -> None:
    agreement = agreement_of(**prompts)
    for suspect in agreement.suspects:
        answers = prompts[suspect.prompt_id]
        assert answers.count(("wrong", suspect.answer)) == suspect.votes >= LEAST
        answered = [answer for answer in answers if answer[0] in ("correct", "wrong")]
        assert suspect.votes >= SHARE * len(answered) - 1e-9
        assert answers.count(RIGHT) < suspect.votes
    shares = [s.votes / s.n for s in agreement.suspects]
    assert shares == sorted(shares, reverse=True)
    assert len(agreement.suspects) == agreement.suspected.sum() == agreement.on_other


def same(one: module.Agreement, two: module.Agreement) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_a_pool_that_is_compared_in_parts_has_the_same_agreement(monkeypatch) -> None:
    """As many wrong answers in each part, with other spellings and some that are solved."""
    pool = {f"p{i:02}": wrong(*["Ä", "a", "ä", "A"][: 3 + i % 2], "a", "A") for i in range(20)}
    pool |= {f"q{i}": [*wrong("3", "3", "3"), *[RIGHT] * (i % 2)] for i in range(10)}
    whole = agreement_of(**pool)
    monkeypatch.setattr(module, "ROWS", 7)
    assert same(agreement_of(**pool), whole)
    monkeypatch.setattr(module, "MOST", 4)
    assert same(agreement_of(**pool), whole._replace(suspects=whole.suspects[:4]))
    assert whole.on_other > 4
