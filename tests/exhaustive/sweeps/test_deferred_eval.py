"""Checkpoints evaluated after training by one engine for all cells give the same results."""

import re
from pathlib import Path
from shutil import copytree
from subprocess import Popen

import psutil
from http_server import Adapters, Answer, fake_server
from processes import LIMIT
from remedies import refused
from sweeps import (
    experiments,
    plan_of,
    probed,
    run,
    same_results,
    start,
    store_of,
    wait_for,
    workers,
)

from benchmarks.local_cluster import ROOT, kill_all


def test_sweeps_share_a_server_and_a_kill_leaves_no_adapter_there(tmp_path: Path) -> None:
    """A copy of a sweep runs beside it on equal adapters; then processes of the first are killed.

    First all of them, and in the next run only the one that evaluates.
    """
    log, copy = tmp_path / "driver.log", tmp_path / "copy"
    with fake_server() as server:
        server.models = Answer({"data": [{"id": "served", "max_model_len": 4096}]})
        server.behaviour = adapters = Adapters(server)
        adapters.loaded["by-hand"] = str(tmp_path)

        def drawn_from(driver: Popen[bytes], known: set[str]) -> set[str]:
            """Names of adapters that are not known and that it draws from, once there are any."""
            wait_for(lambda: {*adapters.sampled} & adapters.loaded.keys() - known, driver, log)
            return {*adapters.loaded} - known

        engine_args = {"base_url": server.base_url, "model": "served"}
        served = {"engine": "server", "engine_args": engine_args, "every": 6, "samples": 1}
        grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["random"]}
        file = experiments(tmp_path, grid=grid, evaluate=served)
        adapters.never_ends = lambda name: name != "served"
        driver = start(file, log)
        try:
            first = drawn_from(driver, {"by-hand"})
            copytree(tmp_path / "runs", copy / "runs")
            adapters.never_ends = first.__contains__
            run(experiments(copy, grid=grid, evaluate=served))
            assert {*adapters.loaded} == {"by-hand", *first}, "those of the other sweep remain"
            contents = [name.split("-")[4] for name in {*adapters.sampled} - {"served"}]
            assert len(contents) == 3 == len({*contents}) + 1, "one in both"
        finally:
            kill_tree(driver.pid)
            driver.wait()
        assert {*adapters.loaded} == {"by-hand", *first}

        adapters.never_ends = lambda name: name != "served"
        driver = start(file, log)
        try:
            drawn_from(driver, {"by-hand", *first})
            assert not first & adapters.loaded.keys(), "unloaded before anything is evaluated"
            adapters.never_ends = lambda name: False
            [actor] = workers(driver.pid, "CheckpointActor")
            actor.kill()
            assert driver.wait(timeout=LIMIT) == 0, log.read_text()
        finally:
            kill_tree(driver.pid)
        assert {*adapters.loaded} == {"by-hand"}
    assert not store_of(file).sizes("sweeps/served")


def kill_tree(pid: int) -> None:
    """Kill a process and those below it, if it still runs."""
    if psutil.pid_exists(pid):
        process = psutil.Process(pid)
        kill_all([*process.children(recursive=True), process])


def test_an_engine_without_adapters_cannot_evaluate(tmp_path: Path) -> None:
    engine = "orchestrator.sampling.recorded:RecordedSampler"
    with refused(engine, code="engine-cannot-adapt"):
        plan_of(experiments(tmp_path, evaluate={"engine": engine}))


EVALUATE = {"every": 6, "samples": 2, "greedy": True, "ood": ["far"]}


ENGINE = '''
from pathlib import Path
from orchestrator.sampling.transformers import TransformersSampler


class Counted(TransformersSampler):
    """Writes down how often the base model is loaded and which adapters are swapped in."""

    @classmethod
    def load(cls, source, device=None, lora_rank=0):
        say(f"load {lora_rank}")
        return super().load(source, device, lora_rank)

    def adapt(self, folder):
        say(f"adapt {folder.parts[-3]} {folder.name}")
        super().adapt(folder)


def say(line):
    with open(Path(__file__).parent / "calls", "a") as file:
        print(line, file=file)
'''


def test_one_engine_evaluates_all_checkpoints_of_all_cells_also_after_a_kill(
    finished: Path, local_ray: Path, tmp_path: Path
) -> None:
    """All processes are killed once a checkpoint is evaluated: that one and training are kept."""
    (local_ray / "counted.py").write_text(ENGINE)
    file = probed(finished, tmp_path, evaluate=EVALUATE | {"engine": "counted:Counted"})
    log = tmp_path / "driver.log"
    cells = [cell.cell_id for cell in plan_of(file).cells]
    folder, calls = Path(store_of(file).path("cells")), local_ray / "calls"
    driver = start(file, log, PYTHONPATH=f"{ROOT}:{local_ray}")
    try:
        wait_for(lambda: list(folder.glob("*/evaluated/*.parquet")), driver, log)
    finally:
        kill_all([*psutil.Process(driver.pid).children(recursive=True), psutil.Process(driver.pid)])
        driver.wait()
    assert log.read_text().count("its checkpoints are evaluated after all cells") == 2
    assert calls.read_text().count("load 4") <= 2, "an actor loads the base model once"

    text = run(file, here=True)
    assert "cells finished, " not in text, "nothing is trained again"
    assert re.search(r"evaluations: ([123])/\1 checkpoints", text), "nor all evaluated again"
    lines = calls.read_text().splitlines()
    assert lines.count("load 4") <= 4
    swapped = [line for line in lines if line.startswith("adapt")]
    assert {*swapped} == {f"adapt {c} {u}" for c in cells for u in (6, 12)}
    assert same_results(file, finished)
    for cell in cells:
        assert store_of(file).folders("cells", cell) == ["adapter"], "nothing else is left"
    assert "nothing to do" in run(file, here=True)
