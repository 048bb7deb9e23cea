"""The only module that relies on undocumented parts of MLflow: its UI, database and sessions.

A saved view of the runs page is a tag of the experiment, mlflow.sharedViewState.KEY. The page lists
them under "Views", and opens one by ?viewStateShareKey=KEY. `test_library_internals.py` looks for
every name in the installed UI, and `pyproject.toml` pins MLflow to the minor version that was
tested. Imports mlflow only where it changes it.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

from orchestrator.config.experiment import GRID_AXES
from orchestrator.plugins.deadlines import EndlessReply

CURVES = "^(eval/accuracy|train/learnable_pct|final/(accuracy|gain))$"
RUN_COLOUR = "mlflow.runColor"
DATABASE_LOGGER = "mlflow.store.db.utils"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # otherwise the page asks for it

_STATE: dict[str, Any] = {
    "searchFilter": "params.policy != ''",  # cells alone, without the parent run
    "orderByKey": "params.`policy`",  # any order except by time lists cells without their parent
    "orderByAsc": True,
    "selectedColumns": [
        *(f"params.`{name}`" for name in GRID_AXES),
        *(f"metrics.`final/{name}`" for name in ("accuracy", "gain", "learnable_pct")),
    ],
    "runsHiddenMode": "SHOW_ALL",  # MLflow shows the curves of ten runs otherwise
    "chartsSearchFilter": CURVES,
}


def views(swept: Sequence[str] = ()) -> dict[str, tuple[str, dict[str, Any]]]:
    """Key -> name and state of each view; `swept`: the settings that are axes."""
    axes = ("policy", "dataset", "model", *swept)
    groups = {
        "aggregateFunction": "average",
        "groupByKeys": [{"mode": "param", "groupByData": name} for name in axes],
    }
    columns = [*_STATE["selectedColumns"], *(f"params.`{name}`" for name in swept)]
    state = {**_STATE, "selectedColumns": columns}
    return {
        "by-policy": ("By policy", state),
        "over-seeds": ("Mean over seeds", {**state, "groupBy": groups}),
    }


def compare_page(experiment_id: str) -> str:
    """The page with the cells' curves by policy: what follows the address of the server."""
    return (
        f"#/experiments/{experiment_id}/runs"
        "?workflowType=machine_learning&viewStateShareKey=by-policy&compareRunsMode=CHART"
    )


def compare_pages(database: Path) -> dict[str, str]:
    """The page of each sweep in a database, by the sweep's name."""
    query = (
        "SELECT name, experiment_id FROM experiments "
        "WHERE name LIKE 'decile/%' AND lifecycle_stage = 'active' ORDER BY experiment_id"
    )
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(query).fetchall()
    return {name.partition("/")[2]: compare_page(str(number)) for name, number in rows}


def experiment_tags(
    known: Mapping[str, str], now: int, swept: Sequence[str] = ()
) -> dict[str, str]:
    """The tags missing from an experiment; views that a user has changed are kept.

    `now`: milliseconds since the epoch.
    """
    tags = {
        f"mlflow.sharedViewState.{key}": json.dumps(
            {"name": name, "createdAt": now, "updatedAt": now, "state": json.dumps(state)}
        )
        for key, (name, state) in views(swept).items()
    }
    return {key: value for key, value in (KIND | tags).items() if key not in known}


def relocate_artifacts(database: Path, artifacts: Path) -> None:
    """Point a database's runs of Decile to the folder `artifacts`.

    MLflow stores absolute addresses, so the database of a copied or moved storage names the folder
    of the original. Addresses end with `/mlartifacts/…`, which stays. Writes only if one changes.
    """
    ours = "experiment_id IN (SELECT experiment_id FROM experiments WHERE name LIKE 'decile/%')"
    with closing(sqlite3.connect(database)) as connection, connection:
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            rows = connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {ours}")  # noqa: S608
            for (old,) in rows.fetchall():
                _, separator, rest = old.rpartition("/mlartifacts/")
                new = f"{artifacts.as_uri()}/{rest}"
                if separator and old.startswith("file:") and new != old:
                    update = f"UPDATE {table} SET {column} = ? WHERE {column} = ? AND {ours}"  # noqa: S608
                    connection.execute(update, (new, old))


def limit_replies(most: int) -> None:
    """Let MLflow's HTTP sessions raise EndlessReply for a reply of more than `most` bytes."""
    import requests
    from mlflow.utils import request_utils

    session_of = request_utils._cached_get_request_session
    if hasattr(session_of, "limits_replies"):
        return

    def limit(response: requests.Response, **options: Any) -> None:
        if not options.get("stream"):
            content = response.raw.read(most + 1, decode_content=True)
            if len(content) > most:
                response.close()
                raise EndlessReply("the reply has no end")
            response.raw = BytesIO(content)

    def limited_session(*args: Any, **options: Any) -> requests.Session:
        session: requests.Session = session_of(*args, **options)
        if limit not in session.hooks["response"]:
            session.hooks["response"].append(limit)
        return session

    limited_session.limits_replies = True  # type: ignore[attr-defined]
    request_utils._cached_get_request_session = limited_session  # type: ignore[assignment]
