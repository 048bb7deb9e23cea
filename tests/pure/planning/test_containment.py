"""Test questions inside training prompts: found by runs of words and of characters."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from factories import small_plan
from hypothesis import given
from hypothesis import strategies as st
from remedies import refused

from orchestrator.cli.plan_summary import _dataset
from orchestrator.planning.containment import (
    CHARACTERS,
    COMMON,
    CONTAINED,
    RUNS,
    WORDS,
    find_containment,
)
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.planning.shingles import words
from orchestrator.plugins.streams import text_random
from tasks import Prompt
from tasks.prompts import make_prompt

LENGTHS = {"words": WORDS, "characters": CHARACTERS}


def prompts(*questions: str) -> list[Prompt]:
    return [make_prompt("t", question, "1", "1") for question in dict.fromkeys(questions)]


def runs(question: str, kind: str) -> set[tuple[str, ...]]:
    """The runs by their definition."""
    parts = words(question) if kind == "words" else list("".join(words(question)))
    return {tuple(parts[i : i + LENGTHS[kind]]) for i in range(len(parts) - LENGTHS[kind] + 1)}


def brute(train: list[Prompt], tests: list[Prompt]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Compare every pair, with `words` alone: best match by training prompt, and the counts."""
    matches: dict[str, list[tuple[float, bool, str]]] = {}
    contained, touched, told = set(), set(), set()
    for kind in LENGTHS:
        of_tests = {each.prompt_id: runs(each.question, kind) for each in tests}
        holders = Counter(run for own in of_tests.values() for run in own)
        for test_id, own in of_tests.items():
            telling = {run for run in own if holders[run] <= COMMON}
            told |= {test_id} if telling else set()
            for prompt in train:
                if shared := telling & runs(prompt.question, kind):
                    touched.add(test_id)
                    share = len(shared) / len(telling)
                    if share >= CONTAINED - 1e-9:
                        contained.add(test_id)
                        match = (-round(share, 9), kind != "words", test_id)
                        matches.setdefault(prompt.prompt_id, []).append(match)
    counts = len(contained), len(touched), len(tests) - len(told)
    return {train_id: min(found) for train_id, found in matches.items()}, counts


def test_the_search_agrees_with_comparing_every_pair() -> None:
    rng = text_random("containment")
    vocabulary = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 7))) for _ in range(300)]
    vocabulary += ["été", "漢字", "1,200", "x^2"]

    def text(most: int, least: int = 0) -> str:
        return " ".join(rng.choices(vocabulary, k=rng.randint(least, most)))

    template = text(12, 12)
    tests = [text(40, 3) for _ in range(40)] + [f"{template} {text(9)}" for _ in range(12)]
    train = [text(60, 3) for _ in range(60)] + [template]
    for _ in range(40):
        one = rng.choice(tests).split()
        one[rng.randrange(len(one))] = rng.choice(["changed", one[0]])
        train.append(f"{text(20)} {' '.join(one)} {text(5)}")
    train += [tests[3].replace(" ", ""), tests[4].upper(), "", "漢字" * 30]
    pool, test_set = prompts(*train), prompts(*tests, "漢字" * 40)
    found = find_containment(pool, test_set)
    best, counts = brute(pool, test_set)
    got = {m.train_id: (-round(m.share, 9), m.kind != "words", m.evaluation_id) for m in found[0]}
    assert got == best and len(best) > 10
    assert (found.contained, found.touched, found.untold) == counts
    assert [m.train_id for m in found.prompts] == [p.prompt_id for p in pool if p.prompt_id in got]
    assert find_containment(pool, test_set[::-1]) == found


@given(st.lists(st.text("aB1 .,!?é漢½\u2212", max_size=90), min_size=1, max_size=4))
def test_a_run_has_one_hash_wherever_it_stands(texts: list[str]) -> None:
    for kind, hashed in RUNS.items():
        found = hashed(pa.array(texts))
        numbers: dict[int, set[int]] = {}
        for row, number in zip(found.rows.tolist(), found.hashes.tolist(), strict=True):
            numbers.setdefault(row, set()).add(number)
        for row, text in enumerate(texts):
            assert len(numbers.get(row, ())) == len(runs(text, kind))
            for other, one in enumerate(texts):
                shared = numbers.get(row, set()) & numbers.get(other, set())
                assert len(shared) == len(runs(text, kind) & runs(one, kind))


