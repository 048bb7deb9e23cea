"""The user's columns travel: from a row of a file to tables, subsets and exports, and back."""

import csv
import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from factories import small_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import place, problems, refused
from trl import GRPOTrainer

from orchestrator.cli.main import main
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.optional.exchange.exports import LAYOUTS, exported_table
from orchestrator.planning.pool_columns import pool_columns, with_pool_columns
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.plugins.difficulty_table import DIFFICULTY
from orchestrator.selection.subsets import SubsetRequest, select
from orchestrator.storage.schema import TAKEN
from policies import get_policy
from tasks import Prompt, TaskError
from tasks.prompt_table import PromptTable
from tasks.question_file import QuestionFile
from tasks.sources.media import has_media_columns
from tasks.sources.values import json_text


def test_the_reserved_names_are_those_that_trl_gives_a_meaning() -> None:
    code = inspect.getsource(GRPOTrainer)
    passed = {*re.findall(r'\breward_kwargs\["(\w+)"\]', code)}
    passed |= {"prompts", "completions", "completion_ids"}
    assert "prompts=prompts, completions=completions, completion_ids=completion_ids_list," in code
    never = LAYOUTS["trl"].names | TAKEN
    assert passed <= never
    read = {*re.findall(r'(?:inputs\[0\]|example|x)(?:\[|\.get\()"(\w+)"', code)}
    assert {"prompt", "image", "images"} <= read
    # which is only read where several environments are given, as the name of one
    assert read - {"environment"} <= never


def read(file: Path, **options: Any) -> PromptTable:
    return QuestionFile(train=str(file), **options).prompt_table("train")


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5)
VALUES = SCALARS | st.floats(allow_nan=False, allow_infinity=False)
VALUES |= st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("xy"), SCALARS)


class ByRows(QuestionFile):
    """A subclass may read rows in its own way, so its files are read row by row."""


