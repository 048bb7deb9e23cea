"""Pools of several files, in any formats: those of their concatenation; and rows of a program."""

import csv
import gzip
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from orchestrator.cli.main import main
from orchestrator.config.catalog import load_config
from orchestrator.pipeline.own_data import planned_probe, read_questions
from orchestrator.pipeline.user_rows import store_rows
from orchestrator.planning.plan import make_plan
from orchestrator.planning.pool_columns import pool_columns
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from tasks import TaskError, get_task
from tasks.question_file import QuestionFile

TEXT = st.text(st.sampled_from('ab ,"\n\té;'), min_size=1, max_size=6).map(lambda t: f"x{t}x")
VALUE = TEXT | st.integers(-5, 5).map(str)
ROWS = st.lists(
    st.fixed_dictionaries({"question": TEXT, "answer": VALUE, "level": VALUE, "topic": VALUE}),
    min_size=1,
    max_size=4,
)
SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".tsv", ".csv.gz", ".jsonl.gz")


def write_rows(file: Path, rows: list[dict[str, Any]]) -> str:
    """The rows in the format of the file's name."""
    if file.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), file)
        return str(file)
    opened = gzip.open if file.name.endswith(".gz") else open
    with opened(file, "wt", encoding="utf-8", newline="") as stream:
        if file.name.removesuffix(".gz").endswith((".csv", ".tsv")):
            delimiter = "\t" if file.suffix == ".tsv" else ","
            writer = csv.DictWriter(stream, [*rows[0]], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
        elif file.suffix == ".json":
            json.dump(rows, stream)
        else:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    return str(file)


def sums(count: int, first: int = 0, **columns: Any) -> list[dict[str, Any]]:
    rows = range(first, first + count)
    return [{"question": f"What is {i} + 1?", "answer": str(i + 1)} | columns for i in rows]


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.tuples(ROWS, st.sampled_from(SUFFIXES)), min_size=1, max_size=3),
    marker=st.sampled_from(["text", "number"]),
    keep=st.sampled_from([[], ["level"], "all"]),
    skip=st.booleans(),
)
def test_files_of_any_formats_are_the_pool_of_their_concatenation(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[list[dict[str, Any]], str]],
    marker: str,
    keep: Any,
    skip: bool,
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    files = [write_rows(folder / f"{i}{s}", rows) for i, (rows, s) in enumerate(parts)]
    whole = write_rows(folder / "whole.jsonl", [row for rows, _ in parts for row in rows])
    options = {"marker": marker, "tier": "level", "source": "topic", "keep": keep}
    tables = []
    for path in (files, whole):
        try:
            task = QuestionFile(train=path, skip_invalid=skip, **options)
            tables.append(task.prompt_table("train"))
        except TaskError:
            tables.append(None)
    of_files, of_whole = tables
    if skip and of_files is None:  # each file has to have a row that can be used
        return
    assert (of_files is None) == (of_whole is None)
    if of_files is not None and of_whole is not None:
        assert of_files == of_whole
        own, others = (pool_columns(t).drop(["file", "line"]) for t in (of_files, of_whole))
        assert own.to_pydict() == others.to_pydict()


def test_places_and_provenance_name_each_file(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "b.csv", [{"question": "a\n\nb", "answer": "1"}, *sums(1)])
    second = write_rows(tmp_path / "a.jsonl", sums(2, 5))
    task = QuestionFile(train=[first, second])
    places = task.prompt_table("train").column("place").to_pylist()
    assert places == [f"{first}:2", f"{first}:5", f"{second}:1", f"{second}:2"]
    by_glob = QuestionFile(train=str(tmp_path / "*.*"))
    assert [p.place for p in by_glob.train()] == [*places[2:], *places[:2]]
    assert [o.split(" sha256:")[0] for o in task.provenance["train"].split("; ")] == [
        "b.csv",
        "a.jsonl",
    ]
    assert task.provenance["train"].count("sha256:") == 2


def test_a_split_by_content_is_that_of_one_file(tmp_path: Path) -> None:
    rows = sums(200)
    whole = QuestionFile(path=write_rows(tmp_path / "all.jsonl", rows))
    parts = [write_rows(tmp_path / f"{i}.csv", rows[i::3]) for i in range(3)]
    several = QuestionFile(path=parts)
    for split in ("train", "test"):
        pools = [{p.prompt_id for p in task.prompt_table(split)} for task in (whole, several)]
        assert pools[0] == pools[1] and pools[0]


