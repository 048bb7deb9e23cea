"""How far samples agree, as the marker compares answers; and the policies that need no gold."""

from collections import Counter
from itertools import product
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from factories import sample_row, small_plan, store_samples
from hypothesis import given, settings
from hypothesis import strategies as st
from remedies import refused

from orchestrator.difficulty import answers as module
from orchestrator.difficulty.answers import Spellings, votes_of
from orchestrator.difficulty.pool_spellings import PoolSpellings, comparison_of
from orchestrator.difficulty.probe_table import CellTables
from orchestrator.difficulty.summary import summarise
from orchestrator.difficulty.table import difficulty
from orchestrator.plugins.difficulty_table import DIFFICULTY, OF_GOLDS
from orchestrator.probing.answers import LONGEST, Answers, encoded
from orchestrator.probing.probe_folder import ProbeFolder
from orchestrator.report.render import terminal_probe
from orchestrator.report.sections.pool import agreement_lines, probe_report
from orchestrator.storage.schema import SAMPLES
from orchestrator.storage.store import Store
from policies import (
    Policy,
    PolicyError,
    ScorePolicy,
    find_policy,
    get_policy,
    policy_names,
)
from policies.online import is_online
from tasks import OUTCOMES, Prompt, Task, get_task, make_prompt
from tasks.competition_math import CompetitionMath
from tasks.marking.marks import UNREAD
from tasks.prompt_table import PromptTable

WITHOUT_GOLDS = {
    "least_agreed": {},
    "most_agreed": {},
    "agreement_band": {"low": 0.2, "high": 0.5},
    "uncertain": {},
    "longest": {},
    "random": {},
    "full": {},
    "diverse": {"clusters": 3},
    "tiers": {"levels": ["0", "1"]},
    "mixture": {"shares": {"least_agreed": 0.5, "random": 0.5}},
}


def golds_of(rng: np.random.Generator, rows: int) -> pa.Table:
    """A difficulty table; what does not depend on golds is the same whatever the generator."""
    fixed = np.random.default_rng(0)
    columns = {}
    for field in DIFFICULTY:
        drawn = (rng if field.name in OF_GOLDS else fixed).integers(0, 5, rows)
        kinds = {pa.bool_(): drawn > 2, pa.string(): drawn.astype(str)}
        columns[field.name] = pa.array(kinds.get(field.type, drawn / 4)).cast(
            field.type, safe=False
        )
    columns["first"] = pa.array(OUTCOMES).take(pa.array(rng.integers(0, 5, rows)))
    columns["question"] = pa.array([f"question {i % 7} of {i}" for i in range(rows)])
    return pa.table(columns).replace_schema_metadata({"doubt": str(rng.random())})


class Mine:
    """A policy of a user's own that tries to read golds."""

    reads_golds = False
    seen: list[pa.Table]

    def __init__(self) -> None:
        Mine.seen = []

    def __call__(self, table: pa.Table, size: int, rng: np.random.Generator) -> np.ndarray:
        Mine.seen.append(table)
        return np.arange(size)

    def eligible(self, table: pa.Table) -> np.ndarray:
        Mine.seen.append(table)
        return np.ones(table.num_rows, bool)

    def ties(self, table: pa.Table, rows: np.ndarray) -> None:
        Mine.seen.append(table)


class MyScore(ScorePolicy):
    """Another one, with scores."""

    reads_golds = False

    def score(self, difficulty: pa.Table) -> np.ndarray:
        Mine.seen.append(difficulty)
        return np.zeros(difficulty.num_rows)


def mine(table: pa.Table, size: int, rng: np.random.Generator, skip: int) -> np.ndarray:
    Mine.seen.append(table)
    return np.arange(skip, size + skip)


mine.reads_golds = False  # type: ignore[attr-defined]


