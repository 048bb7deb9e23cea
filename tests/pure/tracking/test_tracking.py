"""The store in a real MLflow: SQLite files, a server on loopback, and unavailable ones."""

from pathlib import Path

import pytest
from sweeps import NAME, experiments

from orchestrator.config.catalog import load_config
from orchestrator.storage.errors import UserError
from orchestrator.tracking import (
    default_tracking_uri,
)
from orchestrator.tracking.views import as_csv, clean, flatten, sweep_params, sweep_tags


def test_settings_of_later_versions_keep_the_parent_run_of_an_older_storage(tmp_path: Path) -> None:
    experiment = load_config(experiments(tmp_path)).experiment(NAME)
    assert sweep_tags(NAME, experiment)["decile.settings"] == "50e56acb5dc87ed2"
    for axis in (
        {"rollouts": ["decile", "trl"]},
        {"label_noise": [0, 0.1]},
        {"false_positive_rate": [0, 0.1]},
    ):
        grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"], **axis}
        swept = load_config(experiments(tmp_path, grid=grid)).experiment(NAME)
        assert not axis.keys() & sweep_params(swept).keys()
    noisy = load_config(experiments(tmp_path, label_noise=0.1)).experiment(NAME)
    assert sweep_params(noisy)["label_noise"] == "0.1"


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("eval/pass_at_8", "eval/pass_at_8"),
        ("eval/pass@8", "eval/pass_at_8"),
        ("tier/Level 5/accuracy", "tier/Level 5/accuracy"),
        ("tier/../x//y/", "tier/x/y"),
        ("a:b(c)", "a_b_c_"),
        ("@" * 300, "_at_" * 62 + "_a"),
        ("..", "_"),
    ],
)
def test_cleaned_names_are_valid_in_mlflow(name: str, cleaned: str) -> None:
    from mlflow.utils.validation import _validate_metric, _validate_param_name

    assert clean(name) == cleaned
    _validate_metric(cleaned, 1.0, 0, 0)
    _validate_param_name(cleaned)


def test_settings_and_rows_are_written_flat() -> None:
    settings = {"a": {"b": [1, 2], "hub_token": "hf_x", "num_tokens": 3}, "c": "x" * 9000}
    flat = {"a.b": "[1, 2]", "a.hub_token": "***", "a.num_tokens": "3", "c": "x" * 6000}
    assert flatten(settings) == flat
    assert as_csv([{"a": 1}, {"b": "x,y"}]) == 'a,b\r\n1,\r\n,"x,y"\r\n'


def test_a_storage_in_the_cloud_needs_a_tracking_uri() -> None:
    class Remote:
        local, uri = False, "s3://bucket"

    with pytest.raises(UserError, match="--tracking-uri"):
        default_tracking_uri(Remote())  # type: ignore[arg-type]
