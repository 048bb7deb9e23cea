"""The shuffled-objects task: its questions are well formed, and its gold answers are right."""

import gzip
import json
import re
from pathlib import Path

import pytest
from data import data
from remedies import refused

from tasks import Prompt, TaskError, get_task
from tasks.prompts import in_test_split, make_prompt
from tasks.shuffled_objects import ShuffledObjects

OPTION = re.compile(r"^\(([A-G])\) (.+)$", re.MULTILINE)
PAIR = re.compile(r"\b([A-Z]\w+) and ([A-Z]\w+) (?:swap|trade|switch)\b")


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.prompt_id for prompt in prompts]


def simulated(question: str) -> str:
    """The answer, computed from the text without the generator's own code."""
    story, _, listed = question.partition("\nOptions:\n")
    options = dict(OPTION.findall(listed))
    start, _, rest = story.partition("At the start, ")[2].partition("\n")
    short = {c: re.sub(" (marble|parcel)$", "", text) for c, text in options.items()}
    holders = {}
    for part in re.split(r", (?:and )?", start.rstrip(".")):
        name, _, clause = part.partition(" ")
        letters = [letter for letter, text in short.items() if clause.endswith(f" {text}")]
        holders[name] = max(letters, key=lambda letter: len(short[letter]))  # corn bread, bread
    for a, b in PAIR.findall(rest):
        holders[a], holders[b] = holders[b], holders[a]
    mentioned = [word for word in re.findall(r"\w+", rest.rpartition(".")[2]) if word in holders]
    return f"({holders[mentioned[-1]]})"


def test_each_split_is_independent_of_the_size_of_the_other() -> None:
    small = get_task("shuffled_objects", train=10, test=5)
    large = get_task("shuffled_objects", train=300, test=90)
    assert small.train() == large.train()[:10]
    assert small.test() == large.test()[:5]


def test_prompts_of_one_seed_are_no_prompts_of_another() -> None:
    pools = []
    for seed in range(3):
        task = get_task("shuffled_objects", seed=seed, train=100, test=100)
        assert all(map(in_test_split, task.test()))
        assert not any(map(in_test_split, task.train()))
        pools += [*task.train(), *task.test()]
    assert len(set(ids(pools))) == len(pools) == 600


def test_gold_answers_can_be_derived_from_the_text() -> None:
    task = get_task("shuffled_objects", train=1500, test=300)
    wrong = [p for p in task.train() + task.test() if simulated(p.question) != p.answer]
    assert not wrong, wrong[0].question


def test_options_are_lettered_in_order_distinct_and_as_many_as_the_tier() -> None:
    for prompt in get_task("shuffled_objects").train():
        letters, texts = zip(
            *OPTION.findall(prompt.question.partition("Options:\n")[2]), strict=True
        )
        assert "".join(letters) == "ABCDEFG"[: int(prompt.tier)]
        assert len(set(texts)) == len(texts)
        assert prompt.answer.strip("()") in letters


def test_swaps_and_objects_follow_the_options() -> None:
    task = get_task("shuffled_objects", objects=[3, 7], swaps=[1, 2], train=200)
    assert {p.tier for p in task.train()} == {"3", "7"}
    counts = {len(PAIR.findall(p.question.partition("\nOptions")[0])) for p in task.train()}
    assert counts == {1, 2}


def test_letters_are_marked_as_the_task_was_told_to() -> None:
    texts = ["\\boxed{(A)} no, \\boxed{B}", "\\boxed{(A)}", "The answer is (B).", "So many swaps"]
    given = [(text, "swaps" in text) for text in texts]
    lenient, strict = (get_task("shuffled_objects", marking=m) for m in ("lenient", "strict"))
    outcomes = [lenient.mark(text, "(B)", cut).outcome for text, cut in given]
    assert outcomes == ["correct", "wrong", "correct", "truncated"]
    assert strict.mark("The answer is (B).", "(B)").outcome == "unparsed"


