"""`decile compare`: item-level results of other tools and of cells, paired and compared."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import factories
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exchange_files import written
from factories import finished_sweep
from paths import LOGS
from sweeps import evaluations

import decile
from orchestrator.cli.main import main
from orchestrator.evaluation.metrics import by_update, own_test_set
from orchestrator.optional.exchange.arms import parse_arms
from orchestrator.optional.exchange.item_files import ItemColumns, files_of, seed_in
from orchestrator.optional.exchange.item_results import compare_items
from orchestrator.planning.cells import Cell
from orchestrator.planning.plan import Plan
from orchestrator.report.analysis import analyse
from orchestrator.report.item_comparison import ItemAnalysis, comparison_values
from orchestrator.report.sections.items import item_page, item_verdict, pairs_table, questions_table
from orchestrator.report.sections.verdicts import family_verdict
from orchestrator.report.sentences import KNOWN_SPREAD, THESE_MODELS, sentence
from orchestrator.stats.comparison import adjust
from orchestrator.stats.inference import mcnemar_p
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store

PLAIN = ItemColumns()


def rows(correct: str, **more: Any) -> list[dict[str, Any]]:
    """A row per question: "1", "0", or "-" for no score."""
    score = {"1": True, "0": False, "-": None}
    return [{"id": n, "correct": score[each], **more} for n, each in enumerate(correct)]


def compared(arms: dict[str, Any], **columns: Any) -> ItemAnalysis:
    files = {name: own if isinstance(own, list) else [own] for name, own in arms.items()}
    return compare_items(files, ItemColumns(**columns))


def refused(arms: dict[str, Any], **columns: Any) -> str:
    with pytest.raises(UserError) as error:
        compared(arms, **columns)
    assert "\n" not in str(error.value)
    return str(error.value)


def pair(folder: Path, a: list[dict], b: list[dict]) -> dict[str, Path]:
    return {arm: written(folder, own, f"{arm}.jsonl") for arm, own in (("a", a), ("b", b))}


# --- agreement with the report ---


def exported(store: Store, cells: list[Cell], file: Path) -> Path:
    """The last evaluations of cells, as another tool would write them."""
    lines = []
    for cell in cells:
        last = own_test_set(by_update(evaluations(store, cell.cell_id))[cell.updates])
        for row in last.to_pylist():
            correct = None if row["outcome"] == "error" else row["outcome"] == "correct"
            named = {"question_id": row["prompt_id"], "sample": row["sample"], "seed": cell.seed}
            lines.append({**named, "correct": correct, "completion": row["completion"]})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def check_agreement(plan: Plan, store: Store, folder: Path, *, exports: bool = True) -> None:
    """The report's comparisons are those of the cells' folders, and of the exported results."""
    [family] = analyse(plan, store).families
    by_policy = {p: [row.cell for row in own] for p, own in family.by_policy().items()}
    local = Path(store.local_path())
    arms = {p: [local / "cells" / c.cell_id for c in cells] for p, cells in by_policy.items()}
    analysis = compared(arms)
    # Files of one run each are about these models, a sweep is about policies.
    of_policies = adjust([replace(c, scope="policies") for c in analysis.comparisons])
    assert of_policies == list(family.accuracy)
    analysis = replace(analysis, comparisons=tuple(of_policies))
    verdict = family_verdict(family)
    texts = [  # budgets are the report's
        each.text.replace(f" on {family.dataset}", "").partition("; not at equal")[0]
        for each in verdict.pairs
    ]
    assert [each.text for each in item_verdict(analysis).pairs] == texts
    if exports:
        files = {p: exported(store, own, folder / f"{p}.jsonl") for p, own in by_policy.items()}
        pairs = zip(compared(files).comparisons, family.accuracy, strict=True)
        for one, two in pairs:  # whose sums have another order
            values = (comparison_values(each) for each in (one, two))
            other = {"test", "scope", "verdict"}
            numbers, others = ({k: v for k, v in each.items() if k not in other} for each in values)
            assert numbers.keys() == others.keys()
            for name, value in numbers.items():
                assert value == (pytest.approx(others[name]) if value else others[name]), name


def evaluation_with_errors(evaluation: Callable[..., pa.Table], *arguments: Any) -> pa.Table:
    """The marker failed for every fifth sample, and for all of the first question."""
    table = evaluation(*arguments)
    samples = table.to_pylist()
    for n, row in enumerate(samples):
        if n % 5 == 0 or row["prompt_id"] == samples[0]["prompt_id"]:
            row |= {"outcome": "error", "score": None}
    return pa.Table.from_pylist(samples, schema=table.schema)


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_cells_and_their_exports_agree_with_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: tuple
) -> None:
    with_errors = partial(evaluation_with_errors, factories.evaluation)
    monkeypatch.setattr(factories, "evaluation", with_errors)
    plan, store = finished_sweep(tmp_path, policies=("hard", "easy", "random"), seeds=seeds)
    check_agreement(plan, store, tmp_path)


def test_the_spread_between_seeds_of_a_storage_is_used_as_in_the_report(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path, seeds=(0, 1, 2))
    single, _ = finished_sweep(tmp_path, seeds=(0,))
    check_agreement(single, store, tmp_path, exports=False)
    cells = {c.policy: [store.local_path() / "cells" / c.cell_id] for c in single.cells}
    analysis = compared(cells)
    assert {*analysis.comparisons[0].stored} == {"hard", "random"}
    assert KNOWN_SPREAD in item_verdict(analysis).caveats
    assert len(plan.cells) == 6


# --- sources ---


def test_logs_of_inspect_are_read(tmp_path: Path) -> None:
    analysis = compared({"a": LOGS / "inspect.eval", "b": LOGS / "inspect.json"})
    a, b = analysis.arms
    assert (a.metric, a.samples, b.samples) == ("match", (2, 2), (1, 1))
    assert a.runs[0].scores == {"1": 0.0, "3": 0.5, "b/2": 0.0}
    assert b.runs[0].scores == {"1": 0.0, "3": 0.0, "b/2": 0.0}
    assert analysis.questions["b/2"] == "What is 3+3?"
    by_text = compared({"a": LOGS / "inspect.eval", "b": LOGS / "inspect.json"}, item="question")
    assert by_text.arms[0].runs[0].scores["What is 3+3?"] == 0.0


def inspect_log(folder: Path, name: str, values: list[Any], **header: Any) -> Path:
    """A .json log with a scorer "s" (or several scorers by name) and a sample per value."""
    scores = [value if isinstance(value, dict) else {"s": {"value": value}} for value in values]
    samples = [
        {"id": n, "epoch": 1, "input": f"{n}?", "target": "4", "scores": each}
        for n, each in enumerate(scores)
    ]
    about = {"task": header.pop("task", "t"), "model": header.pop("model", "m")}
    content = {"status": "success", "eval": about, "samples": samples, **header}
    (folder / name).write_text(json.dumps(content))
    return folder / name


def test_scores_of_inspect_are_read_as_inspect_does(tmp_path: Path) -> None:
    values = ["C", "I", "P", "N", 1, 0.25, True, "yes", "False", "0.5", None, float("nan")]
    log = inspect_log(tmp_path, "a.json", values)
    analysis = compared({"a": log, "b": inspect_log(tmp_path, "b.json", [1] * 12)})
    expected = [1, 0, 0.5, 0, 1, 0.25, 1, 1, 0, 0.5]
    assert analysis.arms[0].runs[0].scores == {str(n): v for n, v in enumerate(expected)}
    assert analysis.comparisons[0].left_out == 2 and analysis.arms[0].missing == 2


def test_an_error_of_inspect_is_no_score(tmp_path: Path) -> None:
    log = inspect_log(tmp_path, "a.json", ["C", "C", "I"])
    content = json.loads(log.read_text())
    content["samples"][1]["error"] = {"message": "timeout"}
    log.write_text(json.dumps(content))
    analysis = compared({"a": log, "b": inspect_log(tmp_path, "b.json", [1, 0, 0])})
    assert analysis.arms[0].missing == 1 and analysis.comparisons[0].items == 2
    assert any(": a 1" in text for text in item_verdict(analysis).caveats)


@pytest.mark.parametrize("scorer", ["one", "two.part"])
def test_one_of_several_scorers_is_chosen(tmp_path: Path, scorer: str) -> None:
    value = {"one": {"value": 1}, "two": {"value": {"part": 0, "whole": 0.5}}}
    logs = {name: inspect_log(tmp_path, f"{name}.json", [value] * 3) for name in "ab"}
    logs["b"].write_text(logs["b"].read_text() + " ")
    assert "one; two.part; two.whole" in refused(logs)
    assert "three" in refused(logs, metric="three")
    analysis = compared(logs, metric=scorer)
    assert analysis.arms[0].runs[0].scores["0"] == (scorer == "one")


def test_samples_of_lm_eval_are_read(tmp_path: Path) -> None:
    name = "samples_sums_2026-11-22T04-09-02.000001.jsonl"
    sums = (LOGS / "lm_eval_sums.jsonl").read_text()
    for arm in "ab":
        (tmp_path / arm).mkdir()
        (tmp_path / arm / name).write_text(sums + "\n" * (arm == "b"))
        (tmp_path / arm / "results_2026-11-22T04-09-02.000001.json").write_text("{}")
    arms = {arm: str(tmp_path / arm) for arm in "ab"}
    assert "one of exact_match,strict-match; exact_match,flexible-extract" in refused(arms)
    analysis = compared(arms, metric="exact_match,flexible-extract")
    [stored] = [
        {str(r["doc_id"]): r["exact_match"] for r in map(json.loads, sums.splitlines())
         if r["filter"] == "flexible-extract"}
    ]  # fmt: skip
    assert analysis.arms[0].runs[0].scores == stored and len(stored) == 3
    assert analysis.questions["1"] == "What is 3+4?"
    choice = (LOGS / "lm_eval_choice.jsonl").read_text()
    for arm in "ab":
        (tmp_path / f"{arm}.jsonl").write_text(choice + "\n" * (arm == "b"))
    tables = {arm: tmp_path / f"{arm}.jsonl" for arm in "ab"}
    assert compared(tables, metric="acc_norm").arms[0].runs[0].scores == {"0": 1.0}


def test_dumps_of_verl_are_read(tmp_path: Path) -> None:
    shutil.copy(LOGS / "verl_rollouts.jsonl", tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (LOGS / "verl_rollouts.jsonl").open()]
    for line in lines:
        line["input"] = line["input"].replace("<think>\n\n</think>\n\n", "")
        line["acc"] = True
    other = written(tmp_path, lines, "b.jsonl")
    analysis = compared({"a": tmp_path / "a.jsonl", "b": other})
    a, b = analysis.arms
    assert (a.metric, a.samples, len(a.questions)) == ("acc", (1, 2), 5)
    assert sorted(a.runs[0].scores.values()) == [0, 0.5, 1, 1, 1]
    assert set(b.runs[0].scores.values()) == {1.0} and a.questions == b.questions
    minus = written(tmp_path, [{**line, "score": -1} for line in lines], "c.jsonl")
    text = refused({"a": tmp_path / "a.jsonl", "b": minus}, metric="score")
    assert "c.jsonl:1: score is -1, outside [0, 1]" in text
    steps = written(tmp_path, [{**x, "step": n} for n, x in enumerate(lines)], "d.jsonl")
    assert "has steps 0, 1, 2" in refused({"a": tmp_path / "a.jsonl", "b": steps})


def test_tables_of_every_kind_have_the_same_comparison(tmp_path: Path) -> None:
    a, b = rows("1101-011", seed=1), rows("10010011", seed=1)
    for own in (a, b):
        own += [{**row, "seed": 2} for row in own]
    expected = compared(pair(tmp_path, a, b)).to_dict()["comparisons"]
    for kind in ("parquet", "json", "csv"):
        files = {arm: tmp_path / f"{arm}.{kind}" for arm in "ab"}
        for file, own in zip(files.values(), (a, b), strict=True):
            if kind == "parquet":
                pq.write_table(pa.Table.from_pylist(own), file)
            elif kind == "json":
                file.write_text(json.dumps(own))
            else:
                pd.DataFrame(own).to_csv(file, index=False)
        assert compared(files).to_dict()["comparisons"] == expected, kind
    for kind in (pa.Table.from_pylist, pd.DataFrame):
        tables = decile.compare({"a": kind(a), "b": [kind(b)]})
        assert tables.to_dict()["comparisons"] == expected, kind


def test_columns_are_recognized_or_named(tmp_path: Path) -> None:
    plain = rows("110") + rows("011")
    named = [
        {"q": {"n": row["id"]}, "grade": row["correct"], "run": n // 3, "k": 0}
        for n, row in enumerate(plain)
    ]
    files = pair(tmp_path, named, [{**row, "k": 1} for row in named])
    assert re.search("--id COLUMN.* q, grade", refused(files))
    assert "--score COLUMN" in refused(files, item="q.n")
    assert "--seed rnu: " in refused(files, item="q.n", score="grade", seed="rnu")
    columns = {"item": "q.n", "score": "grade", "seed": "run", "sample": "k"}
    analysis = compared(files, **columns)
    assert [run.scores for run in analysis.arms[0].runs] == [
        {"0": 1.0, "1": 1.0, "2": 0.0},
        {"0": 0.0, "1": 1.0, "2": 1.0},
    ]
    text = refused(pair(tmp_path, named, [{**r, "run": "x"} for r in named]), **columns)
    assert re.search("b.jsonl:1: .*'x'", text)


def test_samples_are_averaged_within_a_run(tmp_path: Path) -> None:
    lists = {"a": ["110", "1-0"], "b": ["001", "011"]}
    a, b = ([r for n, text in enumerate(t) for r in rows(text, sample=n)] for t in lists.values())
    analysis = compared(pair(tmp_path, a, b))
    assert analysis.arms[0].runs[0].scores == {"0": 1.0, "1": 1.0, "2": 0.0}
    assert analysis.arms[1].runs[0].scores == {"0": 0.0, "1": 0.5, "2": 1.0}
    assert analysis.arms[0].samples == (1, 2) and analysis.arms[0].missing == 1


# --- arms and runs ---


def test_globs_folders_and_seeds_in_names_make_runs(tmp_path: Path) -> None:
    for arm in ("hard", "easy"):
        (tmp_path / arm).mkdir()
        for seed in (0, 2, 10):
            text = f"{seed:05b}" + ("1010" if arm == "hard" else "0110")
            written(tmp_path / arm, rows(text), f"{arm}_seed{seed}.jsonl")
    arms = parse_arms([f"hard={tmp_path}/hard/*.jsonl", f"easy={tmp_path}/easy"])
    analysis = compared(arms)
    assert [run.seed for run in analysis.arms[0].runs] == [0, 2, 10]
    assert analysis.comparisons[0].runs == (3, 3) and not analysis.notes
    names = [file.name for file in files_of(f"{tmp_path}/hard/*seed?.jsonl")]
    assert names == ["hard_seed0.jsonl", "hard_seed2.jsonl"]
    paths = ("runs/seed=3/x.eval", "seed1/a-seed_4.csv", "x.csv")
    assert [*map(seed_in, paths)] == [3, 4, None]


def test_files_without_seeds_are_numbered_and_that_is_noted(tmp_path: Path) -> None:
    files = [written(tmp_path, rows(text), f"{n}.jsonl") for n, text in enumerate(["110", "010"])]
    analysis = compared({"a": files, "b": written(tmp_path, rows("001"), "b.jsonl")})
    assert [run.seed for run in analysis.arms[0].runs] == [0, 1]
    assert any("files of a " in note for note in analysis.notes)
    assert any(text.endswith(": a 2, b 1") for text in item_verdict(analysis).caveats)


def test_arguments_become_arms(tmp_path: Path) -> None:
    (tmp_path / "x=y.jsonl").write_text("")
    arms = parse_arms(["a=1.csv", "a=2.csv", "b/c.jsonl.gz", str(tmp_path / "x=y.jsonl")])
    assert arms == {
        "a": ["1.csv", "2.csv"],
        "c": ["b/c.jsonl.gz"],
        "x=y": [str(tmp_path / "x=y.jsonl")],
    }
    assert list(parse_arms(["a/r.csv", "b/r.csv"])) == ["a/r.csv", "b/r.csv"]
    with pytest.raises(UserError, match="there already is an arm r"):
        parse_arms(["a/r.csv", "r=b.csv"])
    for bad in (["=x"], ["a="], ["a.csv", "a.csv"]):
        with pytest.raises(UserError, match="write"):
            parse_arms(bad)


# --- refusals and caveats ---


def test_results_that_cannot_be_paired_are_refused(tmp_path: Path) -> None:
    a = written(tmp_path, rows("1100"), "a.jsonl")

    def against(content: list[dict], **columns: Any) -> str:
        return refused({"a": a, "b": written(tmp_path, content, "b.jsonl")}, **columns)

    assert "A B" in refused({"a": a})
    assert "share no question" in against([{**r, "id": f"x{r['id']}"} for r in rows("1100")])
    assert "question 0 occurs twice" in against(rows("1100") + rows("0"))
    large = [*rows("1"), {"id": 1, "correct": 1.5}]
    assert "b.jsonl:2: correct is 1.5" in against(large)
    twice = rows("11", sample=0) + rows("1", sample=1) + rows("0", sample=1)
    assert "question 0 occurs twice" in against(twice)
    assert "question 0 occurs twice" in against(rows("1", sample=0) + rows("1", sample=None))
    assert "b.jsonl:1: correct is 'maybe'" in against([{"id": 1, "correct": "maybe"}])
    assert "b.jsonl:1: id is empty" in against([{"id": None, "correct": True}])
    assert "no question" in against(rows("----"))
    assert "(m1, m2)" in against(rows("11", model="m1") + rows("11", model="m2"))
    assert "has no rows" in against([])
    assert "does not exist" in refused({"a": a, "b": tmp_path / "none.jsonl"})
    assert "matches no file" in refused({"a": a, "b": str(tmp_path / "none*.jsonl")})
    (tmp_path / "link.jsonl").symlink_to(a)
    for same in (a, tmp_path / "link.jsonl"):
        text = refused({"a": a, "b": [written(tmp_path, rows("11"), "c.jsonl"), same]})
        assert re.search(rf"{same} \(arm b\).* {a} \(arm a\)", text)
    log = shutil.copy(LOGS / "inspect.json", tmp_path / "copy.json")
    assert "same file" in refused({"a": LOGS / "inspect.json", "b": log})
    files = [
        written(tmp_path, own, name)
        for own, name in ((rows("11", seed=0), "c.jsonl"), (rows("1"), "d.jsonl"))
    ]
    assert "column seed" in refused({"a": a, "b": files})


def test_other_data_under_the_same_ids_is_refused(tmp_path: Path) -> None:
    texts = [{**row, "question": f"{row['id']}+1?", "target": row["id"]} for row in rows("110")]
    other = [{**row, "question": "9+9?" if row["id"] == 2 else row["question"]} for row in texts]
    text = refused(pair(tmp_path, texts, other))
    assert re.search(r"\(1 of 3\): 2 is '2\+1\?' .* '9\+9\?'", text)
    golds = [{**row, "target": str(row["id"] + (row["id"] == 1))} for row in texts]
    assert "(1 of 3): 1 is '1'" in refused(pair(tmp_path, texts, golds))
    shuffled = [{**row, "id": 2 - row["id"]} for row in texts]
    assert compared(pair(tmp_path, texts, shuffled), item="question").comparisons[0].items == 3
    renamed = [{**row, "id": f"x{row['id']}"} for row in texts]
    assert "--id question" in refused(pair(tmp_path, texts, renamed))


def test_unfinished_and_mixed_logs_are_refused(tmp_path: Path) -> None:
    good = inspect_log(tmp_path, "a.json", ["C", "I"])
    for status in ("error", "cancelled", "started"):
        bad = inspect_log(tmp_path, "b.json", ["C", "I"], status=status)
        assert f"(status {status})" in refused({"a": good, "b": bad})
    torn = tmp_path / "torn.eval"
    with zipfile.ZipFile(LOGS / "inspect.eval") as log, zipfile.ZipFile(torn, "w") as out:
        out.writestr("_journal/start.json", "{}")
        assert "header.json" in log.namelist()
    assert "(status started)" in refused({"a": good, "b": torn})
    invalid = inspect_log(tmp_path, "b.json", ["C", "I"], invalidated=True)
    assert "invalidated" in refused({"a": good, "b": invalid})
    assert "has no samples" in refused({"a": good, "b": inspect_log(tmp_path, "b.json", [])})
    mixed = [inspect_log(tmp_path, f"b{n}.json", ["C", "I"], task=f"t{n}") for n in (1, 2)]
    assert "task (t1, t2)" in refused({"a": good, "b": mixed})
    models = [inspect_log(tmp_path, f"b{n}.json", ["C", "I"], model=f"m{n}") for n in (1, 2)]
    assert "model (m1, m2)" in refused({"a": good, "b": models})
    seeds = {"a": [good], "b": models}
    assert len(compare_items(seeds, PLAIN, models_are_seeds=True).arms[1].runs) == 2
    recipe = [inspect_log(tmp_path, f"b{n}.json", [1, 0], model=f"x-seed{n}") for n in (1, 2)]
    assert [run.seed for run in compared({"a": good, "b": recipe}).arms[1].runs] == [0, 1]


def test_cells_that_are_not_finished_and_storages_are_refused(tmp_path: Path) -> None:
    plan, store = finished_sweep(tmp_path)
    a, b = (store.local_path() / "cells" / cell.cell_id for cell in plan.cells)
    assert "is a storage" in refused({"a": a, "b": str(store.local_path())})
    mixed = refused({"a": LOGS / "inspect.json", "b": [a, b]})
    assert "policy (hard, random)" in mixed
    table = pq.read_table(b / "evaluations.parquet")
    pq.write_table(table.slice(1), b / "evaluations.parquet")
    assert "fails verification" in refused({"a": a, "b": b})
    (b / "result.json").unlink()
    for path in (b, f"{b.parent}/{b.name[:8]}*"):
        assert "STORAGE/cells/ID" in refused({"a": a, "b": path})


def test_questions_that_are_left_out_and_copies_are_said(tmp_path: Path) -> None:
    analysis = compared(pair(tmp_path, rows("110010"), rows("0110")))
    assert analysis.comparisons[0].left_out == 2
    caveats = item_verdict(analysis).caveats
    assert caveats[0] == THESE_MODELS
    assert any(each.startswith("up to 2 questions left out") for each in caveats)
    same = compared(pair(tmp_path, rows("110010"), [{"note": "", **row} for row in rows("110010")]))
    assert any(note.startswith("a (seed 0) and b (seed 0) ") for note in same.notes)


# --- the statistics, the page and the command ---


def test_single_runs_are_compared_as_models_by_mcnemar(tmp_path: Path) -> None:
    a, b = "1" * 30 + "0" * 10, "0" * 25 + "1" * 5 + "0" * 10
    [c] = compared(pair(tmp_path, rows(a), rows(b))).comparisons
    signs = [pd.Series([int(x) for x in text]).to_numpy() for text in (a, b)]
    assert c.test == "McNemar" and c.p == mcnemar_p(*signs) < 0.001
    assert c.significant and not c.covers_seeds and (c.scope, c.verdict) == ("models", "a")
    assert c.effect == pytest.approx(62.5)
    analysis = compared(pair(tmp_path, rows(b), rows(a)))
    [back] = analysis.comparisons
    assert (back.effect, back.leader_first) == (-c.effect, replace(c, a="b", b="a"))
    [(shown, *_)] = pairs_table(analysis).body
    assert shown == "b − a" and sentence(back).startswith("b beats a by 62.5 points")


def test_the_page_names_what_differs_most(tmp_path: Path) -> None:
    texts = [{**row, "question": f"<b>{row['id']}</b>?"} for row in rows("1100")]
    analysis = compared(pair(tmp_path, texts, [{**r, "correct": not r["id"]} for r in texts]))
    assert questions_table(analysis).body == [("1", "<b>1</b>?", "100", "0", "100.0")]
    page = decile.compare(pair(tmp_path, texts, rows("0101"))).save(tmp_path / "page.html")
    text = page.read_text()
    assert "&lt;b&gt;3&lt;" in text and "<script" not in text and "http" not in text
    assert {section.anchor for section in item_page(analysis).sections} == {
        "verdicts", "results", "questions", "files",
    }  # fmt: skip


def test_the_command_prints_what_the_api_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = pair(tmp_path, rows("110110"), rows("100110"))
    page = tmp_path / "page.html"
    arguments = [f"{arm}={file}" for arm, file in files.items()]
    assert main(["compare", *arguments, "--json", "--out", str(page)]) == 0
    printed = json.loads(capsys.readouterr().out)
    api = decile.compare(files)
    assert printed.pop("command") == "compare" and printed.pop("version") == decile.__version__
    assert printed == json.loads(json.dumps(api.to_dict())) and page.exists()
    frame = api.to_pandas()
    assert frame.to_dict("records")[0]["effect"] == printed["comparisons"][0]["effect"]
    assert "<table" in api._repr_html_() and "a vs. b" in repr(api)
    assert main(["compare", *arguments]) == 0
    out = capsys.readouterr().out
    assert "a vs. b: inconclusive" in out and "mean score, % [95 %]" in out
    assert main(["compare", *arguments, "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def table_of(seeds: list[str]) -> pa.Table:
    return pa.Table.from_pylist([row for n, text in enumerate(seeds) for row in rows(text, seed=n)])


def test_a_run_without_a_score_is_left_out_and_named() -> None:
    whole = {"a": table_of(["110010", "110110"]), "b": table_of(["010010", "010110"])}
    more = {**whole, "a": table_of(["110010", "110110", "------"])}
    one, two = compared(whole), compared(more)
    assert one.comparisons == two.comparisons and two.seeds == {"a": 2, "b": 2}
    [note] = [note for note in two.notes if note not in one.notes]
    assert note.startswith("a: seed 2 ")
    assert "no question" in refused({"a": table_of(["--", "--"]), "b": whole["b"]})


def test_a_metric_of_tables_is_refused(tmp_path: Path) -> None:
    tables = pair(tmp_path, rows("1100"), rows("1010"))
    assert "--metric foo" in refused(tables, metric="foo")


def test_copies_of_a_run_are_one_seed() -> None:
    a, b = "1110110010" * 4, "0100110010" * 4
    single = compared({"a": table_of([a]), "b": table_of([b])})
    copies = compared({"a": table_of([a] * 5), "b": table_of([b] * 5)})
    assert copies.comparisons == single.comparisons and copies.seeds == {"a": 1, "b": 1}
    assert sum("seeds 1, 2, 3, 4 " in n and "seed 0" in n for n in copies.notes) == 2
    [one] = compared({"a": table_of(["1"]), "b": table_of(["0"])}).comparisons
    assert comparison_values(one)["low"] is None, "JSON has no infinity"
    few = compared({"a": table_of(["10010"] * 2), "b": table_of(["01010"] * 2)})
    assert few.seeds == {"a": 2, "b": 2}, "equal by chance"
