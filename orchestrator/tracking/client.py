"""A client of MLflow that fails fast, and functions to search, log and attach files.

Imports mlflow inside functions. MLflow's exceptions propagate; `tracking.Tracker` catches them.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import uuid4

from orchestrator.plugins.deadlines import MAX_REPLY
from orchestrator.storage.locks import scratch_folder
from orchestrator.tracking.mlflow_internals import DATABASE_LOGGER, limit_replies

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run, RunInfo

METRICS_PER_BATCH = 900  # MLflow takes 1,000 values at once, tags included
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout may be parsed by a program
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


def failures() -> tuple[type[Exception], ...]:
    """Exceptions of a tracker that is unavailable, full or broken, or without its database driver.

    The exceptions of requests are OSErrors.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, sqlite3.Error, OSError, ModuleNotFoundError


def is_damaged(error: BaseException) -> bool:
    """Whether no rerun can use an SQLite file: it is not a database, or of a newer MLflow.

    MLflow migrates the tables of an older version when it connects.
    """
    texts = ("file is not a database", "malformed", "no such table", "no such column")
    half_migrated = ("Can't locate revision", "already exists\n[SQL: \nCREATE TABLE")
    newer = "out-of-date database schema"
    return any(text in str(error) for text in (*texts, *half_migrated, newer))


def is_full(error: BaseException) -> bool:
    """Whether the disk of the database or of the artifacts is full."""
    return any(text in str(error) for text in ("disk is full", "No space left", "Disk quota"))


def connect(uri: str) -> "MlflowClient":
    """A client that fails within seconds and does not log migrations and retries."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for logger in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    logging.getLogger(DATABASE_LOGGER).setLevel(logging.CRITICAL)
    with _creation_lock(uri) as database:
        if uri.startswith(DATABASES):
            # Connect once: MLflow itself retries an unusable database for 100 seconds.
            import sqlalchemy

            engine = sqlalchemy.create_engine(uri)
            try:
                sqlalchemy.inspect(engine).get_table_names()
            finally:
                engine.dispose()
        if database and database.is_file() and not database.stat().st_size:
            _create_database(database)
        if uri.startswith("http"):
            limit_replies(MAX_REPLY)
        return MlflowClient(tracking_uri=uri)


@contextmanager
def _creation_lock(uri: str) -> Iterator[Path | None]:
    """Let one process at a time create or migrate the tables of an SQLite file; yields the file."""
    import sqlalchemy

    url = sqlalchemy.make_url(uri) if uri.startswith("sqlite") else None
    if url is None or not url.database or url.database == ":memory:":
        yield None
        return
    file = Path(url.database).absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    with (file.parent / f".{file.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield file


def _create_database(file: Path) -> None:
    """Put the tables into a new file that then replaces this empty one.

    MLflow's migrations are not a transaction: a kill or a full disk would leave some of the tables,
    and every later migration fails on those that exist.
    """
    from mlflow import MlflowClient

    for leftover in file.parent.glob(f".{file.name}.*.new*"):
        leftover.unlink()
    new = file.with_name(f".{file.name}.{uuid4().hex}.new")  # MLflow keeps an engine per name
    try:
        MlflowClient(tracking_uri=f"sqlite:///{new}")
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def search_runs(client: "MlflowClient", experiment_id: str, where: str) -> "list[Run]":
    """All runs of an experiment that match a filter."""
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], where, page_token=token)
        runs += page
        if not (token := page.token):
            return runs


def log_params_and_tags(
    client: "MlflowClient", run: "Run", params: Mapping[str, str], tags: Mapping[str, str]
) -> None:
    """Log the parameters that are missing (after a kill), and the tags that changed."""
    from mlflow.entities import Param, RunTag

    missing = [Param(k, v) for k, v in params.items() if k not in run.data.params]
    changed = [RunTag(k, v) for k, v in tags.items() if run.data.tags.get(k) != v]
    if missing or changed:
        client.log_batch(run.info.run_id, params=missing, tags=changed)  # in as many as it takes


def log_metrics(
    client: "MlflowClient",
    run_id: str,
    metrics: "list[Metric]",
    tags: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Log any number of values in batches, and the tags after the last of them."""
    from mlflow.entities import RunTag

    for start in range(0, max(len(metrics), bool(tags)), METRICS_PER_BATCH):
        is_last = start + METRICS_PER_BATCH >= len(metrics)
        run_tags = [RunTag(k, v) for k, v in tags.items()] if is_last else []
        client.log_batch(run_id, metrics[start : start + METRICS_PER_BATCH], tags=run_tags)


def log_files(client: "MlflowClient", run: "RunInfo", files: Mapping[str, bytes]) -> None:
    """Store files as a run's artifacts, replacing those of the same path."""
    address = urlsplit(run.artifact_uri)
    if address.scheme == "file":  # as MLflow would, which reads the whole run first
        _write_files(Path(url2pathname(address.path)), files)
        return
    with scratch_folder("decile-mlflow-") as scratch:
        folder = scratch / "files"  # without the lock of the scratch folder
        _write_files(folder, files)
        client.log_artifacts(run.run_id, str(folder))


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
