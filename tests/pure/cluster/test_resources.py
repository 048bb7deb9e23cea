"""Resources: CPUs, actors of a probe, trials at once, and the capacity of a cluster."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.resources import (
    ResourceError,
    capacity,
    probe_share,
    trials_at_once,
    usable_cpus,
)
from cluster.session import _local, this_machine


def quota_v1(quota: str) -> dict[str, str]:
    return {"cpu/cpu.cfs_quota_us": f"{quota}\n", "cpu/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        (quota_v1("50000"), 1),
        (quota_v1("-1"), 8),
        ({"cpu.max": "", "cpu/cpu.cfs_quota_us": ""}, 8),
    ],
)
def test_a_containers_quota_bounds_the_cpus(
    files: dict[str, str], cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(8)}, raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cpus(tmp_path) == cpus


def test_the_cpus_are_those_of_the_affinity_in_a_plan_and_in_a_local_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    assert usable_cpus(tmp_path) == _local()["num_cpus"] == this_machine()["CPU"] == 1
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS
    assert usable_cpus(tmp_path) == 64


def test_a_probe_uses_every_gpu_and_leaves_one_cpu_free() -> None:
    assert probe_share({"CPU": 16, "GPU": 4}, 100)[::2] == (4, 1.0)
    for cpus, free in ((1, 0.5), (2, 1), (3, 2), (8, 7)):
        share = probe_share({"CPU": cpus}, 100)
        assert share.actors == cpus and share.actors * share.cpus == pytest.approx(free, abs=0.05)


def test_a_sampler_may_take_several_gpus() -> None:
    assert probe_share({"CPU": 16, "GPU": 4}, 100, 2)[::2] == (2, 2.0)
    assert probe_share({"CPU": 16, "GPU": 7}, 100, 2).actors == 3
    assert probe_share({"CPU": 4}, 100, 1).gpus == 0.0
    assert probe_share({"CPU": 16, "GPU": 4}, 100, 0) == (1, 1.0, 0.0), "it calls a server"
    assert probe_share({"CPU": 16}, 100, 1, most_on_cpus=1).actors == 1
    assert probe_share({"CPU": 16, "GPU": 4}, 100, 1, most_on_cpus=1).actors == 4
    with pytest.raises(ResourceError, match="8 GPUs, .* 4"):
        probe_share({"CPU": 16, "GPU": 4}, 100, 8)


@settings(max_examples=50)
@given(cpus=st.integers(1, 128), gpus=st.integers(0, 8), parts=st.integers(1, 200))
def test_a_probe_never_uses_all_cpus_or_more_actors_than_parts(
    cpus: int, gpus: int, parts: int
) -> None:
    share = probe_share({"CPU": float(cpus), "GPU": float(gpus)}, parts)
    assert 1 <= share.actors <= parts
    assert 0 < share.cpus <= 1
    assert share.actors * share.cpus <= max(cpus - 1, cpus / 2)
    assert share.actors <= (gpus or cpus)
    assert share.gpus == (1.0 if gpus else 0.0)


def test_a_machine_without_counts_still_gets_one_actor() -> None:
    assert probe_share({}, 5) == (1, 0.5, 0.0)
    assert probe_share({"CPU": 4, "GPU": 0.5}, 100).gpus == 0.0


@pytest.mark.parametrize(
    ("cluster", "cpus", "gpus", "workers", "fits"),
    [
        ({"CPU": 0.9}, 0.3, 0, 1, 3),
        ({"CPU": 3}, 1, 0, 2, 1),
        ({"CPU": 8, "GPU": 4}, 1, 1, 4, 1),
        ({"CPU": 64, "GPU": 8}, 4, 0.5, 2, 8),
        ({"CPU": 64, "GPU": 2}, 1, 0.6, 1, 2),  # fractions of a trial are of one GPU
        ({"CPU": 2, "GPU": 8}, 1, 1, 1, 2),
        ({"CPU": 2, "GPU": 8}, 1, 0, 1, 2),
    ],
)
def test_the_scarcer_resource_limits_the_trials(
    cluster: dict[str, float], cpus: float, gpus: float, workers: int, fits: int
) -> None:
    assert trials_at_once(cluster, cpus, gpus, workers) == fits


@settings(max_examples=50)
@given(
    have=st.integers(1, 64),
    cpus=st.sampled_from([0.1, 0.25, 0.3, 0.5, 1, 1.5, 2]),
    workers=st.integers(1, 4),
)
def test_the_number_of_trials_is_the_most_that_fit(have: int, cpus: float, workers: int) -> None:
    each = cpus * workers
    if each > have:
        with pytest.raises(ResourceError):
            trials_at_once({"CPU": have}, cpus, 0, workers)
        return
    fits = trials_at_once({"CPU": have}, cpus, 0, workers)
    assert fits * each <= have + 1e-6
    assert (fits + 1) * each > have + 1e-6


@pytest.mark.parametrize(
    ("cluster", "shares"), [({"CPU": 2, "GPU": 1}, (1, 1, 2)), ({}, (1, 0, 1))]
)
def test_a_request_that_never_fits_is_refused_with_both_counts(
    cluster: dict[str, float], shares: tuple[float, float, int]
) -> None:
    cpus, gpus, workers = shares
    with pytest.raises(ResourceError) as caught:
        trials_at_once(cluster, cpus, gpus, workers)
    assert f"{workers} × ({cpus:g} CPUs, {gpus:g} GPUs)" in str(caught.value)
    has = f"{cluster.get('CPU', 0):g} CPUs and {cluster.get('GPU', 0):g} GPUs"
    assert has in str(caught.value)


def test_an_autoscaling_cluster_counts_at_its_maximum_size() -> None:
    now = {"CPU": 2.0, "node:x": 1.0}
    assert capacity(now, None) == now
    assert capacity(now, {"CPU": 1, "GPU": 8}) == {"CPU": 2, "GPU": 8, "node:x": 1}
    assert capacity(now, {"CPU": 64})["CPU"] == 64
    assert trials_at_once(capacity({"CPU": 0.0}, {"CPU": 16, "GPU": 4}), 1, 1, 1) == 4
