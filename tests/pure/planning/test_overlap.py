"""Overlap of a pool with an evaluation set: duplicates are detected, shared templates are not."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from data import data
from hypothesis import example, given
from hypothesis import strategies as st
from processes import hang_limit

from orchestrator.planning.overlap import (
    NearFilter,
    Overlap,
    describe,
    find_overlap,
    without_overlap,
)
from orchestrator.planning.shingles import NEAR, SHINGLE, hashed_runs, words
from tasks import Prompt, get_task
from tasks.prompts import make_prompt


def read(path: Path) -> list[Prompt]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [make_prompt("t", row["question"], str(row["answer"]), "1") for row in rows]


STORY = (
    "Nora runs a stall on the harbour. On Monday she sells 14 jars of honey in the morning and "
    "twice as many in the afternoon. How many jars has she sold when she closes?"
)
# A small alphabet, so that random questions do share runs of words.
QUESTIONS = st.lists(st.text("ab 1?", max_size=12), max_size=8)


def prompts(*questions: str) -> list[Prompt]:
    return [make_prompt("t", question, "1", "1") for question in questions]


def shingles(question: str) -> set[tuple[str, ...]]:
    """The shingles by their definition."""
    edge = [""] * (SHINGLE - 1)
    padded = [*edge, *words(question), *edge]
    return {tuple(padded[i : i + SHINGLE]) for i in range(len(padded) - SHINGLE + 1)}


def brute(train: Sequence[Prompt], evaluation: Sequence[Prompt], threshold: float) -> list[Overlap]:
    """Compare every pair, using only `words` of the search's own code."""
    overlaps = []
    for prompt in train:
        ranked = []
        for other in evaluation:
            exact = words(prompt.question) == words(other.question)
            a, b = shingles(prompt.question), shingles(other.question)
            similarity = len(a & b) / len(a | b)
            if exact or similarity >= threshold:
                ranked.append((not exact, -similarity, other.prompt_id))
        if ranked:
            near, negative, other_id = min(ranked)
            kind = "near" if near else "exact"
            overlaps.append(Overlap(prompt.prompt_id, other_id, kind, -negative))
    return overlaps


# Every class of characters that the words' expression distinguishes, and some that change by NFKC.
SIGNS = st.text("aB1 .,!?\\_+-'$\n\x1f\x00é漢ﬁ½٣\u2212\u2019", max_size=16)


EITHER = QUESTIONS | st.lists(SIGNS, max_size=6)


@given(EITHER, EITHER, st.sampled_from([0.05, 0.3, 0.5, 2 / 3, 0.8, 1.0]))
@example(["?"], ["...", "a"], 0.8)
@example([], ["a"], 0.8)
@example(["a"], [], 0.8)
def test_the_search_agrees_with_comparing_every_pair(
    train: list[str], evaluation: list[str], threshold: float
) -> None:
    pool, test_set = prompts(*train), prompts(*evaluation)
    expected = brute(pool, test_set, threshold)
    assert find_overlap(pool, test_set, threshold=threshold) == expected
    assert find_overlap(pool, test_set[::-1], threshold=threshold) == expected


@given(st.lists(SIGNS | st.from_regex(r"\d{1,3},\d{3}\.\d\w!", fullmatch=True), min_size=1))
def test_equal_words_and_only_those_have_equal_hashes(texts: list[str]) -> None:
    runs = hashed_runs(pa.array(texts))
    assert runs.counts.tolist() == [len(words(text)) + SHINGLE - 1 for text in texts]
    by_text = np.split(runs.hashes, np.cumsum(runs.counts)[:-1])
    for text, hashes in zip(texts, by_text, strict=True):
        same = [words(other) == words(text) for other in texts]
        assert same == [np.array_equal(hashes, other) for other in by_text]


@pytest.mark.parametrize("between", ["{}{}", "a{}{}", "{}{}a", "1{}{}2", "a{}b{}c"])
def test_every_character_begins_and_ends_words_as_in_their_expression(between: str) -> None:
    ascii_ = [chr(code) for code in range(128)]
    texts = [between.format(one, other) for one in ascii_ for other in ascii_]
    texts += [between.format(one, other) for one in "éß漢½٣²" for other in ascii_]
    expected = [words(text) for text in texts]
    runs = hashed_runs(pa.array(texts))
    assert runs.counts.tolist() == [len(each) + SHINGLE - 1 for each in expected]
    hashes = np.split(runs.hashes, np.cumsum(runs.counts)[:-1])
    by_words: dict[tuple[str, ...], bytes] = {}
    for each, own in zip(expected, hashes, strict=True):
        assert by_words.setdefault(tuple(each), own.tobytes()) == own.tobytes()
    assert len({*by_words.values()}) == len(by_words)


