"""Pools whose gold answers come later: read, marked, labelled by annotators, and chosen from."""

import csv
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from factories import small_plan
from remedies import refused

from decile.probes import Probe
from orchestrator.cli.main import main
from orchestrator.pipeline.evaluate import plan_evaluation
from orchestrator.pipeline.open_plan import check_trainable
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import Dataset, load_pool
from orchestrator.probing.probe_folder import ProbeFolder, read_part, write_part
from orchestrator.probing.samples import mark_samples
from orchestrator.report.probe_analysis import analyse_pool
from orchestrator.report.sections.pool import policy_table, purpose
from orchestrator.sampling.base import Completion
from orchestrator.selection.labelling import prompts_to_label, write_to_label
from orchestrator.selection.plan_probe import PlanProbe
from orchestrator.selection.subsets import reason
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store
from policies import PolicyError
from tasks import TaskError, get_task
from tasks.sources.labels import read_labels

QUESTIONS = 40
K = 4


def gold(question: str) -> int:
    return int(question.split()[2]) * 2


@pytest.fixture
def pool_file(tmp_path: Path) -> Path:
    """Rows without answers; every question is in the training pool or the test set."""
    file = tmp_path / "pool.jsonl"
    rows = ({"id": i, "question": f"What is {i} + {i}?"} for i in range(QUESTIONS))
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def options(file: Path, **others: Any) -> dict[str, Any]:
    return {"path": str(file), "answers": "optional", "keep": ["id"], "test_share": 0.3, **others}


def plan_of(folder: Path, file: Path, labels: str | Sequence[str] = (), **settings: Any) -> Plan:
    """A plan of the pool, with a budget of eight prompts."""
    dataset = {"task": "file", "options": options(file), "labels": labels or []}
    grid = {"model": ["stub"], "dataset": ["d"], "policy": ["hard", "random"], "seed": [0]}
    settings = {"grid": grid, "budget": 8, "probe": {"samples": K}, **settings}
    return small_plan(folder, datasets={"d": dataset}, **settings)


def probed(plan: Plan, store: Store) -> PlanProbe:
    """The probe of the plan with the answers 2i, 2i.0, 2i + 1 and nothing to What is i + i."""
    [cell, *_] = plan.cells
    pool = plan.pool(cell.probe)
    texts = ["\\boxed{%d}", "\\boxed{%d.0}", "\\boxed{%d1}", "I do not know %d"]
    requests = [(prompt, tuple(range(K))) for prompt in pool.train]
    results = [
        [Completion(text % gold(prompt.question), 5, "stop") for text in texts]
        for prompt, _ in requests
    ]
    samples = mark_samples(pool.task, requests, results)
    write_part(store, cell.probe.key, "train", samples)
    return PlanProbe(plan, store, cell.probe)


def outcomes(plan: Plan, store: Store) -> dict[str, int]:
    """The stored outcomes, without drawing a sample."""
    [cell, *_] = plan.cells
    pool = plan.pool(cell.probe)
    samples = ProbeFolder(store, cell.probe, pool.train, pool.task).samples(("outcome",))
    values = samples["outcome"].to_pylist()
    return {outcome: values.count(outcome) for outcome in sorted(set(values))}


def write_labels(file: Path, answers: dict[str, Any]) -> str:
    rows = ({"prompt_id": i, "answer": answer} for i, answer in answers.items())
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("marker", ["number", "letter", "expression", "text"])
def test_an_answer_is_read_without_a_gold_one(marker: str) -> None:
    task = get_task("file", marker=marker)
    answer = "(B)" if marker == "letter" else "7"
    mark = task.mark(task.format_answer(answer), "")
    assert (mark.outcome, mark.extracted, mark.score) == ("unlabelled", answer, None)
    assert task.mark("nothing", "").outcome == "unparsed"
    assert task.mark("nothing", "", truncated=True).outcome == "truncated"


