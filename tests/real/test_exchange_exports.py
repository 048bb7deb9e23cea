"""Exports of subsets in the layouts of trainers, and round trips."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exchange_files import (
    OBJECTS,
    REASON,
    TASK,
    imported,
    outcomes,
    select,
    subset_of,
    written,
)

from orchestrator.cli.main import main
from orchestrator.optional.exchange.exports import (
    LAYOUTS,
    export_subset,
    prompts_of,
    read_subset_file,
)
from orchestrator.optional.exchange.imports import import_probe, write_import
from orchestrator.selection.subsets import reason
from orchestrator.storage.errors import UserError
from tasks import TaskError


def test_a_jsonl_export_has_texts_by_rank_and_provenance(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    table = subset_of(pool, [5, 0, 2]).take(pa.array([2, 0, 1]))
    out = tmp_path / "deep" / "subset.jsonl"
    why = export_subset(table, pool, OBJECTS, "jsonl", out, {"options": {"train": 20}})
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt_id"] for row in rows] == [pool[i].prompt_id for i in (5, 0, 2)]
    assert [row["rank"] for row in rows] == [0, 1, 2]
    assert [row["pass_rate"] for row in rows] == [5 / 32, None, 2 / 32]
    assert rows[0]["messages"] == OBJECTS.messages(pool[5].question)
    assert (rows[0]["question"], rows[0]["answer"], rows[0]["tier"]) == (
        pool[5].question,
        pool[5].answer,
        pool[5].tier,
    )
    assert json.loads((tmp_path / "deep" / "subset.jsonl.provenance.json").read_text()) == why
    assert why["subset"] == REASON and why["options"] == {"train": 20} and why["rows"] == 3
    assert why["task"]["marker"] == OBJECTS.marker_id
    assert why["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()


@pytest.mark.parametrize("layout", ["trl", "verifiers", "prime-rl"])
def test_rollouts_of_an_export_come_back_as_the_same_prompts(tmp_path: Path, layout: str) -> None:
    pool = OBJECTS.train()
    export_subset(subset_of(pool, [3, 1, 2]), pool, OBJECTS, layout, tmp_path / "o.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    rolled_out = [
        row | {"completion": OBJECTS.format_answer(row["answer"]), "reward": 1.0} for row in rows
    ]
    more = {"pool": pool} if layout == "trl" else {}
    probe = import_probe(written(tmp_path, rolled_out, "results.jsonl"), None, OBJECTS, **more)
    assert {p.prompt_id: p for p in probe.prompts} == {p.prompt_id: p for p in pool[1:4]}
    assert outcomes(probe) == ["correct"] * 3


def test_verl_columns_are_those_of_its_examples(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    export_subset(subset_of(pool, [4]), pool, OBJECTS, "verl", tmp_path / "o.parquet")
    (row,) = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert row["data_source"] == "decile/shuffled_objects"
    assert row["prompt"] == OBJECTS.messages(pool[4].question)
    assert row["reward_model"] == {"style": "rule", "ground_truth": pool[4].answer}
    extra = row["extra_info"]
    assert (extra["index"], extra["split"], extra["rank"]) == (0, "train", 0)
    assert (extra["prompt_id"], extra["pass_rate"]) == (pool[4].prompt_id, 4 / 32)
    assert reason(pq.read_table(tmp_path / "o.parquet"))["subset"] == REASON


def test_a_prompt_outside_the_data_is_named(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    with pytest.raises(TaskError) as caught:
        export_subset(
            subset_of(pool, [1, 2, 3, 4, 5]), pool[:2], OBJECTS, "trl", tmp_path / "o.jsonl"
        )
    message = str(caught.value)
    assert "4 of 5 prompts" in message and "shuffled_objects" in message
    assert f"({pool[2].prompt_id}, {pool[3].prompt_id}, {pool[4].prompt_id}, …)" in message
    assert not list(tmp_path.iterdir())


def test_exports_refuse_what_they_cannot_write_or_read(tmp_path: Path) -> None:
    pool = OBJECTS.train()
    table = subset_of(pool, [1])
    with pytest.raises(TaskError, match=f"layout 'csv' is unknown: write {', '.join(LAYOUTS)}"):
        export_subset(table, pool, OBJECTS, "csv", tmp_path / "o.csv")
    with pytest.raises(UserError, match=r"a \.parquet file"):
        export_subset(table, pool, OBJECTS, "verl", tmp_path / "o.jsonl")
    with pytest.raises(UserError, match=r"a \.jsonl or \.parquet file"):
        export_subset(table, pool, OBJECTS, "trl", tmp_path / "o.csv")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    pq.write_table(table.drop_columns("rank"), tmp_path / "other.parquet")
    for name, words in (("no", ""), ("torn", "Parquet"), ("other", "column rank")):
        with pytest.raises(TaskError, match=rf"{name}\.parquet .*{words}"):
            read_subset_file(tmp_path / f"{name}.parquet")
    with pytest.raises(TaskError, match="column question, answer"):
        prompts_of(tmp_path / "other.parquet")


def test_the_layout_is_checked_before_the_data_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(OBJECTS), "train", lambda task: pytest.fail("loaded the data"))
    command = ["export", "--subset", str(tmp_path / "subset.parquet"), "--task", OBJECTS.name]
    assert main([*command, "--layout", "csv", "--out", str(tmp_path / "o.csv")]) == 2
    assert "'csv'" in capsys.readouterr().err
    assert main([*command, "--layout", "verl", "--out", str(tmp_path / "o.jsonl")]) == 2
    assert "o.jsonl" in capsys.readouterr().err


def test_a_selected_subset_is_exported_with_its_ties(tmp_path: Path) -> None:
    rows = [{"question": f"{n}+1", "answer": str(n + 1), "pass_rate": 0.0} for n in range(6)]
    probe = imported(tmp_path, rows, TASK)
    write_import(probe, tmp_path / "probe.parquet")
    subset = select(tmp_path / "probe.parquet", "hard", "2")
    out = tmp_path / "o.jsonl"
    provenance = export_subset(subset, probe.prompts, TASK, "jsonl", out)
    assert provenance["subset"]["ties"] == {"pool": 6, "chosen": 2}
    assert all(json.loads(line)["why"] for line in out.read_text().splitlines())


@pytest.mark.parametrize(("kind", "suffix"), [("json", "jsonl"), ("parquet", "parquet")])
def test_datasets_loads_an_export_for_trl(tmp_path: Path, kind: str, suffix: str) -> None:
    from datasets import load_dataset
    from trl import is_conversational

    pool, out = OBJECTS.train(), tmp_path / f"o.{suffix}"
    export_subset(subset_of(pool, [1, 0]), pool, OBJECTS, "trl", out)
    cache = str(tmp_path / "cache")
    loaded = load_dataset(kind, data_files=str(out), split="train", cache_dir=cache)
    assert is_conversational(loaded[0])
    assert loaded["prompt"][:] == [OBJECTS.messages(pool[i].question) for i in (1, 0)]
    assert loaded["answer"][:] == [pool[1].answer, pool[0].answer]
    assert loaded["pass_rate"][:] == [1 / 32, None]
