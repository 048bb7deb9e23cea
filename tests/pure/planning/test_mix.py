"""`task: mix`: several data sets as one pool, each with its own wording, marker and test set."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from remedies import place, refused

from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import Plan, make_plan
from orchestrator.planning.pool_columns import pool_columns
from orchestrator.planning.pools import (
    Dataset,
    Pool,
    load_pool,
    template_hash,
    with_label_noise,
)
from orchestrator.probing.checks import check_marker
from orchestrator.storage.errors import UserError
from tasks import TaskError, get_task, is_shipped
from tasks.mix import Mix, _of, _with_name
from tasks.number_guess import NumberGuessTask
from tasks.plus_minus import PlusMinus
from tasks.prompts import Answer

FILES = """
datasets:
  numbers: {task: file, options: {path: numbers.jsonl, keep: [id]}}
  words:
    task: file
    options: {train: words.jsonl, test: words_test.jsonl, marker: text}
    prompt: {preset: bare, system: Answer with one word.}
  both: {task: mix, options: {parts: PARTS}}
models: {tiny: {embedded: tiny}}
experiments:
  e:
    grid: {model: [tiny], dataset: [both], policy: [hard, within], seed: [0]}
    budget: 8
    grpo: {num_generations: 4, per_device_train_batch_size: 8, max_steps: 2}
