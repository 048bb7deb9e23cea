"""`decile select`: a subset from stored probes or difficulty tables, without a sweep."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import small_plan

from orchestrator.cli.main import main
from orchestrator.config.entries import MAX_SAMPLES, PolicyEntry
from orchestrator.difficulty.probe_table import difficulty_of
from orchestrator.difficulty.table import difficulty
from orchestrator.pipeline.run import Run
from orchestrator.planning.cells import ProbeSpec
from orchestrator.planning.plan import Plan
from orchestrator.planning.pools import Split
from orchestrator.probing.probe import ProbeActor
from orchestrator.probing.probe_folder import write_part
from orchestrator.selection.from_file import select_file
from orchestrator.selection.stored import store_subset
from orchestrator.selection.subsets import SubsetRequest, policy_entry, reason, select, with_reason
from orchestrator.storage.errors import UserError
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.schema import MARKED, SAMPLES, SUBSET
from orchestrator.storage.store import Store
from policies import PolicyError, get_policy, tie_breakers

ONE_PROMPT = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 4}  # per update
RIGHT = {"a": 4, "b": 0, "c": 2, "d": 1}  # of 4 samples


def samples(prompts: str = "abcd", indices: range = range(4)) -> pa.Table:
    """Marked samples of some prompts; the first RIGHT[prompt] of each are correct."""
    rows: list[dict[str, Any]] = [
        dict.fromkeys(SAMPLES.names)
        | {"prompt_id": p, "sample": i, "outcome": "correct" if i < RIGHT[p] else "wrong"}
        for p in prompts
        for i in indices
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def probe_folder(
    folder: Path,
    *parts: pa.Table,
    split: Split | None = "train",
    pools: Sequence[str] = ("abcd",),
    marker: str = "m/1",
) -> Path:
    """A probe's folder as the store keeps it: parts, and the values that the key hashes.

    `pools` are those for which the probe was finished: a subset of each is stored.
    """
    store = Store(str(folder))
    store.write_json({"model": "m"}, "probes", "key", "key.json")
    for part in parts:
        write_part(store, "key", split, part)
    for pool in pools:
        why = {"probe_key": "key", "pool": canonical_hash([*pool]), "marker": marker}
        subset = with_reason(SUBSET.empty_table(), why)
        store.write_table(subset, "subsets", f"{canonical_hash([pool, marker])}.parquet")
    return folder / "probes" / "key"


def marked(table: pa.Table, marker: str) -> pa.Table:
    """The same samples, marked by a marker."""
    at = table.schema.get_field_index("marker")
    return table.set_column(at, "marker", pa.array([marker] * table.num_rows))


def chosen(source: Path, policy: str = "hard", budget: str = "2", seed: int = 0) -> list[str]:
    out = source.parent / "subset.parquet"
    select_file([source], PolicyEntry(policy=policy), budget, seed, out)
    return pq.read_table(out)["prompt_id"].to_pylist()


def run_actors(folder: Path, plan: Plan, specs: Sequence[ProbeSpec]) -> None:
    """Sample the probes by replaying a recording, as their actors do."""
    pool = plan.pool(specs[0])
    recording = folder / "recorded.parquet"
    rows = [
        {"question": p.question, "responses": [rf"\boxed{{{p.answer}}}"] * 4}
        for p in [*pool.train, *pool.test]
    ]
    pq.write_table(pa.Table.from_pylist(rows), recording)
    for spec in specs:
        model = replace(spec.model, recorded=True, location=str(recording))
        actor = ProbeActor([spec.model_copy(update={"model": model})], str(folder / "runs"), 1)
        actor.specs = [spec]
        actor.draw_part([(p, range(4)) for p in pool.prompts(spec.split)])


def store_subsets(folder: Path, plan: Plan, specs: Sequence[ProbeSpec]) -> None:
    """Select the subsets of the cells that these probes serve, as a finished probe does."""
    store = Store(str(folder / "runs"))
    for spec in specs:
        outcomes = Run.of(plan, store).folder(spec).outcomes()
        for cell in plan.cells if spec.split == "train" else ():
            if cell.probe == spec:
                store_subset(store, cell, difficulty_of(plan, spec, outcomes))


SCORED, TIED = "chosen by its score", "chosen at random among ties"


@pytest.mark.parametrize(
    ("policy", "size", "tied"),
    [
        ("hard", 2, [False, True]),  # b fails all; of c and d, which tie, one
        ("hard", 3, [False, False, False]),  # all that tie are chosen
        ("hard", 1, [False]),
        ("easy", 3, [False, True, True]),  # a and e tie with three of four; c and d follow
        ("random", 3, [True, True, True]),
        ("full", 5, [False] * 5),
        ("mixture", 2, [False, False]),  # without scores
    ],
)
def test_each_prompt_says_whether_chance_or_its_score_chose_it(
    policy: str, size: int, tied: list[bool]
) -> None:
    table = pa.table({"prompt_id": [*"abcde"], "pass_rate": [0.75, 0, 0.25, 0.25, 0.75]})
    options = {"shares": {"hard": 1}} if policy == "mixture" else {}
    if policy == "easy":
        table = table.set_column(1, "pass_rate", pa.array([1.0, 0, 0.75, 0.75, 0.75]))
    subset, why = select(table, SubsetRequest(PolicyEntry(policy=policy, options=options), size))
    assert subset["tied"].to_pylist() == tied
    assert subset["why"].to_pylist() == [TIED if by_chance else SCORED for by_chance in tied]
    assert subset["rank"].to_pylist() == [*range(size)]
    assert (why["policy"], why["size"], why["asked"], why["seed"]) == (policy, size, size, 0)


def test_the_reason_for_a_prompt_states_its_samples() -> None:
    table = pa.table(
        {
            "prompt_id": [*"abc"],
            "pass_rate": [0.5, 1.0, None],
            "n": [4, 2, None],
            "successes": [2, 2, None],
            "short": [False, True, None],
        }
    )
    subset, why = select(table, SubsetRequest(PolicyEntry(policy="full"), 1))
    assert dict(zip(subset["prompt_id"].to_pylist(), subset["why"].to_pylist(), strict=True)) == {
        "a": f"{SCORED}; 2 of 4 samples correct",
        "b": f"{SCORED}; 2 of 2 samples correct, decided before all samples were drawn",
        "c": SCORED,
    }
    assert (why["size"], why["asked"], why["ties"]) == (3, 1, None), "the whole pool at any size"
    parsed = {"wrong": [0, 1, 1], "unparsed": [5, 0, 0], "truncated": [0, 0, 0]}
    for name, counts in parsed.items():
        table = table.append_column(name, pa.array(counts))
    rule = PolicyEntry(policy="full", options={"require": "parsed"})
    subset, why = select(table, SubsetRequest(rule, 1))
    assert sorted(subset["prompt_id"].to_pylist()) == ["b", "c"] and why["size"] == 2


@pytest.mark.parametrize(("count_truncated", "first"), [("wrong", "a"), ("exclude", "b")])
def test_samples_that_an_early_decision_left_out_count_as_failures(
    count_truncated: str, first: str
) -> None:
    """a, with 1 of 2 and one cut, ends at 1/4 or, without the cut one, at 1/3; b is at 0.3."""
    table = pa.table(
        {
            "prompt_id": ["a", "b"],
            "pass_rate": [0.5, 0.3],
            "n": [2, 4],
            "successes": [1, 1],
            "truncated": [1, 0],
            "error": [0, 0],
        }
    )
    request = SubsetRequest(PolicyEntry(policy="hard"), 1, 0, (), 4, count_truncated)
    assert select(table, request)[0]["prompt_id"].to_pylist() == [first]


def test_a_policy_on_the_command_line_has_its_options() -> None:
    options = {"low": 0.2, "high": 0.8}
    assert policy_entry("band", options) == PolicyEntry(policy="band", options=options)
    with pytest.raises(PolicyError, match="'band' needs low and high"):
        policy_entry("band", {})


def test_a_table_of_rates_alone_gives_a_subset_without_tiers(tmp_path: Path) -> None:
    file = tmp_path / "rates.parquet"
    pq.write_table(pa.table({"prompt_id": [*"abc"], "pass_rate": [0.5, 0.1, 0.9]}), file)
    assert chosen(file) == ["b", "a"]
    assert pq.read_table(tmp_path / "subset.parquet")["tier"].to_pylist() == ["", ""]


@pytest.mark.parametrize("sample", [-1, MAX_SAMPLES])
def test_sample_numbers_are_within_the_samples_that_a_probe_may_have(
    tmp_path: Path, sample: int
) -> None:
    file = tmp_path / "samples.parquet"
    place = SAMPLES.get_field_index("sample")
    numbers = pa.array([sample, 1, 2, 3], pa.int32())
    pq.write_table(samples("a").set_column(place, "sample", numbers), file)
    most = f"{MAX_SAMPLES - 1:,}"
    with pytest.raises(UserError, match=f"sample {sample}: write integers from 0 to {most}$"):
        chosen(file, "random", "1")
    for wrong, kind in ((pa.array([0.0, 1, 2, 3]), "double"), (pa.array([None, 1, 2, 3]), "null")):
        pq.write_table(samples("a").set_column(place, "sample", wrong), file)
        with pytest.raises(UserError, match=f"column sample holds {kind}: write integers from 0$"):
            chosen(file, "random", "1")
    last = pa.array([MAX_SAMPLES - 1, 1, 2, 3], pa.int32())
    pq.write_table(samples("a").set_column(place, "sample", last), file)
    assert chosen(file, "random", "1") == ["a"]


def test_the_folder_of_a_probe_is_sufficient_input(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples())
    assert chosen(folder) == ["b", "d"]
    assert chosen(folder, "easy") == ["a", "c"]
    subset = pq.read_table(folder.parent / "subset.parquet")
    assert subset.schema.equals(SUBSET)
    assert subset["pass_rate"].to_pylist() == [1.0, 0.5]
    assert subset["rank"].to_pylist() == [0, 1]


def test_parts_are_combined_and_repeated_samples_count_once(tmp_path: Path) -> None:
    whole = probe_folder(tmp_path / "whole", samples())
    parts = [samples("ab"), samples("cd", range(2)), samples("bcd", range(4))]
    pieces = probe_folder(tmp_path / "pieces", *parts)
    assert len(list(pieces.glob("*.parquet"))) == 3
    assert chosen(pieces, budget="4") == chosen(whole, budget="4") == ["b", "d", "c", "a"]
    rates = pq.read_table(pieces.parent / "subset.parquet")["pass_rate"].to_pylist()
    assert rates == [0.0, 0.25, 0.5, 1.0]


def test_a_file_of_samples_and_its_difficulty_table_select_the_same_subset(tmp_path: Path) -> None:
    pq.write_table(samples(), tmp_path / "samples.parquet")
    tiers = {"a": "1", "b": "7", "c": "3", "d": "5"}
    pq.write_table(difficulty(samples(), tiers), tmp_path / "difficulty.parquet")
    assert chosen(tmp_path / "samples.parquet") == chosen(tmp_path / "difficulty.parquet")
    assert pq.read_table(tmp_path / "subset.parquet")["tier"].to_pylist() == ["7", "5"]


def test_the_subset_agrees_with_the_policy(tmp_path: Path) -> None:
    table = difficulty(samples())
    pq.write_table(table, tmp_path / "d.parquet")
    for policy in ("hard", "easy", "middle", "random"):
        rows = get_policy(policy)(table, 3, np.random.default_rng(5))
        expected = [table["prompt_id"][int(row)].as_py() for row in rows]
        assert chosen(tmp_path / "d.parquet", policy, "3", seed=5) == expected


@pytest.mark.parametrize(
    ("budget", "size"), [("1", 1), ("4", 4), ("0.25", 1), ("0.5", 2), ("0.74", 2), ("1.0", 4)]
)
def test_a_share_is_floored_and_a_count_is_used_directly(
    tmp_path: Path, budget: str, size: int
) -> None:
    pq.write_table(difficulty(samples()), tmp_path / "d.parquet")
    assert len(chosen(tmp_path / "d.parquet", budget=budget)) == size


def test_the_reason_is_returned_and_stored_with_the_subset(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples())
    out = tmp_path / "new" / "folder" / "subset.parquet"
    why = select_file([folder], PolicyEntry(policy="hard"), "0.5", 3, out)
    assert why == {
        **{"policy": "hard", "options": {}, "size": 2, "asked": 2, "seed": 3},
        **{"source": [str(folder)], "probe_key": "key"},
        "ties": {"pool": 1, "chosen": 1},
    }
    assert reason(pq.read_table(out)) == why
    assert [p.name for p in out.parent.iterdir()] == ["subset.parquet"]


@pytest.mark.parametrize("budget", ["some", "", "nan", "inf", "10%"])
def test_a_budget_that_is_not_a_number_is_refused(tmp_path: Path, budget: str) -> None:
    folder = probe_folder(tmp_path, samples())
    with pytest.raises(UserError, match=r"write a share \(0.1\) or a count \(80\)"):
        select_file([folder], PolicyEntry(policy="hard"), budget, 0, tmp_path / "out.parquet")


@pytest.mark.parametrize("budget", ["0", "5", "1.5", "-1", "0.1"])
def test_a_budget_that_does_not_fit_is_refused(tmp_path: Path, budget: str) -> None:
    folder = probe_folder(tmp_path, samples())
    with pytest.raises(PolicyError, match="write a budget between 1 and 4"):
        select_file([folder], PolicyEntry(policy="hard"), budget, 0, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_path_without_a_probe_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.parquet").write_text("no table")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    pq.write_table(samples().select(["prompt_id", "outcome"]), tmp_path / "unnumbered.parquet")
    for name, words in {
        "none": "no probe found",
        "empty": "no probe found",
        "junk.parquet": "is not Parquet",
        "other.parquet": "needs the columns",
        "unnumbered.parquet": "needs the columns",
    }.items():
        with pytest.raises(UserError, match=words) as caught:
            select_file(
                [tmp_path / name], PolicyEntry(policy="hard"), "1", 0, tmp_path / "out.parquet"
            )
        assert str(tmp_path / name) in str(caught.value)


def test_probes_of_other_settings_are_not_merged_and_the_difference_is_named(
    tmp_path: Path,
) -> None:
    keys = {
        "one": {"model": {"name": "m", "revision": "1"}, "temperature": 1.0, "seed": 0},
        "two": {
            "model": {"name": "m", "revision": "2"},
            "temperature": 1.0,
            "top_p": 0.9,
            "seed": 0,
        },
        "none": None,
    }
    store = Store(str(tmp_path))
    for key, content in keys.items():
        if content:
            store.write_json(content, "probes", key, "key.json")
        write_part(store, key, "train", samples())
    one, two, none = (tmp_path / "probes" / key for key in keys)
    file = tmp_path / "samples.parquet"
    pq.write_table(samples(), file)
    for pair, difference in (
        ((one, two), "model.revision is 1 and 2; top_p is None and 0.9"),
        ((two, one), "model.revision is 2 and 1; top_p is 0.9 and None"),
        ((one, none), "keys one and none"),
        ((file, one), "keys none and one"),
        ((one, file), "keys one and none"),
    ):
        with pytest.raises(UserError) as refused:
            select_file(pair, PolicyEntry(policy="hard"), "2", 0, tmp_path / "subset.parquet")
        assert str(refused.value) == (
            f"{pair[0]} and {pair[1]} are different probes and cannot be merged: {difference}"
        )


@pytest.mark.parametrize(
    ("policy", "budget", "undecided"),
    [
        ("hard", "1", 0),  # b fails all; whatever a's other samples are, it does not
        ("hard", "2", 0),
        ("hard", "3", 0),  # should a end at half, the tie-breaker prefers c
        ("easy", "1", 1),  # the same tie may cost a its place
        ("easy", "2", 0),
        ("random", "3", 0),
        ("learnable", "1", 4),
    ],
)
def test_a_probe_that_stopped_early_serves_the_subsets_that_it_has_decided(
    tmp_path: Path, policy: str, budget: str, undecided: int
) -> None:
    parts = pa.concat_tables([samples("a", range(2)), samples("bcd")])
    pq.write_table(parts, tmp_path / "samples.parquet")
    if undecided:
        words = f"early, and {undecided} of 4 prompts could still change the subset of {policy}:"
        with pytest.raises(UserError, match=words):
            chosen(tmp_path / "samples.parquet", policy, budget)
        return
    early = chosen(tmp_path / "samples.parquet", policy, budget)
    pq.write_table(samples(), tmp_path / "samples.parquet")
    assert {*early} == {*chosen(tmp_path / "samples.parquet", policy, budget)}


@pytest.mark.parametrize("seed", range(6))
def test_the_seed_decides_whether_a_probe_that_stopped_early_has_decided(
    tmp_path: Path, seed: int
) -> None:
    """Should a end at half, it ties with c: the tie-breakers say whether that matters."""
    file = tmp_path / "samples.parquet"
    pq.write_table(pa.concat_tables([samples("a", range(2)), samples("bcd")]), file)
    ranks = tie_breakers(4, np.random.default_rng(seed))
    if ranks[0] < ranks[2]:
        with pytest.raises(UserError, match="stopped early, and 1 of 4 prompts"):
            chosen(file, budget="3", seed=seed)
    else:
        assert chosen(file, budget="3", seed=seed) == ["b", "d", "c"]


def test_a_torn_part_is_refused(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples("ab"), samples("cd"))
    part = min(folder.glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-10])
    with pytest.raises(UserError, match="fails verification: probe again"):
        chosen(folder)


def test_the_command_prints_the_reason_as_json_or_in_one_line(tmp_path: Path, capsys) -> None:
    folder, out = probe_folder(tmp_path, samples()), tmp_path / "subset.parquet"
    arguments = ["select", "--probe", str(folder), "--policy", "random", "--budget", "2"]
    arguments += ["--seed", "2", "--out", str(out)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"2 prompts: {out}\n"
    first = pq.read_table(out)
    assert main([*arguments, "--json"]) == 0
    why = json.loads(capsys.readouterr().out)
    assert (why["policy"], why["size"], why["seed"], why["ties"]) == ("random", 2, 2, None)
    assert pq.read_table(out) == first


@pytest.mark.parametrize(
    ("policy", "budget", "words"),
    [
        ("harder", "1", "write one of hard, easy"),
        ("hard", "9", "between 1 and 4"),
        ("hard", "x", "--budget x"),
    ],
)
def test_invalid_input_ends_the_command_with_code_2(
    tmp_path: Path, capsys, policy: str, budget: str, words: str
) -> None:
    folder, out = probe_folder(tmp_path, samples()), tmp_path / "subset.parquet"
    arguments = ["--probe", str(folder), "--policy", policy, "--budget", budget, "--out", str(out)]
    assert main(["select", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("decile: ") and captured.err.count("\n") == 1
    assert words in captured.err
    assert captured.out == ""
    assert not out.exists()


def test_an_unwritable_output_is_refused(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples())
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "subset.parquet"):
        with pytest.raises(UserError, match="is a folder|is not a folder"):
            select_file([folder], PolicyEntry(policy="hard"), "2", 0, out)


def test_unknown_outcomes_and_non_numeric_rates_are_refused(tmp_path: Path) -> None:
    file, out = tmp_path / "table.parquet", tmp_path / "subset.parquet"
    pq.write_table(pa.table({"prompt_id": ["a"], "pass_rate": ["high"]}), file)
    with pytest.raises(UserError, match="pass_rate holds string"):
        select_file([file], PolicyEntry(policy="hard"), "1", 0, out)
    pq.write_table(pa.table({"prompt_id": ["a"], "sample": [0], "outcome": ["right"]}), file)
    with pytest.raises(UserError, match="outcome 'right': write one of correct"):
        select_file([file], PolicyEntry(policy="hard"), "1", 0, out)


@pytest.mark.slow
def test_test_questions_are_never_selected_though_the_folder_holds_both_splits(
    tmp_path: Path,
) -> None:
    """`probe_seed: [0, 1]` and `evaluate: {seed: 1}`: one key for the pool and the test set."""
    grid = {"model": ["stub"], "dataset": ["small"], "policy": ["hard"], "probe_seed": [0, 1]}
    plan = small_plan(
        tmp_path,
        grid=grid,
        probe={"samples": 4, "max_completion_length": 32},
        evaluate={"every": 2, "samples": 4, "seed": 1},
    )
    specs = [spec for spec in plan.probes if spec.settings.seed == 1]
    assert {spec.split for spec in specs} == {"train", "test"}
    assert len({spec.key for spec in specs}) == 1
    run_actors(tmp_path, plan, specs)
    store_subsets(tmp_path, plan, specs)
    pool = plan.pool(specs[0])
    folder = tmp_path / "runs" / "probes" / specs[0].key
    selected = chosen(folder, budget="40")
    assert not {p.prompt_id for p in pool.test} & set(selected)
    assert {p.prompt_id for p in pool.train} == set(selected)


def test_datasets_that_share_a_folder_are_refused(tmp_path: Path) -> None:
    """Whether the probes of both are finished or not."""
    few, fewer = ({"task": "shuffled_objects", "options": {"train": n, "test": 12}} for n in (8, 9))
    grid = {"model": ["stub"], "dataset": ["few", "fewer", "small"], "policy": ["hard"]}
    plan = small_plan(
        tmp_path, grid=grid, datasets={"few": few, "fewer": fewer}, budget=0.25, grpo=ONE_PROMPT
    )
    specs = [spec for spec in plan.probes if spec.split == "train"]
    assert len({spec.key for spec in specs}) == 1 and len(specs) == 3
    folder = tmp_path / "runs" / "probes" / specs[0].key
    run_actors(tmp_path, plan, specs[:1])
    with pytest.raises(UserError, match="are not exactly the pool of one finished probe"):
        chosen(folder)
    store_subsets(tmp_path, plan, specs[:1])
    assert len(chosen(folder)) == 2
    run_actors(tmp_path, plan, specs[1:2])
    with pytest.raises(UserError, match="are not exactly the pool of one finished probe"):
        chosen(folder)
    store_subsets(tmp_path, plan, specs[1:2])
    with pytest.raises(UserError, match="holds samples of 2 pools"):
        chosen(folder)


def test_a_probe_of_the_test_split_alone_is_refused(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples(), split="test")
    with pytest.raises(UserError, match="holds only samples of the test split"):
        chosen(folder)


def test_prompts_of_both_splits_are_refused(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples())
    write_part(Store(str(tmp_path)), "key", "test", samples("ab"))
    with pytest.raises(UserError, match="2 prompts are both training prompts and test questions"):
        chosen(folder)


@pytest.mark.parametrize(
    ("parts", "pools", "words"),
    [
        (["ab", "cd"], ["ab", "cd"], "holds samples of 2 pools"),
        (["abcd"], ["abcd", "ab"], "holds samples of 2 pools"),
        (["ab", "cd"], ["ab"], "are not exactly the pool of one finished probe"),
        (["abc"], ["abcd"], "are not exactly the pool of one finished probe"),
        (["ab", "cd"], [], "are not exactly the pool of one finished probe"),
    ],
    ids=["two pools", "a part of a pool", "an interrupted probe", "a lost part", "none finished"],
)
def test_samples_of_anything_but_one_pool_are_refused(
    tmp_path: Path, parts: list[str], pools: list[str], words: str
) -> None:
    folder = probe_folder(tmp_path, *map(samples, parts), pools=pools)
    files, out = sorted(folder.glob("*.parquet")), tmp_path / "subset.parquet"
    for probes in ([folder], files):
        with pytest.raises(UserError, match=f"{words}.*select from the difficulty table") as error:
            select_file(probes, PolicyEntry(policy="hard"), "1", 0, out)
        assert str(probes[0]) in str(error.value)
    assert not out.exists()


def test_the_parts_of_one_pool_are_selected_from_under_any_path_in_their_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = probe_folder(tmp_path / "runs", samples("ab"), samples("cd"))
    own = tmp_path / "subset.parquet"
    expected = select_file([folder], PolicyEntry(policy="hard"), "3", 0, own)
    mine = with_reason(SUBSET.empty_table(), expected)
    Store(str(tmp_path / "runs")).write_table(mine, "subsets", "mine.parquet")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    files = [Path(file.name) for file in folder.glob("*.parquet")]
    for probes in (files, [Path(".")], [Path("../key/")], [tmp_path / "link"]):
        why = select_file(probes, PolicyEntry(policy="hard"), "3", 0, tmp_path / "out.parquet")
        assert {**why, "source": None} == {**expected, "source": None}
        assert pq.read_table(tmp_path / "out.parquet").equals(pq.read_table(own))
    other = tmp_path / "other"
    folder.parent.parent.rename(other)
    (other / "subsets").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="are not exactly the pool of one finished probe"):
        chosen(other / "probes" / "key")


def test_marks_of_several_markers_are_refused(tmp_path: Path) -> None:
    one, two = marked(samples("ab"), "m/1"), marked(samples("cd"), "m/2")
    folder = probe_folder(tmp_path / "parts", one, two)
    with pytest.raises(UserError, match=r"marks of several markers \(m/1, m/2\): select from the"):
        chosen(folder)
    whole = marked(samples(), "m/1")
    probe_folder(tmp_path / "subsets", whole)
    folder = probe_folder(tmp_path / "subsets", marker="m/2")
    with pytest.raises(UserError, match=r"marks of several markers \(m/1, m/2\)"):
        chosen(folder)
    file = tmp_path / "imported.parquet"
    pq.write_table(pa.concat_tables([one, two]), file)
    with pytest.raises(UserError, match=r"marks of several markers \(m/1, m/2\)"):
        chosen(file)


@pytest.mark.parametrize("prompts", ["ab", "xy"], ids=["training prompts", "test questions"])
def test_cached_marks_of_another_marker_count_for_training_prompts_only(
    tmp_path: Path, prompts: str
) -> None:
    folder = probe_folder(tmp_path, marked(samples(), "m/1"))
    rows = [
        dict.fromkeys(MARKED.names) | {"prompt_id": p, "sample": 0, "marker": "m/2"}
        for p in prompts
    ]
    marks = pa.Table.from_pylist(rows, schema=MARKED)
    Store(str(tmp_path)).write_table(marks, "probes", "key", "marks-2", "part.parquet")
    if prompts == "ab":
        with pytest.raises(UserError, match=r"marks of several markers \(m/1, m/2\)"):
            chosen(folder)
    else:
        assert chosen(folder) == ["b", "d"]