def test_no_gold_answer_reaches_a_policy_that_reads_none() -> None:
    """Whatever the golds say, it chooses the same; and its table has no column of them."""
    rng = np.random.default_rng(0)
    rules = {name: get_policy(name, **options) for name, options in WITHOUT_GOLDS.items()}
    built = {name: Policy(name, rule) for name, rule in rules.items()}
    static = [name for name in policy_names() if not is_online(find_policy(name))]
    others = {"base_wrong", "base_right", "band", "hard", "easy", "middle"}
    assert {*static} - {*built} - others == {"hardest_nonzero", "learnable"}
    assert not any(policy.reads_golds for policy in built.values())
    own = f"{__name__}:Mine", f"{__name__}:mine"
    built |= {"class": Policy(own[0], get_policy(own[0]))}
    built |= {"function": Policy(own[1], get_policy(own[1], skip=2))}
    built |= {"within": Policy("uncertain", get_policy("uncertain", within="tier"))}
    mixed = get_policy("mixture", shares={own[0]: 0.5, "most_agreed": 0.5})
    built |= {"mixed": Policy("mixture", mixed)}
    reads = get_policy("mixture", shares={"hard": 0.5, f"{__name__}:MyScore": 0.5})
    Policy("mixture", reads)(golds_of(np.random.default_rng(0), 60), 20, rng)
    for name, policy in built.items():
        results = []
        for seed in range(4):
            table = golds_of(np.random.default_rng(seed), 60)
            rows = policy(table, 20, np.random.default_rng(1))
            results.append(
                (
                    *(rows.tolist(), policy.eligible(table).tolist(), policy.capacity(table)),
                    *(policy.ties(table, rows), policy.tied(table, rows)[0]),
                    *(policy.notes(table, rows), policy.capacity_text(table)),
                )
            )
        assert all(result == results[0] for result in results), name
    assert len(Mine.seen) > 20
    for table in Mine.seen:
        assert not OF_GOLDS & {*table.column_names} and not table.schema.metadata


Sample = tuple[str, str | None]  # outcome and extracted answer
MATH = get_task("math")


