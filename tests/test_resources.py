"""How much fits."""

import pytest

from cluster.resources import ResourceError, probe_share, trials_at_once


def test_a_probe_takes_every_gpu_and_leaves_a_cpu_free() -> None:
    assert probe_share({"CPU": 16, "GPU": 4}, 100)[::2] == (4, 1.0)
    for cpus in (1, 2, 3, 8):
        share = probe_share({"CPU": cpus}, 100)
        assert share.actors == max(1, cpus)
        assert share.actors * share.cpus <= max(cpus - 1, cpus / 2)
    assert probe_share({"CPU": 8}, 3).actors == 3


def test_trials_share_what_there_is() -> None:
    assert trials_at_once({"CPU": 2}, 1, 0, 1) == 2
    assert trials_at_once({"CPU": 2}, 0.5, 0, 1) == 4
    assert trials_at_once({"CPU": 16, "GPU": 1}, 1, 0.25, 1) == 4
    assert trials_at_once({"CPU": 16, "GPU": 4}, 1, 1, 2) == 2
    with pytest.raises(ResourceError, match="write smaller resources"):
        trials_at_once({"CPU": 2}, 1, 1, 1)
