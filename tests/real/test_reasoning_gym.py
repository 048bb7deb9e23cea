"""The data sets of reasoning_gym: pools, refused options, marks, scores and what goes wrong."""

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reasoning_gym_cases import NAME, SUMS, sums

import orchestrator.optional.reasoning_gym.task
from orchestrator.optional.reasoning_gym import library as gym
from orchestrator.optional.reasoning_gym.task import load_rows, save_rows
from orchestrator.probing.checks import check_marker
from tasks import Answer, Prompt, TaskError, get_task
from tasks.prompts import in_test_split, make_prompt


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache folder of this module, in which a pool is drawn once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.prompt_id for prompt in prompts]


# Pools


def test_the_pool_has_the_sizes_and_tiers_of_its_items() -> None:
    task = sums()
    assert (len(task.train()), len(task.test())) == (40, 10)
    for prompt in (*task.train(), *task.test()):
        metadata = json.loads(prompt.info)["metadata"]
        assert prompt.tier == f"num_terms={metadata['num_terms']}"
        assert eval(metadata["expression"]) == int(prompt.answer)


def test_neither_split_depends_on_the_size_of_the_other_and_they_share_no_question() -> None:
    small, large = sums(), sums(train=60, test=25)
    assert ids(large.train())[:40] == ids(small.train())
    assert ids(large.test())[:10] == ids(small.test())
    other = sums(seed=1)
    assert ids(other.train()) != ids(small.train())


def test_a_pool_has_the_pinned_hash() -> None:
    """Stored probes name these ids; a change here must come with a new `version`."""
    task = sums()
    content = " ".join(ids([*task.train(), *task.test()]))
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == "d7b04eeb64c5d6b5"


def test_no_seed_trains_on_another_seed_s_test_questions() -> None:
    config = {"max_terms": 2, "max_digits": 1}
    first, second = (sums(config=config, train=80, test=20, seed=seed) for seed in (0, 1))
    questions = [{p.question for p in t.train()} for t in (first, second)]
    tests = {p.question for t in (first, second) for p in t.test()}
    assert questions[0] & questions[1] and not tests & (questions[0] | questions[1])


def test_a_mix_has_the_shares_of_its_weights_and_names_its_data_sets() -> None:
    mix = {"chain_sum": 2, "gcd": 1}
    task = sums(dataset=mix, config={"chain_sum": SUMS}, train=31, test=3)
    assert Counter(p.tier.split()[0] for p in task.train()) == {"chain_sum": 21, "gcd": 10}
    tiers = {"chain_sum num_terms=2", "chain_sum num_terms=3", "gcd"}
    assert {p.tier for p in task.test()} <= tiers
    assert ids(task.train())[:21] == ids(sums(train=21, test=2).train())


def test_sizes_of_zero_and_one() -> None:
    nothing = sums(train=0, test=0)
    assert (nothing.train(), nothing.test()) == ([], [])
    one = sums(dataset={"chain_sum": 1, "gcd": 1}, config={}, train=1, test=0)
    assert (len(one.train()), len(one.test())) == (1, 0)


def test_a_data_set_with_few_questions_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator.optional.reasoning_gym.task, "PATIENCE", 60)
    config = {"min_disks": 3, "max_disks": 3, "min_pegs": 3, "max_pegs": 3}
    with pytest.raises(TaskError, match="write at most train: . and test: . of it") as error:
        get_task(NAME, dataset="tower_of_hanoi", config=config, train=80, test=20).train()
    [train, test] = [int(part.split()[0]) for part in str(error.value).split(": ")[-2:]]
    few = get_task(NAME, dataset="tower_of_hanoi", config=config, train=train, test=test)
    questions = {p.question for p in (*few.train(), *few.test())}
    assert len(questions) == train + test <= 6  # start and target peg


def test_a_question_is_waited_for_through_as_many_repeated_items_as_patience_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = orchestrator.optional.reasoning_gym.task
    texts = (str(i) for i in range(99))
    one, two, *_ = (t for t in texts if not in_test_split(make_prompt(NAME, t, "", "")))

    def train(repeated: int) -> list[Prompt]:
        items = [(text, "1", "", "") for text in (*[one] * (1 + repeated), two)]
        drawn = SimpleNamespace(items=lambda _: iter(items))
        monkeypatch.setattr(module, "_Draws", lambda *_: nullcontext(drawn))
        return sums(train=2, test=0).train()

    monkeypatch.setattr(module, "PATIENCE", 3)
    assert len(train(repeated=3)) == 2
    with pytest.raises(TaskError):
        train(repeated=4)