def samples_of(prompts: dict[str, list[Sample]]) -> pa.Table:
    rows = [
        sample_row(prompt_id, i, outcome=outcome, extracted=extracted, tokens=10 * i)
        for prompt_id, given in prompts.items()
        for i, (outcome, extracted) in enumerate(given)
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def rated(task: Task | None = None, **prompts: list[Sample]) -> dict[str, dict[str, Any]]:
    table = difficulty(samples_of(prompts), {"none": ""}, task=task)
    return {row["prompt_id"]: row for row in table.to_pylist()}


def wrong(*answers: str) -> list[Sample]:
    return [("wrong", answer) for answer in answers]


# --- which answers are the same ---


@pytest.mark.parametrize(
    ("name", "options", "same", "others"),
    [
        ("math", {}, ["1/2", "0.5", r"\frac12", "50\\%"], ["0.25", "x/2", r"\text{half}", "(1,2)"]),
        ("math", {}, ["(1,2)", r"\left(1, \frac{4}{2}\right)"], ["(2,1)", "1", r"\{3,2\}"]),
        ("math", {}, ["x^2-1", "(x+1)(x-1)"], ["x^2+1", "1-x^2", "0.5", "1e"]),
        ("math", {}, ["18,150", "18150"], ["18", "150", "(18,151)"]),
        ("math", {}, [r"\text{(B)}", "(B)"], ["c", r"\text{(A)}"]),
        ("math", {"marking": "strict"}, [r"\dfrac12", r"\frac{1}{2}"], ["0.5", "x"]),
        ("gsm8k", {}, ["7"], ["7/2", "70", "-7"]),
        ("shuffled_objects", {}, ["(A)"], ["(B)"]),
        ("file", {"marker": "text"}, ["New York", r"\text{new york}."], ["York", "New"]),
        ("file", {"marker": "text", "marking": "strict"}, ["New York"], ["new york"]),
        ("file", {"marker": "expression"}, ["2", r"\sqrt{4}"], ["4"]),
        ("file", {"marker": "number"}, ["2"], ["4"]),
    ],
)
def test_answers_are_the_same_as_the_marker_compares_them(
    name: str, options: dict[str, str], same: list[str], others: list[str]
) -> None:
    task = get_task(name, **options)
    for one, two in product(same, same):
        assert task.same_answer(one, two), (one, two)
        assert task.mark(task.format_answer(two), one).outcome == "correct"
    for one, two in (*product(same, others), *product(others, same)):
        assert not task.same_answer(one, two), (one, two)
        assert task.mark(task.format_answer(two), one).outcome != "correct"
    row = rated(task, p=wrong(*same, *same, *others))["p"]
    assert row["answers"] == 1 + len(others)
    assert row["agreement"] == 2 * len(same) / row["n"]


ANSWERS = [
    *("1/2", "0.5", ".5", r"\frac{1}{2}", r"50\%", "5 cm", "5", "5 kg", "x=5", "x = 5", "5x", "2i"),
    *("(1,2)", "(1, 2)", "1,2", r"\{2,1\}", "18,150", "(18,150)", r"\sqrt{2}", "1.41421356", "1.4"),
    *(r"\begin{pmatrix}1\\2\end{pmatrix}", r"\text{even}", "even", r"1 \pm 2", "-1, 3", "x>5"),
    *(r"90^\circ", "90", r"\frac{\pi}{2}", r"\log 8", r"\ln 8", r"\infty", r"-\infty", "(B)", "b"),
    *("9" * 250, "9" * 249 + "8", "19999!", r"10^{10^{10}}", r"(2,\infty)", "[2,3)", "(2,3)", "0"),
    *(r"\frac{\pi}{14}", "0.2243995", r"\sqrt[3]{x-2}", "(x-2)^{1/3}", "-2i", "1+", "(", "3 cm"),
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=7))
def test_answers_are_grouped_as_if_each_was_compared_with_the_first_of_every_group(
    given_answers: list[str],
) -> None:
    groups: list[list[str]] = []
    count = Counter(given_answers)
    for text in sorted(count, key=lambda text: (-count[text], text)):
        group = next((g for g in groups if MATH.same_answer(g[0], text)), None)
        if group is None or (len(text) > 200 and text not in group):
            groups.append([text])
        else:
            group.append(text)
    expected = sorted(sum(count[text] for text in group) for group in groups)
    samples = samples_of({"p": wrong(*given_answers), "q": wrong(*given_answers[::-1])})
    votes = votes_of(samples, difficulty(samples), comparison_of(MATH))
    for row in (0, 1):
        assert sorted(votes.samples[votes.row == row].tolist()) == expected
    assert (votes.wrong == votes.samples).all()


def test_the_most_frequent_answer_begins_the_first_group() -> None:
    for texts, sizes in (
        (["5 cm", "5", "5", "5 kg"], [4]),
        (["5 cm", "5 cm", "5", "5 kg"], [1, 3]),
    ):
        samples = samples_of({"p": wrong(*texts)})
        votes = votes_of(samples, difficulty(samples), comparison_of(MATH))
        assert sorted(votes.samples.tolist()) == sizes


def test_a_key_never_divides_what_the_marker_takes_as_the_same() -> None:
    for marking in ("lenient", "strict"):
        key, same = get_task("math", marking=marking).comparison
        assert same is not None
        for one, two in product(ANSWERS, ANSWERS):
            if "" not in (key(one), key(two)) and key(one) != key(two):
                assert not same(one, two), (one, two)


def test_an_answer_is_shown_in_the_spelling_that_most_wrong_samples_have() -> None:
    samples = samples_of({"p": [("correct", "0.5")] * 3 + wrong(".5", "1/2", "1/2")})
    votes = votes_of(samples, difficulty(samples), comparison_of(MATH))
    assert votes.texts.take(pa.array(votes.text)).to_pylist() == ["1/2"]
    assert (votes.samples.tolist(), votes.wrong.tolist()) == ([6], [3])


