"""Prompts that are longer than a model's context, or than memory allows, are refused by row."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from factories import finished_cell, small_plan

from orchestrator.cli.main import main
from orchestrator.cost.memory import GPUS, SHAPES, kv_bytes, longest_prompt, shape_of, weight_bytes
from orchestrator.embedded import embedded_path
from orchestrator.pipeline import long_prompts
from orchestrator.pipeline.long_prompts import CANDIDATES, check_long_prompts, crowded_prompts
from orchestrator.pipeline.run import Run
from orchestrator.planning.plan import Plan
from orchestrator.sampling.model import ModelSource, context_length, token_counts
from orchestrator.storage.errors import UserError
from orchestrator.storage.store import Store

LETTERS = "bdfhjlnprtvxz"  # each a token of its own
AROUND = 20  # tokens of the instruction around a question


def plan_of(
    folder: Path,
    lengths: list[int],
    context: int | None = 100,
    tests: Sequence[int] = (2, 3),
    **settings: Any,
) -> Plan:
    """A plan with training and test questions of these numbers of tokens."""
    (folder / "model").mkdir(exist_ok=True)
    shutil.copy(embedded_path("tiny") / "tokenizer.json", folder / "model")
    shape = {"num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 2}
    config = {**shape, "intermediate_size": 128, "vocab_size": 1000}
    if context:
        config["max_position_embeddings"] = context
    (folder / "model" / "config.json").write_text(json.dumps(config))
    for name, numbers in (("train", lengths), ("test", tests)):
        texts = ["".join(LETTERS[(i + j) % 13] for j in range(n)) for i, n in enumerate(numbers)]
        rows = [json.dumps({"question": q, "answer": "1"}) for q in texts]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    batch = {"max_steps": 4, "num_generations": 4, "per_device_train_batch_size": 8}
    settings = {"grpo": batch | {"max_completion_length": 32}, **settings}
    options = {"train": str(folder / "train.jsonl"), "test": str(folder / "test.jsonl")}
    dataset = {"small": {"task": "file", "options": options}}
    return small_plan(folder, datasets=dataset, **settings)


def refusal(plan: Plan, gpu: str | None = None, **cluster: float) -> str:
    with pytest.raises(UserError) as caught:
        check_long_prompts(Run.of(plan, Store(plan.source.config.storage), cluster), gpu)
    return str(caught.value)


def accepted(plan: Plan, gpu: str | None = None, **cluster: float) -> bool:
    check_long_prompts(Run.of(plan, Store(plan.source.config.storage), cluster), gpu)
    return True


def test_prompts_that_fill_the_context_are_named_with_their_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, [9, 10, 150, 11, 80, 79, 12, 13, 14])
    third = plan.pools["small"].train[2]
    message = refusal(plan)
    file = tmp_path / "train.jsonl"
    for value in ("datasets.small: ", f"{file}:3 (", third.question[:40], f"{150 + AROUND} "):
        assert value in message
    # 32 of the 100 tokens are those of a completion
    assert message.endswith(f" {file}:3, {file}:5, or write max_prompt_tokens: 68")
    assert main(["plan", str(tmp_path / "experiments.yaml"), "-e", "small"]) == 2
    assert message in capsys.readouterr().err
    many = refusal(plan_of(tmp_path, [200 + i for i in range(30)]))
    assert f"{file}:1, {file}:2, {file}:3 and 27 more, or" in many
    plan = plan_of(tmp_path, [*range(10, 20)], tests=[90])
    message = refusal(plan)
    assert f"test question {tmp_path / 'test.jsonl'}:1, " in message
    assert message.endswith("write max_prompt_tokens: 68 and clean_test: true")


def test_init_writes_no_file_that_plan_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "How many are these? " * 400
    rows = [{"question": f"{i} + 1? {long if i == 7 else ''}", "answer": i + 1} for i in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "mine.yaml"
    command = ["init", "--train", str(tmp_path / "a.jsonl"), "--model", "tiny", "--out", str(out)]
    assert main(command) == 2 and not out.exists()
    message = capsys.readouterr().err
    assert f"{tmp_path / 'a.jsonl'}:8" in message
    [limit] = re.findall(r"max_prompt_tokens: (\d+)$", message.strip())
    assert main([*command, "--max-prompt-tokens", limit]) == 0
    assert main(["plan", str(out), "-e", "a"]) == 0


def test_no_tokenizer_is_read_for_prompts_that_fit_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, [9, 10, 11, 12, 13, 14, 15, 16])
    monkeypatch.delattr(long_prompts, "token_counts")
    assert accepted(plan)


def test_of_many_long_prompts_the_longest_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def none(source: ModelSource, texts: Any) -> list[int]:
        counted.extend(texts)
        return [1] * len(counted)

    monkeypatch.setattr(long_prompts, "token_counts", none)
    assert accepted(plan_of(tmp_path, [100 + i % 400 for i in range(2 * CANDIDATES)]))
    assert len(counted) == CANDIDATES
    assert min(map(len, counted)) > 250


def test_other_engines_and_what_is_unknown_here_are_not_checked(tmp_path: Path) -> None:
    lengths = [9, 10, 150, 11, 12, 13, 14, 15]
    vllm = {"engine": "vllm", "samples": 4, "max_completion_length": 32}
    assert accepted(plan_of(tmp_path, lengths, probe=vllm))
    assert accepted(plan_of(tmp_path, lengths, context=None))
    plan = plan_of(tmp_path, lengths)
    (tmp_path / "model" / "tokenizer.json").unlink()
    assert accepted(plan)
    source = ModelSource("far", "nobody/none", "", revision="0" * 40)
    assert context_length(source) is None and token_counts(source, ["x"]) is None


@pytest.mark.parametrize("block", ["probe", "evaluate", "grpo"])
@pytest.mark.parametrize(("limit", "refused"), [(99, False), (100, True)])
def test_a_token_limit_that_no_completion_can_reach_is_refused(
    tmp_path: Path, block: str, limit: int, refused: bool
) -> None:
    lengths = [*range(9, 25)]
    small = plan_of(tmp_path, lengths).source.config.experiments["small"]
    blocks = {"probe": {"samples": 4}, "evaluate": {"samples": 4}, "grpo": small.grpo}
    plan = plan_of(
        tmp_path,
        lengths,
        **{
            name: settings | {"max_completion_length": limit if name == block else 32}
            for name, settings in blocks.items()
        },
    )
    if not refused:
        assert accepted(plan)
        return
    message, lines = refusal(plan), (tmp_path / "experiments.yaml").read_text().split("\n")
    line = int(message.partition("experiments.yaml:")[2].partition(":")[0])
    assert lines[line - 1].strip() == f"max_completion_length: {limit}"
    assert f"small.{block}.max_completion_length" in message


def test_the_token_limits_of_a_finished_sweep_are_not_refused(tmp_path: Path) -> None:
    probe = {"samples": 4, "max_completion_length": 200}
    plan = plan_of(tmp_path, [*range(9, 25)], probe=probe)
    assert "small.probe.max_completion_length" in refusal(plan)
    for cell in plan.cells:
        finished_cell(Store(plan.source.config.storage), plan, cell)
    assert accepted(plan)


def test_a_token_limit_that_is_an_axis_is_refused_at_its_value(tmp_path: Path) -> None:
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["hard"]}
    grid["probe.max_completion_length"] = [32, 200]  # type: ignore[assignment, list-item]
    plan = plan_of(tmp_path, [*range(9, 25)], grid=grid, probe={"samples": 4})
    assert "grid.probe.max_completion_length.1" in refusal(plan)


def test_a_window_of_vllm_that_would_cut_completions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, batch = [*range(9, 24), 30], {"num_generations": 4, "per_device_train_batch_size": 8}
    longest = 30 + AROUND
    for window, refused in ((32 + longest - 1, True), (32 + longest, False)):
        grpo = {"use_vllm": True, "vllm_max_model_length": window, "max_completion_length": 32}
        plan = plan_of(tmp_path, lengths, grpo=batch | grpo, resources={"gpus": 1})
        if not refused:
            assert accepted(plan)
            continue
        message = refusal(plan)
        assert "small.grpo.vllm_max_model_length" in message and f"least {32 + longest} " in message


def test_what_vllm_needs_to_start_fits_its_share_of_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = {"num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 32}

    def planned(**grpo: Any) -> Plan:
        return plan_of(tmp_path, [*range(9, 25)], grpo=batch | grpo, resources={"gpus": 1})

    plan = planned(use_vllm=True)
    shape = shape_of(plan.cells[0].probe.model)
    assert shape is not None
    needed = weight_bytes(shape, "bfloat16", False) + 100 * kv_bytes(shape, 2)
    h100 = GPUS["h100"]
    monkeypatch.setitem(GPUS, "h100", h100._replace(memory=needed / 0.3 + 1))
    assert accepted(plan, "h100", GPU=1)
    monkeypatch.setitem(GPUS, "h100", h100._replace(memory=needed / 0.3 - 1))
    with pytest.raises(UserError) as caught:
        check_long_prompts(Run.of(plan, Store(plan.source.config.storage), {}), "h100")
    assert caught.value.code == "vllm-memory"
    assert "experiments.small.grpo.use_vllm" in str(caught.value)
    assert accepted(planned(use_vllm=True, vllm_max_model_length=99), "h100", GPU=1)
    assert accepted(planned(use_vllm=True, vllm_gpu_memory_utilization=0.31), "h100", GPU=1)
    longer = planned(use_vllm=True, vllm_max_model_length=101)  # than the model's context
    assert "small.grpo.vllm_max_model_length" in refusal(longer)
    assert accepted(planned(), "h100", GPU=1) and accepted(plan, None, GPU=1)


def test_prompts_that_leave_less_than_the_token_limit_are_counted(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, [*range(9, 20), 49, 60, 70])
    run = Run.of(plan, Store(plan.source.config.storage), {})
    [note] = crowded_prompts(run)
    assert note.startswith("warning: 3 training prompts of small ") and "32 tokens" in note
    assert accepted(plan)


def test_what_is_stored_is_not_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, [9, 10, 150, 11, 12, 13, 14, 15])
    nothing = SimpleNamespace(samples=0)
    monkeypatch.setattr(Run, "pending_after_earlier_probes", lambda *_: nothing)
    assert accepted(plan)


def test_prompts_that_do_not_fit_the_memory_alone_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(tmp_path, [9, 10, 150, 11, 12, 13, 14, 15], context=None)
    memory = SimpleNamespace(total=500_000.0)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    message = refusal(plan)
    assert all(value in message for value in ("170 tokens", "0.000466 GiB", "99 beside stub"))
    monkeypatch.setitem(GPUS, "h100", GPUS["h100"]._replace(memory=memory.total))
    memory.total = 1e12
    assert accepted(plan)
    assert "the memory of H100 80GB (" in refusal(plan, "h100", GPU=1)
    assert accepted(plan, None, GPU=1), "the memory of an unknown GPU"
    memory.total = 500_000.0
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert accepted(plan), "the memory of another machine is not known"


@pytest.mark.parametrize("name", SHAPES)
def test_the_longest_prompt_fits_with_its_cache_and_one_more_does_not(name: str) -> None:
    shape, completion, memory = SHAPES[name], 500, 80 * 2.0**30
    most = longest_prompt(shape, "auto", False, completion, memory)
    used = [
        weight_bytes(shape, "auto", False)
        + (tokens + completion) * kv_bytes(shape, 2)
        + tokens * shape.hidden * 2
        for tokens in (most, most + 1)
    ]
    assert used[0] <= memory < used[1]
    less_than_weights = 0.9 * weight_bytes(shape, "auto", False)
    assert longest_prompt(shape, "auto", False, completion, less_than_weights) == 0


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 1024}, 1024),
        ({"n_positions": 512}, 512),
        ({"text_config": {"max_position_embeddings": 8}}, 8),
        ({}, None),
        (
            {
                "max_position_embeddings": 32,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32},
            },
            128,
        ),
        ({"max_position_embeddings": 32, "rope_parameters": {"rope_type": "default"}}, 32),
    ],
)
def test_the_context_is_that_of_the_models_config(
    tmp_path: Path, config: dict[str, Any], length: int | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert context_length(ModelSource("m", str(tmp_path), "")) == length