policies: {within: {policy: hard, options: {within: {source: equal}}}}
"""


def plan(folder: Path, parts: str = "[numbers, words]") -> Plan:
    """The plan of a mix of 40 questions of numbers and 12 of words (and 4 test questions)."""
    numbers = [{"id": i, "question": f"What is {i} + 0?", "answer": i} for i in range(40)]
    words = [{"question": f"Say word {i}.", "answer": f"word {i}"} for i in range(16)]
    for name, rows in (("numbers", numbers), ("words", words[:12]), ("words_test", words[12:])):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    file = folder / "experiments.yaml"
    file.write_text(FILES.replace("PARTS", parts))
    return make_plan(load_config(file), "e")


def mixed(folder: Path, parts: str = "[numbers, words]") -> Pool:
    return plan(folder, parts).pools["both"]


def test_prompts_keep_the_wording_and_the_marker_of_their_data_set(tmp_path: Path) -> None:
    pool = mixed(tmp_path)
    by_source = {prompt.source: prompt for prompt in pool.train}
    number, word = by_source["numbers"], by_source["words"]
    chats = [pool.task.messages_of(p.question, p.info) for p in (number, word)]
    assert "\\boxed{}" in chats[0][-1]["content"]
    assert [m["role"] for m in chats[1]] == ["system", "user"]
    assert chats[1][-1]["content"] == word.question
    marks = pool.task.mark_all(
        [
            Answer.to(word, rf"\boxed{{{word.answer.upper()}}}"),
            Answer.to(number, f"\\boxed{{{number.answer}.0}}"),
            Answer.to(word, "\\boxed{7}"),
        ]
    )
    assert [mark.outcome for mark in marks] == ["correct", "correct", "wrong"]
    strict = pool.task.with_marking("strict").mark_all(
        [Answer.to(word, rf"\boxed{{{word.answer.upper()}}}")]
    )
    assert strict[0].outcome == "wrong"


def test_a_prompt_has_the_id_and_the_columns_that_it_has_in_its_data_set(tmp_path: Path) -> None:
    pool = mixed(tmp_path)
    options = {"path": str(tmp_path / "numbers.jsonl")}
    alone = load_pool(Dataset("numbers", "file", options, "lenient"))
    own = {p.prompt_id for p in pool.train if p.source == "numbers"}
    assert own == {p.prompt_id for p in alone.train}
    assert {json.loads(p.kept)["id"] for p in pool.train if p.kept} < {*range(40)}
    assert Counter(p.source for p in pool.test) == {"numbers": len(alone.test), "words": 4}


def test_sources_and_ids_of_rows_survive(tmp_path: Path) -> None:
    plan(tmp_path)
    rows = [
        {"question": f"Say word {i}.", "answer": f"word {i}", "uid": f"w{i}", "topic": "ab"[i % 2]}
        for i in range(12)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "words.jsonl").write_text(text)
    file = tmp_path / "experiments.yaml"
    of_part = "test: words_test.jsonl, source: [topic, subject], keep: [uid]"
    file.write_text(file.read_text().replace("test: words_test.jsonl", of_part))
    with (tmp_path / "words_test.jsonl").open("a") as stream:
        stream.write('{"question": "Say x.", "answer": "x", "uid": "t", "topic": "c"}\n')
    pool = make_plan(load_config(file), "e").pools["both"]
    table = pool_columns(pool.train)
    by_question = dict(
        zip(pool.train.column("question").to_pylist(), table.to_pylist(), strict=True)
    )
    for row in rows:
        own = by_question[row["question"]]
        assert (own["source"], own["topic"], own["uid"]) == ("words", row["topic"], row["uid"])
    assert {row["topic"] for row in table.to_pylist() if row["source"] == "numbers"} == {None}
    ids = [row["id"] for row in table.to_pylist() if row["source"] == "numbers"]
    assert None not in ids and len({*ids}) == len(ids) > 20


def test_the_rows_of_all_parts_are_counted(tmp_path: Path) -> None:
    pool = mixed(tmp_path, "{numbers: 10, words: 12}")
    assert pool.rows.read == 40 + 12 + 4
    taken = len(pool.train) + len(pool.test)
    assert pool.rows.used == taken
    assert pool.rows.left_out["not taken into the mix"] == 56 - taken


def test_an_error_in_a_part_is_at_the_part(tmp_path: Path) -> None:
    plan(tmp_path)
    file = tmp_path / "experiments.yaml"
    written = file.read_text()
    for old, new, code in (
        ("path: numbers.jsonl", "path: none.jsonl", "invalid-dataset"),
        ("keep: [id]", "keep: [it]", "invalid-dataset"),
        ("keep: [id]", "nothing: 1", "invalid-dataset"),
    ):
        file.write_text(written.replace(old, new))
        with refused(place(file, "  numbers: {task"), code=code):
            make_plan(load_config(file), "e")
    of_mix = "both: {task: mix, options: {parts: [numbers, words]}}"
    block = "both:\n    task: mix\n    options:\n      parts:\n      - words\n      - numbrs"
    file.write_text(written.replace(of_mix, block))
    with refused(place(file, "- numbrs"), "'numbrs'", "mean 'numbers'", code="unknown-part"):
        make_plan(load_config(file), "e")


def test_a_part_is_a_data_set_of_the_file_before_it_is_a_task(tmp_path: Path) -> None:
    plan(tmp_path)
    file = tmp_path / "experiments.yaml"
    text = file.read_text().replace("numbers: {task", "gsm8k: {task")
    file.write_text(text.replace("[numbers, words]", "[gsm8k, words]"))
    pool = make_plan(load_config(file), "e").pools["both"]
    assert {prompt.place for prompt in pool.train if prompt.source == "gsm8k"} != {""}


@pytest.mark.parametrize(
    ("parts", "numbers", "words"),
    [
        ("{numbers: 0.5, words: 0.5}", 12, 12),
        ("{numbers: 0.75, words: 0.25}", None, None),
        ("{numbers: 10, words: 3}", 10, 3),
        ("{numbers: 10, words: null}", 10, 12),
    ],
)
def test_shares_and_numbers_are_taken(
    tmp_path: Path, parts: str, numbers: int | None, words: int | None
) -> None:
    counts = Counter(prompt.source for prompt in mixed(tmp_path, parts).train)
    if numbers is None:
        assert counts["numbers"] == pytest.approx(3 * counts["words"], abs=2)
        assert max(counts["words"] - 12, counts["numbers"] - 34) >= -2  # one is used up
    else:
        assert counts == {"numbers": numbers, "words": words}


def test_a_larger_number_contains_a_smaller_one(tmp_path: Path) -> None:
    small, large = (
        {p.prompt_id for p in mixed(tmp_path, f"{{numbers: {n}, words: 2}}").train} for n in (7, 9)
    )
    assert small < large


def test_every_part_is_checked_and_a_cell_names_the_mix(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    pool = planned.pools["both"]
    assert is_shipped(pool.task)
    assert str(check_marker(pool.task, [*pool.train, *pool.test]))
    assert {cell.policy for cell in planned.cells} == {"hard", "within"}
    [columns] = {cell.columns_hash for cell in planned.cells if cell.policy == "within"}
    assert columns and all(not c.columns_hash for c in planned.cells if c.policy == "hard")


def test_the_template_follows_the_wording_of_each_part(tmp_path: Path) -> None:
    def of(preset: str) -> str:
        parts = {
            "a": {"task": "plus_minus"},
            "b": {"task": "file", "options": {"train": "x"}, "prompt": {"preset": preset}},
        }
        return template_hash(Mix(parts=parts))

    assert of("plain") != of("bare") == of("bare")


class OwnTask(PlusMinus):
    """A task of a user's own."""


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (None, "None"),
        ({"a": {"task": "plus_minus"}}, "two"),
        ({"a": {"task": "plus_minus"}, "b": 1}, "'b'"),
        ({"a": {"task": "plus_minus"}, "b": {"task": "number_guess"}}, "b"),
        ({"a": {"task": "plus_minus"}, "b": {"task": "plus_minus", "amount": "x"}}, "'x'"),
        ({"a": {"task": "plus_minus"}, "b": {"task": "plus_minus", "amount": True}}, "True"),
        ({"a": {"task": "plus_minus"}, "b": {"task": "plus_minus", "amount": 0.5}}, "shares"),
        (
            {n: {"task": "plus_minus", "amount": 0.4} for n in "ab"},
            "0.8",
        ),
        ({"a": {"task": "plus_minus"}, "b": {"task": "file", "options": {"x": 1}}}, "b"),
    ],
)
def test_a_wrong_part_is_refused(parts: Any, named: str) -> None:
    with refused(named, by=TaskError):
        Mix(parts=parts)


