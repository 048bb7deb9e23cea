"""docs/measuring.md: its commands on files run; those of a model are in test_evaluate.py."""

import json
import re
import shlex
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import run_logs_cases
from paths import LOGS, ROOT

from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.main import main

TEXT = (ROOT / "docs" / "measuring.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(decile .*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [line.partition(" #")[0].strip() for block in BLOCKS for line in block.splitlines()]
PROMPTS, VISITS, SIZE = 20, 4, 4


def visited() -> list[dict[str, object]]:
    """Completions of a run that visits every prompt in every update."""
    rng = np.random.default_rng(0)
    return [
        {"update": u, "prompt": f"p{p}", "place": p, "sample": s, "mark": int(mark)}
        for u in range(1, VISITS + 1)
        for p in range(PROMPTS)
        for s, mark in enumerate(rng.random(SIZE) < (p + 1) / (PROMPTS + 1))
    ]


def write_results(name: str, shift: int) -> None:
    """Scores of one run, as a table."""
    rows = [{"prompt_id": f"q{n}", "correct": (n + shift) % 3 > 0} for n in range(30)]
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), name)
    else:
        Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_logs() -> None:
    """Logs of Inspect and lm-eval; those of the second arm are other files."""
    Path("logs").mkdir()
    shutil.copy(LOGS / "inspect.eval", "logs/hard.eval")
    shutil.copy(LOGS / "inspect.eval", "logs/random.eval")
    with zipfile.ZipFile("logs/random.eval", "a") as log:
        log.comment = b"of another run"
    text = (LOGS / "lm_eval_sums.jsonl").read_text()
    for arm, lines in (("hard", text), ("random", f"{text}\n")):
        folder = Path("out", arm)
        folder.mkdir(parents=True)
        (folder / "samples_sums_2026-01-01T00-00-00.jsonl").write_text(lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page's commands read, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, shift in (("base.parquet", 0), ("after.parquet", 1)):
        write_results(name, shift)
    for name, shift in (("hard.jsonl", 0), ("random.jsonl", 1)):
        write_results(name, shift)
    for n in (1, 2):
        lines = [f"{item},{value}\n" for item, value in (("1", 1), ("b/2", 0), ("3", n % 2))]
        Path(f"random-{n}.csv").write_text("id,correct\n" + "".join(lines))
    write_logs()
    rows = visited()
    monkeypatch.setattr(run_logs_cases, "rows", lambda: rows)
    monkeypatch.setattr(run_logs_cases, "UPDATES", VISITS)
    run_logs_cases.write_trl(tmp_path / "outputs" / "grpo")
    run_logs_cases.write_verl(tmp_path / "rollouts")
    lines = [f"{r['update']},{r['prompt']},{r['mark']},{r['mark']}\n" for r in rows]
    Path("log.csv").write_text("update,prompt,reward,accuracy\n" + "".join(lines))
    write_rates(rows)
    examples = tmp_path / "docs" / "examples"
    examples.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "examples" / "one-shot-rlvr-rates.parquet", examples)
    write_completions()
    return tmp_path


def write_rates(rows: list[dict[str, object]]) -> None:
    """Rates by prompt and visit, and of two models; a difficulty table."""
    marks: dict[tuple[object, object], list[int]] = {}
    for row in rows:
        marks.setdefault((row["prompt"], row["update"]), []).append(int(str(row["mark"])))
    lines = [f"{p},{u},{sum(own)}/{SIZE}\n" for (p, u), own in marks.items()]
    Path("rates.csv").write_text("prompt_id,visit,pass_rate\n" + "".join(lines))
    ids = [f"p{n}" for n in range(PROMPTS)]
    for name, visit in (("small.parquet", 1), ("large.parquet", 2), ("probe.parquet", 1)):
        successes = [sum(marks[i, visit]) for i in ids]
        columns = {"prompt_id": ids, "n": [SIZE] * PROMPTS, "successes": successes}
        columns["pass_rate"] = [count / SIZE for count in successes]
        pq.write_table(pa.table(columns), name)


def write_completions() -> None:
    """Completions to mark, and a reward function of a user."""
    rows = [
        {"question": f"What is {n} + {n}?", "answer": f"{2 * n}", "completion": rf"\boxed{{{n}}}"}
        for n in range(8)
    ]
    for name in ("completions.jsonl", "mine.jsonl"):
        Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("my_rewards.py").write_text(
        "def accuracy(completions, answer, **columns):\n"
        "    return [float(a in c[0]['content']) for c, a in zip(completions, answer)]\n"
    )


def test_every_command_on_files_runs(folder: Path) -> None:
    of_files = [line for line in COMMANDS if not line.startswith("decile evaluate")]
    of_files.remove("decile diagnose runs")  # a storage: test_row_counts
    assert len(of_files) >= 15
    for line in of_files:
        code = main([*shlex.split(line)[1:]])
        allowed = (ExitCode.DONE, ExitCode.PROBLEM) if " diagnose " in line else (ExitCode.DONE,)
        assert code in allowed, line


def test_the_lines_of_python_run(folder: Path) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    exec(code, {})
    assert Path("replay.html").exists()
