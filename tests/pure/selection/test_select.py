"""`decile select`: a subset from stored probes or difficulty tables, without a sweep."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from factories import small_plan
from remedies import refused

from orchestrator.cli.main import main
from orchestrator.config.policy_entries import PolicyEntry
from orchestrator.config.settings import MAX_SAMPLES
from orchestrator.difficulty.remedies import unsolved_note
from orchestrator.difficulty.table import difficulty
from orchestrator.probing.probe_folder import write_part
from orchestrator.selection.from_file import are_rated, select_file
from orchestrator.selection.from_samples import select_samples
from orchestrator.selection.stored import store_subset
from orchestrator.selection.subsets import SubsetRequest, policy_entry, reason, select, with_reason
from orchestrator.storage.errors import StoreError
from orchestrator.storage.proof import canonical_hash
from orchestrator.storage.schema import MARKED, SAMPLES, SUBSET, Split
from orchestrator.storage.store import Store
from policies import PolicyError, choice_rng, get_policy
from tasks import OUTCOMES

ONE_PROMPT = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 4}  # per update
RIGHT = {"a": 4, "b": 0, "c": 2, "d": 1}  # of 4 samples


def samples(prompts: Iterable[str] = "abcd", indices: range = range(4)) -> pa.Table:
    """Marked samples of some prompts; the first RIGHT[prompt] of each are correct."""
    rows: list[dict[str, Any]] = [
        dict.fromkeys(SAMPLES.names)
        | {"prompt_id": p, "sample": i, "outcome": "correct" if i < RIGHT.get(p, 0) else "wrong"}
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
    select_subset = select_file if are_rated([source]) else select_samples
    select_subset([source], PolicyEntry(policy=policy), budget, seed, out)
    return pq.read_table(out)["prompt_id"].to_pylist()


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
    whole, early, unknown = subset.sort_by("prompt_id")["why"].to_pylist()
    assert whole.startswith(SCORED) and whole.endswith("2 of 4 samples correct")
    assert early.startswith(SCORED) and "2 of 2 samples correct, decided" in early
    assert unknown == SCORED
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


def test_sample_numbers_are_within_the_samples_that_a_probe_may_have(tmp_path: Path) -> None:
    file = tmp_path / "samples.parquet"
    place = SAMPLES.get_field_index("sample")
    for wrong, kind in (
        (pa.array([-1], pa.int32()), "sample -1:"),
        (pa.array([MAX_SAMPLES], pa.int32()), f"sample {MAX_SAMPLES}:"),
        (pa.array([0.0]), "double"),
        (pa.array([None], pa.int32()), "null"),
    ):
        pq.write_table(samples("a", range(1)).set_column(place, "sample", wrong), file)
        with refused(file, "sample", kind):
            chosen(file, "random", "1")
    last = pa.array([MAX_SAMPLES - 1], pa.int32())
    pq.write_table(samples("a", range(1)).set_column(place, "sample", last), file)
    assert chosen(file, "random", "1") == ["a"]


def test_parts_are_combined_and_repeated_samples_count_once(tmp_path: Path) -> None:
    whole = probe_folder(tmp_path / "whole", samples())
    parts = [samples("ab"), samples("cd", range(2)), samples("bcd", range(4))]
    pieces = probe_folder(tmp_path / "pieces", *parts)
    assert len(list(pieces.glob("*.parquet"))) == 3
    assert chosen(pieces, budget="4") == chosen(whole, budget="4") == ["b", "d", "c", "a"]
    subset = pq.read_table(pieces.parent / "subset.parquet")
    assert subset.schema.equals(SUBSET)
    assert subset["pass_rate"].to_pylist() == [0.0, 0.25, 0.5, 1.0]
    assert subset["rank"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("policy", "warns"), [("full", False), ("hard", True)])
def test_one_prompt_with_a_signal_is_enough_for_the_whole_pool(
    tmp_path: Path, policy: str, warns: bool
) -> None:
    source = probe_folder(tmp_path, samples("abc"), pools=["abc"])
    chosen(source, policy, "2")
    why = reason(pq.read_table(source.parent / "subset.parquet"))
    assert bool(why.get("notes")) == warns


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
        rows = get_policy(policy)(table, 3, choice_rng(5, policy if policy == "random" else ""))
        expected = [table["prompt_id"][int(row)].as_py() for row in rows]
        assert chosen(tmp_path / "d.parquet", policy, "3", seed=5) == expected


@pytest.mark.parametrize(
    ("budget", "size"), [("1", 1), ("4", 4), ("0.25", 1), ("0.74", 2), ("1.0", 4)]
)
def test_a_share_is_floored_and_a_count_is_used_directly(
    tmp_path: Path, budget: str, size: int
) -> None:
    pq.write_table(difficulty(samples()), tmp_path / "d.parquet")
    assert len(chosen(tmp_path / "d.parquet", budget=budget)) == size


@pytest.mark.parametrize(
    ("prompts", "named"), [("bxyz", "4 of 4"), ("axyz", "3 of 4"), ("acyz", ""), ("acd", "")]
)
def test_a_subset_of_mostly_unsolved_prompts_says_so(prompts: str, named: str) -> None:
    table = difficulty(samples(prompts))
    why = select(table, SubsetRequest(policy_entry("full", {}), len(prompts)))[1]
    assert [named in note for note in why.get("notes", [])] == [True] * bool(named)
    assert not any("exclude" in note for note in why.get("notes", [])), "it would leave too few"


def test_unsolved_prompts_can_be_left_out_where_enough_others_are_there() -> None:
    table = difficulty(samples("axyz"))
    [note] = select(table, SubsetRequest(policy_entry("hard", {}), 1))[1]["notes"]
    assert "1 of 1" in note and "exclude: unsolved" in note
    unknown = pa.array([None] * 4, pa.int32())
    for name in ("n", "successes", "scorable"):
        table = table.set_column(table.schema.get_field_index(name), name, unknown)
    assert unsolved_note(table, table).startswith("never solved: 3 of 4 "), "only rates are known"


def test_the_reason_is_returned_and_stored_with_the_subset(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples())
    out = tmp_path / "new" / "folder" / "subset.parquet"
    why = select_samples([folder], PolicyEntry(policy="hard"), "0.5", 3, out)
    left_out = {"without a gold answer": 0, "not chosen by hard": 2}
    assert why.pop("row_counts") == {"read": 4, "left_out": left_out, "written": 2}
    assert why == {
        **{"policy": "hard", "options": {}, "size": 2, "asked": 2, "seed": 3},
        **{"source": [str(folder)], "probe_key": "key"},
        "ties": {"pool": 1, "chosen": 1},
    }
    assert reason(pq.read_table(out)) == why
    assert [p.name for p in out.parent.iterdir()] == ["subset.parquet"]


def test_tables_in_files_give_the_same_subset_with_and_without_what_reads_samples(
    tmp_path: Path,
) -> None:
    files, out = [tmp_path / "one.parquet", tmp_path / "two.parquet"], tmp_path / "subset.parquet"
    for file, ids in zip(files, ("ab", "cd"), strict=True):
        pq.write_table(difficulty(samples(ids)), file)
    subsets = []
    for select_subset in (select_file, select_samples):
        why = select_subset(files, PolicyEntry(policy="hard"), "0.5", 3, out)
        subsets.append((why, pq.read_table(out)))
    assert subsets[0] == subsets[1]
    assert subsets[0][0]["row_counts"]["written"] == 2


def test_only_files_with_a_pass_rate_by_prompt_are_tables(tmp_path: Path) -> None:
    table, marks = tmp_path / "table.parquet", tmp_path / "samples.parquet"
    pq.write_table(difficulty(samples()), table)
    pq.write_table(samples(), marks)
    (tmp_path / "junk.parquet").write_text("no table")
    os.mkfifo(tmp_path / "pipe")
    assert are_rated([table]) and are_rated([table, table])
    for other in (marks, tmp_path / "junk.parquet", tmp_path, tmp_path / "pipe", Path("a\0b")):
        assert not are_rated([other]) and not are_rated([table, other])


def test_a_subset_is_not_written_to_an_address_that_a_path_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(difficulty(samples()), "table.parquet")
    with refused("s3://bucket", by=StoreError):
        select_file(["table.parquet"], PolicyEntry(policy="hard"), "1", 0, "s3://bucket/out")
    assert [file.name for file in tmp_path.iterdir()] == ["table.parquet"]


@pytest.mark.parametrize("budget", ["", "nan", "inf", "10%", "0", "-1"])
def test_a_budget_that_is_not_a_positive_number_is_refused(tmp_path: Path, budget: str) -> None:
    with refused(f"--budget {budget}:", code="invalid-budget"):
        chosen(probe_folder(tmp_path, samples()), budget=budget)


@pytest.mark.parametrize("budget", ["5", "1.5", "0.01"])
def test_a_budget_that_does_not_fit_is_refused(tmp_path: Path, budget: str) -> None:
    folder = probe_folder(tmp_path, samples())
    with refused("between 1 and 4", by=PolicyError):
        chosen(folder, budget=budget)
    assert not (folder.parent / "subset.parquet").exists()


def test_a_path_without_a_probe_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.parquet").write_text("no table")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    pq.write_table(samples().select(["prompt_id", "outcome"]), tmp_path / "unnumbered.parquet")
    for name, code in {
        "none": "no-probe",
        "empty": "no-probe",
        "junk.parquet": "no-parquet",
        "other.parquet": "no-samples",
        "unnumbered.parquet": "no-samples",
    }.items():
        with refused(tmp_path / name, code=code):
            chosen(tmp_path / name)


def test_probes_of_other_settings_are_not_merged_and_the_difference_is_named(
    tmp_path: Path,
) -> None:
    keys = {
        "one": {"model": {"name": "m", "revision": "1"}, "temperature": 1.0, "seed": 0},
        "two": {
            "model": {"name": "m", "revision": "2"},
            "temperature": 1.0,
            "seed": 0,
            "top_p": 0.9,
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
        ((one, none), "keys one and none"),
        ((file, one), "keys none and one"),
        ((one, file), "keys one and none"),
    ):
        with refused(*pair, f": {difference}: ", code="different-probes"):
            select_samples(pair, PolicyEntry(policy="hard"), "2", 0, tmp_path / "subset.parquet")


@pytest.mark.parametrize(
    ("policy", "budget", "seed", "undecided"),
    [
        ("hard", "1", 0, 0),  # b fails all; whatever a's other samples are, it does not
        ("hard", "2", 0, 0),
        ("hard", "3", 0, 0),  # should a end at half, the tie-breaker prefers c
        ("hard", "3", 1, 1),  # that of another seed prefers a
        ("easy", "1", 0, 1),  # the same tie may cost a its place
        ("easy", "2", 0, 0),
        ("random", "3", 0, 0),
        ("learnable", "1", 0, 4),
    ],
)
def test_a_probe_that_stopped_early_serves_the_subsets_that_it_has_decided(
    tmp_path: Path, policy: str, budget: str, seed: int, undecided: int
) -> None:
    parts = pa.concat_tables([samples("a", range(2)), samples("bcd")])
    pq.write_table(parts, tmp_path / "samples.parquet")
    if undecided:
        with refused(f"{undecided} of 4", policy, code="undecided"):
            chosen(tmp_path / "samples.parquet", policy, budget, seed)
        return
    early = chosen(tmp_path / "samples.parquet", policy, budget, seed)
    pq.write_table(samples(), tmp_path / "samples.parquet")
    assert {*early} == {*chosen(tmp_path / "samples.parquet", policy, budget, seed)}


def test_a_torn_part_is_refused(tmp_path: Path) -> None:
    folder = probe_folder(tmp_path, samples("ab"), samples("cd"))
    part = min(folder.glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-10])
    with refused(part, code="unsound-part"):
        chosen(folder)


def test_the_command_prints_the_reason_as_json_or_in_one_line(tmp_path: Path, capsys) -> None:
    folder, out = probe_folder(tmp_path, samples()), tmp_path / "subset.parquet"
    arguments = ["select", "--probe", str(folder), "--policy", "random", "--budget", "2"]
    arguments += ["--seed", "2", "--out", str(out)]
    assert main(arguments) == 0
    line, rows = capsys.readouterr().out.splitlines()
    assert line == f"2 prompts: {out}"
    assert rows == "rows: 4 read, 2 left out (2 not chosen by random), 2 written"
    first = pq.read_table(out)
    assert main([*arguments, "--json", "--force"]) == 0
    why = json.loads(capsys.readouterr().out)
    assert (why["policy"], why["size"], why["seed"], why["ties"]) == ("random", 2, 2, None)
    assert pq.read_table(out) == first


def test_unknown_outcomes_and_non_numeric_rates_are_refused(tmp_path: Path) -> None:
    file, out = tmp_path / "table.parquet", tmp_path / "subset.parquet"
    pq.write_table(pa.table({"prompt_id": ["a"], "pass_rate": ["high"]}), file)
    with refused(file, "pass_rate", "string", "0 to 1"):
        select_file([file], PolicyEntry(policy="hard"), "1", 0, out)
    pq.write_table(pa.table({"prompt_id": ["a"], "sample": [0], "outcome": ["right"]}), file)
    with refused(file, "'right'", *OUTCOMES):
        select_samples([file], PolicyEntry(policy="hard"), "1", 0, out)


def test_datasets_that_share_a_folder_are_refused(tmp_path: Path) -> None:
    """Whether the probes of both are finished or not."""
    few, fewer = ({"task": "shuffled_objects", "options": {"train": n, "test": 12}} for n in (8, 9))
    grid = {"model": ["stub"], "dataset": ["few", "fewer"], "policy": ["hard"]}
    datasets = {"few": few, "fewer": fewer}
    plan = small_plan(tmp_path, grid=grid, datasets=datasets, budget=0.25, grpo=ONE_PROMPT)
    store, [one, other] = Store(str(tmp_path / "runs")), plan.cells
    assert one.probe.key == other.probe.key
    folder = tmp_path / "runs" / "probes" / one.probe.key
    for cell in (one, other):
        table = samples(prompt.prompt_id for prompt in plan.pool(cell.probe).train)
        write_part(store, cell.probe.key, "train", table)
        with refused(folder, code="not-one-pool"):
            chosen(folder)
        store_subset(store, cell, difficulty(table))
        if cell is one:
            assert len(chosen(folder)) == 2
    with refused(folder, "2 pools", code="several-pools"):
        chosen(folder)


def test_questions_of_the_test_split_are_never_selected(tmp_path: Path) -> None:
    alone = probe_folder(tmp_path / "alone", samples(), split="test")
    with refused(alone, code="test-split-only"):
        chosen(alone)
    both = probe_folder(tmp_path, samples("acd"), pools=["acd"])
    write_part(Store(str(tmp_path)), "key", "test", samples("b"))
    assert chosen(both, budget="3") == ["d", "c", "a"]
    write_part(Store(str(tmp_path)), "key", "test", samples("a"))
    with refused(both, code="train-in-test"):
        chosen(both)


@pytest.mark.parametrize(
    ("parts", "pools", "code"),
    [
        (["ab", "cd"], ["ab", "cd"], "several-pools"),
        (["abcd"], ["abcd", "ab"], "several-pools"),
        (["ab", "cd"], ["ab"], "not-one-pool"),
        (["abc"], ["abcd"], "not-one-pool"),
        (["ab", "cd"], [], "not-one-pool"),
    ],
    ids=["two pools", "a part of a pool", "an interrupted probe", "a lost part", "none finished"],
)
def test_samples_of_anything_but_one_pool_are_refused(
    tmp_path: Path, parts: list[str], pools: list[str], code: str
) -> None:
    folder = probe_folder(tmp_path, *map(samples, parts), pools=pools)
    files, out = sorted(folder.glob("*.parquet")), tmp_path / "subset.parquet"
    for probes in ([folder], files):
        with refused(probes[0], code=code):
            select_samples(probes, PolicyEntry(policy="hard"), "1", 0, out)
    assert not out.exists()


def test_the_parts_of_one_pool_are_selected_from_under_any_path_in_their_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = probe_folder(tmp_path / "runs", samples("ab"), samples("cd"))
    own = tmp_path / "subset.parquet"
    expected = select_samples([folder], PolicyEntry(policy="hard"), "3", 0, own)
    mine = with_reason(SUBSET.empty_table(), expected)
    Store(str(tmp_path / "runs")).write_table(mine, "subsets", "mine.parquet")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    files = [Path(file.name) for file in folder.glob("*.parquet")]
    for probes in (files, [Path(".")], [Path("../key/")], [tmp_path / "link"]):
        why = select_samples(probes, PolicyEntry(policy="hard"), "3", 0, tmp_path / "out.parquet")
        assert {**why, "source": None} == {**expected, "source": None}
        assert pq.read_table(tmp_path / "out.parquet").equals(pq.read_table(own))
    other = tmp_path / "other"
    folder.parent.parent.rename(other)
    (other / "subsets").rename(tmp_path / "elsewhere")
    with refused(code="not-one-pool"):
        chosen(other / "probes" / "key")


def test_marks_of_several_markers_are_refused(tmp_path: Path) -> None:
    one, two = marked(samples("ab"), "m/1"), marked(samples("cd"), "m/2")
    folder = probe_folder(tmp_path / "parts", one, two)
    with refused("m/1, m/2", code="several-markers"):
        chosen(folder)
    whole = marked(samples(), "m/1")
    probe_folder(tmp_path / "subsets", whole)
    folder = probe_folder(tmp_path / "subsets", marker="m/2")
    with refused("m/1, m/2", code="several-markers"):
        chosen(folder)
    file = tmp_path / "imported.parquet"
    pq.write_table(pa.concat_tables([one, two]), file)
    with refused("m/1, m/2", code="several-markers"):
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
        with refused("m/1, m/2", code="several-markers"):
            chosen(folder)
    else:
        assert chosen(folder) == ["b", "d"]
