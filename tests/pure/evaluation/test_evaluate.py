"""`decile evaluate`: models and trained weights on held-out questions, and their files."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sweeps
import yaml
from evaluate_cases import (
    TINY,
    plan,  # noqa: F401 (fixtures)
    save_adapter,
)
from remedies import refused
from safetensors.numpy import load_file, save_file
from sweeps import NAME, experiments, plan_of

import decile as api
from orchestrator.evaluation.item_columns import item_metadata
from orchestrator.pipeline.evaluate import plan_evaluation
from orchestrator.pipeline.own_data import planned_probe
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.probing.probe_folder import write_part
from orchestrator.sampling.trained_weights import adapter_rank
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from tasks.shuffled_objects import ShuffledObjects


def answered(plan: Plan, store: Store, spec: ProbeSpec, correct: int) -> None:
    """Store answers to the test set: `correct` of each question's samples, and one error."""
    pool = plan.pool(spec)
    rows = [
        {
            "prompt_id": prompt.prompt_id,
            "sample": sample,
            "completion": pool.task.format_answer(prompt.answer) if sample < correct else "(Z)",
            "tokens": 3,
            "finish": "error" if number == 0 and sample == 0 else "stop",
        }
        for number, prompt in enumerate(pool.test)
        for sample in range(spec.settings.samples)
    ]
    write_part(store, spec.key, "test", pa.Table.from_pylist(rows, schema=SAMPLES))


def test_the_file_has_a_row_per_question_and_sample_for_compare(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = Store(str(tmp_path / "runs")), save_adapter(tmp_path / "adapter")
    evaluations = [plan_evaluation(plan), plan_evaluation(plan, adapter=folder)]
    for correct, evaluation in enumerate(evaluations, 1):
        answered(plan, store, evaluation.spec, correct)
    command = ["evaluate", "experiments.yaml", "-e", NAME, "--out"]
    done = [
        sweeps.decile_here(*command, "base.parquet", "--json", folder=tmp_path),
        sweeps.decile_here(*command, "after.parquet", "--adapter", "adapter", folder=tmp_path),
    ]
    assert [each.returncode for each in done] == [0, 0], done
    values = json.loads(done[0].stdout)
    assert (values["questions"], values["samples"]) == (16, 2)
    assert values["accuracy"] == pytest.approx(15 / 32) and values["outcomes"]["error"] == 1
    assert "accuracy 100.0%" in done[1].stdout and "16 questions × 2 of few" in done[1].stdout

    base, after = (pq.read_table(f"{name}.parquet") for name in ("base", "after"))
    pool = plan.pool(evaluations[0].spec)
    ids = sorted(prompt.prompt_id for prompt in pool.test)
    assert base["prompt_id"].to_pylist() == [i for i in ids for _ in range(2)]
    assert base["sample"].to_pylist() == [0, 1] * 16
    first = pool.test[0]
    at = base["prompt_id"].to_pylist().index(first.prompt_id)
    row = base.slice(at, 1).to_pylist()[0]
    assert (row["question"], row["gold"], row["tier"]) == (
        first.question,
        first.answer,
        first.tier,
    )
    assert (row["outcome"], row["correct"]) == ("error", None)
    assert not {"source", "file", "line", "place"} & {*base.column_names}
    known = item_metadata(after.schema)
    assert known["identity"] == evaluations[1].spec.model.identity and "+adapter:" in str(known)
    assert known["settings"]["marker"] == pool.task.marker_id
    assert known["settings"]["temperature"] == 1.0

    compared = api.compare({"base": "base.parquet", "after": after}).to_dict()
    assert [arm["missing_samples"] for arm in compared["arms"]] == [1, 1]
    assert compared["arms"][0]["score"] == pytest.approx(values["accuracy"])
    assert compared["arms"][0]["low"] == pytest.approx(values["low"])
    assert not any("settings" in caveat for caveat in compared["caveats"])


def test_the_file_has_the_columns_of_the_user_s_rows(plan: Plan, tmp_path: Path) -> None:
    """And `decile compare` takes none of them for a seed, a model or an id."""
    rows = [
        {"question": f"Is it {i}?", "answer": str(i), "topic": "ab"[i % 2], "question_id": i % 3}
        | {"gold": i % 2 / 2, "seed": i, "model": f"m{i}", "target": "t"}
        for i in range(20)
    ]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keep = ["question_id", "seed", "model", "target", "gold"]
    options = {"train": "mine.jsonl", "test": "test.jsonl", "source": "topic", "keep": keep}
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:6]))
    grid = {"model": ["tiny"], "dataset": ["mine"], "policy": ["random"]}
    file = experiments(tmp_path, storage=str(tmp_path / "runs"), grid=grid, budget=8)
    content = yaml.safe_load(file.read_text())
    content["datasets"] = {"mine": {"task": "file", "options": options}}
    content["experiments"][NAME]["evaluate"] = {"samples": 2}
    file.write_text(yaml.safe_dump(content))
    own = plan_of(file)
    answered(own, Store(str(tmp_path / "runs")), plan_evaluation(own).spec, 1)
    for name in ("one", "two"):
        command = ("evaluate", str(file), "-e", NAME, "--out", f"{name}.parquet")
        assert sweeps.decile_here(*command, folder=tmp_path).returncode == 0
    read = {row["line"]: row for row in pq.read_table("one.parquet").to_pylist()}
    assert sorted(read) == [1, 2, 3, 4, 5, 6]
    for line, row in read.items():
        mine = rows[line - 1]
        assert (row["question"], row["gold"], row["source"]) == (
            mine["question"],
            mine["answer"],
            mine["topic"],
        )
        assert (row["file"], row["row_gold"]) == (str(tmp_path / "test.jsonl"), mine["gold"])
        assert [row[name] for name in keep[:-1]] == [mine[name] for name in keep[:-1]]
    arms = {"one": "one.parquet", "two": pq.read_table("two.parquet")}
    for score, mean in ((None, 5 / 12), ("row_gold", 0.25)):
        compared = api.compare(arms, score=score).to_dict()["arms"]
        assert [(arm["questions"], arm["score"]) for arm in compared] == [(6, mean)] * 2