@pytest.mark.parametrize(
    ("metadata", "tier"),
    [
        ({"num_terms": 3, "difficulty": {"terms": (2, 6)}}, "terms=3"),
        ({"words": ["a", "b"], "difficulty": {"words": (1, 4)}}, "words=2"),
        ({"n": 15, "difficulty": {"n": (10, 30)}}, "n=10-15"),
        ({"n": 30, "difficulty": {"n": (10, 30)}}, "n=26-30"),
        ({"n": 99, "difficulty": {"n": (10, 30)}}, "n=26-30"),
        ({"n": 2, "m": 5, "difficulty": {"n": (2, 2), "m": (1, 9)}}, "m=5"),
        ({"n": (1, 2), "difficulty": {"n": (1, 9)}}, ""),
        ({"difficulty": {"difficulty": 4}}, "difficulty=4"),
        ({}, ""),
    ],
)
def test_the_tier_is_the_value_of_the_first_parameter_that_varies(
    metadata: dict[str, Any], tier: str
) -> None:
    assert gym._tier(metadata) == tier


def test_metadata_survive_json() -> None:
    metadata = {"a": (1, [2, (3,)]), "b": {1: "x", "y": {4}}, "c": {"(tuple)": 0, "d": None}}
    assert gym._decoded(json.loads(json.dumps(gym._encoded(metadata)))) == metadata


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option dataset"),
        ({"dataset": {"gcd": 0}}, "weight 0 of gcd"),
        ({"dataset": "rush_hour"}, "rush_hour"),
        ({"dataset": "chain_sums"}, "'chain_sums'; did you mean 'chain_sum'?"),
        ({"dataset": "gcd", "config": {"size": 9}}, "train, test"),
        ({"dataset": "gcd", "config": {"max_values": 9}}, "did you mean 'max_value'?"),
        ({"dataset": "gcd", "config": {"max_value": "9"}}, "config of gcd"),
        ({"dataset": "gcd", "config": {"max_value": -9}}, "min_numbers: 2"),
        ({"dataset": "gcd", "config": [1]}, "mapping"),
        ({"dataset": {"gcd": 1}, "config": {"max_value": 9}}, "write {gcd: {…}}"),
        ({"dataset": "gcd", "config": {"max_value": {1}}}, "JSON"),
        ({"dataset": "gcd", "train": -1}, "train -1"),
        ({"dataset": "gcd", "threshold": 0}, "threshold 0"),
    ],
)
def test_refused_options_say_what_to_write(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError) as error:
        get_task(NAME, **options).train()
    assert message in str(error.value)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise orchestrator.optional.reasoning_gym.task.PackageNotFoundError(name)

    monkeypatch.setattr(orchestrator.optional.reasoning_gym.task, "version", missing)
    with pytest.raises(TaskError, match=r"'decile\[reasoning-gym\]'"):
        sums()
    assert orchestrator.optional.reasoning_gym.task.ReasoningGym.marker_variants() == []


# Marks


def test_scores_are_the_library_s_and_correct_begins_at_the_threshold() -> None:
    task = sums(dataset="mini_sudoku", config={}, train=4, test=0)
    [prompt, *_] = task.train()
    right = prompt.answer
    wrong = right.replace(right[0], "5", 1)
    marks = task.mark_all([Answer.to(prompt, task.format_answer(a)) for a in (right, wrong, "x")])
    assert [mark.outcome for mark in marks] == ["correct", "wrong", "wrong"]
    assert marks[0].score == 1 > (marks[1].score or 0) > marks[2].score == 0
    half = sums(dataset="mini_sudoku", config={}, train=4, test=0, threshold=0.1)
    [mark] = half.mark_all([Answer.to(prompt, task.format_answer(wrong))])
    assert (mark.outcome, mark.score) == ("correct", marks[1].score)
    assert half.marker_id != task.marker_id


