"""`decile mark`: completions of any source are marked; the output is complete or absent."""

from pathlib import Path

from mark_file_cases import written

from orchestrator.optional.exchange.mark import CHUNK, mark_file


def test_several_processes_give_the_same_marks_as_one(tmp_path: Path) -> None:
    rows = [{"answer": str(i % 7), "completion": rf"\boxed{{{i % 5}}}"} for i in range(CHUNK + 50)]
    source = written(tmp_path, rows)
    for processes, name in ((1, "one.jsonl"), (2, "two.jsonl")):
        mark_file("gsm8k", {"marking": "strict"}, source, tmp_path / name, processes)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_tests_of_programs_may_be_lists_and_objects(tmp_path: Path) -> None:
    program = "```python\ndef f(x): return x\n```"
    tests = [["assert f(1) == 1"], {"inputs": [[2]], "outputs": [2], "fn_name": "f"}]
    source = written(tmp_path, [{"tests": t, "completion": program} for t in tests])
    options = {"sandbox": "none"}
    counts = mark_file("code", options, source, tmp_path / "out.jsonl", answer="tests").outcomes
    assert counts["correct"] == 2