def test_answers_of_all_files_tell_what_they_number_the_choices_from(tmp_path: Path) -> None:
    def rows(*answers: int) -> list[dict[str, Any]]:
        return [
            {"question": f"q{a}{answers}", "choices": ["x", "y", "z"], "answer": a} for a in answers
        ]

    files = [
        write_rows(tmp_path / "1.jsonl", rows(1, 2)),
        write_rows(tmp_path / "2.jsonl", rows(3)),
    ]
    task = get_task("file", train=files, marker="letter")
    assert [prompt.answer for prompt in task.train()] == ["(A)", "(B)", "(C)"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("question,answer\nq,1\nq,1,2\n", 3),
        ('question,answer\n"a\nb",1\nq\n', 4),
        ('question,answer\nq,1\n"a\nb,1\n', 3),
        ('question,answer\n"a" b,1\n', 2),
        ('question,answer\n"a\n\nb",1\n,1\n', 5),
        ("question,solution\nq,1\n", 2),
    ],
)
def test_a_mistake_in_a_csv_file_is_named_with_the_first_line_of_its_row(
    tmp_path: Path, content: str, line: int
) -> None:
    (tmp_path / "a.csv").write_text(content)
    with refused(f"{tmp_path}/a.csv:{line}", by=TaskError):
        QuestionFile(train=str(tmp_path / "a.csv")).train()


def test_csv_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    text = '\ufeff,question,answer\r\n0,"Is it ""1"", or\r\n2?",1\r\n\r\n1,b,2\r\n'
    (tmp_path / "a.csv").write_bytes(text.encode())
    prompts = QuestionFile(train=str(tmp_path / "a.csv"), keep="all").train()
    assert [(p.question, p.answer) for p in prompts] == [('Is it "1", or\r\n2?', "1"), ("b", "2")]
    assert [json.loads(p.kept) for p in prompts] == [{"": "0"}, {"": "1"}]
    (tmp_path / "a.csv").write_text("question,answer,answer\na,1,2\n")
    with refused("a.csv", "'answer'", by=TaskError):
        QuestionFile(train=str(tmp_path / "a.csv")).train()


def test_files_that_cannot_be_one_pool_are_refused(tmp_path: Path) -> None:
    one = write_rows(tmp_path / "1.csv", sums(3, topic="a"))
    two = write_rows(tmp_path / "2.csv", [{"question": "q", "solution": "1"}])
    three = write_rows(tmp_path / "3.jsonl", sums(3, 9))
    (tmp_path / "more.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(one)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"train": str(tmp_path / "*.parquet")}, "*.parquet"),
        ({"train": []}, "path"),
        ({"train": [one, str(tmp_path / "?.csv")]}, "1.csv"),
        ({"train": [one, str(tmp_path / "link.csv")]}, "link.csv"),
        ({"train": one, "test": str(tmp_path / "*.csv")}, "1.csv"),
        ({"train": str(tmp_path / "more*")}, "more.csv"),
        ({"train": [one, str(tmp_path / "more.csv")]}, "more.csv"),
        ({"train": [one, two]}, f"{two}:2"),
        ({"train": [one, two], "skip_invalid": True}, two),
        ({"train": [one, three], "source": "topic"}, three),
        ({"train": [one, three], "tier": "topic"}, f"{three}:1"),
        ({"train": [one, three], "columns": ["topic"]}, three),
        ({"train": 5}, "train 5"),
    ]
    for options, named in cases:
        with refused(named, by=TaskError):
            get_task("file", **options).train()