def test_ids_do_not_depend_on_answers(pool_file: Path, tmp_path: Path) -> None:
    without = load_pool(Dataset("d", "file", options(pool_file), "lenient"))
    rows = [json.loads(line) for line in pool_file.read_text().splitlines()]
    labelled = tmp_path / "labelled.jsonl"
    with_answers = ({**row, "answer": gold(row["question"])} for row in rows)
    labelled.write_text("".join(f"{json.dumps(row)}\n" for row in with_answers))
    pool = load_pool(Dataset("d", "file", options(labelled), "lenient"))
    assert pool.train.column("prompt_id") == without.train.column("prompt_id")
    assert pool.train_hash != without.train_hash and pool.labelled.all()
    assert not without.labelled.any() and not without.test
    assert [p.prompt_id for p in pool.test] == [p.prompt_id for p in without.unlabelled_test]


def test_a_pool_without_answers_is_only_probed(pool_file: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, pool_file)
    assert [spec.split for spec in plan.probes] == ["train"]
    with pytest.raises(UserError) as error:
        check_trainable(plan)
    assert error.value.code == "missing-gold-answers"
    store = Store(str(tmp_path / "runs"))
    probe = probed(plan, store)
    analysis = analyse_pool(plan, store, probe.spec)
    assert analysis is not None
    [row] = policy_table(analysis).body
    assert row[:6] == ("random", "8", *["–"] * 4), "nothing is known of gold answers"
    table = probe.tables.of(plan.cells[0], unlabelled=True)
    assert set(table["unlabelled"].to_pylist()) == {3} and set(table["unparsed"].to_pylist()) == {1}
    assert table["pass_rate"].null_count == table.num_rows == len(plan.pools["d"].train)


def test_labels_mark_stored_completions(pool_file: Path, tmp_path: Path) -> None:
    """Two rounds; the third corrects a label. No sample is drawn again, and none is lost."""
    store, plan = Store(str(tmp_path / "runs")), plan_of(tmp_path, pool_file)
    probed(plan, store)
    prompts = [*plan.pools["d"].train]
    assert outcomes(plan, store) == {"unlabelled": 3 * len(prompts), "unparsed": len(prompts)}
    answers = {p.prompt_id: gold(p.question) for p in prompts}
    ids = [*answers]
    one = write_labels(tmp_path / "one.jsonl", {i: answers[i] for i in ids[:5]})
    two = write_labels(tmp_path / "two.jsonl", {i: f"{answers[i]}.0" for i in ids[3:9]})
    for files, known in ((one, 5), ([one, two], 9), (one, 5)):
        plan = plan_of(tmp_path, pool_file, files)
        assert int(plan.pools["d"].labelled.sum()) == known
        rest = 3 * (len(prompts) - known)
        assert outcomes(plan, store) == {
            **{"correct": 2 * known, "wrong": known, "unlabelled": rest, "unparsed": len(prompts)}
        }
    other = write_labels(tmp_path / "one.jsonl", {i: int(f"{answers[i]}1") for i in ids[:5]})
    plan = plan_of(tmp_path, pool_file, other)
    assert outcomes(plan, store)["correct"] == 5, "the third answer is the corrected gold"
    [cell, *_] = plan.cells
    table = PlanProbe(plan, store, cell.probe).tables.of(cell)
    assert table.num_rows == 5 and set(table["pass_rate"].to_pylist()) == {1 / 4}


def test_marks_of_an_unknown_marker_are_made_again(pool_file: Path, tmp_path: Path) -> None:
    store, plan = Store(str(tmp_path / "runs")), plan_of(tmp_path, pool_file)
    probe = probed(plan, store)
    expected, [name] = outcomes(plan, store), store.names("probes", probe.spec.key)
    samples = read_part(store, probe.spec.key, name).samples
    store.delete("probes", probe.spec.key, name)
    at = samples.schema.get_field_index("marker")
    samples = samples.set_column(at, "marker", pa.nulls(samples.num_rows, pa.string()))
    at = samples.schema.get_field_index("outcome")
    samples = samples.set_column(at, "outcome", pa.array(["wrong"] * samples.num_rows))
    write_part(store, probe.spec.key, "train", samples)
    assert outcomes(plan, store) == expected