def test_large_and_hostile_answers_are_compared_by_their_texts() -> None:
    hostile = [
        *(f"\\{{{','.join(f'{i}!' for i in range(5_000 + n, 5_300))}\\}}" for n in range(4)),
        *(f"({','.join(['3^{99999}'] * 150)},{n})" for n in range(4)),
        *("{" * n * 10_000 for n in range(1, 3)),
    ]
    assert all(map(MATH.comparison.key, hostile)), "comparing a pair takes seconds"
    row = rated(MATH, p=wrong(*hostile, *hostile))["p"]
    assert row["answers"] == len(hostile) and row["agreement"] == 2 / row["n"]
    texts = ["a" * (LONGEST + n) for n in (0, 1, 2, 2)]
    codes, distinct = encoded(pa.chunked_array([texts]))
    assert len(set(codes.tolist())) == len(distinct) == 3
    assert max(map(len, distinct.to_pylist())) == LONGEST


class MathsOfMyOwn(CompetitionMath):
    """A task of a user's own, which must not run in this process."""

    def mark(self, *arguments: Any) -> Any:
        raise AssertionError

    @property
    def comparison(self) -> Any:
        raise AssertionError


def test_answers_of_a_users_own_task_or_function_are_compared_as_texts() -> None:
    function = get_task("file", marker="reward_functions_of_users:accuracy")
    for task in (MathsOfMyOwn(), function, None):
        row = rated(task, p=wrong("1/2", "0.5", " One", "one", r"\dfrac12"))["p"]
        assert (row["answers"], row["agreement"]) == (4, 2 / 5)


def test_the_answers_of_a_mix_are_compared_as_each_data_set_does() -> None:
    parts = {
        "maths": {"task": "math"},
        "names": {"task": "file", "options": {"marker": "text"}},
    }
    mix = get_task("mix", parts=parts)
    pool = [Prompt(f"{i:016x}", "q", "a", "", source=["maths", "names"][i % 2]) for i in range(6)]
    prompts = PromptTable.of(pool[::-1])
    codes, texts = encoded(pa.chunked_array([["1/2", "0.5", "0.5."] * 6]))
    outcomes = np.full((6, 3), OUTCOMES.index("wrong"), np.uint8)
    answers = Answers(codes.reshape(6, 3), texts)
    votes = PoolSpellings(answers, mix, prompts).votes(outcomes)
    assert np.bincount(votes.row).tolist() == [1, 2, 1, 2, 1, 2]
    assert PoolSpellings(answers, mix, prompts).votes(outcomes[:, :1]).samples.tolist() == [1] * 6


# --- the columns ---


def test_columns_say_how_far_the_samples_with_an_answer_agree() -> None:
    rows = rated(
        MATH,
        split=[("correct", "1/2"), ("wrong", "2"), ("wrong", "0.5"), ("truncated", None)],
        one=[("correct", "3")] * 2 + [("error", "4")],
        unread=[("unparsed", None), ("truncated", "5")],
        failed=[("error", None)],
    )
    columns = ("agreement", "answers", "entropy")
    split = rows["split"]
    assert [split[name] for name in columns[:2]] == [2 / 4, 2]
    assert split["entropy"] == pytest.approx(log(3) - 2 / 3 * log(2))
    assert [rows["one"][name] for name in columns] == [1, 1, 0]
    assert [rows["unread"][name] for name in columns] == [0, 0, None]
    assert [rows["failed"][name] for name in columns] == [None, 0, None]
    assert [rows["none"][name] for name in columns] == [None, 0, None]
    assert (split["tokens"], split["tokens_sd"]) == (
        15,
        pytest.approx(np.std([0, 10, 20, 30], ddof=1)),
    )
    assert rows["unread"]["tokens"] == 5 and rows["none"]["tokens"] is None
    assert rows["failed"]["tokens"] == 0 and rows["failed"]["tokens_sd"] is None