def test_nothing_is_told_of_short_questions_and_empty_sets() -> None:
    question = "How many of the seven old boats are still in the harbour at noon?"
    for train, tests, untold in (
        ([], [question], 0),
        ([question], [], 0),
        ([question], ["How many?"], 1),
    ):
        found = find_containment(prompts(*train), prompts(*tests))
        assert (found.prompts, found.contained, found.touched) == ([], 0, 0)
        assert (found.untold, found.questions) == (untold, len(tests)), (train, tests)
    same = find_containment(prompts(f"Please answer: {question} Thanks."), prompts(question))
    [match] = same.prompts
    assert (match.kind, match.share, same.by) == ("words", 1.0, {"words": 1, "characters": 1})


def written(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder / name)


def test_containment_with_the_test_set_and_with_benchmarks_is_reported_and_dropped(
    tmp_path: Path,
) -> None:
    names = ["ash", "birch", "cedar", "elm", "fir", "larch", "maple", "oak", "pine", "rowan"]
    story = [f"{a} and {b} have {i} plums, of which {c} eats one" for i, (a, b, c) in
             enumerate(zip(names, names[3:], names[5:], strict=False))]  # fmt: skip
    rows = [{"question": f"{each}. How many are left?", "answer": "1"} for each in story]
    inside = " ".join(f"Solve this one for me, and show each step. {story[0]}.".split() * 2)
    train = [*rows[2:], {"question": inside, "answer": "1"}]
    chat = [{"role": "user", "content": story[2]}]
    options = {
        "train": written(tmp_path, "train.jsonl", train),
        "test": written(tmp_path, "test.jsonl", [{**rows[0], "question": f"{story[0]}."}]),
    }
    file = written(tmp_path, "bench.jsonl", [{"messages": chat}])
    dataset = {"task": "file", "options": options, "benchmarks": [file]}
    plan = small_plan(tmp_path, datasets={"small": dataset}, budget=1)
    summary = _dataset(plan, "small")
    counts = {name: found["contained"] for name, found in summary.containment.items()}
    assert counts == {"small": 1, file: 1}
    own, other = summary.containment_text
    assert "train.jsonl:4" in own and "drop_overlap: containment" in own
    assert file in other and "train.jsonl:1" in other and [*summary.overlap] == ["small", file]
    kept = load_pool(
        Dataset("d", "file", options, "lenient", drop_overlap="containment", benchmarks=(file,))
    )
    assert len(kept.train) == len(train) - 2 == kept.rows.used - 1
    left_out = {"with a test question inside": 1, f"with a question of {file} inside": 1}
    assert {name: count for name, count in kept.rows.left_out.items() if count} == left_out
    assert kept.overlap_lines == [] and not find_containment(kept.train, kept.test).prompts
    duplicates = load_pool(Dataset("d", "file", options, "lenient", drop_overlap=True))
    assert len(duplicates.train) == len(train), "a question inside another one is no duplicate"
    assert str(tmp_path / "bench.jsonl") in plan.files


@pytest.mark.parametrize("rows", [[{"other": "x"}], [{"question": 3}], [{"question": ""}], []])
def test_a_benchmark_without_questions_is_refused(tmp_path: Path, rows: list[Any]) -> None:
    train = [{"question": f"Q {i}", "answer": "1"} for i in range(4)]
    options = {
        "train": written(tmp_path, "train.jsonl", train),
        "test": written(tmp_path, "test.jsonl", [{"question": "T", "answer": "1"}]),
    }
    file = written(tmp_path, "bench.jsonl", rows)
    with refused("bench.jsonl", code="invalid-dataset"):
        small_plan(
            tmp_path,
            datasets={"small": {"task": "file", "options": options, "benchmarks": file}},
        )


@pytest.mark.parametrize("value", ["contained", 1, "true", None])
def test_other_values_of_drop_overlap_are_refused(tmp_path: Path, value: Any) -> None:
    with refused("drop_overlap", "containment"):
        small_plan(tmp_path, datasets={"small": {"task": "gsm8k", "drop_overlap": value}})
