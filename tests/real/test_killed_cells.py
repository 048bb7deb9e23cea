"""A cell that is killed after any of its writes is finished by a rerun, with the same results.

`make chaos` kills after every write of every scenario; here, after some from the manifest of the
last checkpoint on, where a cell has everything but its result.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import some
from killed_cells import SCENARIOS, UPDATES, KilledCell
from s3_server import s3_server
from write_steps import Host, Kill, available, host

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def bucket_server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, bucket_server: str) -> Iterator[Host]:
    """A host whose environment has the keys of the server."""
    if not available():
        pytest.skip("a library that counts writes cannot be compiled and loaded here")
    with host(tmp_path_factory.mktemp("host")) as running:
        yield running


def kills_from(cell: KilledCell, manifest: str, count: int) -> list[Kill]:
    """`count` kills of the first worker, evenly from the first after a manifest is stored."""
    stored = [n for n, step in enumerate(cell.steps[0], 1) if manifest in step]
    later = [kill for kill in cell.kills() if kill[0] == 0 and kill[1] >= stored[0]]
    complete = next(
        number
        for number, (_, step) in enumerate(later)
        if cell.steps[0][step - 1].startswith(("rename", "POST")) and step in stored
    )
    later = later[complete:]
    return [later[number * (len(later) - 1) // max(1, count - 1)] for number in range(count)]


@pytest.mark.parametrize(
    ("name", "count"),
    some(
        [
            ("part of an epoch", 5),
            ("part of an epoch, two workers", 2),
            ("whole epochs", 1),
            ("part of an epoch, bucket", 1),
            ("evaluated after training", 2),
            ("as another cell", 2),
        ],
        1,
    ),
)
def test_a_rerun_finishes_a_killed_cell_with_the_same_results(
    processes: Host, bucket_server: str, tmp_path: Path, name: str, count: int
) -> None:
    cell = KilledCell(BY_NAME[name], processes, tmp_path / "cell", bucket_server)
    kills = kills_from(cell, f"checkpoint-{UPDATES}/decile.json", count)
    assert [problem for kill in kills for problem in cell.problems(kill)] == []
    assert {step.rpartition("/")[2] for step in cell.repeated} <= {".lock"}
