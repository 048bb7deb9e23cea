"""Cleaning of a pool: long prompts, duplicates and conflicts are named, and left out on request."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from factories import small_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.planning.flaws import Cleaning, cleaned, find_flaws
from orchestrator.planning.near_duplicates import near_groups
from orchestrator.planning.plan import make_plan
from orchestrator.planning.pools import Dataset, Pool, load_pool
from orchestrator.planning.shingles import NEAR, SHINGLE, words
from tasks import Prompt, TaskError, make_prompt
from tasks.prompt_table import PromptTable
from tasks.question_file import QuestionFile

LONG = "On the market of a village by the sea, a farmer sells {} of the {} cows that she has owned "
LONG += "since the spring of last year; how many of them does she still have in the evening?"
# Row by row: 1-2 equal with other words around, 3 in capitals, 4-5 equal values, 6-7 a conflict.
ROWS = [
    {"question": LONG.format(2, 9), "answer": "7"},
    {"question": LONG.format(2, 9).replace("farmer", "woman"), "answer": "7"},
    {"question": LONG.format(2, 9).upper(), "answer": "7"},
    {"question": "What is a half?", "answer": "1/2"},
    {"question": "What  is a half?", "answer": "0.5"},
    {"question": "How old is Ann?", "answer": "5"},
    {"question": "how old is Ann? ", "answer": "6"},
    {"question": LONG.format(2, 8), "answer": "6"},
    {"question": "Is it test 3?", "answer": "3"},
    *({"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(16)),
]
CONFLICT, EQUAL = {6, 7}, {4, 5}


def write(file: Path, rows: Sequence[dict[str, Any]]) -> str:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    tests = [{"question": f"is it TEST {i}?", "answer": str(i)} for i in range(6)]
    return {
        "train": write(tmp_path / "pool.jsonl", ROWS),
        "test": write(tmp_path / "t.jsonl", tests),
    }


def pool_of(options: dict[str, Any], **fields: Any) -> Pool:
    return load_pool(Dataset("d", "file", options, "lenient", **fields))


def lines_of(pool: Pool) -> set[int]:
    """The lines of the file that are in the pool."""
    return {int(place.rpartition(":")[2]) for place in pool.train.column("place").to_pylist()}


ALL = {*range(1, len(ROWS) + 1)}


@pytest.mark.parametrize(
    ("duplicates", "conflicts", "left"),
    [
        ("keep", "keep", ALL),
        ("first", "keep", ALL - {2, 3, 5, 7}),
        ("drop", "keep", ALL - {1, 2, 3, 4, 5, 6, 7}),
        ("keep", "drop", ALL - CONFLICT),
        ("first", "drop", ALL - {2, 3, 5} - CONFLICT),
    ],
)
def test_what_is_left_out(
    options: dict[str, str], duplicates: str, conflicts: str, left: set[int]
) -> None:
    pool = pool_of(options, cleaning=Cleaning(duplicates=duplicates, conflicts=conflicts))
    assert lines_of(pool) == left
    dropped = [note for note in pool.notes if note.startswith("dropped: ")]
    assert sum(int(note.split()[1]) for note in dropped) == len(ALL) - len(left)
    assert len(dropped) == (duplicates != "keep") + (conflicts != "keep")


def test_flaws_are_named_with_the_settings_that_help(options: dict[str, str]) -> None:
    pool = pool_of(options)
    conflicts, duplicates = pool.flaw_lines
    for value in ("2 of 25", "pool.jsonl:6", "pool.jsonl:7", "conflicts: drop"):
        assert value in conflicts
    for value in ("4 of 25", "0 word for word, 3 up", "1 nearly", ":2, ", "duplicates: first"):
        assert value in duplicates
    [overlap] = pool.overlap_lines
    assert "pool.jsonl:9" in overlap and "drop_overlap: true" in overlap
    without = pool_of(options, drop_overlap=True)
    assert without.overlap_lines == [] and "pool.jsonl:9" in without.notes[-1]


@pytest.mark.parametrize("drop_overlap", [False, True])
def test_other_gold_answers_of_test_questions_are_named(
    tmp_path: Path, drop_overlap: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of equal questions, which are never trained on, and of those up to spaces and case."""
    tests = [
        {"question": "What is 3 + 3?", "answer": "33"},
        {"question": "what is  4 + 4?", "answer": "44"},
        {"question": "What is 5 + 5?", "answer": "10.0"},  # equal to the marker
        *({"question": f"Test {i}?", "answer": "1"} for i in range(4)),
    ]
    train, test = write(tmp_path / "pool.jsonl", ROWS), write(tmp_path / "t.jsonl", tests)
    entry = {"task": "file", "options": {"train": train, "test": test}}
    grid = {"model": ["stub"], "dataset": ["mine"], "policy": ["random"]}
    entry |= {"drop_overlap": drop_overlap}
    plan = small_plan(tmp_path, datasets={"mine": entry}, grid=grid)
    [line] = [each for each in plan.pools["mine"].flaw_lines if "test questions" in each]
    equal, spelled = "pool.jsonl:13 ('6')", "pool.jsonl:14 ('8')"
    for value in (equal, "t.jsonl:1 ('33')", spelled, "t.jsonl:2 ('44')", "2 training prompts"):
        assert value in line
    assert ":15" not in line and ("drop_overlap: true" in line) != drop_overlap
    assert main(["plan", str(tmp_path / "experiments.yaml"), "-e", "small"]) == 0
    assert " ".join(line.split()) in " ".join(capsys.readouterr().out.split())


