"""Adapters of checkpoints on shared servers: they are unloaded when the run that loaded them ends.

The names of a run's adapters begin with its label, a random number. They are therefore unique among
storages, sweeps, and repeated runs after a kill. The label is stored before the first adapter is
loaded, and deleted once the server lists no adapter with it. While this process has the lease of
the experiment, a stored label belongs to a dead run, because its driver had the lease. Completions
that processes of a dead run still draw are not in any result.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

from cluster.actors import WorkerFails, run_in_worker
from orchestrator.config.probe import Probe
from orchestrator.sampling.base import SamplingError
from orchestrator.storage.store import Store

logger = logging.getLogger(__name__)


class Server(TypedDict):
    """Where adapters are loaded: the settings of engine server, and the workers' interpreter."""

    engine_args: Mapping[str, Any]
    python: str | None


def server_of(settings: Probe) -> Server:
    """The server of engine server."""
    return Server(engine_args=settings.engine_args, python=settings.engine_python)


class Labelled(TypedDict):
    """Adapters that a run may have loaded: the prefix of their labels, and their server."""

    label: str
    server: Server


@contextmanager
def unloaded_at_end(
    store: Store, experiment: str, label: str, servers: Sequence[Server]
) -> Iterator[None]:
    """Unload adapters of earlier, killed runs now, and adapters with this label at the end.

    Needs the lease of the experiment and a connected Ray. After an error, the next run unloads
    them. If a server does not respond, later runs that use it try again.
    """
    place = ("sweeps", "served", f"{experiment}.json")
    # A copy of a storage has a different folder: the run of its labels may be alive.
    folder = os.stat(store.local_path("sweeps")).st_ino if store.local else 0
    owner = [store.uri, folder]

    def save(labels: list[Labelled]) -> None:
        if labels:
            store.write_json({"owner": owner, "labels": labels}, *place)
        else:
            store.delete(*place)

    stored = store.read_json(*place) or {}
    left: list[Labelled] = stored["labels"] if stored.get("owner") == owner else []
    own = [Labelled(label=label, server=server) for server in servers]
    if not (left or own):
        yield
        return
    save([*left, *own])
    left = [each for each in left if not _unload(each) and each["server"] in servers]
    yield
    save([*left, *(each for each in own if not _unload(each))])


def _unload(labelled: Labelled) -> bool:
    """Whether the server lists none of these adapters any more."""
    try:
        run_in_worker(_unload_here, labelled, python=labelled["server"]["python"])
    except (SamplingError, WorkerFails) as error:
        logger.warning("adapters decile-%s… may stay loaded: %s", labelled["label"], error)
        return False
    return True


def _unload_here(labelled: Labelled) -> str:
    from orchestrator.sampling import find_sampler  # engines are heavy

    engine: Any = find_sampler("server")
    engine.unload(labelled["label"], **labelled["server"]["engine_args"])
    return ""