def test_columns_are_null_where_no_answer_is_read_and_no_length_is_known() -> None:
    samples = samples_of({"p": [("correct", None), ("unparsed", None)]})
    columns = ("agreement", "answers", "entropy")
    assert [difficulty(samples)[name].null_count for name in columns] == [1] * 3
    known = samples_of({"p": wrong("1", "2")}).drop_columns(["extracted", "tokens"])
    names = (*columns, "tokens", "tokens_sd", "suspected", "dispute")
    assert [difficulty(known)[name].null_count for name in names] == [1] * 7
    lengths = pa.array([None, 4], pa.int32())
    assert difficulty(known.append_column("tokens", lengths))["tokens"].to_pylist() == [4]
    zeros = pa.array([0, 0], pa.int32())
    assert difficulty(known.append_column("tokens", zeros))["tokens"].to_pylist() == [None]


GIVEN = st.tuples(st.sampled_from(OUTCOMES), st.sampled_from([None, *ANSWERS[:8]]))


@settings(max_examples=50)
@given(
    st.dictionaries(st.sampled_from("abcde"), st.lists(GIVEN, min_size=1), min_size=1), st.randoms()
)
def test_agreement_does_not_depend_on_gold_answers_or_the_order_of_samples(
    prompts: dict[str, list[Sample]], random: Any
) -> None:
    """Correct and wrong answers change places; those that were not read stay."""
    other = {
        prompt_id: [
            (outcome if outcome in UNREAD else random.choice(["correct", "wrong"]), text)
            for outcome, text in random.sample(given_samples, len(given_samples))
        ]
        for prompt_id, given_samples in prompts.items()
    }
    one, two = (difficulty(samples_of(each), task=MATH) for each in (prompts, other))
    for name in ("agreement", "answers", "entropy"):
        assert one[name].equals(two[name]), name
    known = one["agreement"].drop_null().to_numpy()
    assert ((known >= 0) & (known <= 1)).all()
    assert (pc.fill_null(one["entropy"], 0).to_numpy() >= 0).all()


def probed(folder: Path, policies: Any = ("hard", "least_agreed"), **settings: Any) -> Any:
    """A probe of four samples, whose answers are more varied from one prompt to the next."""
    plan, store = small_plan(folder, policies=policies, **settings), Store(str(folder / "runs"))
    (spec,) = (spec for spec in plan.probes if spec.split == "train")
    rows = []
    for number, prompt in enumerate(plan.pool(spec).train):
        answers = ["(A)", "ABCD"[number % 4 % 2], "ABCD"[number % 4], f"({'ABCD'[number % 4]})"]
        for i, answer in enumerate(answers):
            text = answer if answer[0] == "(" else f"({answer})"
            right = text == prompt.answer
            outcome = {"outcome": "correct" if right else "wrong", "extracted": text}
            rows.append(sample_row(prompt.prompt_id, i, tokens=number + i) | outcome)
    half = len(rows) // 2
    twice = [row | {"extracted": "(E)", "outcome": "wrong"} for row in rows[half - 4 : half]]
    store_samples(store, spec, rows[:half])
    store_samples(store, spec, [*twice, *rows[half:]])
    return plan, store, spec


