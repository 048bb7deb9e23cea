"""What is stored and shown of a part of a probe, and of an update, before its end."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import small_plan

from cluster.part_progress import PartReporter
from orchestrator.pipeline.progress import ProgressDisplay
from orchestrator.planning.cells import ProbeSpec
from orchestrator.probing import probe
from orchestrator.probing.outcomes import PartSize
from orchestrator.probing.probe import PartCounts, ProbeActor
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.sampling.base import Completion, Request, SamplingSettings
from orchestrator.sampling.recorded import RecordedSampler
from orchestrator.storage.store import Store
from orchestrator.training import activity
from orchestrator.training.activity import Activity


class Telling(RecordedSampler):
    """Replays a recording, tells of each completion, and is interrupted after `most` of them."""

    most = 10**9
    calls: Sequence[int] = ()

    def sample(
        self, requests: Sequence[Request], settings: SamplingSettings
    ) -> list[list[Completion]]:
        drawn = super().sample(requests, settings)
        self.calls = [*self.calls, sum(map(len, drawn))]
        for i, of_prompt in enumerate(drawn):
            for j, completion in enumerate(of_prompt):
                if self.listener:
                    self.listener.on_ended(1)
                    self.listener.on_completion(i, j, completion)
                self.most -= 1
                if not self.most:
                    raise KeyboardInterrupt
        return drawn


def opened(folder: Path) -> tuple[ProbeActor, ProbeFolder, ProbeSpec]:
    """A probe of 40 prompts and 4 samples, and its actor."""
    plan = small_plan(folder)
    spec = plan.cells[0].probe
    pool = plan.pool(spec)
    recording = folder / "recorded.parquet"
    rows = [
        {"question": p.question, "responses": [f"{p.answer} {k}" for k in range(4)]}
        for p in pool.train
    ]
    pq.write_table(pa.Table.from_pylist(rows), recording)
    model = replace(spec.model, recorded=True, location=str(recording))
    store = Store(str(folder / "runs"))
    actor = ProbeActor([spec.model_copy(update={"model": model})], store.uri, 1)
    actor.specs, actor.sampler = [spec], Telling(recording)
    return actor, ProbeFolder(store, spec, pool.train, pool.task), spec


def test_what_ended_before_an_interrupt_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "STORE_SECONDS", 0.0)
    actor, folder, _ = opened(tmp_path)
    sampler: Any = actor.sampler
    sampler.most = 10
    with pytest.raises(KeyboardInterrupt):
        actor.draw_part(folder.missing())
    assert folder.read().outcomes().drawn == 10
    sampler.most = 10**9
    rows, failure = actor.draw_part(folder.missing())
    assert (len(rows), failure, folder.missing().samples) == (150, "", 0)


def test_a_piece_is_stored_before_the_next_one(tmp_path: Path) -> None:
    actor, folder, _ = opened(tmp_path)
    sampler: Any = actor.sampler
    actor.size, sampler.most = PartSize(batch=16), 30
    with pytest.raises(KeyboardInterrupt):
        actor.draw_part(folder.missing())
    assert folder.read().outcomes().drawn == 16, "the first piece, before anything is measured"


def test_the_samples_are_the_same_however_they_are_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartSize, "piece", lambda size, seconds, drawn: size.batch)
    tables = []
    for name, batch, seconds in (("whole", 640, 1e9), ("pieces", 12, 1e9), ("stored", 40, 0.0)):
        monkeypatch.setattr(probe, "STORE_SECONDS", seconds)
        (tmp_path / name).mkdir()
        actor, folder, _ = opened(tmp_path / name)
        actor.size = PartSize(batch=batch)
        rows, failure = actor.draw_part(folder.missing())
        assert (len(rows), failure) == (160, "")
        assert len({(row["prompt_id"], row["sample"]) for row in rows}) == 160
        sampler: Any = actor.sampler
        assert max(sampler.calls) - min(sampler.calls) <= 8 and sum(sampler.calls) == 160
        tables.append(folder.samples())
    assert tables[0] == tables[1] == tables[2]


class Begun(PartReporter):
    """What an actor is told of a part on which another one has died."""

    def start(self, part: str) -> bool:
        return super().start(part) or True


def test_of_a_part_that_was_begun_only_what_is_not_stored_is_drawn(tmp_path: Path) -> None:
    actor, folder, _ = opened(tmp_path)
    missing = list(folder.missing())
    actor.draw_part(missing[:3])
    sampler: Any = actor.sampler
    sampler.calls, actor.reporter = [], Begun()
    rows = [
        {**{name: getattr(p, name) for name in p.__slots__}, "samples": list(indices)}
        for p, indices in missing[:5]
    ]
    result = actor(pa.table({"name": ["0/0"], "part": [rows]}))
    assert result.to_pylist() == [{"name": "0/0", "samples": 20, "failure": ""}]
    assert sum(sampler.calls) == 8


def test_counts_of_parts_in_progress_are_shown_and_never_fall() -> None:
    shown: list[tuple[int, int, int]] = []
    counts = PartCounts([100, 50], lambda *values: shown.append(values))
    counts.ended("0/", 0)
    counts.follow({"0/0": 10, "0/1": 5, "": 3})
    counts.follow({"0/0": 2, "0/1": 6})  # a lost part begins again
    counts.ended("0/0", 60)
    counts.follow({"0/0": 60, "0/1": 39})  # its actor says what it was at
    counts.follow({"0/0": 60, "0/1": 40, "1/0": 7})  # not all: the last part has not ended
    counts.ended("0/1", 40)
    assert shown == [
        (0, 0, 100),
        (0, 15, 100),
        (0, 60, 100),
        (0, 99, 100),
        (1, 7, 50),
        (0, 100, 100),
    ]


def test_a_reporter_without_a_channel_counts_for_nobody() -> None:
    reporter = PartReporter()
    assert not reporter.start("0/1")
    reporter.add(3)


def test_an_update_that_takes_long_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "ACTIVITY_SECONDS", 0.0)
    cell, out = small_plan(tmp_path).cells[0], io.StringIO()
    display = ProgressDisplay(total=2, out=out, every=0.0)
    display.started(cell)
    listener = Activity(lambda report: display.active(cell, **report)).listener("rollouts", 8)
    listener.on_ended(3)
    listener.on_ended(4)
    listener.on_ended(1)
    display.update(cell, {"update": 1, "metrics": {}})
    first, second, done, after = out.getvalue().splitlines()
    assert first.endswith(f"{cell.name} 0/4, rollouts 3/8")
    assert second.endswith(f"{cell.name} 0/4, rollouts 7/8")
    assert done.endswith(f"{cell.name} 0/4, rollouts done")
    assert after.endswith(f"{cell.name} 1/4")


def test_updates_that_are_quick_say_nothing_in_between() -> None:
    reports: list[dict[str, Any]] = []
    now = Activity(reports.append)
    now("evaluation", 1, 2)
    Activity(None)("evaluation", 1, 2)
    assert not reports


def test_the_end_of_what_was_reported_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[dict[str, Any]] = []
    now = Activity(reports.append)
    with monkeypatch.context() as patched:
        patched.setattr(activity, "ACTIVITY_SECONDS", 0.0)
        now("rollouts", 60, 64)
    now("rollouts", 62, 64)
    now("rollouts", 64, 64)
    now("evaluation", 8, 8)
    assert [(r["activity"], r["done"]) for r in reports] == [("rollouts", 60), ("rollouts", 64)]
