"""A file says the same to every command, whatever its format and the names of its columns."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.optional.exchange.imports import import_probe
from orchestrator.optional.exchange.item_files import ItemColumns, read_results
from orchestrator.optional.exchange.mark import Source, compare_markers, mark_file
from orchestrator.optional.exchange.records import Hints
from orchestrator.optional.exchange.run_logs import read_logs
from orchestrator.storage.errors import UserError
from tasks import TaskError, get_task
from tasks.sources.files import SUFFIXES, read_file
from tasks.sources.roles import GOLDS, ROLES, columns_in_role
from tasks.sources.survey import survey_rows

Row = Mapping[str, Any]


def json_lines(rows: list[Row]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def separated(rows: list[Row], mark: str, before: str = "") -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*rows[0]], delimiter=mark)
    writer.writeheader()
    writer.writerows(rows)
    return before + stream.getvalue()


FORMATS: Mapping[str, tuple[str, Callable[[list[Row]], str]]] = {
    "JSON lines": (".jsonl", json_lines),
    "a list in .jsonl": (".jsonl", lambda rows: json.dumps(rows, indent=1)),
    "a list in one line of .jsonl": (".jsonl", json.dumps),
    "objects over several lines": (
        ".jsonl",
        lambda rows: "\n".join(json.dumps(r, indent=1) for r in rows),
    ),
    "a list in .json": (".json", json.dumps),
    "a list in an object": (".json", lambda rows: json.dumps({"version": 1, "data": rows})),
    "JSON lines in .json": (".json", lambda rows: "\n" + json_lines(rows)),
    "JSON lines with a byte order mark": (".json", lambda rows: "\N{BOM}" + json_lines(rows)),
    "commas": (".csv", lambda rows: separated(rows, ",")),
    "semicolons": (".csv", lambda rows: separated(rows, ";")),
    "tabs in .csv": (".csv", lambda rows: separated(rows, "\t")),
    "tabs": (".tsv", lambda rows: separated(rows, "\t")),
    "a line sep=": (".csv", lambda rows: separated(rows, ";", "sep=;\n")),
}


def written(folder: Path, rows: list[Row]) -> Iterator[tuple[str, Path]]:
    """The rows in every format, with its name."""
    for number, (name, (suffix, text)) in enumerate(FORMATS.items()):
        file = folder / f"{number}{suffix}"
        file.write_text(text(rows), "utf-8")
        yield name, file
        zipped = folder / f"{number}-zipped{suffix}.gz"
        zipped.write_bytes(gzip.compress(file.read_bytes()))
        yield f"{name}, gzipped", zipped
        (unnamed := folder / f"{number}-unnamed{suffix}").write_bytes(zipped.read_bytes())
        yield f"{name}, gzipped under another name", unnamed
    pq.write_table(pa.Table.from_pylist(rows), file := folder / "rows.parquet")
    yield "Parquet", file


TASK = get_task("file", marker="number")
QUESTIONS = [f"What is {n} + 1; or {n}, plus one?" for n in range(6)]


def pool(question: str = "question", answer: str = "answer", **more: list[Any]) -> list[Row]:
    return [
        {question: text, answer: n + 1} | {name: values[n] for name, values in more.items()}
        for n, text in enumerate(QUESTIONS)
    ]


def surveyed(file: Path) -> list[Any]:
    survey = survey_rows(read_file(file, []))
    return [survey.rows, survey.valid, survey.marker, dict(survey.forms)]


def imported(file: Path) -> list[Any]:
    probe = import_probe(file, None, TASK)
    rates = probe.table["pass_rate"].to_pylist() if "pass_rate" in probe.table.column_names else []
    return [sorted(prompt.prompt_id for prompt in probe.prompts), rates]


def loaded(file: Path) -> list[Any]:
    task = get_task("file", train=str(file), marker="number")
    return [sorted(task.prompt_table("train").column("prompt_id").to_pylist())]


def marked(file: Path) -> list[Any]:
    return [
        mark_file("file", {"marker": "number"}, file, file.with_suffix(".out.jsonl"), 1).outcomes
    ]


def compared(file: Path) -> list[Any]:
    rows = read_results(file, ItemColumns()).rows
    return [[(row.item, row.score) for row in rows]]


def diagnosed(file: Path) -> list[Any]:
    [log] = read_logs(str(file))
    return [log.completions.drop_columns("prompt").to_pydict()]


RATES = {"pass_rate": [0.0, 0.125, 0.5, 0.5, 0.875, 1.0], "n": [8] * 6}
COMPLETIONS = {"completion": [rf"\boxed{{{n % 5 + 1}}}" for n in range(6)]}
GRADES = {"id": [f"q{n}" for n in range(6)], "correct": [True, False] * 3}
UPDATES = {"update": [0, 0, 1, 1, 2, 2], "reward": [0.0, 1.0, 0.0, 1.0, 0.5, 0.25]}
READERS: Mapping[str, tuple[Callable[[Path], list[Any]], Mapping[str, list[Any]]]] = {
    "init": (surveyed, {}),
    "task: file": (loaded, {}),
    "import": (imported, RATES),
    "mark": (marked, COMPLETIONS),
    "compare": (compared, GRADES),
    "diagnose": (diagnosed, UPDATES),
}


def differences(
    read: Callable[[Path], list[Any]], expected: list[Any], files: Iterator[tuple[str, Path]]
) -> list[str]:
    """What is read otherwise than expected, by the names of the files."""
    problems = []
    for name, file in files:
        try:
            values = read(file)
        except (TaskError, UserError) as error:
            values = [f"{type(error).__name__}: {error}"]
        if values != expected:
            problems.append(f"{name}: {values}")
    return problems


@pytest.mark.parametrize("command", READERS)
def test_every_format_holds_the_same_rows(tmp_path: Path, command: str) -> None:
    read, more = READERS[command]
    rows = pool(**more)
    (file := tmp_path / "first.jsonl").write_text(json_lines(rows))
    assert differences(read, read(file), written(tmp_path, rows)) == []


def spellings(name: str) -> list[str]:
    words = name.replace("_", " ")
    return [name, name.upper(), words.title(), words.replace(" ", "-")]


def renamed(
    folder: Path, role: str, names: tuple[str, ...], **more: list[Any]
) -> Iterator[tuple[str, Path]]:
    for number, name in enumerate(name for known in names for name in spellings(known)):
        (file := folder / f"{number}.jsonl").write_text(json_lines(pool(**{role: name}, **more)))
        yield name, file


TEXTS = [name for name in ROLES["question"].names if name not in ("messages", "conversations")]
BESIDE = [n for n in ROLES["answer beside completions"].names if "." not in n]


@pytest.mark.parametrize("command", ["init", "import", "mark"])
def test_every_name_of_a_gold_answer_is_known(tmp_path: Path, command: str) -> None:
    read, more = READERS[command]
    (file := tmp_path / "first.jsonl").write_text(json_lines(pool(**more)))
    files = renamed(tmp_path, "answer", tuple(BESIDE), **more)
    assert differences(read, read(file), files) == []


@pytest.mark.parametrize("command", ["init", "import", "diagnose"])
def test_every_name_of_a_question_is_known(tmp_path: Path, command: str) -> None:
    read, more = READERS[command]
    (file := tmp_path / "first.jsonl").write_text(json_lines(pool(**more)))
    assert differences(read, read(file), renamed(tmp_path, "question", tuple(TEXTS), **more)) == []


def test_the_questions_of_marked_completions_are_shown_under_every_name(tmp_path: Path) -> None:
    markers = [get_task("file", marker=marker) for marker in ("number", "text")]
    more = {"completion": [rf"\boxed{{{n + 1}.0}}" for n in range(6)]}  # no text of a gold answer
    for name, file in renamed(tmp_path, "question", tuple(TEXTS), **more):
        examples = compare_markers(Source(file), markers, None, []).examples
        assert [example.question for example in examples] == QUESTIONS, name


def test_every_name_of_an_id_and_of_a_grade_is_known(tmp_path: Path) -> None:
    expected = [[(f"q{n}", 1.0 - n % 2) for n in range(6)]]

    def files() -> Iterator[tuple[str, Path]]:
        names = [(name, "correct") for name in ROLES["id"].names if "." not in name]
        names += [("id", name) for role in ("correct", "score") for name in ROLES[role].names]
        for identity, grade in names:
            rows = pool(**{identity: GRADES["id"], grade: GRADES["correct"]})
            (file := tmp_path / f"{identity}-{grade}.jsonl").write_text(json_lines(rows))
            yield file.stem, file

    assert differences(compared, expected, files()) == []


WORDS = {
    "truth": ([True, False] * 3),
    "numbers": [1, 0] * 3,
    "decimals": [1.0, 0.0] * 3,
    "texts of numbers": ["1", "0.0"] * 3,
    "words": ["yes", "No"] * 3,
    "texts of truth": ["True", "false"] * 3,
}


def test_right_and_wrong_are_read_alike_however_they_are_written(tmp_path: Path) -> None:
    def files(grade: str, **more: list[Any]) -> Iterator[tuple[str, Path]]:
        for name, values in WORDS.items():
            rows = pool(**{grade: values}, **more)
            (file := tmp_path / f"{grade} {name}.jsonl").write_text(json_lines(rows))
            yield name, file

    items = [[(f"q{n}", 1.0 - n % 2) for n in range(6)]]
    assert differences(compared, items, files("correct", id=GRADES["id"])) == []
    outcomes = [True, False] * 3
    for _, file in files("correct", update=UPDATES["update"], reward=UPDATES["reward"]):
        [log] = read_logs(str(file))
        assert sorted(log.completions["correct"].to_pylist()) == sorted(outcomes), file


@pytest.mark.parametrize(
    ("columns", "rates"),
    [
        ({"solve_rate": ["1/4", "0/4"]}, [(0.25, 4), (0.0, 4)]),
        ({"avg@8_qwen3_4b": [0.25, 1.0]}, [(0.25, 8), (1.0, 8)]),
        ({"passrate": [0.5, 0.0], "total_rollouts": [8, 8]}, [(0.5, 8), (0.0, 8)]),
        ({"total_correct_rollouts": [2, 0], "total_rollouts": [8, 4]}, [(0.25, 8), (0.0, 4)]),
        ({"num_passed_qwen": [2, 4], "n_qwen": [8, 4]}, [(0.25, 8), (1.0, 4)]),
        ({"qwen_best_pass_rate_per_4": [0.25, 1.0]}, [(0.25, 4), (1.0, 4)]),
        (
            {"rollout": [{"pass_rate": 0.5, "n": 8}, {"pass_rate": 0.25, "n": 8}]},
            [(0.5, 8), (0.25, 8)],
        ),
        ({"solved": [2, 0], "n": [8, 8]}, [(0.25, 8), (0.0, 8)]),
        ({"pass_rate": ["0,5", "0,125"], "n": ["8", "8.0"]}, [(0.5, 8), (0.125, 8)]),
        ({"solve_rate": [0.5, None], "n": [8, 8]}, [(0.5, 8), (None, 8)]),
        ({"solve_rate": [0.5, float("nan")], "n": [8, 8]}, [(0.5, 8), (None, 8)]),
    ],
)
def test_published_rates_are_read_with_their_numbers_of_samples(
    tmp_path: Path, columns: Mapping[str, list[Any]], rates: list[tuple[float, int]]
) -> None:
    rows = [
        {"question": f"{n} + 1?", "answer": str(n + 1)} | {k: v[n] for k, v in columns.items()}
        for n in range(2)
    ]
    (file := tmp_path / "rates.jsonl").write_text(json_lines(rows))
    probe = import_probe(file, None, TASK)
    ids = {prompt.answer: prompt.prompt_id for prompt in probe.prompts}
    table = {row["prompt_id"]: row for row in probe.table.to_pylist()}
    read = [table[ids[answer]] for answer in ("1", "2") if answer in ids]
    known = [(rate, n) for rate, n in rates if rate is not None]
    assert [(row["pass_rate"], row.get("n")) for row in read] == known
    assert any(note.startswith("1 row dropped") for note in probe.notes) == (None in dict(rates))


def test_rates_of_several_models_need_a_choice(tmp_path: Path) -> None:
    rows = pool(**{"avg@8_a": [0.5] * 6, "avg@8_b": [0.25] * 6})
    (file := tmp_path / "rates.jsonl").write_text(json_lines(rows))
    with pytest.raises(TaskError, match="--rate avg@8_a"):
        import_probe(file, None, TASK)
    rated = import_probe(file, None, TASK, hints=Hints(model="b"))
    assert set(rated.table["pass_rate"].to_pylist()) == {0.25}


def test_names_of_roles_are_spelled_as_they_are_compared_and_none_is_given_twice() -> None:
    for role, (names, _) in ROLES.items():
        assert len({*names}) == len(names), role
        assert [columns_in_role(role, [name]) for name in names] == [[name] for name in names]
    assert {*GOLDS} <= {*ROLES["answer"].names} & {*ROLES["answer beside completions"].names}
    assert all(suffix in SUFFIXES for suffix, _ in FORMATS.values())


def test_a_column_that_is_named_may_have_any_spelling(tmp_path: Path) -> None:
    (file := tmp_path / "named.jsonl").write_text(json_lines(pool(answer="answerKey No1")))
    probe = import_probe(file, None, TASK, hints=Hints(answer="answerKey No1"))
    assert len(probe.prompts) == len(QUESTIONS)


def test_completions_are_found_under_any_name(tmp_path: Path) -> None:
    names = [name for known in ROLES["completion"].names for name in spellings(known)]
    for number, name in enumerate(name for name in names if name.lower() != "text"):
        rows = pool(**{name: [[r"\boxed{1}", r"\boxed{2}"]] * 6})
        (file := tmp_path / f"{number}.jsonl").write_text(json_lines(rows))
        counts = mark_file("file", {"marker": "number"}, file, tmp_path / "o.jsonl", 1).outcomes
        assert counts["correct"] == 2 and sum(counts.values()) == 12, name
        samples = import_probe(file, None, TASK).samples
        assert samples is not None and samples["outcome"].to_pylist().count("correct") == 2, name