def test_stored_samples_have_the_columns_of_the_same_samples_in_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 30)
    plan, store, spec = probed(tmp_path)
    pool = plan.pool(spec)
    folder = ProbeFolder(store, spec, pool.train, pool.task)
    samples = folder.samples()  # each once
    names = ("agreement", "answers", "entropy", "tokens", "tokens_sd")
    for k in (4, 2):
        own = spec.model_copy(update={"settings": spec.settings.model_copy(update={"samples": k})})
        table = CellTables(folder.outcomes(), folder).with_group(own, 4, answers=True)
        expected = difficulty(samples.filter(pc.less(samples["sample"], k)), task=pool.task)
        for name in names:
            assert table[name].equals(expected[name]), name
    assert len(set(table["agreement"].to_pylist())) > 1
    hard, least = (cell for cell in plan.cells if cell.probe.settings.samples == 4)
    tables = CellTables(folder.outcomes(), folder)
    assert tables.of(hard)["agreement"].null_count == len(pool.train)
    assert tables.of(hard)["tokens"].null_count == 0
    assert tables.of(least)["agreement"].null_count == 0


# --- policies ---

COLUMNS = pa.table(
    {
        "prompt_id": list("abcde"),
        "agreement": [0.2, None, 1.0, 0.5, 0.5],
        "entropy": [1.0, None, 0.0, 0.2, 0.6],
        "tokens": [3.0, 9.0, 1.0, 5.0, None],
        "pass_rate": [0.0, 0.1, 0.2, 0.3, 0.4],
    }
)


def chosen(name: str, size: int, seed: int = 0, **options: Any) -> list[str]:
    policy = Policy(name, get_policy(name, **options))
    rows = policy(COLUMNS, size, np.random.default_rng(seed))
    return COLUMNS["prompt_id"].take(pa.array(rows)).to_pylist()


def test_policies_take_the_ends_of_agreement_entropy_and_length_and_unknown_ones_last() -> None:
    for seed in range(4):
        assert chosen("least_agreed", 5, seed)[0] == "a" and chosen("least_agreed", 5)[-1] == "b"
        assert chosen("most_agreed", 5, seed)[0] == "c" and chosen("most_agreed", 5)[-2:] == [
            "a",
            "b",
        ]
    assert {chosen("least_agreed", 2, seed)[1] for seed in range(20)} == {"d", "e"}, "ties"
    assert chosen("uncertain", 5) == ["a", "e", "d", "c", "b"]
    assert chosen("longest", 5) == ["b", "d", "a", "c", "e"]
    assert sorted(chosen("agreement_band", 3, low=0.2, high=0.5)) == ["a", "d", "e"]
    with refused("agreement_band has 3 of 4", "0.2 to 0.5", by=PolicyError):
        chosen("agreement_band", 4, low=0.2, high=0.5)
    policy = Policy("least_agreed", get_policy("least_agreed"))
    rows = policy(COLUMNS, 2, np.random.default_rng(0))
    assert policy.ties(COLUMNS, rows) == (2, 1)


@pytest.mark.parametrize("name", ["least_agreed", "uncertain", "longest", "agreement_band"])
def test_a_table_without_what_a_policy_reads_is_refused(name: str) -> None:
    policy = Policy(name, get_policy(name, **WITHOUT_GOLDS[name]))
    with refused("random", by=PolicyError):
        policy(difficulty(samples_of({"p": [("unparsed", None)]})), 1, np.random.default_rng(0))
    with refused("which this table does not have", by=PolicyError):
        policy(COLUMNS.select(["prompt_id"]), 1, np.random.default_rng(0))


def test_every_column_depends_on_gold_answers_or_does_not() -> None:
    shown = {
        *("prompt_id", "tier", "n", "unparsed", "truncated", "error", "short"),
        *("agreement", "answers", "entropy", "tokens", "tokens_sd"),
    }
    assert {*DIFFICULTY.names} - OF_GOLDS == shown and {*DIFFICULTY.names} >= OF_GOLDS