@pytest.mark.parametrize(
    ("completion", "preset", "marking", "rule"),
    [
        ("so \\boxed{GOLD}", "plain", "strict", "strict:boxed-score"),
        ("<answer>GOLD</answer>", "plain", "strict", None),
        ("<answer>GOLD</answer>", "plain", "lenient", "lenient:tag-score"),
        (
            "<think>\\boxed{0}</think> \\boxed{\\text{GOLD}}",
            "plain",
            "lenient",
            "lenient:boxed-score",
        ),
        ("The answer is GOLD.", "plain", "lenient", "lenient:stated-score"),
        ("<answer>0</answer> <answer> GOLD\n</answer>", "tags", "strict", "strict:tag-score"),
        ("\\boxed{GOLD}", "tags", "strict", None),
        ("\\boxed{0} <answer>GOLD</answer>", "tags", "lenient", "lenient:tag-score"),
        ("<answer>GOLD", "tags", "lenient", None),
        ("<answer></answer>", "tags", "strict", None),
    ],
)
def test_where_an_answer_is_read(
    completion: str, preset: str, marking: Any, rule: str | None
) -> None:
    task = sums(prompt={"preset": preset}, marking=marking)
    [prompt, *_] = task.train()
    mark = task.mark_answer(Answer.to(prompt, completion.replace("GOLD", prompt.answer)))
    assert (mark.outcome, mark.rule) == (("correct", rule) if rule else ("unparsed", "no-answer"))


def test_without_the_item_an_answer_is_compared_as_text() -> None:
    task = sums()
    assert task.mark("\\boxed{7}", "7")[:3] == ("correct", "7", "lenient:boxed-text")
    assert task.mark("\\boxed{8}", "7").score == 0
    assert task.mark("seven", "7", truncated=True).outcome == "truncated"


def test_a_gold_that_was_replaced_decides_the_mark() -> None:
    task = sums(dataset="graph_color", config={}, train=4, test=0)  # reads its metadata
    prompt = replace(task.train()[0], answer="12345")
    outcomes = [
        task.mark_answer(Answer.to(prompt, f"\\boxed{{{answer}}}")).outcome
        for answer in (task.train()[0].answer, "12345")
    ]
    assert outcomes == ["wrong", "correct"]


def test_an_answer_that_the_score_cannot_read_is_wrong() -> None:
    task = sums(dataset="prime_factorization", config={}, train=4, test=0)
    mark = task.mark_answer(Answer.to(task.train()[0], "\\boxed{x}"))
    assert mark[:4] == ("wrong", "x", "lenient:boxed-score", 0.0)
    task = sums()
    [prompt, *_] = task.train()
    for text in ("7" * 2**20, f"{prompt.answer} " * 2**18):
        mark = task.mark_answer(Answer.to(prompt, f"\\boxed{{{text}}}"))
        assert (mark.outcome, mark.rule) == ("wrong", "lenient:boxed-too-long")


def test_the_check_of_the_marker_passes_in_both_forms() -> None:
    for task in orchestrator.optional.reasoning_gym.task.ReasoningGym.marker_variants():
        assert check_marker(task, task.check_prompts()).startswith("30 gold answers")
    assert sums().provenance["test"].startswith("reasoning-gym 0.")


# The cache of what was drawn


def stored(folder: Path) -> list[Path]:
    return [*(folder / "decile" / "rows").glob("*.json")]


def test_stored_items_are_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = sums().train()
    [file] = stored(tmp_path)
    assert [*file.parent.iterdir()] == [file]
    monkeypatch.delattr(orchestrator.optional.reasoning_gym.task._Draws, "_call")
    assert sums().train() == first
    with pytest.raises(AttributeError):
        sums(config={}).train()


@pytest.mark.parametrize("damage", ["torn", "changed", "not json", "empty", "other key"])
def test_a_damaged_file_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key, rows = ["gcd", {"a": 1}, 0], [["1 + 1", "2", "", "{}"], "no item"]
    save_rows(key, rows)
    assert load_rows(key) == rows
    [file] = stored(tmp_path)
    content = file.read_bytes()
    if damage == "other key":
        save_rows(["gcd", {"a": 2}, 0], rows)
        [other] = [f for f in stored(tmp_path) if f != file]
        content = other.read_bytes()
    changed = {
        "torn": content[:-9],
        "changed": content.replace(b'"2"', b'"3"'),
        "not json": b"x",
        "empty": b"",
        "other key": content,
    }
    file.write_bytes(changed[damage])
    assert load_rows(key) == []


def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decile").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_rows(["gcd"], [])
    assert load_rows(["gcd"]) == []
    assert (tmp_path / "decile").read_text() == "a file"


def test_several_writers_leave_one_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = [[["x" * 9_000] * n] for n in range(1, 17)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: save_rows(["gcd"], each), rows * 4))
    assert load_rows(["gcd"]) in rows
    assert len([*(tmp_path / "decile" / "rows").iterdir()]) == 1