@pytest.mark.parametrize(
    ("labels", "known", "note"),
    [
        ({"a": [{"answer": "seven"}]}, 0, "a.jsonl:1 'seven'"),
        ({"a": [{"answer": 7}], "b": [{"answer": 8}]}, 0, "a.jsonl:1 '7', "),
        ({"a": [{"answer": "1/2"}], "b": [{"answer": 0.5}]}, 1, ""),
        ({"a": [{"answer": ""}, {"answer": None}, {"answer": 7}]}, 1, ""),
    ],
)
def test_answers_that_cannot_be_used_are_named(
    labels: dict[str, list[dict[str, Any]]], known: int, note: str, pool_file: Path
) -> None:
    task = Dataset("d", "file", options(pool_file), "lenient").build()
    prompt_id = task.train()[0].prompt_id
    files = []
    for name, rows in labels.items():
        files.append(str(pool_file.with_name(f"{name}.jsonl")))
        lines = (json.dumps({"prompt_id": prompt_id, **row}) for row in rows)
        Path(files[-1]).write_text("".join(f"{line}\n" for line in lines))
    pool = load_pool(Dataset("d", "file", options(pool_file), "lenient", labels=tuple(files)))
    assert int(pool.labelled.sum()) == known
    notes = [each for each in pool.notes if each.startswith("not used: ")]
    assert [note in each for each in notes] == ([True] if note else [])


def test_a_whole_number_of_a_float_column_is_that_number(pool_file: Path, tmp_path: Path) -> None:
    text = Dataset("d", "file", options(pool_file, marker="text"), "lenient")
    prompt_id = text.build().train()[0].prompt_id
    file = write_labels(tmp_path / "l.jsonl", {prompt_id: 18.0})
    pool = load_pool(replace(text, labels=(file,)))
    assert pool.train.with_ids([prompt_id])[prompt_id].answer == "18"


def test_labels_of_a_mix_are_those_of_its_parts_with_optional_answers(
    pool_file: Path, tmp_path: Path
) -> None:
    rows = ({"question": f"What is {i} - 1?", "answer": i - 1} for i in range(20))
    other = tmp_path / "other.jsonl"
    other.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    parts = {
        "open": {"task": "file", "options": options(pool_file)},
        "closed": {"task": "file", "options": {"path": str(other)}},
    }
    mix = Dataset("m", "mix", {"parts": parts}, "lenient")
    before = load_pool(mix)
    ids = {p.source: p.prompt_id for p in before.train}
    file = write_labels(tmp_path / "l.jsonl", dict.fromkeys(ids.values(), 99))
    pool = load_pool(replace(mix, labels=(file,)))
    assert int(pool.labelled.sum()) == int(before.labelled.sum()) + 1
    known = {name: pool.train.with_ids([i])[i].answer for name, i in ids.items()}
    assert known["open"] == "99" != known["closed"]
    assert [file in note for note in pool.notes if note.startswith("not used: ")] == [True]


def test_a_question_in_several_rows_has_the_answer_of_one(pool_file: Path) -> None:
    with pool_file.open("a") as stream:
        for i, answer in ((1, 2), (1, "2.0"), (2, 4), (2, 5)):
            stream.write(f"{json.dumps({'question': f'What is {i} + {i}?', 'answer': answer})}\n")
    pool = load_pool(Dataset("d", "file", options(pool_file), "lenient"))
    prompts = {p.question: p.answer for p in (*pool.train, *pool.test, *pool.unlabelled_test)}
    assert len(prompts) == QUESTIONS
    assert prompts["What is 1 + 1?"] == "2" and prompts["What is 2 + 2?"] == ""