def test_the_data_sets_of_a_mix_keep_their_conflicts_with_test_questions(tmp_path: Path) -> None:
    train = write(tmp_path / "pool.jsonl", ROWS)
    test = write(tmp_path / "t.jsonl", [{"question": "What is 3 + 3?", "answer": "33"}])
    mine = {"task": "file", "options": {"train": train, "test": test}}
    parts = {"mine": mine, "sums": {"task": "arithmetic", "options": {"train": 4, "test": 4}}}
    pool = load_pool(Dataset("both", "mix", {"parts": parts}, "lenient"))
    pairs = [(one.place, other.place) for one, other in pool.conflicts_with_test]
    assert pairs == [(f"{train}:13", f"{test}:1")]


def test_columns_that_a_function_gets_make_no_other_question(tmp_path: Path) -> None:
    rows = [{"question": "a?", "answer": "1", "level": level} for level in (1, 2, 3)]
    marker = {"marker": "reward_functions_of_users:accuracy"}
    other = [{"question": "b?", "answer": "1", "level": 1}]
    files = {
        name: write(tmp_path / f"{name}.jsonl", r) for name, r in (("train", rows), ("test", other))
    }
    assert len(pool_of({**files, **marker}).train) == 3
    first = pool_of({**files, **marker}, cleaning=Cleaning(duplicates="first"))
    assert lines_of(first) == {1}


def test_a_limit_in_tokens_holds_for_every_model(tmp_path: Path, options: dict[str, str]) -> None:
    from orchestrator.sampling.model import token_counts

    entry = {"task": "file", "options": options}
    models = {"stub": {"embedded": "tiny"}, "other": {"embedded": "tiny-arithmetic"}}
    grid = {"model": ["stub", "other"], "dataset": ["small"], "policy": ["random"], "seed": [0]}
    plan = small_plan(tmp_path, models=models, datasets={"small": entry}, grid=grid)
    pool, sources = (
        plan.pools["small"],
        {cell.probe.model.name: cell.probe.model for cell in plan.cells},
    )
    tokens = [
        token_counts(source, [pool.task.messages(p.question)[0]["content"] for p in pool.train])
        for source in sources.values()
    ]
    most = np.max(np.array(tokens), axis=0)
    limit = int(np.sort(most)[-3])
    small = small_plan(
        tmp_path,
        models=models,
        datasets={"small": {**entry, "max_prompt_tokens": limit}},
        grid=grid,
    ).pools["small"]
    assert list(small.train) == [p for p, n in zip(pool.train, most, strict=True) if n <= limit]
    assert f"{len(pool.train) - len(small.train)} of 25" in small.notes[-1]


