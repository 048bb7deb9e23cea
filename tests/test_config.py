"""experiments.yaml: what loads, and what each mistake is told."""

from pathlib import Path

import pytest
import yaml

from orchestrator.config import load_config
from orchestrator.lines import UserError

ROOT = Path(__file__).parents[1]

GOOD = """\
storage: ./runs
models:
  tiny: {embedded: tiny}
experiments:
  q:
    grid:
      model: [tiny]
      dataset: [shuffled_objects]
      policy: [hard, random]
    budget: 0.1
    grpo: {num_generations: 8, per_device_train_batch_size: 16, learning_rate: 1e-4}
    lora: {r: 8}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "experiments.yaml"
    file.write_text(text)
    return file


def refusal(folder: Path, old: str, new: str) -> str:
    assert old in GOOD
    with pytest.raises(UserError) as caught:
        load_config(written(folder, GOOD.replace(old, new)))
    return str(caught.value)


def test_a_good_file_loads_with_what_it_says(tmp_path: Path) -> None:
    experiment = load_config(written(tmp_path, GOOD)).experiment("q")
    assert experiment.grid.seed == [0]
    assert experiment.full_grpo()["learning_rate"] == pytest.approx(1e-4)
    assert experiment.full_grpo()["loss_type"] == "dr_grpo"
    assert experiment.subset_size(805) == 80


def test_the_catalogue_of_the_project_loads() -> None:
    assert "quickstart" in load_config(ROOT / "experiments.yaml").config.experiments


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("budget: 0.1", "budgte: 0.1", 10, "did you mean 'budget'"),
        ("budget: 0.1", "budget: 0", 10, "write a share (0.10) or a count (80)"),
        ("budget: 0.1", "budget: -3", 10, "write a share"),
        ("budget: 0.1", "budget: 1.5", 10, "over the whole pool"),
        ("budget: 0.1", "budget: tenth", 10, "write a share"),
        ("model: [tiny]", "model: [tinny]", 7, "unknown model 'tinny'; did you mean 'tiny'"),
        ("[shuffled_objects]", "[shuffled]", 8, "unknown task 'shuffled'"),
        ("[hard, random]", "[hard, hrad]", 9, "unknown policy 'hrad'"),
        ("[hard, random]", "[hard, hard]", 9, "listed twice"),
        ("learning_rate: 1e-4", "learning_rat: 1", 11, "did you mean 'learning_rate'"),
        ("learning_rate: 1e-4", "learning_rate: fast", 11, "write a number"),
        ("learning_rate: 1e-4", "seed: 3", 11, "set grid.seed"),
        ("learning_rate: 1e-4", "hub_token: x", 11, "HF_TOKEN"),
        ("r: 8", "rank: 8", 12, "PEFT's LoraConfig"),
        ("size: 16", "size: 12", 11, "num_generations 8 does not divide the 12"),
        ("num_generations: 8", "num_generations: 1", 11, "write at least 2"),
        ("{embedded: tiny}", "{hub: a/b}", 3, "needs revision"),
        ("{embedded: tiny}", "{embedded: tiny, path: x}", 3, "exactly one of"),
        ("{embedded: tiny}", "{embedded: huge}", 3, "tiny"),
        ("lora: {r: 8}", "resources: {gpus: 2}", 12, "workers: 2"),
        ("lora: {r: 8}", "lora: {r: 8", 13, "not valid YAML"),
        ("lora: {r: 8}", "budget: 0.2", 12, "written twice (first in line 10)"),
        ("lora: {r: 8}", "probe: {samples: 0}", 12, "samples"),
    ],
)
def test_each_mistake_is_named_with_its_line_and_a_way_out(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    message = refusal(tmp_path, old, new)
    assert f"experiments.yaml:{line}: " in message
    assert words in message


def test_a_missing_file_and_a_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="not a mapping"):
        load_config(written(tmp_path, yaml.safe_dump([1])))


def test_an_unknown_experiment_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one of q"):
        load_config(written(tmp_path, GOOD)).experiment("p")