def test_a_batch_without_a_shared_run_has_no_near_duplicate() -> None:
    near = NearFilter(pa.chunked_array([["one two three four five"]]), 0.8)
    assert near.rows(pa.array(["six seven eight nine ten"])).tolist() == []


@given(QUESTIONS, QUESTIONS)
def test_removing_the_overlap_leaves_none(train: list[str], evaluation: list[str]) -> None:
    pool, test_set = prompts(*train), prompts(*evaluation)
    kept = without_overlap(pool, find_overlap(pool, test_set))
    assert find_overlap(kept, test_set) == []
    assert kept == [prompt for prompt in pool if prompt in kept]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many eggs?", "  how many\nEGGS "),
        ("It costs 1,200 dollars.", "It costs 1200 dollars"),
        ("$x^{2}+3x - 5=0$. Find $x$", "$x^2 + 3x-5 = 0.$ Find $x.$"),
        ("ﬁve ½ litres", "five 1⁄2 litres"),
        ("Ana’s “box”", 'Ana\'s "box"'),
        ("3 − 2", "3 - 2"),
    ],
)
def test_equivalent_spellings_match_exactly(one: str, other: str) -> None:
    [overlap] = find_overlap(prompts(one), prompts(other))
    assert (overlap.kind, overlap.similarity) == ("exact", 1.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x + 3", "x - 3"),
        ("1.5 litres", "15 litres"),
        (".5 litres", "5 litres"),
        ("the digits of 24!", "the digits of 24"),
        ("2(x+1)", "2x+1"),
        ("[0, 1)", "[0, 1]"),
        ("有三个苹果", "有四个苹果"),
    ],
)
def test_spellings_with_another_meaning_do_not_overlap(one: str, other: str) -> None:
    assert find_overlap(prompts(one), prompts(other)) == []


def test_one_changed_word_in_a_long_question_is_near() -> None:
    pool = prompts(STORY.replace("harbour", "harbor"), "How many jars?")
    [overlap] = find_overlap(pool, prompts(STORY, "Other words stand here."))
    assert overlap.train_id == pool[0].prompt_id
    assert overlap.kind == "near"
    # 34 words: 36 runs on either side, of which 3 are broken.
    assert len(words(STORY)) == 34
    assert overlap.similarity == 33 / 39 >= NEAR


def test_a_template_with_other_numbers_is_not_a_duplicate() -> None:
    other = STORY.replace("14 jars", "25 jars").replace("twice", "3 times").replace("Nora", "Ivan")
    assert find_overlap(prompts(STORY), prompts(other)) == []
    pool = prompts("Compute $\\sin 150^\\circ$.")
    assert find_overlap(pool, prompts("Compute $\\sin 135^\\circ$")) == []


def test_an_exact_match_comes_before_near_ones_and_the_smallest_id_wins() -> None:
    test_set = [make_prompt("t", f"{STORY}{'!' * i}", str(i), "1") for i in range(4)]
    [overlap] = find_overlap(prompts(STORY), test_set)
    assert (overlap.kind, overlap.evaluation_id) == ("exact", min(p.prompt_id for p in test_set))


@pytest.mark.parametrize("threshold", [0, -1, 1.1, float("nan")])
def test_an_invalid_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"\(0, 1\]"):
        find_overlap([], [], threshold=threshold)


def test_generated_questions_of_one_template_do_not_overlap() -> None:
    task = get_task("shuffled_objects")
    assert find_overlap(task.train(), task.test()) == []


def test_the_authors_shuffled_split_nearly_repeats_a_third_of_its_test() -> None:
    folder = "bbh_shuffled_objects"
    train, test = (read(data(folder, f"authors_{split}.jsonl")) for split in ("train", "test"))
    overlaps = find_overlap(train, test)
    assert [overlap.kind for overlap in overlaps] == ["near"] * 38


def test_math_repeats_four_test_questions_in_its_training_set() -> None:
    train, test = read(data("math", "train.jsonl.gz")), read(data("math", "test.jsonl"))
    with hang_limit():
        overlaps = find_overlap(train, test)
    assert describe(overlaps, len(train)).endswith(
        "68 of 7,500 training prompts (4 exact, 64 near)"
    )
    same = {p.prompt_id: p.answer for p in train + test}
    assert all(same[o.train_id] == same[o.evaluation_id] for o in overlaps if o.kind == "exact")