def test_more_prompts_than_a_part_has_are_refused(tmp_path: Path) -> None:
    with refused("numbers", "400", by=UserError):
        mixed(tmp_path, "{numbers: 400, words: 3}")
    with refused("experiments.yaml:", "'word'", by=UserError):
        mixed(tmp_path, "[numbers, word]")


def test_a_mix_with_a_task_of_the_users_own_is_marked_as_one() -> None:
    parts = {"a": {"task": f"{__name__}:OwnTask"}, "b": {"task": "plus_minus"}}
    assert not is_shipped(get_task("mix", parts=parts))
    assert NumberGuessTask.environment is not None


def test_a_mixture_of_policies_names_policies_of_the_file(tmp_path: Path) -> None:
    policies = """{
  words-only: {policy: hard, options: {where: {source: words}}},
  hard: {policy: hard, options: {exclude: unsolved}},
  within: {policy: mixture, options: {shares: {words-only: 0.5, hard: 0.25, easy: {share: 0.25}}}}
}"""
    plan(tmp_path)
    file = tmp_path / "experiments.yaml"
    text = file.read_text()
    file.write_text(text[: text.index("policies: {within")] + f"policies: {policies}\n")
    assert load_config(file).config.policies["within"].options["shares"] == [
        {"hard": {"share": 0.5, "where": {"source": ["words"]}}},
        {"hard": {"share": 0.25, "exclude": ["unsolved"]}},
        {"easy": {"share": 0.25}},
    ]


def test_label_noise_keeps_the_source_and_the_columns(tmp_path: Path) -> None:
    pool = with_label_noise(mixed(tmp_path), 0.5, 0)
    before = {p.question: (p.source, p.place, p.kept) for p in mixed(tmp_path).train}
    assert pool.mislabeled
    assert all((p.source, p.place, p.kept) == before[p.question] for p in pool.train)


@pytest.mark.parametrize(
    "info",
    [
        "",
        "{}",
        '{"a": 1}',
        '{"info": "x"}',
        '{"part": "y"}',
        '{"info": "x", "part": 2}',
        "[1]",
        "no",
    ],
)
def test_every_info_of_a_part_comes_back_as_it_was(info: str) -> None:
    name, own = _of(_with_name(info, "words"))
    assert (name, own or "{}") == ("words", info or "{}")


def test_a_part_that_is_named_twice_or_alone_is_refused_in_the_user_s_words(
    tmp_path: Path,
) -> None:
    for parts, named in (("[words, words]", "['words', 'words']"), ("[words]", "['words']")):
        with refused("experiments.yaml:", named, by=UserError):
            plan(tmp_path, parts)


@pytest.mark.parametrize("setting", ["drop_overlap: true", "duplicates: first"])
def test_a_setting_of_a_part_that_the_mix_would_not_read_is_refused(
    tmp_path: Path, setting: str
) -> None:
    plan(tmp_path)
    file = tmp_path / "experiments.yaml"
    file.write_text(
        file.read_text().replace(
            "    prompt: {preset: bare", f"    {setting}\n    prompt: {{preset: bare"
        )
    )
    with refused("experiments.yaml:", "words", setting.partition(":")[0], by=UserError) as caught:
        make_plan(load_config(file), "e")
    assert caught.value.code == "setting-of-a-part"