def test_compare_says_in_which_settings_two_files_differ(plan: Plan, tmp_path: Path) -> None:
    store, arms = Store(str(tmp_path / "runs")), {}
    for name, evaluate in (("cool", {"temperature": 0.5}), ("hot", {"temperature": 1.5})):
        file = experiments(tmp_path, storage=store.uri, evaluate={"samples": 2, **evaluate})
        experiment = api.load(file, NAME)
        answered(experiment.plan, store, plan_evaluation(experiment.plan).spec, 1)
        arms[name] = experiment.evaluate()
    [caveat] = [c for c in api.compare(arms).analysis.caveats if "settings" in c]
    assert caveat.endswith("different settings: temperature 0.5 (cool), 1.5 (hot)")


def test_questions_of_a_file_need_no_experiments_file(plan: Plan, tmp_path: Path) -> None:
    pool = ShuffledObjects(train=60).train()
    rows = ({"question": prompt.question, "answer": prompt.answer} for prompt in pool)
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = planned_probe("questions.jsonl", "tiny", None, {"samples": 3}, None, "evaluate")
    answered(own, Store("runs"), plan_evaluation(own).spec, 2)
    evaluation = api.evaluate("questions.jsonl", "tiny", samples=3)
    low, high = evaluation.interval
    assert low < evaluation.accuracy < high and "× 3" in repr(evaluation)
    train = {prompt.question for prompt in own.pool(own.cells[0].probe).train}
    assert not train & {*evaluation.table["question"].to_pylist()}
    assert evaluation.table["file"][0].as_py() == str(tmp_path / "questions.jsonl")
    assert pq.read_table(evaluation.write("after.parquet")).equals(evaluation.table)
    with refused("greedy"):
        api.evaluate("questions.jsonl", "tiny", greedy=True)
    with refused("after.csv", ".parquet"):
        evaluation.write("after.csv")


def test_trained_weights_are_part_of_the_key(plan: Plan, tmp_path: Path) -> None:
    base = plan_evaluation(plan).spec
    assert base is plan.cells[0].baseline
    adapter = save_adapter(tmp_path / "one")
    copy = shutil.copytree(adapter, tmp_path / "copy")
    other = save_adapter(tmp_path / "other", scale=0.1)
    keys = [plan_evaluation(plan, adapter=each).spec.key for each in (adapter, copy, other)]
    assert keys[0] == keys[1] and len({base.key, *keys}) == 3
    pattern = {"q_proj": 4, r"layers\.\d\..*_proj": 4, "k_proj": 16}
    ranked = save_adapter(tmp_path / "ranked", r=1, rank_pattern=pattern)
    assert (adapter_rank(adapter), adapter_rank(ranked)) == (4, 16)
    assert plan_evaluation(plan, adapter=ranked).spec.key not in keys

    full = tmp_path / "full"
    full.mkdir()
    weights = {n: v + np.float32(0.1) for n, v in load_file(TINY / "model.safetensors").items()}
    save_file(weights, full / "model.safetensors")
    shutil.copy(TINY / "config.json", full)
    (full / "chat_template.jinja").write_text("another")
    evaluation = plan_evaluation(plan, checkpoint=full)
    assert evaluation.spec.key not in {base.key, *keys}
    [note] = evaluation.notes
    assert "different chat template" in note and "tiny" in note
    location = Path(evaluation.spec.model.location)
    assert (location / "model.safetensors").resolve() == full / "model.safetensors"
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (location / name).read_bytes() == (TINY / name).read_bytes()
    assert plan_evaluation(plan, checkpoint=full).spec.key == evaluation.spec.key


