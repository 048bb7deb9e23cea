"""A sample of `python -m benchmarks.simulated_diagnoses`: healthy and broken runs, as files."""

from pathlib import Path

import decile
from benchmarks.simulated_diagnoses import diagnosed, is_false, is_named, layout_of
from benchmarks.simulated_logs import WRITERS
from benchmarks.simulated_runs import BROKEN, HEALTHY, run_of

# Kinds, and what their findings rest on: without it they are unknown, or found by something else.
LACKING = {
    "nothing is solved": ("TRL up to 0.19, state alone", "reward_std"),
    "one answer": ("verl", "text"),
    "groups of two prompts": ("prime-rl", "group"),
    "a dead source": ("TRL", "source"),
    "a reward of weight 0": ("TRL", "reward"),
    "rewards of other completions": ("table", "reward"),
}


def test_what_is_found_is_found_or_unknown_without_a_column() -> None:
    kinds = {kind.name: kind for kind in BROKEN}
    problems = []
    for name, (layout, column) in LACKING.items():
        codes, _ = diagnosed(kinds[name], 1000, layout)
        if not is_named(kinds[name], codes):
            problems.append(f"{name}, {layout}: {codes}")
        codes, unknown = diagnosed(kinds[name], 1000, layout, frozenset([column]))
        if not is_named(kinds[name], codes) and not {*kinds[name].codes} <= unknown:
            problems.append(f"{name}, {layout} without {column}: {codes}")
    assert problems == []


def test_healthy_runs_have_no_problem() -> None:
    kinds = [kind for kind in HEALTHY if kind.name in ("with metrics", "two answers")]
    codes = {kind.name: diagnosed(kind, 1000, layout_of(kind, 1000))[0] for kind in kinds}
    assert [kind.name for kind in kinds if is_false(kind, codes[kind.name])] == []


def test_every_format_has_the_same_live_groups(tmp_path: Path) -> None:
    [kind] = [kind for kind in HEALTHY if kind.name == "groups of 2 to 4"]
    rows, series = run_of(kind, 1000)
    live = {}
    for layout, write in WRITERS.items():
        log = write(tmp_path / layout, rows, series, frozenset())
        live[layout] = decile.diagnose(log).to_dict()[0]["live"]
    without = {"TRL up to 0.19, state alone", "verl, metrics alone"}
    assert {layout for layout, share in live.items() if share is None} == without
    shares = {round(share, 6) for layout, share in live.items() if layout not in without}
    assert len(shares - {round(live["verifiers"], 6)}) == 1, live
