"""What is wrong with a run, from a table of its completions and metrics; no file is read."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evaluation import diagnosis, run_facts
from orchestrator.evaluation.run_facts import Facts, change_of
from orchestrator.evaluation.run_log import COMPLETIONS, METRICS, RunLog
from orchestrator.report.sections.diagnosis import diagnosis_page, fact_lines

UPDATES, PROMPTS, SIZE = 40, 8, 8
Curve = Callable[[float], float]  # of the share of updates done, 0 to 1


def completions(
    rate: Curve = lambda done: 0.4 + 0.3 * done,
    *,
    seed: int = 0,
    pool: int = 64,
    updates: int = UPDATES,
    **columns: Callable[[float, bool, np.random.Generator], Any],
) -> pa.Table:
    """A run whose completions are correct with this chance; `columns` replace others of theirs."""
    rng = np.random.default_rng(seed)
    rows = []
    for update in range(1, updates + 1):
        done = (update - 1) / max(1, updates - 1)
        for place in range(PROMPTS):
            group = (update - 1) * PROMPTS + place
            for _ in range(SIZE):
                correct = bool(rng.random() < rate(done))
                row = {
                    "update": update,
                    "group": group,
                    "prompt": f"p{group % pool}",
                    "reward": float(correct),
                    "correct": correct,
                    "tokens": int(rng.integers(50, 100)),
                    "truncated": False,
                    "text": None,
                }
                rows.append(row | {n: each(done, correct, rng) for n, each in columns.items()})
    return pa.Table.from_pylist(rows, schema=COMPLETIONS)


def diagnose(table: pa.Table | None = None, **settings: Any) -> diagnosis.Diagnosis:
    table = COMPLETIONS.empty_table() if table is None else table
    return diagnosis.diagnose(RunLog("run", "table", table, **settings))


def diagnosed(table: pa.Table | None = None, **settings: Any) -> dict[str, diagnosis.Finding]:
    """The findings by code."""
    return {finding.code: finding for finding in diagnose(table, **settings).findings}


def unchecked(table: pa.Table | None = None, **settings: Any) -> dict[str, str]:
    """Codes that could not be checked, and why."""
    return dict(diagnose(table, **settings).unchecked)


def steps(values: Curve, updates: int = UPDATES) -> dict[int, float]:
    return {u: values((u - 1) / (updates - 1)) for u in range(1, updates + 1)}


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_run_is_silent(seed: int) -> None:
    rising = completions(seed=seed)
    flat = completions(lambda done: 0.5, seed=seed)
    noise = np.random.default_rng(seed)
    metrics = {
        "kl": steps(lambda done: 0.05 * done),
        "grad_norm": steps(lambda done: float(noise.uniform(0.1, 0.5))),
        "entropy": steps(lambda done: 0.5 - 0.3 * done),
        "learning_rate": steps(lambda done: 1e-5),
        "logp_difference": steps(lambda done: 0.01),
    }
    assert diagnosed(rising, metrics=metrics, planned=UPDATES) == {}
    assert diagnosed(flat) == {}


# What is planted -> the code that names it, and whether it is a problem.
PLANTED: dict[str, tuple[dict[str, Any], str, bool]] = {
    "nothing is solved": ({"table": completions(lambda done: 0.002)}, "dead", True),
    "all is solved": ({"table": completions(lambda done: 0.998)}, "dead", True),
    "few are live": ({"table": completions(lambda done: 0.025)}, "dead", False),
    "solved at the end": (
        {"table": completions(lambda done: 0.4 + 0.6 * min(1.0, 1.5 * done))},
        "run-dry",
        False,
    ),
    "cut": (
        {"table": completions(truncated=lambda done, correct, rng: rng.random() < 0.7)},
        "truncated",
        True,
    ),
    "cut more and more": (
        {"table": completions(truncated=lambda done, correct, rng: rng.random() < 0.3 * done)},
        "truncated",
        False,
    ),
    "a second reward": (
        {
            "table": completions(
                lambda done: 0.02 + 0.1 * done,
                reward=lambda done, correct, rng: correct + 0.1 * rng.random(),
            )
        },
        "phantom",
        True,
    ),
    "reward without answers": (
        {
            "table": completions(
                lambda done: 0.5, reward=lambda done, correct, rng: correct + 2 * done
            )
        },
        "reward-not-correctness",
        False,
    ),
    "collapse": ({"table": completions(lambda done: 0.6 - 0.4 * done)}, "collapse", True),
    "reset": (
        {"table": completions(lambda done: 0.2 + (done % 0.6))},
        "reset",
        True,
    ),
    "few prompts": ({"table": completions(pool=8)}, "few-prompts", False),
    "many epochs": ({"table": completions(pool=9)}, "few-prompts", False),
    "old weights": (
        {"metrics": {"logp_difference": steps(lambda done: 0.2)}},
        "logp-difference",
        True,
    ),
    "far away": ({"metrics": {"kl": steps(lambda done: 12 * done)}}, "kl", True),
    "clipped": ({"metrics": {"clipped": steps(lambda done: 0.5)}}, "clipped", False),
    "entropy": ({"metrics": {"entropy": steps(lambda done: 0.1 + 3 * done)}}, "entropy", True),
    "no gradient": (
        {"table": completions(), "metrics": {"grad_norm": steps(lambda done: 0.0)}},
        "no-gradient",
        True,
    ),
    "rate": (
        {"metrics": {"learning_rate": steps(lambda done: 0.1)}, "lora": True},
        "learning-rate",
        False,
    ),
    "rate of all weights": (
        {"metrics": {"learning_rate": steps(lambda done: 1e-3)}, "lora": False},
        "learning-rate",
        False,
    ),
    "not a number": ({"metrics": {"grad_norm": {3: float("nan")}}}, "not-finite", True),
    "an end": ({"table": completions(), "planned": 200}, "early-end", False),
    "longer": (
        {
            "table": completions(
                lambda done: 0.5, tokens=lambda done, correct, rng: int(50 + 500 * done)
            )
        },
        "length",
        False,
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_trouble_is_named(name: str) -> None:
    settings, code, bad = PLANTED[name]
    findings = diagnosed(**settings)
    assert code in findings
    assert findings[code].bad == bad


# Planted in tests of their own.
UNPLANTED = (
    *("reward-is-length", "wrong-golds", "never-live", "one-completion", "updates"),
    *("mixed-prompts", "mixed-golds", "group-size", "constant-answers", "source", "zero-weight"),
    *("source-answers", "gold-form", "stale"),
)


def test_every_check_is_planted() -> None:
    planted = {code for _, code, _ in PLANTED.values()}
    assert sorted(check.code for check in diagnosis.CHECKS) == sorted(planted | {*UNPLANTED})


def test_a_reward_for_length_is_named() -> None:
    table = completions(lambda done: 0.5)
    tokens = pa.array(table["tokens"].to_pylist(), pa.float64())
    position = table.schema.get_field_index("reward")
    paid = table.set_column(position, "reward", tokens)
    assert "reward-is-length" in diagnosed(paid)
    assert "reward-is-length" not in diagnosed(table)  # rewards of 0 and 1 pay for no length


def test_wrong_golds_are_named_with_the_agreed_answer() -> None:
    def text(done: float, correct: bool, rng: np.random.Generator) -> str:
        return f"so \\boxed{{{7 if correct else rng.integers(100, 999)}}}"

    table = completions(lambda done: 0.7, text=text, pool=40)
    assert "wrong-golds" not in diagnosed(table)
    rows = table.to_pylist()
    for row in rows:
        if row["prompt"] in {"p1", "p2", "p3", "p4", "p5", "p6"}:  # right answers count as wrong
            row |= {"correct": False, "reward": 0.0, "text": "so \\boxed{7}"}
    log = RunLog("run", "table", pa.Table.from_pylist(rows, schema=COMPLETIONS))
    result = diagnosis.diagnose(log)
    assert "wrong-golds" in {finding.code for finding in result.findings}
    as_json = result.to_dict()
    assert as_json["golds_doubt"] == "" and as_json["suspected_golds"] == as_json["disputed_golds"]
    assert {(gold["prompt_id"], gold["answer"]) for gold in as_json["disputed_golds"]} == {
        (f"p{i}", "7") for i in range(1, 7)
    }


def test_disputed_golds_are_listed_where_none_is_suspected() -> None:
    def text(done: float, correct: bool, rng: np.random.Generator) -> str:
        return f"so \\boxed{{{7 if correct else 8}}}"

    table = completions(lambda done: 0.2, text=text, pool=40)
    result = diagnosis.diagnose(RunLog("run", "table", table))
    as_json = result.to_dict()
    assert as_json["disputed_golds"] and as_json["suspected_golds"] == []
    assert as_json["golds_doubt"] in str(diagnosis_page([result]).sections)


def test_a_curriculum_of_repeated_prompts_is_no_collapse() -> None:
    def fall(by: float) -> dict[str, diagnosis.Finding]:
        """Each half draws the same prompts, from easy to hard; the second changes their rates."""
        return diagnosed(
            completions(lambda done: 0.8 - 1.2 * (done % 0.5) + by * (done > 0.5), pool=160)
        )

    assert "collapse" not in fall(0.15)
    assert fall(-0.2)["collapse"].bad


def test_a_reward_of_a_completion_that_is_not_finite_is_named() -> None:
    rows = completions().to_pylist()
    rows[100]["reward"], rows[900]["reward"], rows[901]["reward"] = float("nan"), float("inf"), None
    finding = diagnosed(pa.Table.from_pylist(rows, schema=COMPLETIONS))["not-finite"]
    assert finding.bad
    assert "at 2 updates, first at update 2" in finding.text


def test_prompts_without_a_signal_are_listed() -> None:
    rows = completions(lambda done: 0.5, pool=16).to_pylist()
    for row in rows:
        if int(row["prompt"][1:]) < 9:
            row |= {"correct": False, "reward": 0.0}
    log = RunLog("run", "table", pa.Table.from_pylist(rows, schema=COMPLETIONS))
    result = diagnosis.diagnose(log)
    assert sorted(result.facts.without_signal) == sorted(f"p{i}" for i in range(9))
    assert "never-live" in {finding.code for finding in result.findings}


def test_shares_are_those_of_the_groups() -> None:
    rows = [
        {
            "update": 1,
            "group": g,
            "prompt": f"p{g}",
            "reward": r,
            "correct": c,
            "tokens": 10 * (g + 1),
        }
        for g, group in enumerate(
            [[(1.0, True), (1.0, True)], [(0.1, False), (0.0, False)], [(1.0, True), (0.0, False)]]
        )
        for r, c in group
    ]
    log = RunLog(
        "run",
        "table",
        pa.Table.from_pylist(rows, schema=COMPLETIONS),
        metrics={"seconds": {1: 60.0}},
    )
    facts = Facts(log)
    assert facts.kinds == {"live": 1, "all_right": 1, "all_wrong": 1, "dead": 0, "phantom": 1}
    assert facts.live == pytest.approx(1 / 3)
    assert facts.wasted == pytest.approx({"rollouts": 2 / 3, "tokens": 60 / 120, "seconds": 0.5})
    shares = fact_lines(diagnosis.diagnose(log))[1]
    assert re.findall(r"[\d.]+ %", shares) == ["33 %"] * 4, "live, all correct, all wrong, phantom"


def test_what_a_log_lacks_is_named_and_no_check_guesses_it() -> None:
    empty = RunLog("run", "table", COMPLETIONS.empty_table())
    result = diagnosis.diagnose(empty)
    assert result.findings == ()
    assert {metric.text for metric in METRICS.values() if metric.text} < {*result.facts.absent}
    assert result.to_dict()["live"] is None
    rewards = completions(lambda done: 0.5).set_column(
        4, "correct", pa.nulls(UPDATES * PROMPTS * SIZE, pa.bool_())
    )
    facts = Facts(RunLog("run", "table", rewards))
    assert facts.quality == "reward"
    assert facts.kinds["all_right"] == facts.kinds["all_wrong"] == 0
    assert METRICS["correct"].text in facts.absent


@pytest.mark.parametrize("pool", [UPDATES * PROMPTS, 64])
def test_a_fall_is_checked_only_where_prompts_are_drawn_again(pool: int) -> None:
    result = diagnose(completions(lambda done: 0.7 - 0.4 * done, pool=pool))
    again = pool == 64
    assert ("collapse" in {finding.code for finding in result.findings}) == again
    assert ({"collapse", "reset"} <= {each.code for each in result.unchecked}) != again


def test_every_check_of_an_empty_log_is_unknown() -> None:
    assert {*unchecked()} == {check.code for check in diagnosis.CHECKS}


def test_scores_on_held_out_questions_tell_a_fall() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, UPDATES)
    falling = {u: 0.6 - 0.008 * u + noise[u - 1] for u in range(1, UPDATES + 1)}
    assert diagnosed(metrics={"evaluation": falling})["collapse"].bad
    level = {u: 0.6 + noise[u - 1] for u in range(1, UPDATES + 1)}
    assert "collapse" not in diagnosed(metrics={"evaluation": level})
    assert "collapse" not in unchecked(metrics={"evaluation": level})


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.99])
@pytest.mark.parametrize("prompts", [8, 64])
def test_sparse_rewards_are_no_reset(rate: float, prompts: int) -> None:
    assert {*diagnosed(completions(lambda done: rate, pool=prompts))} <= {"dead", "few-prompts"}


def test_epochs_from_easy_to_hard_are_no_reset() -> None:
    """Five epochs, in each of which prompts get harder, while all are learned."""
    for seed in range(5):
        table = completions(lambda done: 0.7 - 3 * (done % 0.2) + 0.2 * done, pool=64, seed=seed)
        assert diagnosed(table) == {}


def kl_of(**values: float) -> dict[str, dict[int, float]]:
    """KL of .05, but for u1=…, the values of other updates."""
    noise = np.random.default_rng(0).lognormal(0, 0.3, UPDATES)
    series = {u: 0.05 * noise[u - 1] for u in range(1, UPDATES + 1)}
    return {"kl": series | {int(name[1:]): value for name, value in values.items()}}


def test_a_spike_of_kl_in_mid_run_is_named() -> None:
    assert diagnosed(metrics=kl_of(u20=4.0, u21=5.0, u22=3.0))["kl"].bad
    assert not diagnosed(metrics=kl_of(u20=4.0))["kl"].bad
    assert not diagnosed(metrics=kl_of(u20=0.7, u21=0.8, u22=0.9))["kl"].bad
    assert "kl" not in diagnosed(metrics=kl_of(u20=0.15))


def test_kl_back_at_its_start_is_a_warning_of_a_reset() -> None:
    since = [*range(20), *range(20)]
    kl = {u: 1e-4 + 0.002 * n for u, n in enumerate(since, 1)}
    finding = diagnosed(completions(pool=UPDATES * PROMPTS), metrics={"kl": kl})["reset"]
    assert not finding.bad
    assert finding.text.startswith("at update 21,")


@pytest.mark.parametrize("pool", [UPDATES * PROMPTS, 64])
def test_a_reward_of_the_wrong_sign_is_named(pool: int) -> None:
    table = completions(pool=pool, reward=lambda done, correct, rng: 1.0 - correct)
    assert diagnosed(table)["reward-not-correctness"].bad


def test_rewards_of_other_completions_are_named() -> None:
    table = completions(
        lambda done: 0.5, reward=lambda done, correct, rng: float(rng.random() < 0.5)
    )
    assert diagnosed(table)["reward-not-correctness"].bad


def test_a_high_learning_rate_is_the_remedy_of_dead_groups() -> None:
    metrics = {"learning_rate": steps(lambda done: 0.1)}
    table = completions(lambda done: 0.002)
    assert "learning rate" in diagnosed(table, metrics=metrics)["dead"].remedy
    assert "learning rate" not in diagnosed(table)["dead"].remedy


def test_single_completions_are_no_groups() -> None:
    rows = [{"update": u, "group": u, "prompt": f"p{u}", "reward": 1.0} for u in range(1, 20)]
    facts = Facts(RunLog("run", "table", pa.Table.from_pylist(rows, schema=COMPLETIONS)))
    assert np.isnan(facts.live)
    assert {*diagnosed(pa.Table.from_pylist(rows, schema=COMPLETIONS))} == {"one-completion"}


def _rows(updates: Sequence[int], rewards: Sequence[Sequence[float | None]]) -> pa.Table:
    """A group for each list of rewards, in every update; correctness is the reward."""
    rows = [
        {"update": u, "group": u * 100 + g, "prompt": f"p{g}", "reward": r, "correct": r == 1}
        | ({"correct": None} if r is None else {})
        for u in updates
        for g, group in enumerate(rewards)
        for r in group
    ]
    return pa.Table.from_pylist(rows, schema=COMPLETIONS)


def test_shares_of_kinds_are_of_the_groups_that_are_judged() -> None:
    """Groups of one completion, or of which half is unknown, are neither live nor dead."""
    one, none = [1.0] * 4, [0.0] * 4
    table = _rows(range(1, 11), [one, none, [1.0, 0.0], [1.0], [1.0, 1.0, None, None]])
    facts = Facts(RunLog("run", "table", table))
    assert facts.judged == 30 and facts.live == pytest.approx(1 / 3)
    assert (facts.kinds["all_right"], facts.kinds["all_wrong"]) == (10, 10)


def test_rewards_that_are_missing_where_answers_are_wrong_give_no_advice() -> None:
    table = _rows(range(1, 11), [[1.0] * 4, [1.0, None, None, None], [1.0, 1.0, None, None]])
    assert "dead" not in diagnosed(table) and "dead" in unchecked(table)


def test_gaps_and_updates_that_were_written_twice_are_named() -> None:
    rewards = [[1.0, 0.0], [0.0, 1.0]]
    assert "updates" not in diagnosed(_rows(range(1, 31), rewards))
    assert "updates" not in diagnosed(_rows(range(10, 310, 10), rewards)), "every tenth is logged"
    missing = diagnosed(_rows([*range(1, 12), *range(15, 31)], rewards))["updates"]
    assert "after update 11" in missing.text
    twice = pa.concat_tables([_rows(range(1, 31), rewards), _rows([5], rewards)])
    twice = twice.sort_by([("update", "ascending"), ("group", "ascending")])
    assert "at update 5" in diagnosed(twice)["updates"].text


def test_a_large_pool_that_is_drawn_in_every_update_is_not_small() -> None:
    table = _rows(range(1, 4), [[1.0, 0.0]] * 300)
    assert "few-prompts" not in diagnosed(table)
    assert "few-prompts" in diagnosed(_rows(range(1, 4), [[1.0, 0.0]] * 30))


def test_a_run_without_an_update_is_a_problem() -> None:
    finding = diagnosed(planned=30)["early-end"]
    assert finding.bad
    assert "prompts" in finding.remedy


def test_completions_that_were_cut_at_the_start_are_named() -> None:
    falling = {"truncated": steps(lambda done: 0.5 * max(0.0, 1 - 2 * done))}
    assert not diagnosed(metrics=falling)["truncated"].bad


def test_a_run_that_goes_on_has_not_ended_early() -> None:
    assert diagnosed(completions(), planned=200, running=True) == {}


@given(st.lists(st.floats(-1, 1), min_size=0, max_size=60), st.floats(-10, 10))
def test_a_change_is_that_of_the_ends_and_shifts_with_them(values: list[float], by: float) -> None:
    series = np.array(values)
    change, shifted = change_of(series), change_of(series + by)
    if change is None or shifted is None:
        assert change is shifted is None
        assert len(values) < run_facts.LEAST_UPDATES
        return
    assert change.low - 1e-9 <= change.end - change.start <= change.high + 1e-9
    assert shifted.low == pytest.approx(change.low, abs=1e-6)
    assert not (change.fell and change.rose)


def test_noise_alone_is_rarely_a_change() -> None:
    changes = [change_of(np.random.default_rng(seed).normal(size=60)) for seed in range(400)]
    assert sum(change is not None and (change.fell or change.rose) for change in changes) <= 6


# ---- what a log gives away beside rewards


def rewritten(
    table: pa.Table, change: Callable[[dict[str, Any], np.random.Generator], dict[str, Any]]
) -> pa.Table:
    """The table with other values in each row."""
    rng = np.random.default_rng(0)
    rows = [row | change(row, rng) for row in table.to_pylist()]
    return pa.Table.from_pylist(rows, schema=COMPLETIONS)


def answered(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Half of the answers are the prompt's number, the others any number."""
    own = row["prompt"][1:] if row["correct"] else rng.integers(1000, 1100)
    return {"text": f"so \\boxed{{{own}}}", "gold": row["prompt"][1:]}