@pytest.mark.parametrize(
    "options",
    [
        {"require": "parsed"},
        {"exclude": "suspected"},
        {"exclude": "unsolved"},
        {"within": "pass_rate"},
        {"where": {"first": "correct"}},
    ],
)
def test_options_that_read_golds_make_any_policy_read_them(options: dict[str, Any]) -> None:
    for name, own in WITHOUT_GOLDS.items():
        policy = Policy(name, get_policy(name, **own, **options))
        assert policy.reads_golds, name
        table = golds_of(np.random.default_rng(0), 60)
        assert policy.shown(table) is table
        outer = get_policy("mixture", shares={name: {"share": 1, **own, **options}})
        assert Policy("mixture", outer).reads_golds, name
    inner = {"share": 0.5, "exclude": "suspected"}
    mixed = get_policy("mixture", shares={"least_agreed": 0.5, "random": inner})
    assert Policy("mixture", mixed).reads_golds and Policy("mixture", mixed).reads_answers


def test_a_policy_without_golds_says_nothing_of_suspected_ones_and_of_a_second_probe() -> None:
    samples = samples_of({f"p{i}": wrong("1", "1", "12"[i % 2]) for i in range(20)})
    table = difficulty(samples)
    for name, known in (("least_agreed", False), ("longest", False), ("hard", True)):
        policy = Policy(name, get_policy(name))
        assert not policy.excludes_suspected
        summary = summarise(table, 4, policy, 0, 3, repeats=2)
        assert (summary.overlap is not None) == known
    mixed = get_policy("mixture", shares={"least_agreed": 0.5, "hard": 0.5})
    assert not Policy("mixture", mixed).simulated
    assert not Policy("hard", get_policy("hard", by="score")).simulated


# --- the page ---


def test_the_page_says_how_far_samples_agree_and_how_that_ranks_prompts(tmp_path: Path) -> None:
    plan, store, _ = probed(tmp_path)
    report = probe_report(plan, store)
    [pool] = report.pools
    first, second = agreement_lines(pool.table)
    agreement = pool.table["agreement"].to_numpy()
    assert f"{agreement.mean():.2f}" in first
    assert f"{(agreement == 1).sum()} prompts" in first
    text = terminal_probe(report)
    assert first in text and second in text
    [row] = (b for s in report.sections for b in s.blocks if hasattr(b, "figures"))
    assert len(row.figures) == 3
    for figure in row.figures:
        assert figure.draw().axes
    bars = [bar.get_height() for bar in row.figures[1].draw().axes[0].patches]
    assert bars == np.bincount(np.rint(agreement * 4).astype(int), minlength=5).tolist()


def test_the_hardest_tenth_is_compared_with_itself_under_other_ties() -> None:
    table = pa.table(
        {
            "agreement": [*np.full(10, 0.5), *np.full(10, 0.2), *np.linspace(0.6, 1, 80)],
            "pass_rate": [*np.zeros(20), *np.linspace(0.1, 1, 80)],
        }
    )
    _, line = agreement_lines(table)
    # The least agreed ten are half of the twenty prompts that tie as the hardest.
    assert line.count("50 %") == 2
    none = pa.table({"agreement": pa.nulls(3, pa.float64()), "pass_rate": [0.1, 0.2, 0.3]})
    assert agreement_lines(none) == []
    unlabelled = pa.table({"agreement": [0.5, 1.0], "pass_rate": pa.nulls(2, pa.float64())})
    assert len(agreement_lines(unlabelled)) == 1


def test_spellings_without_any_answer_have_no_votes() -> None:
    nothing = np.empty(0, np.int64)
    votes = Spellings(pa.array([], pa.string())).votes(nothing, nothing, nothing > 0)
    assert not len(votes.row) and votes.of_rows(0, 3).entries.shape == (4, 0)


def test_a_prompt_of_a_mix_belongs_to_the_task_of_its_source() -> None:
    parts = {"maths": {"task": "math"}, "grade": {"task": "gsm8k"}}
    mix = get_task("mix", parts=parts)
    assert mix.task_of("grade").name == "gsm8k" and MATH.task_of("any") is MATH
    assert make_prompt("t", "q", "a", "").source == ""