def test_lists_and_globs_are_relative_to_the_experiments_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "[project]"  # a name that is itself a pattern
    (folder / "data").mkdir(parents=True)
    for number in range(3):
        rows = sums(20, 20 * number)
        rows = [row | {"domain": "ab"[i % 2], "uid": f"{number}-{i}"} for i, row in enumerate(rows)]
        write_rows(folder / "data" / f"{number}.csv", rows)
    monkeypatch.chdir(folder)
    trained = ["data/0.csv", "data/[12].csv"]
    arguments = ["--model", "tiny", "--out", "conf/mine.yaml"]
    assert main(["init", "--train", *trained, *arguments]) == 0
    out = capsys.readouterr().out
    assert "60 rows" in out and "sources    'domain'" in out and "ids        'uid'" in out
    written = yaml.safe_load(Path("conf/mine.yaml").read_text())["datasets"]["data"]["options"]
    assert written["path"] == ["../data/0.csv", "../data/[12].csv"]
    assert (written["source"], written["keep"]) == ("domain", ["uid"])
    monkeypatch.chdir(tmp_path)
    loaded = load_config("[project]/conf/mine.yaml")
    plan = make_plan(loaded, "data")
    [pool] = plan.pools.values()
    assert len(pool.train) + len(pool.test) == 60
    files = {Path(file).resolve() for file in plan.files}
    assert {folder / "data" / f"{i}.csv" for i in range(3)} <= files
    content = yaml.safe_load((folder / "conf/mine.yaml").read_text())
    content["datasets"]["data"]["options"]["path"] = ["[[]project]/data/*.csv"]
    (folder / "conf/mine.yaml").write_text(yaml.safe_dump(content))
    notes = load_config("[project]/conf/mine.yaml").warnings("data")
    assert any("[[]project]/data/*.csv" in note and "mine.yaml:" in note for note in notes)


def test_ids_and_sources_are_proposed_where_they_tell_rows_apart(tmp_path: Path) -> None:
    def found(**columns: Any) -> tuple[str | None, str | None]:
        rows = [
            row | {name: value(i) for name, value in columns.items()}
            for i, row in enumerate(sums(40))
        ]
        read = read_questions(write_rows(tmp_path / "a.jsonl", rows), "train")
        survey = read.survey("question", "answer")
        return survey.source, survey.id

    assert found(domain=lambda i: "ab"[i % 2], id=lambda i: i) == ("domain", "id")
    assert found(domain=lambda i: "a", id=lambda i: i % 39) == (None, None)
    assert found(domain=lambda i: f"d{i}", uuid=lambda i: f"u{i}") == (None, "uuid")
    assert found(domain=lambda i: "ab"[i % 2] if i else None, id=lambda i: i or None) == (
        None,
        None,
    )


ROW_FORMS = {
    "DataFrame": pd.DataFrame,
    "Dataset": lambda rows: import_module("datasets").Dataset.from_list(rows),
    "Table": pa.Table.from_pylist,
    "dicts": list,
}


@pytest.mark.parametrize("form", ROW_FORMS)
def test_rows_of_a_program_are_the_pool_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = sums(60)
    data, store = ROW_FORMS[form](rows), Store("runs")
    file = planned_probe(write_rows(tmp_path / "a.jsonl", rows), "tiny").probes[0]
    plan = planned_probe(data, "tiny", None, {}, store)
    [own] = (spec for spec in plan.probes if spec.split == "train")
    pool = plan.pool(own)
    assert (own.key, own.marker) == (file.key, file.marker)
    assert {p.prompt_id for p in pool.train} | {p.prompt_id for p in pool.test} == {
        p.prompt_id for p in QuestionFile(train="a.jsonl").train()
    }
    assert store_rows(store, data) == store_rows(store, pa.Table.from_pylist(rows))
    assert [path.name for path in Path("runs/data").iterdir()] == [f"{own.dataset.name}.parquet"]


def test_rows_that_are_no_table_are_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    same_names = pd.DataFrame([[1, 2]], columns=["mine", "mine"])
    indexed = pd.DataFrame({"mine": [1]}).set_index("mine", drop=False)
    text = "half \ud800"
    for data, *named in (
        (5,),
        ({"question": "a"},),
        ([{"a": 1}, "b"],),
        (same_names, "mine"),
        (indexed, "mine"),
        (pa.table([[1], [2]], ["mine", "mine"]), "mine"),
        ([{7: 1, "7": 2}], "7"),
        ([{"a": 1}, {"a": text}], "row 2"),
        (pd.DataFrame({"a": ["b", text]}, dtype=object), "row 2"),
        ([{"mine": 1}, {"mine": b"b"}], "row 2", "mine", "bytes"),
        (pd.DataFrame({"a": 1, "mine": [1, {1}]}), "row 2", "mine", "set"),
    ):
        with refused("data", *named, by=(UserError, TaskError)):
            store_rows(store, data)


