"""Imports of evaluation logs: lm-eval, Inspect and verl, as their own code wrote them.

The files in exchange_logs/ hold invented sums only; make_*.py there say how they were made.
"""

import json
import shutil
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exchange_files import TASK, WRONG, noted, outcomes
from paths import LOGS

from orchestrator.cli.main import main
from orchestrator.optional.exchange import inspect_logs
from orchestrator.optional.exchange.imports import import_probe
from tasks import TaskError, get_task
from tasks.sources.files import SYSTEM, TURNS
from tasks.sources.texts import ANSWERS, INSTRUCTIONS

LONG = "What is 5+5? Only the number counts. " + "Take your time. " * 8


def outcomes_by_question(probe: Any) -> dict[str, list[str]]:
    questions = {prompt.prompt_id: prompt.question for prompt in probe.prompts}
    table: dict[str, list[str]] = {}
    for name, outcome in zip(probe.samples["prompt_id"].to_pylist(), outcomes(probe), strict=True):
        table.setdefault(questions[name], []).append(outcome)
    return table


# --- lm-eval ---


def test_lm_eval_samples_are_read_once_for_all_filters() -> None:
    probe = import_probe(LOGS / "lm_eval_sums.jsonl", None, TASK)
    assert probe.layout == "lm-eval"
    assert outcomes_by_question(probe) == {
        "What is 2+2?": ["correct", "correct"],
        "What is 3+4?": ["wrong", "correct"],
        "What is 5+5?": ["unparsed", "unparsed"],
    }
    assert {p.answer for p in probe.prompts} == {"4", "7", "10"}
    assert noted(probe, "strict-match, flexible") and noted(probe, "^3 questions ")


def test_log_likelihoods_of_lm_eval_are_not_completions() -> None:
    with pytest.raises(TaskError, match="lm_eval_choice.jsonl.*log-likelihoods"):
        import_probe(LOGS / "lm_eval_choice.jsonl", None, TASK)


def test_older_lm_eval_samples_and_their_scores_are_read(tmp_path: Path) -> None:
    row = {
        "doc_id": 0,
        "doc": {"text": "no known name"},
        "target": 4,
        "arguments": [["Q: 2+2?\nA:", {"until": ["\n"]}]],
        "resps": [[WRONG]],
        "exact_match": 1.0,
    }
    (tmp_path / "samples.jsonl").write_text(json.dumps(row))
    probe = import_probe(tmp_path / "samples.jsonl", None, TASK)
    assert probe.prompts[0].question == "Q: 2+2?\nA:" and outcomes(probe) == ["wrong"]
    assert noted(probe, r"agree on 0 of 1 \(1 ")


# --- Inspect ---


def test_an_eval_file_of_inspect_is_read_without_inspect() -> None:
    probe = import_probe(LOGS / "inspect.eval", None, TASK)
    assert probe.layout == "inspect"
    assert outcomes_by_question(probe) == {
        "What is 2+2?": ["correct", "wrong"],
        "What is 3+3?": ["correct", "unparsed"],
        LONG: ["truncated", "correct"],
    }
    assert {p.answer for p in probe.prompts} == {"4", "6", "10"}
    # Inspect's own scorer does not read a box.
    assert noted(probe, r"agree on 4 of 6 \(0 ")
    assert noted(probe, f"^8 {SYSTEM}") and noted(probe, f"^2 {ANSWERS}")
    assert probe.samples is not None and probe.samples["tokens"].null_count < 6


def test_a_json_log_of_inspect_is_read() -> None:
    probe = import_probe(LOGS / "inspect.json", None, TASK)
    assert {q: o[0] for q, o in outcomes_by_question(probe).items()} == {
        "What is 2+2?": "correct",
        "What is 3+3?": "correct",
        LONG: "truncated",
    }


def inspect_sample(**more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "\\boxed{4}"}
    output = {"choices": [{"message": message, "stop_reason": "stop"}]}
    return {"id": 1, "epoch": 1, "input": "2+2?", "target": "4", "output": output} | more


