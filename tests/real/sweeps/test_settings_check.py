"""What TRL, PEFT and transformers refuse is found before anything is sampled, with its line."""

from pathlib import Path
from typing import Any

import pytest
from settings_check_cases import (
    MODEL,
    source,  # noqa: F401 (fixtures)
)

from orchestrator.cli.main import main
from orchestrator.config import library_settings
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import Resources
from orchestrator.sampling.model import ModelSource
from orchestrator.training.settings_check import (
    TrainingSettings,
    find_problem,
)

LORA = {"target_modules", "target_parameters", "r"}


def problem(model: ModelSource = MODEL, workers: int = 1, **settings: Any) -> str:
    lora = {name: settings.pop(name) for name in [*settings] if name in LORA}
    return find_problem(
        TrainingSettings(
            model,
            library_settings.GRPO_DEFAULTS | settings,
            library_settings.LORA_DEFAULTS | lora,
            Resources(workers=workers),
        )
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps_per_generation": 2, "generation_batch_size": 16}, "grpo: 'generation_batch_size'"),
        ({"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"x": 1}}, "grpo: lr_scheduler"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "min_lr_rate should be set"),
        ({"target_modules": ["q_proj", "nope_proj"]}, "lora: target_modules has nope_proj, "),
        ({"target_modules": ".*nope_proj"}, "lora: Target modules .*nope_proj not found"),
        ({"target_parameters": ["experts.up"]}, "lora: target_parameters has experts.up, "),
    ],
)
def test_what_the_libraries_refuse_is_found(settings: dict[str, Any], words: str) -> None:
    assert words in problem(**settings)


def test_settings_that_can_be_trained_with_are_accepted(tmp_path: Path) -> None:
    assert problem() == ""
    assert problem(per_device_train_batch_size=4, workers=2) == "", "TRL compares the whole batch"
    assert problem(lr_scheduler_type="cosine", warmup_steps=0.1, r=4) == ""
    absent = ModelSource("absent", "nobody/nothing", "absent", revision="0" * 40)
    assert problem(absent, target_modules=["x"]) == "", "the config is not on this machine"


def test_a_run_ends_before_it_samples_anything(
    local_ray: Path, tmp_path: Path, source: LoadedConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", str(source.file), "-e", "q", "--storage", str(tmp_path / "runs")]
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    [line] = lines
    assert "yaml:2: models.tiny.target_modules: target_modules has nope_proj, but the" in line
    assert not (tmp_path / "runs" / "probes").exists()
