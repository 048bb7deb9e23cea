"""What TRL, PEFT and transformers refuse is found before anything is sampled, with its line."""

from dataclasses import replace
from pathlib import Path

import pytest
from remedies import problems
from settings_check_cases import (
    MODEL,
    source,  # noqa: F401 (fixtures)
)

from orchestrator.cli.doctor import setting_checks
from orchestrator.config.catalog import LoadedConfig
from orchestrator.config.experiment import Resources
from orchestrator.storage.errors import UserError
from orchestrator.training import settings_check
from orchestrator.training.settings_check import (
    TrainingSettings,
    check_once,
    setting_error,
    settings_of,
)


@pytest.mark.parametrize(
    ("section", "message", "place"),
    [
        ("grpo", "optim: needs bitsandbytes", "8: experiments.q.grpo.optim: optim: needs"),
        ("grpo", "max_steps and optim differ", "7: experiments.q.grpo.max_steps: "),
        ("grpo", "something else", "6: experiments.q.grpo: something else"),
        ("lora", "r must be even", "9: experiments.q.lora.r: "),
        ("lora", "Target modules {'nope_proj'} not found", "2: models.tiny.target_modules: "),
    ],
)
def test_a_problem_is_named_at_the_line_of_its_setting(
    source: LoadedConfig, section: str, message: str, place: str
) -> None:
    error = str(setting_error(source, "q", "tiny", section, message))
    assert f"experiments.yaml:{place}" in error
    assert problems(error) == []


def test_doctor_constructs_the_settings_of_every_experiment(
    source: LoadedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ""
    monkeypatch.setattr(settings_check, "run_in_worker", lambda *_, **__: found)
    [(name, check)] = setting_checks(source).items()
    assert name == "q" and "tiny" in check()
    found = "grpo: optim: no bitsandbytes"
    with pytest.raises(UserError, match=r"yaml:8: experiments\.q\.grpo\.optim: "):
        check()


def test_models_that_differ_in_their_layers_only_are_both_checked(source: LoadedConfig) -> None:
    models = [replace(MODEL, target_modules=modules) for modules in (("q_proj",), ("nope_proj",))]
    checked = settings_of(source.experiment("q"), [*models, models[0]])
    layers = [one.lora["target_modules"] for one in checked]
    assert layers == [["q_proj"], ["nope_proj"]]


def test_a_run_checks_each_setting_once(
    tmp_path: Path, source: LoadedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[list[TrainingSettings]] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def answer(_: object, settings: list[TrainingSettings], **__: object) -> str:
        checked.append(settings)
        return "lora: no" if settings[0].lora["r"] == 8 else ""

    monkeypatch.setattr(settings_check, "run_in_worker", answer)
    hub = replace(MODEL, revision="0" * 40)
    local, other, refused, remote = (
        TrainingSettings(model, {}, {"r": r}, Resources())
        for model, r in ((MODEL, 1), (MODEL, 2), (MODEL, 8), (hub, 1))
    )
    check_once(source, "q", [local])
    check_once(source, "q", [local, other])
    for _ in range(2):
        check_once(source, "q", [remote])
    assert checked == [[local], [other], [remote], [remote]]
    for number in (5, 6):
        with pytest.raises(UserError):
            check_once(source, "q", [refused])
        assert len(checked) == number, "what was refused is checked again"
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    check_once(source, "q", [local])
    assert len(checked) == 7, "other libraries"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    check_once(source, "q", [other])
    assert len(checked) == 8, "the libraries of a cluster are unknown"
