"""A command that is killed after any of its writes leaves whole files, and works when run again."""

import json
import os
import shutil
from pathlib import Path

import pytest
from effort import some
from factories import sample_row, store_samples
from sweeps import NAME, experiments, plan_of
from write_steps import Ended, Host, Kill

from orchestrator.cli.main import main
from orchestrator.pipeline.evaluate import plan_evaluation
from orchestrator.pipeline.own_data import planned_probe
from orchestrator.storage.store import Store

ROWS = [{"question": f"What is {i % 30}?", "answer": str(i)} for i in range(40)]


# --- In the processes that are killed ---


def init(folder: str) -> None:
    os.chdir(folder)
    command = ["init", "--train", "mine.jsonl", "--model", "tiny", "--yes", "--force"]
    assert main([*command, "--out", "mine.yaml", "--problems", "problems.jsonl"]) == 0


def evaluate(folder: str) -> None:
    """Of samples that are stored."""
    os.chdir(folder)
    assert (
        main(["evaluate", "experiments.yaml", "-e", NAME, "--out", "out.parquet", "--force"]) == 0
    )


def rows(folder: str) -> None:
    """Those of a program's `decile.probe(data=rows)`, which are stored before anything runs."""
    planned_probe(ROWS, "tiny", store=Store(f"{folder}/runs"))


# --- In the process that kills them ---


def prepare(folder: Path) -> None:
    """What the commands read: rows, an experiment, and the samples of its evaluation."""
    folder.mkdir()
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    spec = plan_evaluation(plan := plan_of(experiments(folder, storage="./runs"))).spec
    samples = range(spec.settings.samples)
    drawn = [sample_row(p.prompt_id, i) for p in plan.pool(spec).test for i in samples]
    store_samples(Store(str(folder / "runs")), spec, drawn)


def written(folder: Path, patterns: tuple[str, ...]) -> dict[Path, bytes]:
    """The content of the files that a command writes."""
    return {file: file.read_bytes() for pattern in patterns for file in folder.glob(pattern)}


@pytest.mark.parametrize(
    ("command", "patterns"),
    some(
        [
            ("rows", ("runs/data/rows-*.parquet",)),
            ("init", ("mine.yaml", "problems.jsonl")),
            ("evaluate", ("out.parquet",)),
        ],
        1,
    ),
)
def test_a_killed_command_leaves_whole_files_and_works_when_run_again(
    processes: Host, tmp_path: Path, command: str, patterns: tuple[str, ...]
) -> None:
    """Files of an earlier run are there: they are whole, or the new ones are."""
    base, place = tmp_path / "base", tmp_path / "place"
    prepare(base)
    shutil.copytree(base, place)

    def run(kill: Kill | None = None) -> Ended:
        target = f"{__name__}:{command}"
        return processes.run(target, str(place), root=place, kill=kill)

    def start() -> None:
        shutil.rmtree(place)
        shutil.copytree(base, place)
        for file in new:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"old")

    assert run().codes == [0]
    new = written(place, patterns)
    assert len(new) == len(patterns)
    start()
    problems = []
    for step, write in enumerate(run().steps[0], 1):
        start()
        killed, left = run((0, step)).killed(), written(place, patterns)
        torn = [file for file in new if left[file] not in (new[file], b"old")]
        if not killed or torn:
            problems.append(f"killed after {write}: {torn}")
        again = run()
        if again.codes != [0] or written(place, patterns) != new:
            problems.append(f"run again after {write}: {again.output[-500:]}")
    assert problems == []