def test_the_chat_is_one_short_user_message_with_the_form_of_the_answer() -> None:
    [message] = get_task("shuffled_objects").messages("Who?")
    # The embedded model was trained with exactly this text.
    assert message == {"role": "user", "content": "Who?\nWork it out, end with \\boxed{(X)}."}


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"objects": [4]}, "3, 5 or 7"),
        ({"objects": []}, "3, 5 or 7"),
        ({"swaps": [3, 2]}, "minimum, maximum"),
        ({"swaps": [0, 2]}, "minimum, maximum"),
        ({"swaps": [2]}, "minimum, maximum"),
        ({"swaps": [2, 9]}, "minimum, maximum"),
        ({"train": 1_000_001}, "1,000,000"),
        ({"seed": 2**32}, "4,294,967,295"),
        ({"train": -1}, "train -1"),
        ({"source": "web"}, "generated or bbh"),
        ({"path": "/x"}, "source: bbh"),
        ({"split": "paper"}, "seed or authors"),
        ({"split": "authors"}, "objects: [7]"),
        ({"split": "authors", "source": "bbh"}, "objects: [7]"),
        ({"prompt": {"preset": "short"}}, "plain, paper"),
        ({"swap": 3}, "'swap'"),
    ],
)
def test_errors_for_invalid_options_say_what_to_write(
    options: dict[str, object], advice: str
) -> None:
    with refused(advice, by=TaskError):
        get_task("shuffled_objects", **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two of the benchmark's files: 4 questions of three objects, 4 of five, packed."""
    for word, count in (("three", 3), ("five", 5)):
        rows = [{"input": f"{word} {i}\nOptions:\n(A) x", "target": "(A)"} for i in range(4)]
        text = json.dumps({"canary": "", "examples": [*rows, rows[0]]})
        path = tmp_path / f"tracking_shuffled_objects_{word}_objects.json"
        if count == 3:
            path.write_text(text)
        else:
            path.with_suffix(".json.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def bbh(folder: Path, **options: object) -> ShuffledObjects:
    options = {"source": "bbh", "path": str(folder), "objects": [3, 5], "partial": True, **options}
    task = get_task("shuffled_objects", **options)
    assert isinstance(task, ShuffledObjects)
    return task


def test_benchmark_files_are_read_plain_and_packed_without_duplicates(folder: Path) -> None:
    task = bbh(folder, test=3)
    assert len(task.test()) == 3
    assert len(task.train()) == 5
    assert len({*ids(task.test()), *ids(task.train())}) == 8
    assert bbh(folder, test=3).train() == task.train()
    assert ids(bbh(folder, test=8, seed=1).test()) != ids(bbh(folder, test=8).test())


def test_a_test_set_with_every_question_leaves_no_pool(folder: Path) -> None:
    task = bbh(folder, test=200)
    assert len(task.test()) == 8
    with pytest.raises(TaskError, match="smaller test"):
        task.train()


def test_missing_and_malformed_files_are_named(folder: Path) -> None:
    with refused("tracking_shuffled_objects_seven_objects", by=TaskError):
        bbh(folder, objects=[7]).test()
    malformed = folder / "tracking_shuffled_objects_three_objects.json"
    malformed.write_text('{"rows": []}')
    with refused(malformed, by=TaskError):
        bbh(folder).test()


def test_another_repository_has_no_pinned_commit() -> None:
    with refused("me/bbh", "revision: COMMIT", by=TaskError):
        get_task("shuffled_objects", source="bbh", hub="me/bbh").test()


def test_a_part_of_the_benchmark_is_read_only_with_partial(folder: Path) -> None:
    with refused("5 rows", "250", "partial: true", by=TaskError):
        bbh(folder, partial=False).test()
    task = bbh(folder, test=3)
    task.test()
    assert all("5 rows" in note and "250" in note for note in task.notes[:2])
    assert task.notes[2:] == ["bbh: 2 repeated prompts dropped"]


def test_the_real_benchmark_has_750_questions_with_an_option_for_each_answer() -> None:
    task = get_task("shuffled_objects", source="bbh", path=str(data("raw", "bbh")), test=150)
    prompts = task.test() + task.train()
    assert len(prompts) == len(set(ids(prompts))) == 750
    assert all(p.answer.strip("()") in dict(OPTION.findall(p.question)) for p in prompts)
    assert not task.notes
    assert set(task.provenance) == {"3", "5", "7"}


def authors(folder: Path, **options: object) -> ShuffledObjects:
    return bbh(folder, objects=[7], split="authors", partial=False, **options)


def test_the_authors_split_has_their_questions_in_their_order() -> None:
    task = authors(data("raw", "bbh"))
    for split, pool in (("train", task.train()), ("test", task.test())):
        file = data("bbh_shuffled_objects", f"authors_{split}.jsonl")
        rows = sorted(map(json.loads, file.open()), key=lambda row: row["author_index"])
        expected = [make_prompt(task.name, r["question"], r["answer"], "7") for r in rows]
        assert pool == expected
        assert len(pool) == 125
    assert authors(data("raw", "bbh"), train=5).train() == task.train()[:5]
    assert authors(data("raw", "bbh"), test=7).test() == task.test()[:7]


def test_the_authors_split_refuses_a_file_in_another_order(tmp_path: Path) -> None:
    name = "tracking_shuffled_objects_seven_objects.json"
    content = json.loads(gzip.decompress(data("raw", "bbh", f"{name}.gz").read_bytes()))
    content["examples"].sort(key=lambda row: row["input"])
    (tmp_path / name).write_text(json.dumps(content))
    with refused(name, "split: seed", by=TaskError):
        authors(tmp_path).test()
    assert len(bbh(tmp_path, objects=[7], partial=False, test=50).train()) == 200


def test_the_stored_authors_split_covers_250_rows_once() -> None:
    from importlib.resources import files

    stored = json.loads(files("tasks").joinpath("authors_split.json").read_text())
    assert len(stored["train"]) == len(stored["test"]) == 125
    assert sorted(stored["train"] + stored["test"]) == list(range(250))


def test_the_papers_wording_asks_for_a_short_answer_without_thinking() -> None:
    task = get_task("shuffled_objects", prompt={"preset": "paper"})
    [message] = task.messages("Who? {X}")
    assert message["content"] == (
        "Who? {X}.\nAnswer concisely, in at most 100 words, and put the final answer within "
        "\\boxed{(X)} (ex: \\boxed{(A)})."
    )
    assert task.chat_template_kwargs == {"enable_thinking": False}
    assert get_task("shuffled_objects").chat_template_kwargs == {}