def json_log(folder: Path, *samples: Any) -> Path:
    (folder / "log.json").write_text(json.dumps({"eval": {}, "samples": samples}))
    return folder / "log.json"


def eval_log(folder: Path, *samples: Any, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(folder / "log.eval", "w", method) as archive:
        archive.writestr("header.json", "{}")
        for number, sample in enumerate(samples, 1):
            text = sample if isinstance(sample, str | bytes) else json.dumps(sample)
            archive.writestr(f"samples/{number}_epoch_1.json", text)
    return folder / "log.eval"


@pytest.mark.parametrize("log", [json_log, eval_log])
def test_errors_scores_attachments_and_choices_of_inspect_are_read(
    tmp_path: Path, log: Any
) -> None:
    attached = {"input": "attachment://a1", "attachments": {"a1": "3+3?"}, "target": "6"}
    parts = [{"type": "reasoning", "reasoning": "4"}, {"type": "text", "text": "\\boxed{6}"}]
    answer = {"choices": [{"message": {"content": parts}}], "usage": {"output_tokens": 7}}
    samples = [
        inspect_sample(scores={"match": {"value": "C"}}),
        inspect_sample(**attached, error={"message": "x"}),
        inspect_sample(**attached, output=answer, scores={"a": {"value": 0}}),
        inspect_sample(output={"choices": []}),
    ]
    probe = import_probe(log(tmp_path, *samples), None, TASK)
    assert outcomes(probe) == ["correct", "error", "correct", "error"]
    assert [p.question for p in probe.prompts] == ["2+2?", "3+3?"]
    assert probe.samples is not None
    assert probe.samples["tokens"].to_pylist() == [None, None, 7, None]
    assert noted(probe, "agree on 1 of 2")
    worded = "Answer with a letter.\nWhich? A) 4 B) 5"
    choices = inspect_sample(
        input="Which?",
        choices=["4", "5"],
        target="A",
        messages=[{"role": "user", "content": worded}, {"role": "assistant", "content": "A"}],
    )
    probe = import_probe(log(tmp_path, choices), None, get_task("file", marker="letter"))
    assert probe.prompts[0].question == worded
    assert noted(probe, "^1 question with choices ")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "has no samples"),
        ([["x"]], "inspect_ai"),
        ([{"input": "2+2?"}], "input and target"),
        (["{"], "samples/1_epoch_1.json: invalid JSON"),
        (["[" * 100_000], "nested too deep"),
        ([json.dumps(inspect_sample(input="\ud800"))], "surrogate"),
        ([b"\xff{}"], "UTF-8"),
        ([inspect_sample(input={"a": 1})], "samples/1_epoch_1: the question is {'a': 1}"),
        ([inspect_sample(input=None)], "1 row dropped: no question (samples/1_epoch_1)"),
    ],
)
def test_damaged_samples_of_inspect_are_named(
    tmp_path: Path, samples: list, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = eval_log(tmp_path, *samples)
    command = ["import", str(file), "--task", "file", "--out", str(tmp_path / "o.parquet")]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error and str(file) in error and error.count("\n") == 1


def test_wrong_types_inside_a_sample_of_inspect_count_as_absent(tmp_path: Path) -> None:
    wrong: list[Any] = [None, 7, "x", [], [7], {}, {"a": [1]}, [{"role": 7}], True]
    samples = [
        inspect_sample(**{name: value})
        for name in ("output", "messages", "scores", "choices", "attachments", "error")
        for value in wrong
    ]
    samples += [
        inspect_sample(output={"choices": [{"message": value, "stop_reason": value}]})
        for value in wrong
    ]
    samples += [inspect_sample(scores={"a": {"value": value}}) for value in wrong]
    assert len(outcomes(import_probe(json_log(tmp_path, *samples), None, TASK))) == len(samples)


def zstandard_member(file: Path, content: bytes, size: int) -> None:
    """A zip of one Zstandard member whose headers declare `size` bytes."""
    packed = pa.compress(content, "zstd", asbytes=True)
    name = b"samples/1_epoch_1.json"
    sizes = struct.pack("<III", zlib.crc32(content), len(packed), size)
    header = struct.pack("<HHHI", 20, 0, 93, 0) + sizes + struct.pack("<HH", len(name), 0)
    local = b"PK\x03\x04" + header + name + packed
    central = b"PK\x01\x02" + struct.pack("<H", 20) + header + bytes(14) + name
    end = struct.pack("<IHHIIH", 0, 1, 1, len(central), len(local), 0)
    file.write_bytes(local + central + b"PK\x05\x06" + end)


@pytest.mark.parametrize("kind", ["deflate", "zstd"])
def test_a_member_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(inspect_logs, "MEMBER_LIMIT", 2**20)
    bomb = b'{"input": "' + b" " * 2**22 + b'", "target": "4"}'
    file = tmp_path / "bomb.eval"
    if kind == "zstd":  # the declared size is a lie
        zstandard_member(file, bomb, 10)
    else:
        shutil.move(eval_log(tmp_path, bomb), file)
    with pytest.raises(TaskError, match=r"samples/1_epoch_1\.json is larger than 1 MiB"):
        import_probe(file, None, TASK)
    small = json.dumps(inspect_sample()).encode()
    zstandard_member(file, small, len(small))
    assert outcomes(import_probe(file, None, TASK)) == ["correct"]
    monkeypatch.setattr(inspect_logs, "TOTAL_LIMIT", 100)
    with pytest.raises(TaskError, match="all samples"):
        import_probe(file, None, TASK)


# --- verl's rollouts ---


def test_rollouts_of_verl_are_read() -> None:
    probe = import_probe(LOGS / "verl_rollouts.jsonl", None, TASK)
    assert probe.layout == "verl-rollouts"
    assert outcomes_by_question(probe) == {
        "What is 2+2?": ["correct", "unparsed"],
        "What is 3+4?": ["correct"],  # a last line that is nothing but the answer
        "What is 5+5?": ["correct"],
        "What is 1+1?": ["correct"],
        "Our\nuser names?": ["correct"],
    }
    assert noted(probe, f"^3 {SYSTEM}") and noted(probe, f"^2 {INSTRUCTIONS}")
    assert noted(probe, "^1 prompt .*chat template") and noted(probe, "truncated: they count as")
    assert noted(probe, "agree on 5 of 6")


def test_rollouts_of_other_steps_turns_and_types_are_named(tmp_path: Path) -> None:
    text = "user\nHi\nassistant\nHello\nuser\n2+2?\nassistant\n"
    row = {"input": text, "output": "\\boxed{4}", "gts": ["4"], "score": -1.0, "step": 1}
    file = tmp_path / "rollouts.jsonl"
    file.write_text("\n".join(json.dumps(row | {"step": step}) for step in (1, 2)))
    probe = import_probe(file, None, TASK)
    assert probe.prompts[0].question == "2+2?" and outcomes(probe) == ["correct"] * 2
    assert noted(probe, f"^4 {TURNS}") and noted(probe, "rollouts of 2 training steps")
    assert noted(probe, "agree on 0 of 2")
    file.write_text("\n" + json.dumps(row | {"output": ["a"]}))
    with pytest.raises(TaskError, match=r"rollouts\.jsonl:2: output is \['a'\]: expected text"):
        import_probe(file, None, TASK)


def test_a_torn_or_swapped_eval_file_is_refused(tmp_path: Path) -> None:
    content = (LOGS / "inspect.eval").read_bytes()
    file = tmp_path / "torn.eval"
    for size in range(0, len(content), 997):
        file.write_bytes(content[:size])
        with pytest.raises(TaskError, match="torn.eval"):
            import_probe(file, None, TASK)
    for place in range(0, len(content), 61):  # one byte changed
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :])
        with suppress(TaskError):
            import_probe(file, None, TASK)
    (tmp_path / "folder.eval").mkdir()
    with pytest.raises(TaskError, match=r"folder\.eval has no results\.json"):
        import_probe(tmp_path / "folder.eval", None, TASK)
    with pytest.raises(TaskError, match="does not exist"):
        import_probe(tmp_path / "no.eval", None, TASK)
