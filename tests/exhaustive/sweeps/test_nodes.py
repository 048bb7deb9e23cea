"""A cluster of several nodes on one machine: a sweep that loses nodes has the same results."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import LIMIT
from ray._private import ray_constants
from ray.cluster_utils import Cluster
from sweeps import experiments, same_results, start, store_of, wait_for, workers

from benchmarks.local_cluster import kill_all

pytestmark = [pytest.mark.usefixtures("no_ray")]

MEMORY = 100_000_000  # bytes of each node's object store


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head node without CPUs, and two nodes with one and two CPUs."""
    head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for cpus in (1, 2):
        cluster.add_node(num_cpus=cpus, object_store_memory=MEMORY)
    cluster.wait_for_nodes()
    yield cluster
    nodes = [cluster.head_node, *cluster.worker_nodes]
    agents = [p for node in nodes for p in psutil.Process(raylet(node)).children(recursive=True)]
    cluster.shutdown()
    kill_all(agents)


def raylet(node: Any) -> int:
    """The process of a node's raylet, the parent of its workers."""
    return int(node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid)


def busy(cluster: Cluster, title: str) -> Any:
    """The node that runs a worker whose process title contains `title`, or None."""
    for node in cluster.worker_nodes:
        with suppress(psutil.NoSuchProcess):
            if workers(raylet(node), title):
                return node
    return None


def vanish(cluster: Cluster, node: Any) -> None:
    """Kill a node, as when a spot instance is lost, and add another of the same kind."""
    cpus = node.get_resource_and_label_spec().num_cpus
    processes = psutil.Process(raylet(node)).children(recursive=True)  # its agents would live on
    os.kill(raylet(node), signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    kill_all(processes)
    cluster.add_node(num_cpus=cpus, object_store_memory=MEMORY)


def test_lost_nodes_do_not_change_results(cluster: Cluster, finished: Path, tmp_path: Path) -> None:
    grid = {"model": ["tiny"], "dataset": ["few"], "policy": ["hard"]}
    file, log = experiments(tmp_path, grid=grid), tmp_path / "driver.log"
    # A Ray that an earlier test started in this process switched tokens on for later ones.
    mode = os.environ.get("RAY_AUTH_MODE", "disabled")
    driver = start(file, log, RAY_ADDRESS=cluster.address, RAY_AUTH_MODE=mode)
    try:
        node = wait_for(lambda: busy(cluster, "ProbeActor"), driver, log)
        vanish(cluster, node)
        cells = Path(store_of(file).path("cells"))
        wait_for(lambda: list(cells.glob("*/checkpoint-6/decile.json")), driver, log)
        node = wait_for(lambda: busy(cluster, "ImplicitFunc"), driver, log)
        vanish(cluster, node)
        assert driver.wait(timeout=LIMIT) == 0, log.read_text()
    finally:
        driver.kill()
    assert same_results(file, finished)
