"""An unreliable marker stops a sweep before it costs anything, with the reason.

Real sweeps on the embedded model, with tasks of a user's own from a file beside the YAML.
"""

from pathlib import Path

import pytest
from effort import some
from marker_stops_cases import sweep

from orchestrator.storage.store import Store


@pytest.mark.parametrize(
    ("task", "values", "probes"),
    some(
        [
            ("Failing", ("too-much-for-me", "max_marking_errors: 0.1"), True),
            ("Lying", ("dataset few", "correct by lie"), False),
        ],
        1,
    ),
)
def test_an_unreliable_marker_ends_the_sweep_before_anything_is_sampled_or_trained(
    local_ray: Path, tmp_path: Path, task: str, values: tuple[str, ...], probes: bool
) -> None:
    process = sweep(local_ray, tmp_path, task)
    assert process.returncode == 1
    [message] = [line for line in process.stderr.splitlines() if line.startswith("decile: ")]
    assert [value for value in values if value not in message] == []
    assert "Traceback" not in process.stderr
    store = Store(str(tmp_path / "runs"))
    assert bool(store.folders("probes")) == probes and store.folders("cells") == []
