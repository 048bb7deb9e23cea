"""Decile without its extras, as `make wheel` installs it: the newest libraries and the oldest."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from paths import ROOT

# What needs no model, in an order in which one command reads what another has written; `{docs}`
# holds the examples.
COMMANDS = (
    ("--help", 0, "compare"),
    ("ls policies", 0, "hard"),
    ("ls tasks", 0, "gsm8k"),
    ("mark --task file --option marker=number --input texts.jsonl --out marked.parquet", 0, "160"),
    ("import texts.jsonl --task file --option marker=number --out probe.parquet", 0, "160 read"),
    (
        "select --probe probe.parquet --policy hard --budget 0.2 --out subset.parquet",
        0,
        "8 prompts",
    ),
    (
        "export --subset subset.parquet --texts probe.parquet --task file --option marker=number"
        " --layout trl --out train.jsonl",
        0,
        "8 written",
    ),
    ("compare a=a*.jsonl b=b*.jsonl", 0, "points"),
    ("compare a=a*.jsonl b=b*.jsonl --json", 0, "{"),
    ("diagnose rollouts --json", 4, "{"),
    ("replay {docs}/one-shot-rlvr-rates.parquet --policy hard --json", 0, '"hard"'),
    # What needs more says which extra has it.
    ("compare a=a*.jsonl b=b*.jsonl --out page.html", 2, "decile[pages]"),
    ("init --train {docs}/word-problems.jsonl --yes --out mine.yaml", 2, "decile[sweep]"),
    ("plan {root}/experiments.yaml -e quickstart", 2, "decile[sweep]"),
    ("fetch {root}/experiments.yaml -e quickstart", 2, "decile[sweep]"),
    ("probe {root}/experiments.yaml -e quickstart", 2, "decile[sweep]"),
    ("run {root}/experiments.yaml -e quickstart", 2, "decile[sweep]"),
    ("report {root}/experiments.yaml -e quickstart", 2, "decile[sweep]"),
    (
        "evaluate {root}/experiments.yaml -e quickstart --adapter a --out b.parquet",
        2,
        "decile[sweep]",
    ),
    ("doctor", 1, "decile[sweep]"),
)
API = """
import sys
import decile
print(decile.compare({"a": ["a1.jsonl", "a2.jsonl"], "b": ["b1.jsonl", "b2.jsonl"]}))
try:
    decile.probe("questions.jsonl", model="tiny")
except decile.UserError as error:
    print(error)
try:
    decile.PromptSelector
except ModuleNotFoundError as error:
    print(error)
print(sorted({"torch", "ray", "transformers", "trl", "mlflow", "matplotlib"} & {*sys.modules}))
"""


@pytest.fixture(params=[".venv-light", ".venv-oldest"])
def programs(request: pytest.FixtureRequest) -> Path:
    folder: Path = ROOT / request.param / "bin"
    if not (folder / "decile").exists():
        pytest.skip("Decile is not installed without its extras: make wheel")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Completions of 40 prompts, graded answers of two arms, and a log of equal rewards."""
    texts = [
        {
            "prompt": f"What is {n} times 3?",
            "answer": str(3 * n),
            "completion": f"The answer is {3 * n if sample < n % 5 else n + 1}.",
        }
        for n in range(40)
        for sample in range(4)
    ]
    write(tmp_path / "texts.jsonl", texts)
    for arm, correct in (("a", 3), ("b", 5)):
        for seed in (1, 2):
            graded = [{"id": n, "correct": (n * seed) % 7 < correct} for n in range(60)]
            write(tmp_path / f"{arm}{seed}.jsonl", graded)
    questions = [{"question": f"What is {n} times 3?", "answer": str(3 * n)} for n in range(40)]
    write(tmp_path / "questions.jsonl", questions)
    (tmp_path / "rollouts").mkdir()
    for step in range(1, 13):
        rows = [
            {"input": f"What is {n}?", "output": "5", "gts": "6", "score": 0.0, "step": step}
            for n in range(step, step + 4)
            for _ in range(4)
        ]
        write(tmp_path / "rollouts" / f"{step}.jsonl", rows)
    return tmp_path


def write(file: Path, rows: Sequence[object]) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_what_needs_no_model_works_and_the_rest_names_its_extra(
    programs: Path, folder: Path
) -> None:
    failures = []
    for command, code, text in COMMANDS:
        arguments = command.format(root=ROOT, docs=ROOT / "docs" / "examples").split()
        ended = subprocess.run(
            [programs / "decile", *arguments], cwd=folder, capture_output=True, text=True
        )
        printed = ended.stdout + ended.stderr
        if ended.returncode != code or text not in printed:
            failures.append(f"{command}: {ended.returncode} {printed[-400:]}")
    assert not failures, "\n".join(failures)


def test_the_api_compares_and_says_what_a_probe_and_a_trainer_need(
    programs: Path, folder: Path
) -> None:
    ended = subprocess.run(
        [programs / "python", "-c", API], cwd=folder, capture_output=True, text=True
    )
    *_, probe, selector, heavy = ended.stdout.splitlines()
    assert "decile[sweep]" in probe
    assert "decile[trl]" in selector
    assert heavy == "[]"
