"""The commands of docs/quickstart.md, then those of docs/choosing.md, in their order."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from paths import ROOT
from sweeps import decile_here

DATA = Path("docs") / "examples" / "word-problems.jsonl"
MODULE = "quickstart_rewards"  # a name that no other test imports in place of my_rewards
FEW: dict[str, dict[str, Any]] = {  # in place of what init writes
    "probe": {"samples": 2, "max_completion_length": 48},
    "grpo": {"max_steps": 2, "save_steps": 1, "max_completion_length": 48},
    "evaluate": {"every": 0, "samples": 1},
    "grid": {"policy": ["learnable", "random"], "seed": [0]},
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text().replace("my_rewards", MODULE)


def commands(text: str) -> list[list[str]]:
    """The arguments of each `decile` in the blocks of a page."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
    lines = [line for kind, block in blocks if not kind for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("decile ")]


def shorten(file: Path) -> None:
    """Fewer samples, updates, policies and seeds than init has written."""
    content = yaml.safe_load(file.read_text())
    [experiment] = content["experiments"].values()
    for block, values in FEW.items():
        experiment[block] |= values
    file.write_text(yaml.safe_dump(content))


def prepare(folder: Path, of_workers: Path) -> None:
    """The files of the pages; Ray's workers read data and modules in a folder of their own."""
    [code] = re.findall(r"```python\n# \w+\.py\n(.*?)```", page("quickstart.md"), re.S)
    (of_workers / f"{MODULE}.py").write_text(code)
    rows = [json.loads(line) for line in (ROOT / DATA).read_text().splitlines()]
    pool = "".join(f"{json.dumps({'question': row['question']})}\n" for row in rows)
    for each in (folder, of_workers):
        (each / DATA.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / DATA, each / DATA)
        (each / "pool.jsonl").write_text(pool)


def run(arguments: list[str], folder: Path) -> str:
    """What a command prints; what `init` has written is shortened."""
    tables = sorted(folder.glob("probe-word-problems-*.parquet"))
    key = tables[0].stem.rpartition("-")[2] if tables else ""
    process = decile_here(*(each.replace("KEY", key) for each in arguments), folder=folder)
    assert process.returncode == 0, (arguments, process.stdout + process.stderr)
    if arguments[0] == "init":
        shorten(folder / arguments[arguments.index("--out") + 1])
    return process.stdout


def test_the_commands_of_both_pages(local_ray: Path, tmp_path: Path) -> None:
    prepare(tmp_path, local_ray)
    printed = [run(each, tmp_path) for each in commands(page("quickstart.md"))]
    assert any("learnable" in text for text in printed)
    exported = (tmp_path / "learnable.jsonl").read_text().splitlines()
    assert len(exported) == 16 and {"prompt", "answer"} <= json.loads(exported[0]).keys()
    for name in ("probe-word-problems.html", "report-word-problems.html"):
        assert "<html" in (tmp_path / name).read_text()
    edited = yaml.safe_load((tmp_path / "checked.yaml").read_text())
    assert edited["datasets"]["word-problems"]["corrections"] == "problems.jsonl"
    for each in commands(page("choosing.md")):
        run(each, tmp_path)
    with (tmp_path / "chosen.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows and {row["answer"] for row in rows} == {""}
    steep = pq.read_table(tmp_path / "steep.parquet")
    assert steep.num_rows == 16 and set(steep["tier"].to_pylist()) == {"4", "5"}
