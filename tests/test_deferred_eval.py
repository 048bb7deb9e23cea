"""Checkpoints evaluated after training by one engine for all cells give the same results."""

from pathlib import Path

import pytest
from sweeps import NAME, experiments, plan_of, probed, run, same_results, start, store_of, wait_for

from orchestrator.config.catalog import load_config
from orchestrator.planning.plan import make_plan
from orchestrator.storage.errors import UserError

pytestmark = pytest.mark.cluster

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


def test_one_engine_evaluates_all_checkpoints_of_all_cells(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counted.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(str(tmp_path))  # this process reads the plan, too
    file = probed(finished, tmp_path, evaluate=EVALUATE | {"engine": "counted:Counted"})
    text = run(file)
    assert text.count("its checkpoints are evaluated after all cells") == 2
    assert "evaluations: 4/4 checkpoints" in text
    calls = (tmp_path / "calls").read_text().splitlines()
    cells = [cell.cell_id for cell in plan_of(file).cells]
    swapped = [line for line in calls if line.startswith("adapt")]
    assert sorted(swapped) == sorted(f"adapt {c} {u}" for c in cells for u in (6, 12))
    assert calls.count("load 4") <= 2, "an actor loads the base model once"
    assert same_results(file, finished)
    for cell in cells:
        assert store_of(file).folders("cells", cell) == ["adapter"], "nothing else is left"
    assert "nothing to do" in run(file)


def test_a_kill_between_training_and_evaluation_does_not_repeat_training(
    finished: Path, tmp_path: Path
) -> None:
    file = probed(finished, tmp_path, evaluate=EVALUATE | {"engine": "transformers"})
    log = tmp_path / "driver.log"
    driver = start(file, log)
    cells = Path(store_of(file).path("cells"))
    try:
        wait_for(lambda: list(cells.glob("*/evaluated/*.parquet")), driver, log)
    finally:
        driver.kill()
        driver.wait()
    text = run(file)
    assert "cells finished, " not in text, "nothing is trained again"
    assert "evaluations: 4/4" not in text, "nor all evaluated again"
    assert same_results(file, finished)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluate": {"engine": "transformer"}}, "unknown engine 'transformer'"),
        (
            {"evaluate": {"engine": "orchestrator.sampling.recorded:RecordedSampler"}},
            "cannot swap adapters: leave engine out",
        ),
        (
            {"evaluate": {"every": 6, "engine": "vllm"}, "stop_hopeless": True},
            "evaluate.engine runs after it",
        ),
    ],
)
def test_settings_that_deferred_evaluation_does_not_support_are_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        make_plan(load_config(experiments(tmp_path, **changes)), NAME)