def test_an_adapter_that_the_engine_scales_otherwise_is_refused(plan: Plan, tmp_path: Path) -> None:
    file = experiments(tmp_path, storage="runs", evaluate={"engine": "vllm"})
    plain = save_adapter(tmp_path / "plain", alpha_pattern={}, bias="none")
    scaled = save_adapter(tmp_path / "scaled", alpha_pattern={"q_proj": 8})
    assert plan_evaluation(plan_of(file), adapter=plain).weights == plain
    with refused(str(scaled), "vllm", "alpha_pattern"):
        plan_evaluation(plan_of(file), adapter=scaled)
    assert plan_evaluation(plan, adapter=scaled).weights == scaled


def spoil(folder: Path, how: str) -> Path:
    """An adapter or a checkpoint with one fault."""
    adapter, full = folder / "adapter", folder / "full"
    weights = adapter / "adapter_model.safetensors"
    folder.mkdir()
    save_adapter(adapter)
    shutil.copytree(TINY, full)
    if how == "torn":
        weights.write_bytes(weights.read_bytes()[:-9])
    elif how == "rubbish":
        weights.write_bytes(b"\x80\x04rubbish")
    elif how == "pickled":
        weights.rename(adapter / "adapter_model.bin")
    elif how in ("wide", "deep"):
        tensors = load_file(weights)
        for name, value in list(tensors.items()):
            if how == "wide" and "lora_A" in name:
                tensors[name] = np.zeros((4, value.shape[1] * 2), np.float32)
            elif how == "deep":
                tensors[re.sub(r"layers\.(\d)", r"layers.7\1", name)] = value
        save_file(tensors, weights)
    elif how == "prefix":
        (adapter / "adapter_config.json").write_text('{"peft_type": "PREFIX_TUNING"}')
    elif how in ("rank", "ranks", "no-rank", "target"):
        shutil.rmtree(adapter)
        given = {"rank": {"r": 8}, "ranks": {"rank_pattern": {"q_proj": 2}}, "no-rank": {"r": None}}
        given["target"] = {"target_modules": ["v_proj", "proj"]}
        save_adapter(adapter, **given[how])
    elif how == "settings":
        (adapter / "adapter_config.json").write_text("[1, 2")
    elif how == "shard":
        index = {"weight_map": {"a": "model-00002-of-00002.safetensors"}}
        (full / "model.safetensors.index.json").write_text(json.dumps(index))
    elif how == "short":
        tensors = load_file(full / "model.safetensors")
        tensors.popitem()
        save_file(tensors, full / "model.safetensors")
    elif how == "unsaved":
        shutil.move(adapter, folder / "out" / "checkpoint-2")
        return folder / "out"
    return full if how in ("shard", "short") else adapter


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("torn", "adapter_model.safetensors is damaged"),
        ("rubbish", "adapter_model.safetensors is damaged"),
        ("pickled", "adapter_model.bin is pickled"),
        ("wide", "for a different base model"),
        ("deep", "for a different base model"),
        ("prefix", "PREFIX_TUNING"),
        ("rank", "q_proj has rank 4, but adapter_config.json has 8"),
        ("ranks", "q_proj has rank 4, but adapter_config.json has 2"),
        ("no-rank", "adapter_config.json has 'r': None"),
        ("target", "q_proj is not in the target_modules"),
        ("settings", "adapter_config.json"),
        ("shard", "model-00002-of-00002.safetensors is missing"),
        ("short", "of another model"),
        ("unsaved", "checkpoint-2"),
    ],
)
def test_weights_that_cannot_be_sampled_are_refused(
    plan: Plan, tmp_path: Path, how: str, words: str
) -> None:
    folder = spoil(tmp_path / "spoilt", how)
    option = "--checkpoint" if how in ("shard", "short") else "--adapter"
    arguments = ("experiments.yaml", "-e", NAME, option, str(folder), "--out", "a.parquet")
    done = sweeps.decile_here("evaluate", *arguments, folder=tmp_path)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_names_and_folders_that_are_wrong_are_refused(plan: Plan, tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "adapter")
    for options, words in (
        ({"adapter": "none"}, "none"),
        ({"adapter": "x" * 5_000}, "adapter"),
        ({"checkpoint": "a\0b"}, "checkpoint"),
        ({"adapter": tmp_path}, "adapter_config.json"),
        ({"checkpoint": adapter}, "--adapter"),
        ({"adapter": TINY}, "--checkpoint"),
        ({"adapter": adapter, "checkpoint": TINY}, "one of them"),
        ({"model": "large"}, "tiny"),
        ({"dataset": "many"}, "few"),
    ):
        with refused(words):
            plan_evaluation(plan, **options)
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]}
    untested = experiments(tmp_path, storage="runs", grid=grid, evaluate={"samples": 2})
    untested.write_text(untested.read_text().replace("test: 16", "test: 0"))
    with refused("few", "test"):
        plan_evaluation(plan_of(untested))
    several = experiments(tmp_path, storage="runs", grid=grid | {"evaluate.samples": [2, 3]})
    with refused("several settings"):
        plan_evaluation(plan_of(several))