def test_a_column_may_have_values_of_several_types_and_any_name(tmp_path: Path) -> None:
    mixed = [1, "b", None, 2.5, True, {"c": 1}, 2**70, "d"]
    rows = [row | {"mine": value, 7: 7} for row, value in zip(sums(8), mixed, strict=True)]
    written = [{str(name): value for name, value in row.items()} for row in rows]
    options = {"keep": "all", "marker": "number"}
    file = QuestionFile(train=write_rows(tmp_path / "a.jsonl", written), **options)
    for data in (rows, pd.DataFrame(rows)):
        own = QuestionFile(train=store_rows(Store(str(tmp_path)), data), **options)
        tables = [pool_columns(task.prompt_table("train")).drop("file") for task in (own, file)]
        assert tables[0].equals(tables[1])
        assert tables[0]["7"].to_pylist() == [7] * 8


def test_a_probe_takes_any_number_of_prompts(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for count, test, options, left in (
        (1, None, {}, 1),
        (15, None, {}, 15),
        (30, sums(1, 90), {}, 30),
        (60, None, {"test_share": 0.9}, 6),
        (60, None, {}, 48),  # a part is held out
    ):
        plan = planned_probe(sums(count), "tiny", test, options, store)
        [spec] = plan.probes
        assert len(plan.pool(spec).train) == pytest.approx(left, abs=5 * (count == 60))
        assert all(0 < cell.size <= count for cell in plan.cells)
    with refused("are too few"):
        planned_probe(sums(15), "tiny", None, {}, store, "evaluate")
    for setting in ({"temperature": -1}, {"duplicates": "last"}, {"max_prompt_tokens": 1}):
        with refused(f"{tmp_path}/data/rows-") as caught:
            planned_probe(sums(30), "tiny", None, setting, store)
        assert "experiments." not in str(caught.value) and "datasets." not in str(caught.value)


def test_the_index_of_a_frame_is_a_column_of_its_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame(sums(4)).assign(id=[*"abcd"], part=[1, 1, 2, 2])
    for data, columns in (
        (frame, {}),
        (frame.head(2), {}),
        (frame[frame.part == 2], {"index": [2, 3]}),
        (frame.rename_axis("row"), {"row": [0, 1, 2, 3]}),
        (frame.set_index("id"), {"id": [*"abcd"]}),
        (frame.set_index(["id", "part"]), {"id": [*"abcd"], "part": [1, 1, 2, 2]}),
    ):
        table = pq.read_table(store_rows(Store(str(tmp_path)), data))
        assert {name: table[name].to_pylist() for name in columns} == columns
        assert {*table.column_names} == {*frame.columns, *columns}


def test_a_value_without_json_is_named_with_its_column(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(sums(2, mine=b"b"))
    pq.write_table(table, tmp_path / "a.parquet")
    for options in ({"keep": "all"}, {"marker": "reward_functions_of_users:accuracy"}):
        with refused("a.parquet row 1", "'mine'", "bytes", by=TaskError):
            QuestionFile(train=str(tmp_path / "a.parquet"), **options).train()


def test_every_setting_of_a_data_set_and_a_probe_is_an_argument(tmp_path: Path) -> None:
    rows = [row | {"level": i % 3, "topic": "ab"[i % 2]} for i, row in enumerate(sums(90))]
    file = write_rows(tmp_path / "a.csv", rows)
    given = {
        "tier": "topic",
        "source": "level",
        "keep": "all",
        "group": "level",
        "test_share": 0.4,
        "prompt": "bare",
        "system": "Be brief.",
        "few_shot": [{"question": "1 + 1?", "answer": "2"}],
        "marking": "strict",
        "drop_overlap": True,
        "temperature": 0.5,
        "answer": None,
    }
    plan = planned_probe(file, "tiny", None, given)
    [spec] = (each for each in plan.probes if each.split == "train")
    pool, dataset = plan.pool(spec), spec.dataset
    assert dataset.options["tier"] == "topic" and dataset.options["keep"] == "all"
    assert (dataset.marking, dataset.drop_overlap) == ("strict", True)
    assert spec.settings.temperature == 0.5 and len(pool.test) > 25
    [system, *_, last] = pool.task.messages(pool.train[0].question)
    assert system["content"] == "Be brief." and last["content"] == pool.train[0].question
    assert {*pool.tiers("train").values()} == {"a", "b"}
    for name, meant in (("teir", "tier"), ("few_shots", "few_shot"), ("path", ""), ("task", "")):
        with refused(repr(name), meant, code="unknown-setting"):
            planned_probe(file, "tiny", None, {name: "x"})
