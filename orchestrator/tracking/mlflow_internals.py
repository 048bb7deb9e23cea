"""The only module that relies on undocumented parts of MLflow: tags and addresses of its UI.

A saved view of the runs page is a tag of the experiment, mlflow.sharedViewState.KEY. The page lists
them under "Views", and opens one by ?viewStateShareKey=KEY. `tests/test_library_internals.py` looks
for every name in the installed UI, and `pyproject.toml` pins MLflow to the minor version that was
tested. Imports no mlflow.
"""

import json
from collections.abc import Mapping
from typing import Any

CURVES = "^(eval/accuracy|train/learnable_pct|final/(accuracy|gain))$"
RUN_COLOUR = "mlflow.runColor"
DATABASE_LOGGER = "mlflow.store.db.utils"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # otherwise the page asks for it

_STATE: dict[str, Any] = {
    "searchFilter": "params.policy != ''",  # cells alone, without the parent run
    "orderByKey": "params.`policy`",  # any order but by time lists cells without their parent
    "orderByAsc": True,
    "selectedColumns": [
        *(f"params.`{name}`" for name in ("model", "dataset", "policy", "seed")),
        *(f"metrics.`final/{name}`" for name in ("accuracy", "gain", "learnable_pct")),
    ],
    "runsHiddenMode": "SHOW_ALL",  # MLflow shows the curves of ten runs otherwise
    "chartsSearchFilter": CURVES,
}
_GROUPS = {
    "aggregateFunction": "average",
    "groupByKeys": [
        {"mode": "param", "groupByData": name} for name in ("policy", "dataset", "model")
    ],
}
VIEWS = {
    "by-policy": ("By policy", _STATE),
    "over-seeds": ("Mean over seeds", {**_STATE, "groupBy": _GROUPS}),
}


def compare_page(experiment_id: str) -> str:
    """The page with the cells' curves by policy: what follows the address of the server."""
    return (
        f"#/experiments/{experiment_id}/runs"
        "?workflowType=machine_learning&viewStateShareKey=by-policy&compareRunsMode=CHART"
    )


def experiment_tags(known: Mapping[str, str], now: int) -> dict[str, str]:
    """The tags missing from an experiment; views that a user has changed are kept.

    `now`: milliseconds since the epoch.
    """
    views = {
        f"mlflow.sharedViewState.{key}": json.dumps(
            {"name": name, "createdAt": now, "updatedAt": now, "state": json.dumps(state)}
        )
        for key, (name, state) in VIEWS.items()
    }
    return {key: value for key, value in (KIND | views).items() if key not in known}
