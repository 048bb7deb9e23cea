"""Imports of evaluations by PrimeIntellect's verifiers."""

from pathlib import Path
from typing import Any

from exchange_files import RIGHT, TASK, WRONG, imported, noted, outcomes, refusal, written

from orchestrator.optional.exchange.imports import import_probe


def v0_row(text: str, **more: Any) -> dict:
    return {
        "example_id": 0,
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2"}],
        "completion": [{"role": "assistant", "content": text}],
        "answer": "4",
        "reward": 1.0,
        "is_truncated": False,
        "token_usage": {"input_tokens": 9.0, "output_tokens": 5.0},
    } | more


def test_verifiers_results_are_read(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "so "}, {"type": "text", "text": RIGHT}]
    rows = [
        v0_row(RIGHT),
        v0_row("", completion=[{"role": "assistant", "content": parts}], reward=0.7),
        v0_row("so", is_truncated=True, reward=0.0),
        v0_row("", completion=None, error={"error": "E"}, reward=0.0),
    ]
    run = tmp_path / "run"
    run.mkdir()
    written(run, rows, "results.jsonl")
    probe = import_probe(run, None, TASK)
    assert probe.layout == "verifiers"
    assert outcomes(probe) == ["correct", "correct", "truncated", "error"]
    assert [p.question for p in probe.prompts] == ["2+2"]
    assert probe.samples is not None and probe.samples["tokens"].to_pylist()[0] == 5
    assert any("agree on 2 of 2" in note for note in probe.notes)


def trace(text: str, **more: Any) -> dict:
    data = {"idx": 0, "prompt": "Reason step by step.\n\n2+2", "answer": "4"}
    nodes = [
        {"message": {"role": "user", "content": data["prompt"]}, "sampled": False},
        {"parent": 0, "message": {"role": "assistant", "content": text}, "sampled": True},
    ]
    call = {"node": 1, "finish_reason": "stop", "usage": {"completion_tokens": 7}}
    return {
        "version": 1,
        "task": {"type": "T", "data": data},
        "nodes": nodes,
        "calls": [call],
        "rewards": {"correct": {"score": 1.0, "weight": 1.0}},
        "errors": [],
        "ok": True,
    } | more


def test_verifiers_traces_and_episodes_are_read(tmp_path: Path) -> None:
    cut = [{"node": 1, "finish_reason": "length"}]
    rows = [
        trace(RIGHT),
        trace("so", calls=cut, rewards={"correct": 0.0}),
        trace("so", stop_condition="max_output_tokens", rewards={}),
        trace("", nodes=[], ok=False, errors=[{"type": "E", "message": "m"}]),
        trace("so", stop_condition="compaction_failed"),
    ]
    task_of = rows[0]["task"]
    rows += [
        {"task": task_of, "traces": [trace(WRONG)]},
        {"task": task_of, "traces": []},
        {"task": task_of, "traces": [trace(RIGHT), trace(RIGHT)]},
    ]
    probe = imported(tmp_path, rows, TASK)
    assert probe.layout == "verifiers"
    cuts = ["truncated"] * 3
    assert outcomes(probe) == ["correct", *cuts[:2], "error", cuts[2], "wrong", "error"]
    assert probe.samples is not None
    assert probe.samples["tokens"].to_pylist() == [7, None, 7, 7, 7, 7, None]
    assert noted(probe, "1 row dropped: .*line 8")


def test_episodes_of_prime_rl_are_read(tmp_path: Path) -> None:
    """rollouts/step_N/train/all and effective, as file.py of prime-rl writes them (at 559b447)."""

    def episode(step: int, text: str, **node: Any) -> dict:
        one = trace(text)
        one["nodes"][-1] |= node
        work = {"type": "train", "step": step, "policy": {"start": step - 1, "end": step}}
        run = {"type": "train", "id": "r1", "name": "run", "work": work}
        return {"task": one["task"], "group": {"id": "g"}, "run": run, "ok": True, "traces": [one]}

    arrived = imported(tmp_path, [episode(2, RIGHT), episode(2, WRONG)], TASK)
    assert (arrived.layout, outcomes(arrived)) == ("verifiers", ["correct", "wrong"])
    assert not noted(arrived, "prime-rl|training steps")
    trained = [episode(1, RIGHT, advantages=[0.5]), episode(2, WRONG, advantages=[-0.5])]
    probe = imported(tmp_path, trained, TASK)
    assert noted(probe, "prime-rl.*train/all") and noted(probe, "2 training steps")


def test_early_traces_have_flat_tasks_and_no_sampled_flag(tmp_path: Path) -> None:
    row = trace(RIGHT, task={"prompt": "2+2", "answer": "4"})
    for node in row["nodes"]:
        del node["sampled"]
    assert outcomes(imported(tmp_path, [row], TASK)) == ["correct"]


def test_traces_without_an_answer_are_refused_with_the_fields_of_tasks(tmp_path: Path) -> None:
    row = trace(RIGHT, task={"type": "T", "data": {"prompt": "2+2", "gold": "4"}})
    message = refusal(tmp_path, [row], TASK)
    assert "answer; tasks have: gold, prompt" in message