@pytest.mark.parametrize("skip_invalid", [False, True])
def test_a_row_whose_answer_cannot_be_read_stays_without_one(
    skip_invalid: bool, tmp_path: Path
) -> None:
    file, given = tmp_path / "pool.jsonl", [True, "?", {"a": 1}, "4", None, 6]
    rows = ({"question": f"What is {i} - {i}?", "answer": each} for i, each in enumerate(given))
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    names = {"train": str(file), "answers": "optional", "skip_invalid": skip_invalid}
    pool = load_pool(Dataset("d", "file", names, "lenient"))
    assert sorted(pool.train.column("answer").to_pylist()) == ["", "", "", "", "4", "6"]
    [note] = [each for each in pool.notes if "not used: " in each]
    assert [f"pool.jsonl:{i}" in note for i in range(1, 7)] == [True] * 3 + [False] * 3
    file.write_text('{"question": "", "answer": "?"}\n{"question": "What is 1 + 1?"}\n')
    if not skip_invalid:
        with pytest.raises(TaskError, match="pool.jsonl:1"):
            load_pool(Dataset("d", "file", names, "lenient"))


def test_wrong_labels_are_refused(pool_file: Path, tmp_path: Path) -> None:
    other = write_labels(tmp_path / "other.jsonl", {"0123456789abcdef": 7})
    with refused("other.jsonl", code="invalid-dataset"):
        plan_of(tmp_path, pool_file, other)
    flag = tmp_path / "flag.jsonl"
    write_labels(flag, {"0123456789abcdef": True})
    with pytest.raises(TaskError, match=r"flag\.jsonl:1"):
        read_labels(str(flag))
    renamed = tmp_path / "renamed.csv"
    renamed.write_text("prompt_id,label\n0123456789abcdef,7\n")
    with pytest.raises(TaskError, match=r"renamed\.csv"):
        read_labels(str(renamed))
    for name, text, why in (
        ("empty.csv", "", "is empty"),
        ("capitals.csv", "PROMPT_ID,answer\n0123456789abcdef,7\n", "as in the list of prompts"),
        ("null.jsonl", "null\n", "is not a row"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(TaskError, match=f"{name}.*{why}"):
            read_labels(str(tmp_path / name))
    for mark in ";\t":
        (file := tmp_path / "sheet.csv").write_text(f"prompt_id{mark}answer\n0123{mark}7\n")
        assert [(each.prompt_id, each.answer) for each in read_labels(str(file))[0]] == [
            ("0123", "7")
        ]
    for number in (7, [7]):
        with refused("labels", 7):
            plan_of(tmp_path, pool_file, number)  # type: ignore[arg-type]
    needless = Dataset("d", "arithmetic", {}, "lenient", labels=(other,))
    with pytest.raises(TaskError, match="labels"):
        load_pool(needless)
    for given in ({"answers": "maybe"}, {"marker": "os:getcwd", "answer": None}):
        with pytest.raises(TaskError, match="answers"):
            get_task("file", **options(pool_file, **given))


def test_a_pool_without_gold_answers_is_not_called_too_hard(
    pool_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, pool_file)
    probed(plan, Store(str(tmp_path / "runs")))
    capsys.readouterr()
    assert main(["plan", str(plan.source.file), "-e", plan.name]) == 0
    shown = capsys.readouterr().out
    assert "samples stored" in shown and "can give a signal" not in shown


def test_labels_of_other_prompts_are_named(pool_file: Path, tmp_path: Path) -> None:
    given = options(pool_file)
    prompt_id = Dataset("d", "file", given, "lenient").build().train()[0].prompt_id
    labels = write_labels(tmp_path / "l.jsonl", {prompt_id: 0, "8.69E+25": 7})
    pool = load_pool(Dataset("d", "file", given, "lenient", labels=(labels,)))
    [note] = [each for each in pool.notes if "of this data set" in each]
    assert "l.jsonl:2 '8.69E+25'" in note and prompt_id not in note


def test_open_rows_of_label_files_are_counted(pool_file: Path, tmp_path: Path) -> None:
    dataset = Dataset("d", "file", options(pool_file), "lenient")
    ids = [prompt.prompt_id for prompt in dataset.build().train()[:3]]
    half = write_labels(tmp_path / "half.jsonl", {ids[0]: 7, ids[1]: "", ids[2]: None})
    whole = write_labels(tmp_path / "whole.jsonl", dict.fromkeys(ids, 7))
    for files, counts in (((half, whole), [f"{half}: 1 of 3"]), ((whole,), [])):
        notes = load_pool(replace(dataset, labels=files)).notes
        assert [n.partition(" rows")[0] for n in notes if n.startswith(str(tmp_path))] == counts


def test_a_summary_is_of_the_subset_that_is_trained_on(pool_file: Path, tmp_path: Path) -> None:
    """In a partly labelled pool, policies without gold answers choose among labelled prompts."""
    ids = [prompt.prompt_id for prompt in plan_of(tmp_path, pool_file).pools["d"].train]
    labels = write_labels(tmp_path / "l.jsonl", dict.fromkeys(ids[:10], -1))
    test = Dataset("d", "file", options(pool_file), "lenient").build().test()
    tests = write_labels(tmp_path / "t.jsonl", {test[0].prompt_id: 1})
    grid = {"model": ["stub"], "dataset": ["d"], "policy": ["least_agreed"], "seed": [0]}
    plan = plan_of(tmp_path, pool_file, [labels, tests], grid=grid)
    store = Store(str(tmp_path / "runs"))
    analysis = analyse_pool(plan, store, probed(plan, store).spec)
    assert analysis is not None
    [outlook] = analysis.policies
    assert outlook.summary is not None
    assert (outlook.summary.size, outlook.summary.unsolved) == (8, 8), "no answer is -1"


def test_scores_of_labelled_prompts_choose_no_others(pool_file: Path, tmp_path: Path) -> None:
    ids = [prompt.prompt_id for prompt in plan_of(tmp_path, pool_file).pools["d"].train]
    labels = write_labels(tmp_path / "l.jsonl", dict.fromkeys(ids[:8], 1))
    scores = tmp_path / "scores.csv"
    scores.write_text("prompt_id,score\n" + "".join(f"{i},0.5\n" for i in ids[:8]))
    plan = plan_of(tmp_path, pool_file, labels, difficulty={"file": str(scores)})
    probe = probed(plan, Store(str(tmp_path / "runs")))
    [cell] = [each for each in plan.cells if each.policy == "hard"]
    with pytest.raises(UserError, match=r"scores\.csv"):
        prompts_to_label(probe, cell)


def test_prompts_without_a_score_are_counted(
    pool_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In decile plan, and where such prompts fill a subset or a list for annotators."""
    ids = [prompt.prompt_id for prompt in plan_of(tmp_path, pool_file).pools["d"].train]
    labels = write_labels(tmp_path / "l.jsonl", dict.fromkeys(ids[:12], 1))
    scores = tmp_path / "scores.csv"
    scored = [*ids[:6], *ids[12:15]]
    scores.write_text("prompt_id,score\n" + "".join(f"{i},0.5\n" for i in scored))
    plan = plan_of(tmp_path, pool_file, labels, difficulty={"file": str(scores)})
    probe = probed(plan, Store(str(tmp_path / "runs")))
    [cell] = [each for each in plan.cells if each.policy == "hard"]
    subset = reason(probe.select(cell))
    assert [note[:16] for note in subset["notes"] if "scores.csv" in note] == ["2 of the 8 chose"]
    rows, [note], _ = prompts_to_label(probe, cell)
    assert len(rows) == 8 and note.startswith("5 of the 8 ") and "scores.csv" in note
    assert not prompts_to_label(probe, cell.changed(size=3)).notes
    smaller = reason(probe.select(cell.changed(size=6))).get("notes", [])
    assert [note[:13] for note in smaller] in ([], ["never solved:"])
    capsys.readouterr()
    assert main(["plan", str(plan.source.file), "-e", plan.name]) == 0
    counts = f"scores.csv has no value for {len(ids) - 9} of the {len(ids)} training prompts of d"
    assert counts in " ".join(capsys.readouterr().out.split())


def test_rows_for_annotators(pool_file: Path, tmp_path: Path) -> None:
    """Both answers of one value are one; what has a label is not listed again."""
    store, plan = Store(str(tmp_path / "runs")), plan_of(tmp_path, pool_file)
    probe, cells = probed(plan, store), {cell.policy: cell for cell in plan.cells}
    with pytest.raises(PolicyError, match="hard"):
        prompts_to_label(probe, cells["hard"])
    rows, notes, _ = prompts_to_label(probe, cells["random"])
    assert not notes
    agreed, [note], _ = prompts_to_label(probe, probe.cell("least_agreed"))
    assert len(agreed) == 8 and str(len(plan.pools["d"].train)) in note, "all of them tie"
    assert len(rows) == 8
    for row in rows:
        value = gold(row["question"])
        counts = [(each["answer"], each["count"]) for each in row["answers"]]
        assert counts == [(str(value), 2), (f"{value}1", 1)]
        assert row["answer"] == "" and row["id"] == row["line"] - 1
    for name in ("one.csv", "one.jsonl"):
        write_to_label(tmp_path / name, rows)
        labels, [note], _ = read_labels(str(tmp_path / name))
        assert labels == [] and note.startswith(f"{tmp_path / name}: 0 of 8 ")
    with (tmp_path / "one.csv").open() as stream:
        listed = [row["prompt_id"] for row in csv.DictReader(stream)]
        assert listed == [row["prompt_id"] for row in rows]
    one = write_labels(tmp_path / "l.jsonl", {r["prompt_id"]: gold(r["question"]) for r in rows})
    plan = plan_of(tmp_path, pool_file, one, budget=1.0)
    probe = PlanProbe(plan, store, plan.cells[0].probe)
    rest, notes, _ = prompts_to_label(probe, plan.cells[1])
    assert len(notes) == 1 and f"the {len(plan.pools['d'].train)} of the budget" in notes[0]
    left = {row["prompt_id"] for row in rest}
    assert len(left) == len(plan.pools["d"].train) - 8
    assert left.isdisjoint(row["prompt_id"] for row in rows)


def test_decile_init_reads_a_pool_without_answers(
    pool_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["init", "--train", "pool.jsonl", "--model", "tiny-arithmetic", "--yes"]
    assert main(command) == 2, "an id is no answer"
    assert main([*command, "--answers", "optional"]) == 2, "no answer tells the marker"
    rows = pool_file.read_text()
    pool_file.write_text(rows + '{"id": -1, "question": "What is 1 + 9?", "answer": 10}\n')
    capsys.readouterr()
    command += ["--answers", "optional", "--marker", "number"]
    assert main([*command, "--out", "one.yaml"]) == 0
    assert "1 of 1 row with a gold answer that is marked correct" in capsys.readouterr().out
    pool_file.write_text(rows)
    assert main(command) == 0
    assert main(["plan", "experiments.yaml"]) == 0
    assert main(["run", "experiments.yaml"]) == 2
    assert not (tmp_path / "runs").exists()


def test_a_test_set_without_gold_answers_is_not_evaluated(pool_file: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, pool_file)
    with refused("d has no test questions with gold answers"):
        plan_evaluation(plan)


def test_decile_select_lists_test_questions(
    pool_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, pool_file)
    file, out = str(plan.source.file), tmp_path / "test.jsonl"
    command = ["select", file, "-e", plan.name, "--to-label", str(out)]
    assert main([*command, "--test"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["prompt_id"] for r in rows] == [p.prompt_id for p in plan.pools["d"].unlabelled_test]
    assert main([*command, "--test"]) == 2, "it may hold labels"
    assert main(command) == 2, "without a policy"
    command[-1] = str(tmp_path / "other.jsonl")
    for name, value in (("--policy", "random"), ("--budget", "3"), ("--seed", "1")):
        assert main([*command, "--test", name, value]) == 2, "every test question is listed"
    assert main(["select", file, "-e", plan.name, "--policy", "random", "--test"]) == 2


def test_the_page_names_the_command_that_lists_prompts(pool_file: Path, tmp_path: Path) -> None:
    """By the policy's own name, also where an axis divides its subsets."""
    grid = {"model": ["stub"], "dataset": ["d"], "policy": ["hard", "random", "least_agreed"]}
    grid |= {"seed": [0], "budget": [4, 8]}
    plan = plan_of(tmp_path, pool_file, grid=grid)
    store = Store(str(tmp_path / "runs"))
    probe = probed(plan, store)
    analysis = analyse_pool(plan, store, probe.spec)
    assert analysis is not None
    commands = [shlex.split(each.command) for each in analysis.policies if each.command]
    named = [words[words.index("--policy") + 1] for words in commands]
    assert sorted(named) == ["least_agreed"] * 2 + ["random"] * 2
    for number, words in enumerate(commands):
        assert words[-2] == "--to-label"
        assert main([*words[1:-1], str(tmp_path / f"{number}.csv")]) == 0


def test_the_page_names_the_pool_whose_prompts_are_listed(pool_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(pool_file.read_text().replace(" + ", " plus "))
    files = {"d": pool_file, "e": other}
    datasets = {n: {"task": "file", "options": options(file)} for n, file in files.items()}
    grid = {"model": ["stub"], "dataset": ["d", "e"], "policy": ["least_agreed"], "seed": [0]}
    plan = small_plan(
        tmp_path, datasets=datasets, grid=grid, budget=8, probe={"samples": K, "temperature": 1.0}
    )
    store = Store(str(tmp_path / "runs"))
    for spec in plan.training_probes:
        part = replace(plan, cells=[cell for cell in plan.cells if cell.probe == spec])
        probed(part, store)
        analysis = analyse_pool(plan, store, spec)
        assert analysis is not None
        [outlook] = analysis.policies
        assert "annotators" in purpose(analysis)
        words, out = shlex.split(outlook.command), tmp_path / f"{spec.dataset.name}.csv"
        assert main([*words[1:-1], str(out)]) == 0
        with out.open() as stream:
            listed = {row["prompt_id"] for row in csv.DictReader(stream)}
        assert len(listed) == 8 and listed == {*plan.pool(spec).train.with_ids(listed)}


def test_python_lists_prompts_by_another_difficulty(pool_file: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, pool_file)
    probe = probed(plan, Store(str(tmp_path / "runs")))
    ids = [prompt.prompt_id for prompt in plan.pools["d"].train]
    scores = tmp_path / "scores.csv"
    lines = (f"{i},{n / len(ids)}\n" for n, i in enumerate(reversed(ids)))
    scores.write_text("prompt_id,score\n" + "".join(lines))
    for name, given in {"path": scores, "mapping": {"file": str(scores)}}.items():
        out = tmp_path / f"{name}.jsonl"
        assert Probe(probe).to_label(out, "hard", 4, difficulty=given) == 4
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["prompt_id"] for row in rows] == ids[:-5:-1]
    out = tmp_path / "probe.jsonl"
    by_agreement = {"model": "stub", "by": "agreement"}
    assert Probe(probe).to_label(out, "hard", 4, difficulty=by_agreement) == 4
    with pytest.raises(PolicyError, match="gold"):
        prompts_to_label(probe, probe.cell("hard", 4, difficulty=probe), probe)


def test_a_subset_needs_gold_answers(pool_file: Path, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, pool_file)
    probe = probed(plan, Store(str(tmp_path / "runs")))
    for cell in plan.cells:
        with pytest.raises(UserError) as error:
            probe.select(cell)
        assert error.value.code == "missing-gold-answers"