HALF = completions(lambda done: 0.5)
# What is planted -> the change of rows that plants it, its code, and the columns that show it.
GIVEN_AWAY: dict[str, tuple[Callable[..., dict[str, Any]], str, tuple[str, ...]]] = {
    "one answer at the end": (
        lambda row, rng: {"text": "7"} if row["update"] > 25 else answered(row, rng),
        "constant-answers",
        ("text",),
    ),
    "answers of other prompts": (
        lambda row, rng: (
            {"text": f"{rng.integers(20)}" if row["update"] > 25 else row["prompt"][1:]}
        ),
        "constant-answers",
        ("text",),
    ),
    "one answer of a source": (
        lambda row, rng: {
            "source": "ab"[int(row["prompt"][1:]) % 2],
            "text": "7" if int(row["prompt"][1:]) % 2 else f"{row['prompt'][1:]}.{rng.integers(2)}",
        },
        "source-answers",
        ("text", "source"),
    ),
    "groups of two prompts": (
        lambda row, rng: {"named_group": str(row["group"] // 2)},
        "mixed-prompts",
        ("named_group",),
    ),
    "golds of other prompts": (
        lambda row, rng: {"gold": str(rng.integers(2))},
        "mixed-golds",
        ("gold",),
    ),
    "a dead source": (
        lambda row, rng: (
            {"source": "a", "group": row["group"]}
            | ({"source": "b", "correct": False, "reward": 0.0} if row["prompt"] < "p2" else {})
        ),
        "source",
        ("source",),
    ),
    "a marker that reads one form": (
        lambda row, rng: {"gold": "1/2", "text": "so \\boxed{0.5}"},
        "gold-form",
        ("text", "gold", "correct"),
    ),
    "old weights": (
        lambda row, rng: {"version": max(0, row["update"] - 9)},
        "stale",
        ("version",),
    ),
    "weights that stay": (lambda row, rng: {"version": 3}, "stale", ("version",)),
}


@pytest.mark.parametrize("name", GIVEN_AWAY)
def test_a_fault_is_found_or_unknown_without_the_columns_that_show_it(name: str) -> None:
    change, code, columns = GIVEN_AWAY[name]
    table = rewritten(HALF, change)
    assert code in diagnosed(table)
    assert code not in diagnosed(rewritten(HALF, answered))
    for column in columns:
        place = table.schema.get_field_index(column)
        lacking = table.set_column(
            place, column, pa.nulls(len(table), COMPLETIONS.field(column).type)
        )
        assert code not in diagnosed(lacking)
        assert code in unchecked(lacking), column


def test_a_version_that_counts_transfers_is_not_stale() -> None:
    every_fourth = rewritten(HALF, lambda row, rng: {"version": row["update"] // 4})
    assert "stale" not in diagnosed(every_fourth) and "stale" not in unchecked(every_fourth)


def test_a_size_of_groups_that_changes_is_named() -> None:
    rows = [row for i, row in enumerate(HALF.to_pylist()) if row["update"] <= 20 or i % 2]
    table = pa.Table.from_pylist(rows, schema=COMPLETIONS)
    assert "then 4 from update 21 on" in diagnosed(table)["group-size"].text
    varied = [row for i, row in enumerate(HALF.to_pylist()) if row["group"] % 3 or i % 2]
    assert "group-size" not in diagnosed(pa.Table.from_pylist(varied, schema=COMPLETIONS))


def test_updates_whose_rewards_are_all_equal_are_dead_and_the_others_unknown() -> None:
    for metrics in (
        {"reward_std": steps(lambda done: 0.0)},
        {"reward_high": steps(lambda done: 1.0), "reward_low": steps(lambda done: 1.0)},
    ):
        assert diagnosed(metrics=metrics)["dead"].bad
    alive = {"reward_std": steps(lambda done: 0.4)}
    assert "dead" not in diagnosed(metrics=alive) and "dead" in unchecked(metrics=alive)
    dries = {"reward_std": steps(lambda done: float(done < 0.5))}
    assert {*diagnosed(metrics=dries)} == {"run-dry"}


def test_advantages_tell_live_groups_where_rewards_do_not() -> None:
    def advantage(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"advantage": 0.0, "correct": None}

    assert diagnosed(rewritten(HALF, advantage))["dead"].bad
    assert Facts(RunLog("run", "table", rewritten(HALF, advantage))).live == 0


def test_a_reward_function_without_weight_is_named() -> None:
    assert "format" in diagnosed(HALF, weights={"accuracy": 1.0, "format": 0.0})["zero-weight"].text
    assert "zero-weight" not in diagnosed(HALF, weights={"accuracy": 1.0})
    assert "zero-weight" in unchecked(HALF)


def test_constant_answers_that_are_right_are_no_fault_where_there_is_one_gold() -> None:
    def constant(gold: str | None) -> pa.Table:
        own = {"text": "7", "gold": gold}
        return rewritten(HALF, lambda row, rng: {**own, "correct": True, "reward": rng.random()})

    assert "constant-answers" not in {*diagnosed(constant("7")), *unchecked(constant("7"))}
    assert "constant-answers" in unchecked(constant(None))


def test_answers_of_one_update_have_no_end() -> None:
    once = rewritten(completions(updates=1), lambda row, rng: {"text": "7"})
    assert "constant-answers" in unchecked(once)


def test_a_check_whose_inputs_are_one_column_is_unknown() -> None:
    assert {"phantom", "reward-not-correctness"} <= {*unchecked(HALF)}
    rewards = rewritten(HALF, lambda row, rng: {"reward": row["reward"] + rng.random() / 9})
    assert not {"phantom", "reward-not-correctness"} & {*unchecked(rewards)}


def test_a_gradient_that_is_not_logged_is_not_finite_or_unknown() -> None:
    logged = {"loss": {1: 0.1}, "grad_norm": {1: 0.1}}
    assert "not-finite" not in unchecked(HALF, metrics=logged)
    assert "not-finite" in unchecked(HALF, metrics={"loss": {1: 0.1}})