def test_test_questions_are_cleaned_where_the_setting_says_so(tmp_path: Path) -> None:
    rows = [{"question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(40)]
    tests = [{"question": f"And {i} + 2?", "answer": str(i + 2)} for i in range(20)]
    tests += [
        {"question": "and 3 + 2?", "answer": "5"},
        {"question": f"{'9' * 900}?", "answer": "1"},
    ]
    for name, each in (("train", rows), ("test", tests)):
        text = "".join(json.dumps(row) + "\n" for row in each)
        (tmp_path / f"{name}.jsonl").write_text(text)
    options = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "test")}
    entry = {"task": "file", "options": options, "duplicates": "first", "max_prompt_tokens": 200}
    models = {"stub": {"embedded": "tiny"}}
    pools = [
        small_plan(
            tmp_path, models=models, datasets={"small": {**entry, "clean_test": clean}}
        ).pools["small"]
        for clean in (False, True)
    ]
    assert pools[0].train_hash == pools[1].train_hash
    assert [len(pool.test) for pool in pools] == [22, 20]
    assert pools[0].rows.left_out.get("by duplicates", 0) == 0
    left_out = {"by max_prompt_tokens": 1, "by duplicates": 1}
    assert pools[1].rows.left_out.items() >= left_out.items()
    assert pools[1].rows.used == len(pools[1].train) + len(pools[1].test)
    assert [note for note in pools[1].notes if "of 22 test questions" in note]


def test_a_limit_needs_a_tokenizer(tmp_path: Path, options: dict[str, str]) -> None:
    entry = {"task": "file", "options": options, "max_prompt_tokens": 10}
    with refused("max_prompt_tokens", "stub", code="not-downloaded"):
        small_plan(tmp_path, datasets={"small": entry})


@pytest.mark.parametrize(
    "setting", [{"duplicates": "last"}, {"conflicts": "first"}, {"max_prompt_tokens": 0}]
)
def test_other_values_are_refused(tmp_path: Path, setting: dict[str, Any]) -> None:
    entry = {"task": "shuffled_objects", "options": {"train": 40, "test": 12}, **setting}
    with refused(*setting):
        small_plan(tmp_path, datasets={"small": entry})


def test_a_corrected_list_is_read(tmp_path: Path, options: dict[str, str]) -> None:
    pool = pool_of(options)
    listed = pool.flaw_rows()
    assert {int(row["place"].rpartition(":")[2]) for row in listed} == {*range(1, 8), 9}
    by_line = {int(row["place"].rpartition(":")[2]): row for row in listed}
    assert by_line[6]["others"] == [by_line[7]["place"]] and "gold" in by_line[6]["problem"]
    assert by_line[9]["others"][0].endswith("t.jsonl:4")
    file = write(tmp_path / "problems.jsonl", listed)
    assert pool_of(options, corrections=file).train_hash == pool.train_hash
    by_line[7] |= {"question": "How old is Ben?", "answer": "6.0"}
    for line in (2, 3, 5, 9):
        by_line[line]["keep"] = False
    write(tmp_path / "problems.jsonl", listed)
    corrected = pool_of(options, corrections=file)
    assert lines_of(corrected) == ALL - {2, 3, 5, 9} and corrected.flaw_lines == []
    edited = [{**row} for row in ROWS]
    edited[6] = {"question": "How old is Ben?", "answer": "6.0"}
    kept = [row for line, row in enumerate(edited, 1) if line not in (2, 3, 5, 9)]
    same = pool_of({**options, "train": write(tmp_path / "edited.jsonl", kept)})
    assert list(corrected.train) == list(same.train), "the ids are those of the corrected data"


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"prompt_id": "0" * 16}, "pool.jsonl:"),
        ({"keep": "no"}, "keep"),
        ({"answer": "many"}, "answer"),
        ({"question": " "}, "question"),
        ({"question": 3}, "question"),
    ],
)
def test_corrections_that_cannot_be_used_are_refused(
    tmp_path: Path, options: dict[str, str], change: dict[str, Any], value: str
) -> None:
    listed = pool_of(options).flaw_rows()
    listed[2] |= change
    file = write(tmp_path / "problems.jsonl", listed)
    with refused("problems.jsonl:3", value, by=TaskError):
        pool_of(options, corrections=file)