def write_rows(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def numbered(count: int, **columns: Any) -> list[dict[str, Any]]:
    """Questions with whole-number answers; each column is a function of a row's number."""
    return [
        {"question": f"What is {i} + 1?", "answer": str(i + 1)}
        | {name: value(i) for name, value in columns.items()}
        for i in range(count)
    ]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_columns_lead_back_to_the_row_whether_a_file_is_read_by_columns_or_rows(
    tmp_path: Path, suffix: str
) -> None:
    rows = numbered(5, id=lambda i: f"q{i}", topic=lambda i: "ab"[i % 2], level=lambda i: i)
    prompts = read(write_rows(tmp_path / f"a{suffix}", rows), source="topic", keep=["id", "level"])
    slow = ByRows(train=str(tmp_path / f"a{suffix}"), source="topic", keep=["id", "level"])
    for table in (pool_columns(prompts), pool_columns(slow.prompt_table("train"))):
        assert table.to_pydict() == {
            "source": ["a", "b", "a", "b", "a"],
            "file": [str(tmp_path / f"a{suffix}")] * 5,
            "line": [1, 2, 3, 4, 5],
            "id": ["q0", "q1", "q2", "q3", "q4"],
            "level": [0, 1, 2, 3, 4],
        }


def test_neither_source_nor_kept_columns_change_a_prompt(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "a.jsonl", numbered(4, topic=lambda i: "x"))
    plain = load_pool(Dataset("d", "file", {"path": str(file)}, "lenient"))
    options = {"path": str(file), "source": "topic", "keep": "all"}
    kept = load_pool(Dataset("d", "file", options, "lenient"))
    assert (plain.train_hash, plain.test_hash) == (kept.train_hash, kept.test_hash)
    assert list(plain.train) == list(kept.train)


@settings(max_examples=60, deadline=None)
@given(columns=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_every_value_that_goes_in_comes_out(columns: list[tuple[Any, Any]]) -> None:
    def kept(i: int) -> str:
        return json.dumps({"mine": columns[i][0], "score": columns[i][1]})

    prompts = (Prompt(f"{i:016x}", f"q{i}", "a", "", kept=kept(i)) for i in range(len(columns)))
    table = pool_columns(PromptTable.of(prompts))
    for number, name in enumerate(("mine", "row_score")):  # score is a column of Decile's own
        values = [column[number] for column in columns]
        if all(value is None for value in values):
            assert name not in table.column_names
            continue
        is_text = pa.types.is_string(table.schema.field(name).type)
        if is_text:
            values = [v if v is None or isinstance(v, str) else json_text(v) for v in values]
        else:  # texts of numbers or booleans next to such values
            values = [json.loads(v.lower()) if isinstance(v, str) else v for v in values]
        assert table[name].to_pylist() == values


def test_a_value_is_the_same_one_in_every_type_of_file(tmp_path: Path) -> None:
    rows = numbered(
        9,
        source=lambda i: [1, 2][i % 2],
        year=lambda i: 2000 + i % 3,
        flag=lambda i: i % 2 == 0,
        mark=lambda i: [4, "n/a"][i % 2],
        rate=lambda i: i / 8,
        meta=lambda i: {"author": "kim", "at": [i % 2, None]},
    )
    json_rows = write_rows(tmp_path / "a.jsonl", rows[:3])
    with (tmp_path / "b.csv").open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(row | {"meta": json.dumps(row["meta"])} for row in rows[3:6])
    frame = pd.DataFrame([row | {"mark": None} for row in rows[6:]])
    frame.loc[2, ["source", "year"]] = None
    frame.to_parquet(tmp_path / "c.parquet")
    files = [str(json_rows), str(tmp_path / "b.csv"), str(tmp_path / "c.parquet")]
    prompts = QuestionFile(train=files, source="source", keep="all").prompt_table("train")
    table = with_pool_columns(pa.table({"prompt_id": prompts.column("prompt_id")}), prompts)
    assert table.drop(["prompt_id", "file", "line"]).to_pydict() == {
        "source": [*"12121212", None],
        "year": [2000, 2001, 2002, 2000, 2001, 2002, 2000, 2001, None],
        "flag": [True, False, True, False, True, False, True, False, True],
        "mark": ["4", "n/a", "4", "n/a", "4", "n/a", None, None, None],
        "rate": [i / 8 for i in range(9)],
        "meta": [json.dumps({"at": [i % 2, None], "author": "kim"}) for i in range(9)],
    }
    for where, left in (({"year": 2000}, 3), ({"flag": True}, 5), ({"mark": 4}, 3)):
        policy = get_policy("full", where=where)
        assert np.count_nonzero(policy.eligible(table)) == left


def test_a_whole_number_is_the_same_answer_in_every_type_of_file(tmp_path: Path) -> None:
    rows = [{"question": "How old is Ben?", "answer": 18, "tier": 3, "group": 7}]
    rows.append(dict.fromkeys(rows[0]) | {"question": "And Kim?"})
    pd.DataFrame(rows).to_parquet(tmp_path / "a.parquet")  # floats, of which one is null
    write_rows(tmp_path / "a.jsonl", rows)
    options = {"tier": "tier", "group": "group", "marker": "text", "skip_invalid": True}
    own = [
        replace(QuestionFile(test=str(tmp_path / name), **options).test()[0], place="")
        for name in ("a.jsonl", "a.parquet")
    ]
    assert own[0] == own[1] and (own[0].answer, own[0].tier, own[0].group) == ("18", "3", "7")


def test_columns_of_taken_names_are_all_kept(tmp_path: Path) -> None:
    names = ["n", "row_n", "row_tier", "row_row_tier", "tier"]
    rows = numbered(2, **{name: lambda i, name=name: f"{name} {i}" for name in names})
    prompts = read(write_rows(tmp_path / "a.jsonl", rows), keep="all")
    columns = pool_columns(prompts).drop(["file", "line"]).to_pylist()[1]
    assert columns == {
        "row_row_n": "n 1",
        "row_n": "row_n 1",
        "row_tier": "row_tier 1",
        "row_row_tier": "row_row_tier 1",
        "row_row_row_tier": "tier 1",
    }


def test_a_column_of_decile_s_own_name_is_kept_under_another(tmp_path: Path) -> None:
    rows = numbered(3, tier=lambda i: i, pass_rate=lambda i: i / 2, source=lambda i: "s")
    prompts = read(write_rows(tmp_path / "a.jsonl", rows), keep="all")
    table = with_pool_columns(pa.table({"pass_rate": [0.0, 0.5, 1.0]}), prompts)
    assert table["pass_rate"].to_pylist() == [0.0, 0.5, 1.0]
    assert table["row_pass_rate"].to_pylist() == [0.0, 0.5, 1.0]
    assert table["row_tier"].to_pylist() == [0, 1, 2]
    assert table["row_source"].to_pylist() == ["s"] * 3


def test_prompts_that_are_not_from_a_file_have_no_such_columns() -> None:
    pool = load_pool(Dataset("d", "arithmetic", {"train": 5, "test": 5}, "lenient"))
    assert pool_columns(pool.train).column_names == []


def own_columns(row: dict, layout: str) -> dict:
    if name := LAYOUTS[layout].own:
        return row[name]
    return json.loads(row["info"]) if "info" in row else row


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_them(tmp_path: Path, layout: str) -> None:
    rows = numbered(4, id=lambda i: f"q{i}", label=lambda i: i, topic=lambda i: "s")
    file = write_rows(tmp_path / "a.jsonl", rows)
    task = QuestionFile(train=str(file), source="topic", keep=["id", "label"])
    prompts = task.prompt_table("train")
    ids = prompts.column("prompt_id").combine_chunks()
    rates = {"prompt_id": ids, "pass_rate": [0.5] * 4, "n": [4] * 4, "successes": [2] * 4}
    rated = with_pool_columns(pa.table(rates), prompts)
    subset, _ = select(rated, SubsetRequest(PolicyEntry(policy="random"), 2))
    assert subset["id"].to_pylist() == [f"q{line - 1}" for line in subset["line"].to_pylist()]
    for row, chosen in zip(
        exported_table(subset, prompts, task, layout).to_pylist(), subset.to_pylist(), strict=True
    ):
        own = own_columns(row, layout)
        label = "row_label" if layout == "openrlhf" else "label"  # which has a label of its own
        assert (own["id"], own[label], own["source"]) == (chosen["id"], chosen["label"], "s")
        assert (own["file"], own["line"]) == (str(file), chosen["line"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_column_takes_the_place_of_a_layout_s_own(tmp_path: Path, layout: str) -> None:
    taken = sorted((LAYOUTS[layout].names | {"n", "row_n"}) - {"question", "answer"})
    taken = [name for name in taken if not has_media_columns([name])]  # which no question may have
    rows = numbered(2, **{name: lambda i, name=name: f"{name} {i}" for name in taken})
    task = QuestionFile(train=str(write_rows(tmp_path / "a.jsonl", rows)), keep="all")
    prompts = task.prompt_table("train")
    ids = prompts.column("prompt_id").combine_chunks()
    rates = {"prompt_id": ids, "pass_rate": [0.5] * 2, "n": [4] * 2, "successes": [2] * 2}
    rated = pa.table(rates)
    request = SubsetRequest(PolicyEntry(policy="random"), 1)
    subset, _ = select(with_pool_columns(rated, prompts), request)
    [row] = exported_table(subset, prompts, task, layout).to_pylist()
    own = own_columns(row, layout)
    line = row["line"] if "line" in row else own["line"]
    for name in taken:
        values = {key: value for key, value in own.items() if key.endswith(name)}
        assert f"{name} {line - 1}" in values.values()
        assert own.get(name) != f"{name} {line - 1}" or name == "row_n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"keep": "id"}, "id"),
        ({"keep": ["it"]}, "it"),
        ({"source": "topics"}, "topics"),
        ({"source": 3}, "3"),
        ({"keep": [3]}, "3"),
        ({"keep": [["id", 3]]}, "3"),
        ({"source": []}, "[]"),
    ],
)
def test_a_column_that_is_none_is_refused(tmp_path: Path, options: Any, named: str) -> None:
    file = write_rows(tmp_path / "a.jsonl", numbered(3, topic=lambda i: "s"))
    with refused(named, by=TaskError):
        read(file, **options)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
@pytest.mark.parametrize("task", [QuestionFile, ByRows])
def test_each_file_may_have_another_name_for_a_column(
    tmp_path: Path, suffix: str, task: type[QuestionFile]
) -> None:
    columns = {"a": ("topic", "id"), "b": ("data_source", "uid")}
    for name, (source, own_id) in columns.items():
        texts = {source: lambda i, name=name: f"{name}{i}", own_id: lambda i: f"q{i}"}
        rows = [{**row, "question": f"{name}: {row['question']}"} for row in numbered(2, **texts)]
        if suffix == ".csv":
            lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
            (tmp_path / f"{name}.csv").write_text("\n".join(lines))
        else:
            write_rows(tmp_path / f"{name}{suffix}", rows)
    own = task(
        train=str(tmp_path / f"*{suffix}"),
        source=["topic", "data_source"],
        keep=[["id", "uid", "number"]],
    )
    table = pool_columns(own.prompt_table("train"))
    assert table["source"].to_pylist() == ["a0", "a1", "b0", "b1"]
    assert table["id"].to_pylist() == ["q0", "q1", "q0", "q1"]
    assert "uid" not in table.column_names
    neither = task(train=str(tmp_path / f"*{suffix}"), source=["topic", "subject"])
    with refused(f"b{suffix}", "'topic' or 'subject'", by=TaskError):
        neither.prompt_table("train")


def test_the_first_name_that_a_file_has_counts_for_all_of_its_rows(tmp_path: Path) -> None:
    rows = numbered(3, topic=lambda i: [None, "s", "s"][i], domain=lambda i: "d")
    del rows[0]["topic"]
    table = pool_columns(
        read(write_rows(tmp_path / "a.jsonl", rows), source=["topic", "domain"], keep="all")
    )
    assert table["source"].to_pylist() == [None, "s", "s"]
    assert table["domain"].to_pylist() == ["d", "d", "d"] and "topic" not in table.column_names


def test_a_row_may_lack_a_kept_column(tmp_path: Path) -> None:
    rows = numbered(3, id=lambda i: f"q{i}", topic=lambda i: "s")
    del rows[1]["id"], rows[1]["topic"]
    table = pool_columns(read(write_rows(tmp_path / "a.jsonl", rows), source="topic", keep=["id"]))
    assert table["id"].to_pylist() == ["q0", None, "q2"]
    assert table["source"].to_pylist() == ["s", None, "s"]


def test_columns_of_a_policy_have_a_hash_that_follows_their_values(tmp_path: Path) -> None:
    hashes = []
    for topic in ("ab", "ba"):
        rows = numbered(4, topic=lambda i, topic=topic: topic[i % 2], other=lambda i: 0)
        file = write_rows(tmp_path / "a.jsonl", rows)
        options = {"train": str(file), "source": "topic", "keep": ["other"]}
        pool = load_pool(Dataset("d", "file", options, "lenient"))
        hashes.append((pool.columns_hash(["source"]), pool.columns_hash(["other"])))
        assert pool.columns_hash([]) == ""
    (first, same), (second, again) = hashes
    assert first != second and same == again
    assert np.unique([len(each) for each in (first, second, same)]).tolist() == [16]


PER_ROW = ("prompt_id", "tier", "source", "file", "line", "level", "row_score", "list")
COLUMNS = dict.fromkeys([*DIFFICULTY.names, *Prompt.__slots__, *PER_ROW, "topic", "none", ""])


@pytest.mark.parametrize(
    ("policy", "option", "value", "plans"),
    [
        ("hard", "within", "equal", {*PER_ROW, "pass_rate", "labelled"}),
        ("random", "exclude", "x", {*PER_ROW, "pass_rate", "labelled"}),
        ("full", "where", "1", {"level", "row_score", "pass_rate"}),
        ("full", "where", "2", {"level", "line"}),
        ("pools", "within", "equal", {*PER_ROW}),
        ("dynamic", "within", "equal", {*PER_ROW}),
    ],
)
def test_a_policy_by_any_column_plans_or_is_refused_with_its_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    policy: str,
    option: str,
    value: str,
    plans: set[str],
) -> None:
    rows = numbered(40, topic=lambda i: "ab"[i % 2], level=lambda i: i % 3, score=lambda i: i % 2)
    file = write_rows(tmp_path / "a.jsonl", [{**row, "list": [1]} for row in rows])
    options = {"path": str(file), "source": "topic", "keep": ["level", "score", "list"]}
    entry = {"task": "file", "options": options}
    grid = {"model": ["stub"], "dataset": ["mine"], "policy": ["by-column"]}
    rules = {"by-column": {"policy": policy}}
    small_plan(tmp_path, datasets={"mine": entry}, rules=rules, grid=grid)
    experiment, planned = tmp_path / "experiments.yaml", set()
    content = yaml.safe_load(experiment.read_text())
    for column in COLUMNS:
        content["policies"]["by-column"]["options"] = {option: {column: value}}
        experiment.write_text(yaml.safe_dump(content))
        code = main(["plan", str(experiment), "-e", "small"])
        message = capsys.readouterr().err.removeprefix("decile: ")
        if code == 0:
            planned.add(column)
        else:
            assert (code, problems(message)) == (2, []), (column, message)
            assert message.startswith(place(experiment, "by-column:")), (column, message)
    assert planned == plans