def test_init_writes_the_list_and_reads_it(
    tmp_path: Path, options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, problems = tmp_path / "mine.yaml", tmp_path / "problems.jsonl"
    data = ["--train", options["train"], "--test", options["test"], "--model", "tiny"]
    command = ["init", *data, "--out", str(out), "--yes"]
    assert main([*command, "--problems", str(problems)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "conflicts: drop" in printed and "8 rows in" in printed
    assert main([*command, "--problems", str(problems)]) == 2
    rows = [json.loads(line) for line in problems.read_text().splitlines()]
    write(problems, [row | {"keep": row["answer"] != "6"} for row in rows])
    cleaning = ["--corrections", str(problems), "--duplicates", "first", "--drop-overlap"]
    assert main([*command, *cleaning, "--force"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 left out" in printed and "conflicts: " not in printed
    assert "duplicates: first" in out.read_text() and "corrections: " in out.read_text()


def choices(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "choices": ["x", "y", "z"], "answer": int(row["answer"]) % 3}


def chat(row: dict[str, Any]) -> dict[str, Any]:
    turns = zip(("user", "assistant"), (row["question"], row["answer"]), strict=True)
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def nested(row: dict[str, Any]) -> dict[str, Any]:
    return {"problem": row["question"], "reward_model": {"ground_truth": row["answer"]}}


# How rows are written; what two of them, with a training and a test question, are replaced by; and
# question and answer of the list and of its corrections.
INVALID: dict[str, tuple[Any, list[Any], list[tuple[str, str]], list[tuple[str, str]]]] = {
    "no answer, or a question of another type": (
        dict,
        [{"question": "Q?", "answer": None}, {"question": [1], "answer": "4", "id": 3}],
        [("Q?", ""), ("[1]", "4")],
        [("Q?", "3"), ("R?", "4")],
    ),
    "equal rows": (dict, [{"question": "Q?"}] * 2, [("Q?", "")], [("Q?", "7")]),
    "no expression": (
        lambda row: row | {"answer": rf"\frac{{{row['answer']}}}{{7}}"},
        [{"question": "Q?", "answer": r"\frac{1}{"}, {"question": "R?", "answer": r"\foo{"}],
        [("Q?", r"\frac{1}{"), ("R?", r"\foo{")],
        [("Q?", r"\frac{1}{2}"), ("R?", "3x")],
    ),
    "no choice": (
        choices,
        [{"question": "Q?", "choices": [*"xyz"], "answer": i} for i in (7, "u")],
        [("Q?", "7"), ("Q?", "u")],
        [("Q?", "B"), ("R?", "x")],
    ),
    "messages": (
        chat,
        [chat({"question": "Q?", "answer": ""}), chat({"question": "", "answer": "5"})],
        [("Q?", ""), ("", "5")],
        [("Q?", "1"), ("R?", "5")],
    ),
    "inside an object": (
        nested,
        [nested({"question": "Q?", "answer": None}), nested({"question": None, "answer": "1"})],
        [("Q?", ""), ("", "1")],
        [("Q?", "1"), ("R?", "1")],
    ),
}


@pytest.mark.parametrize("form", INVALID)
def test_rows_that_cannot_be_used_are_corrected_by_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """From init to plan: the prompts are those of data that was correct from the start."""
    monkeypatch.chdir(tmp_path)
    written, invalid, listed, corrections = INVALID[form]
    good = [written({"question": f"What is {i}?", "answer": str(i)}) for i in range(40)]
    write(tmp_path / "mine.jsonl", [*good[:7], invalid[0], *good[7:], invalid[1]])
    command = ["init", "--train", "mine.jsonl", "--model", "tiny", "--yes", "--out", "mine.yaml"]
    assert main([*command, "--problems", "problems.jsonl"]) == 0
    rows = [json.loads(line) for line in Path("problems.jsonl").read_text().splitlines()]
    assert [(row["question"], row["answer"]) for row in rows] == listed
    assert [place for row in rows for place in (row["place"], *row["others"])] == [
        "mine.jsonl:8",
        "mine.jsonl:42",
    ]
    assert all(row["problem"].startswith("invalid: ") and row["keep"] for row in rows)
    before = make_plan(load_config(Path("mine.yaml")), "mine").pools["mine"]
    for row, (question, answer) in zip(rows, corrections, strict=True):
        row |= {"question": question, "answer": answer}
    write(tmp_path / "problems.jsonl", rows)
    again = ["--corrections", "problems.jsonl", "--problems", "more.jsonl", "--force"]
    assert main([*command, *again]) == 0 and Path("more.jsonl").read_text() == ""
    assert main(["plan", "mine.yaml", "-e", "mine"]) == 0
    pool = make_plan(load_config(Path("mine.yaml")), "mine").pools["mine"]
    prompts, unchanged = ([*each.train, *each.test] for each in (pool, before))
    assert {p.prompt_id for p in unchanged} < {p.prompt_id for p in prompts}
    new = {p.place: p for p in prompts if p not in unchanged}
    for place, (question, answer) in zip(("8", "42"), corrections, strict=False):
        prompt = new.pop(f"mine.jsonl:{place}")
        gold = {"B": "(B)", "x": "(A)"}.get(answer, answer)
        assert (prompt.question.partition("\n")[0], prompt.answer) == (question, gold)
    assert not new
    assert not any("dropped as invalid" in note for note in pool.notes)


def test_corrected_rows_that_still_cannot_be_used_are_refused_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": f"Q{i}?", "answer": str(i)} for i in range(30)]
    rows[3]["answer"] = rows[4]["answer"] = "none"
    file, problems = write(tmp_path / "mine.jsonl", rows), tmp_path / "problems.jsonl"
    options = {"path": file, "skip_invalid": True}
    listed = pool_of(options).flaw_rows()
    assert [row["place"] for row in listed] == [f"{file}:4", f"{file}:5"]
    write(problems, listed)
    assert any("2 of 30" in note for note in pool_of(options, corrections=str(problems)).notes)
    listed[0]["keep"] = False
    write(problems, listed)
    left_out = pool_of(options, corrections=str(problems))
    assert any("1 left out" in note for note in left_out.notes)
    assert [row["place"] for row in left_out.flaw_rows()] == [f"{file}:5"]
    for change in ({"answer": "many"}, {"question": " ", "answer": "4"}, {"row_id": "0" * 16}):
        write(problems, [listed[0], listed[1] | change])
        with refused(f"{problems}:2", by=TaskError):
            pool_of(options, corrections=str(problems))


def test_both_rows_of_a_conflict_with_a_test_question_can_be_corrected(tmp_path: Path) -> None:
    tests = [{"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in (3, 4, 5)]
    tests += [{"question": f"Is it test {i}?", "answer": "1"} for i in range(4)]
    tests[0]["answer"] = tests[1]["answer"] = "33"
    train, test = write(tmp_path / "pool.jsonl", ROWS[9:]), write(tmp_path / "t.jsonl", tests)
    options, problems = {"train": train, "test": test}, tmp_path / "problems.jsonl"
    listed = pool_of(options).flaw_rows()
    assert [(row["place"], row["others"]) for row in listed] == [
        (f"{train}:4", [f"{test}:1"]),
        (f"{test}:1", [f"{train}:4"]),
        (f"{train}:5", [f"{test}:2"]),
        (f"{test}:2", [f"{train}:5"]),
    ]
    listed[1]["answer"], listed[3]["keep"] = "6", False
    write(problems, listed)
    pool = pool_of(options, corrections=str(problems))
    assert pool.flaw_lines == [] and pool.test[0].answer == "6" and len(pool.test) == 6
    assert 5 in lines_of(pool), "it is no test question now"
    assert 4 not in lines_of(pool)


def brute(questions: Sequence[str], classes: Sequence[int]) -> list[int]:
    """The groups by comparing every pair."""
    edge = [""] * (SHINGLE - 1)
    padded = [[*edge, *words(question), *edge] for question in questions]
    sets = [{tuple(p[i : i + SHINGLE]) for i in range(len(p) - SHINGLE + 1)} for p in padded]
    first = [*range(len(sets))]
    for i, one in enumerate(sets):
        for j, two in enumerate(sets[:i]):
            if classes[i] == classes[j] and len(one & two) / len(one | two) >= NEAR:
                low, high = sorted((first[i], first[j]))
                first = [low if group == high else group for group in first]
    return first


# Long questions of few words, with a word changed here and there.
SPELLED = st.tuples(st.lists(st.integers(0, 39), max_size=2), st.integers(0, 2)).map(
    lambda drawn: " ".join("x" if i in drawn[0] else f"w{i % 13 + drawn[1]}" for i in range(40))
)
QUESTIONS = SPELLED | st.text("ab 1?", max_size=12)


@given(st.lists(st.tuples(QUESTIONS, st.integers(0, 1)), max_size=9), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_near_groups_agree_with_comparing_every_pair(
    drawn: list[tuple[str, int]], cut: int
) -> None:
    texts, classes = [text for text, _ in drawn], [of for _, of in drawn]
    chunked = pa.chunked_array([texts[:cut], texts[cut:]], pa.string())
    groups = near_groups(chunked, np.array(classes, dtype=np.int64))
    assert groups.tolist() == brute(texts, classes)


POOLS = st.lists(
    st.builds(
        lambda question, answer: make_prompt("file", question, answer, "all"),
        SPELLED | st.sampled_from(["a b", "A  b", " a b", "c"]),
        st.sampled_from(["1", "1.0", "2"]),
    ),
    unique_by=lambda prompt: prompt.prompt_id,
    min_size=1,
    max_size=12,
).map(lambda prompts: [replace(p, place=f"f:{i}") for i, p in enumerate(prompts)])


@given(POOLS, st.randoms())
@settings(max_examples=60, deadline=None)
def test_each_prompt_is_left_out_once_and_in_any_order(prompts: list[Prompt], random: Any) -> None:
    task, table = QuestionFile(), PromptTable.of(prompts)
    shuffled = prompts.copy()
    random.shuffle(shuffled)
    left = {}
    for cleaning in [
        Cleaning(None, d, c) for d in ("keep", "first", "drop") for c in ("keep", "drop")
    ]:
        some, notes, _ = cleaned(table, task, cleaning)
        again, *_ = cleaned(PromptTable.of(shuffled), task, cleaning)
        assert len(some) == len(again)
        if cleaning.duplicates != "first":
            assert {p.prompt_id for p in some} == {p.prompt_id for p in again}
        assert sum(int(note.split()[1]) for note in notes) == len(table) - len(some)
        left[cleaning[1:3]] = {p.prompt_id for p in some}
    for conflicts in ("keep", "drop"):
        assert left["drop", conflicts] <= left["first", conflicts] <= left["keep", conflicts]
    assert left["keep", "keep"] == {p.prompt_id for p in prompts}
    first, *_ = cleaned(table, task, Cleaning(None, "first", "keep"))
    assert not find_flaws(first, task).repeats.any()
