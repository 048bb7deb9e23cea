"""Logs of every trainer are read as one table: the same groups, whoever wrote them.

The files of other trainers are built as their source writes them: TRL 1.16 (also by real runs),
verl 0.9.1, prime-rl 0.8.1 with verifiers 0.4.0, verifiers 0.1.14, NeMo-RL 7ea279a, rLLM 0.3.0,
AReaL 1.0.4, open-instruct e6c3044. Each was compared with a file that its own code wrote.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_logs_cases import STRANGE, UPDATES, WRITERS, rows, write_lines, write_trl, write_verl

import decile
from orchestrator.cli.exit_codes import ExitCode
from orchestrator.cli.main import main
from orchestrator.evaluation.diagnosis import CHECKS, diagnose
from orchestrator.evaluation.run_facts import Facts
from orchestrator.evaluation.run_log import METRICS, RunLog
from orchestrator.optional.exchange.log_formats import FORMATS
from orchestrator.optional.exchange.run_logs import LAYOUTS, Rollout, completions_of, read_logs
from orchestrator.storage.errors import UserError

EXPECTED = {"live": UPDATES, "all_right": UPDATES, "all_wrong": UPDATES, "dead": 0, "phantom": 0}


def write_table(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"{r['update']},{r['prompt']},{r['mark']},{bool(r['mark'])}" for r in rows()]
    (folder / "log.csv").write_text("\n".join(["update,prompt,reward,correct", *lines]) + "\n")


@pytest.mark.parametrize("layout", WRITERS)
def test_every_trainers_log_gives_the_same_groups(layout: str, tmp_path: Path) -> None:
    WRITERS[layout](tmp_path / "run")
    (log,) = read_logs(str(tmp_path / "run"))
    assert log.layout == layout
    assert log.by_correct
    facts = Facts(log)
    assert facts.kinds == EXPECTED
    assert facts.wasted["rollouts"] == pytest.approx(2 / 3)
    updates = [0] if layout == "verifiers" else list(range(1, UPDATES + 1))
    assert facts.updates.tolist() == updates


def test_every_layout_has_a_writer_here_and_a_row_in_the_reference() -> None:
    assert {layout.name for layout in LAYOUTS} == {*WRITERS, "open-instruct"}
    assert {*FORMATS} == {layout.name for layout in LAYOUTS} | {"table"}


def test_open_instruct_says_no_correctness_without_binary_rewards(tmp_path: Path) -> None:
    for row in rows():
        value = {"step": row["update"], "prompt_idx": row["place"], "prompt_tokens": [row["place"]]}
        value |= {"response_tokens": [1, 2], "reward": 10.0 * row["mark"], "finish_reason": "stop"}
        write_lines(tmp_path / "run_rollouts_000000.jsonl", [value])
    (log,) = read_logs(str(tmp_path))
    facts = Facts(log)
    assert log.layout == "open-instruct"
    assert log.by_correct == ""
    assert facts.kinds == EXPECTED | {"all_right": 0, "all_wrong": 0, "dead": 2 * UPDATES}


def test_a_table_of_the_user_is_a_log(tmp_path: Path) -> None:
    write_table(tmp_path)
    (log,) = read_logs(str(tmp_path / "log.csv"))
    assert (log.layout, log.by_correct) == ("table", "correct")
    assert Facts(log).kinds == EXPECTED


def table_rows() -> list[dict[str, Any]]:
    return [
        {"update": r["update"], "prompt": r["prompt"], "reward": float(r["mark"]), "completion": ""}
        for r in rows()
    ]


@pytest.mark.parametrize("update", ["update", "step"])
def test_a_table_with_completions_is_not_taken_for_another_trainers(
    update: str, tmp_path: Path
) -> None:
    file = tmp_path / "log.jsonl"
    write_lines(file, [{update: row.pop("update"), **row} for row in table_rows()])
    (log,) = read_logs(str(file))
    assert (log.layout, log.by_correct) == ("table", "reward")
    assert Facts(log).updates.tolist() == list(range(1, UPDATES + 1))


def test_an_incomplete_last_group_does_not_split_the_others(tmp_path: Path) -> None:
    write_lines(tmp_path / "log.jsonl", table_rows()[:-2])
    (log,) = read_logs(str(tmp_path / "log.jsonl"))
    assert Facts(log).kinds == EXPECTED


def test_the_incomplete_last_line_of_a_table_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    write_lines(file, table_rows())
    file.write_text(file.read_text()[:-20])
    (log,) = read_logs(str(file))
    assert log.completions.num_rows == len(rows()) - 1


def test_a_table_without_rewards_is_refused_and_missing_ones_are_noted(tmp_path: Path) -> None:
    lines = ["update,prompt,reward", *(f"{r['update']},{r['prompt']}," for r in rows())]
    file = tmp_path / "log.csv"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="has no reward"):
        read_logs(str(file))
    lines[1:4] = [f"{line}1" for line in lines[1:4]]
    file.write_text("\n".join(lines) + "\n")
    (log,) = read_logs(str(file))
    assert log.notes == (f"no reward in {len(rows()) - 3} of {len(rows())} completions",)


def test_a_missing_reward_is_not_taken_from_correctness(tmp_path: Path) -> None:
    lines = [{**row, "correct": row["reward"] == 1} for row in table_rows()]
    lines[0]["reward"] = None
    write_lines(tmp_path / "log.jsonl", lines)
    (log,) = read_logs(str(tmp_path / "log.jsonl"))
    assert log.completions["reward"].null_count == 1
    assert "1 of" in log.notes[0]


def test_states_and_metrics_of_several_runs_are_refused(tmp_path: Path) -> None:
    state = json.dumps({"log_history": [{"step": 1, "loss": 0.1, "reward": 0.5}]})
    for folder in ("a", "a/checkpoint-1", "a/final", "b/checkpoint-1"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "trainer_state.json").write_text(state)
    with pytest.raises(UserError, match=f"several runs: write one of {tmp_path / 'a'}, "):
        read_logs(str(tmp_path))
    assert read_logs(str(tmp_path / "a"))[0].metrics["loss"] == {1: 0.1}
    for name in ("first", "second"):
        line = {"step": 1, "data": {"actor/kl_loss": 0.1}}
        write_lines(tmp_path / "project" / f"{name}.jsonl", [line])
    with pytest.raises(UserError, match="metrics of several runs: write one of .*first"):
        read_logs(str(tmp_path / "project"))


def test_a_torn_state_is_left_out_and_named(tmp_path: Path) -> None:
    write_trl(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"log_history": [')
    (log,) = read_logs(str(tmp_path))
    assert Facts(log).kinds == EXPECTED
    assert "trainer_state.json is left out" in log.notes[0]


def test_several_runs_of_trl_are_named_by_the_folders_with_their_metrics(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_trl(tmp_path / name)
    with pytest.raises(UserError, match=f"write one of {tmp_path / 'a'}, {tmp_path / 'b'}$"):
        read_logs(str(tmp_path))


def test_mixed_rows_of_verl_without_uid_are_grouped_by_prompt(tmp_path: Path) -> None:
    write_verl(tmp_path, uid=False)
    for file in tmp_path.glob("*.jsonl"):
        lines = file.read_text().splitlines()
        file.write_text("\n".join(lines[::2] + lines[1::2]) + "\n")
    (log,) = read_logs(str(tmp_path))
    assert Facts(log).kinds == EXPECTED


def test_validation_dumps_of_verl_are_evaluations(tmp_path: Path) -> None:
    write_verl(tmp_path / "rollouts")
    write_verl(tmp_path / "validation")
    (log,) = read_logs(str(tmp_path))
    assert Facts(log).kinds == EXPECTED
    assert log.metrics["evaluation"] == dict.fromkeys(range(1, UPDATES + 1), 0.5)


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    write_verl(tmp_path / "a")
    write_verl(tmp_path / "b")
    with pytest.raises(UserError, match=str(tmp_path / "b")):
        read_logs(str(tmp_path))


def test_a_batch_of_trl_that_is_logged_twice_counts_once(tmp_path: Path) -> None:
    write_trl(tmp_path)
    first = tmp_path / "completions" / "completions_00001.parquet"
    table = pq.read_table(first)
    again = table.set_column(0, "step", pa.array([2] * table.num_rows, pa.int64()))
    pq.write_table(again, first.with_name("completions_00002.parquet"))
    facts = Facts(read_logs(str(tmp_path))[0])
    assert sum(facts.kinds.values()) == 3 * (UPDATES - 1)
    assert not {2} & {*facts.groups.update.tolist()}


def test_completions_of_an_evaluation_are_no_training(tmp_path: Path) -> None:
    write_trl(tmp_path)
    file = tmp_path / "checkpoint-4" / "trainer_state.json"
    state = json.loads(file.read_text())
    state["log_history"][1] |= {"reward": 0.9, "rewards/accuracy_reward/mean": 0.9}
    state["log_history"].append(
        {"step": 2, "eval_reward": 0.5, "eval_rewards/accuracy_reward/mean": 0.5}
    )
    file.write_text(json.dumps(state))
    (log,) = read_logs(str(tmp_path))
    assert 2 not in Facts(log).groups.update.tolist()
    assert any("completions_00002" in note for note in log.notes)


def test_a_torn_file_of_a_live_run_is_left_out_and_named(tmp_path: Path) -> None:
    write_trl(tmp_path)
    torn = tmp_path / "completions" / "completions_00004.parquet"
    torn.write_bytes(torn.read_bytes()[:200])
    (log,) = read_logs(str(tmp_path))
    assert [note.split()[0] for note in log.notes] == [torn.name]
    assert sum(Facts(log).kinds.values()) == 3 * (UPDATES - 1)
    with pytest.raises(UserError, match="completions_00004"):
        read_logs(str(torn))


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    write_verl(tmp_path)
    last = tmp_path / "4.jsonl"
    last.write_text(last.read_text()[:-20])
    (log,) = read_logs(str(tmp_path))
    assert log.completions.num_rows == len(rows()) - 1


@pytest.mark.parametrize(
    "content", ["", "not a log", "[1, 2]", "{}", '{"log_history": 3}', "\x00\xff" * 50]
)
@pytest.mark.parametrize("name", ["trainer_state.json", "1.jsonl", "log.csv", "log.parquet"])
def test_what_is_no_log_is_refused_in_one_line(
    name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert main(["diagnose", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(file) in error


def test_correctness_is_never_guessed_between_two_rewards(tmp_path: Path) -> None:
    lines = [
        {"update": 1, "prompt": "a", "reward": 1.0, "accuracy": m, "is_correct": 1 - m}
        for m in (0, 1, 1)
    ]
    write_lines(tmp_path / "log.jsonl", lines)
    (log,) = read_logs(str(tmp_path / "log.jsonl"))
    assert log.by_correct == ""
    (named,) = read_logs(str(tmp_path / "log.jsonl"), "accuracy")
    assert named.completions["correct"].to_pylist() == [False, True, True]
    with pytest.raises(UserError, match="accuracy, is_correct"):
        read_logs(str(tmp_path / "log.jsonl"), "format")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(2, 5), st.randoms())
def test_groups_of_one_prompt_are_split_by_the_smallest(
    repeats: list[int], size: int, random: Any
) -> None:
    repeats[0] = 1  # some prompt is drawn once: its number of completions is the size of a group
    rollouts = [
        Rollout(1, f"p{p}", {}, reward=float(r * size + s))
        for p, times in enumerate(repeats)
        for r in range(times)
        for s in range(size)
    ]
    table = completions_of(rollouts)
    groups: dict[int, list[float]] = {}
    for group, reward in zip(*table.select(["group", "reward"]).to_pydict().values(), strict=True):
        groups.setdefault(group, []).append(reward)
    assert len(groups) == sum(repeats)
    assert all(values[0] % size == 0 for values in groups.values())
    assert all(len(values) == size for values in groups.values())
    random.shuffle(rollouts)
    assert len({*completions_of(rollouts)["group"].to_pylist()}) == sum(repeats)


def test_a_storage_without_cells_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    with pytest.raises(UserError, match="run a sweep"):
        read_logs(str(tmp_path))


def test_the_api_has_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trl(tmp_path / "run")
    result = decile.diagnose(tmp_path / "run")
    exit_code = main(["diagnose", str(tmp_path / "run"), "--json"])
    assert json.loads(capsys.readouterr().out)["runs"] == result.to_dict()
    assert exit_code == (ExitCode.PROBLEM if result.bad else ExitCode.DONE)
    assert main(["diagnose", str(tmp_path / "run")]) == exit_code
    assert repr(result).split("\n")[0] in capsys.readouterr().out
    page = result.save(tmp_path / "page.html")
    assert "Diagnosis" in page.read_text()
    with pytest.raises(decile.UserError):
        decile.diagnose(tmp_path / "absent")
    assert isinstance(result.runs[0].facts.log, RunLog)


@pytest.mark.parametrize("column", ["update", "prompt", "reward", "correct", "tokens", "truncated"])
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: ascii(value)[:8])
def test_no_value_of_a_table_ends_in_a_traceback(column: str, value: Any, tmp_path: Path) -> None:
    lines = [
        {"update": u, "prompt": "a", "reward": m, "correct": m, "tokens": 5, "truncated": False}
        for u in range(1, 10)
        for m in (0, 1)
    ]
    lines[1][column] = value
    write_lines(tmp_path / "log.jsonl", lines)
    with suppress(UserError):
        json.dumps(decile.diagnose(tmp_path / "log.jsonl").to_dict(), allow_nan=False)


def appended(path: Path, updates: list[int], prompts: int = 3) -> RunLog:
    """The log of a table of one group per prompt for each of these updates, in this order."""
    lines = [
        {"update": update, "prompt": f"p{p}", "reward": float(r), "part": part}
        for part, update in enumerate(updates)
        for p in range(prompts)
        for r in (0, 1)
    ]
    write_lines(path, lines)
    return read_logs(str(path))[0]


def test_what_a_resumed_run_has_replaced_is_left_out(tmp_path: Path) -> None:
    log = appended(tmp_path / "log.jsonl", [*range(1, 11), *range(7, 16)])
    groups = Facts(log).groups
    assert np.bincount(groups.update).tolist() == [0, *[3] * 15]
    assert {*groups.size} == {2.0}
    assert len(log.notes) == 1 and log.notes[0].endswith(": 24 completions")


def test_a_run_that_counts_from_1_again_goes_on(tmp_path: Path) -> None:
    parts = (range(1, 11), range(1, 9), range(1, 13))
    log = appended(tmp_path / "log.jsonl", [update for part in parts for update in part])
    assert np.bincount(Facts(log).groups.update).tolist() == [0, *[3] * (10 + 8 + 12)]
    assert log.notes[0] == "updates restart from the first 2 times"


@pytest.mark.parametrize("updates", [[*range(20, 0, -1)], [1, 2, 1, 2, 3, 4, 3, 4]])
def test_a_table_in_another_order_stays_as_it_is(updates: list[int], tmp_path: Path) -> None:
    log = appended(tmp_path / "log.jsonl", updates)
    assert len(log.completions) == 6 * len(updates)
    assert log.notes == ()


def test_a_table_sorted_by_prompt_stays_as_it_is(tmp_path: Path) -> None:
    lines = [
        {"update": update, "prompt": f"p{p}", "reward": float(r)}
        for p in range(2)
        for update in range(1, 21)
        for r in (0, 1)
    ]
    write_lines(tmp_path / "log.jsonl", lines)
    (log,) = read_logs(str(tmp_path / "log.jsonl"))
    assert np.bincount(Facts(log).groups.update).tolist() == [0, *[2] * 20]
    assert log.notes == ()


# ---- what is told and what is not


def state_of(folder: Path, history: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"max_steps": len(history), "log_history": history}))
    return folder


def steps(count: int = 20, **values: Any) -> list[dict[str, Any]]:
    return [{"step": float(step), "loss": 0.1, **values} for step in range(1, count + 1)]


def test_a_dead_run_of_any_log_of_metrics_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = state_of(tmp_path / "old", steps(reward=0.0, reward_std=0.0))
    swift = tmp_path / "swift" / "logging.jsonl"
    verl = tmp_path / "verl" / "run.jsonl"
    for step in range(1, 21):
        values = {"reward": 0.0, "frac_reward_zero_std": 1.0, "global_step/max_steps": f"{step}/40"}
        write_lines(swift, [values])
        same = {"critic/score/max": 0.5, "critic/score/min": 0.5}
        write_lines(verl, [{"step": step, "data": same}])
    for path in (old, swift.parent, verl):
        assert main(["diagnose", str(path)]) == ExitCode.PROBLEM, path
        lines = capsys.readouterr().out.splitlines()
        assert any(line.startswith("  problem dead:") for line in lines)
        made, not_made = (int(word) for word in lines[-1].split() if word.isdecimal())
        assert made + not_made == len(CHECKS) and not_made > len(CHECKS) / 2
    assert read_logs(str(swift))[0].planned == 40


def test_a_log_that_says_nothing_of_groups_is_not_without_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, values in (("rewards", {"reward": 0.5}), ("spread", {"reward": 0, "reward_std": 1})):
        assert main(["diagnose", str(state_of(tmp_path / name, steps(**values)))]) == ExitCode.DONE
        out = capsys.readouterr().out
        assert "no problem found" not in out and "  unknown: " in out


def test_logs_of_other_trainings_are_refused(tmp_path: Path) -> None:
    others: dict[str, dict[str, Any]] = {
        "sft": {"mean_token_accuracy": 0.6, "entropy": 1.0},
        "dpo": {"rewards/chosen": 0.1, "rewards/rejected": -0.1, "rewards/margins": 0.2},
    }
    for name, values in others.items():
        with pytest.raises(UserError, match=name.upper()):
            read_logs(str(state_of(tmp_path / name, steps(**values))))
    sft = tmp_path / "swift" / "logging.jsonl"
    write_lines(sft, [{"loss": 2.0, "token_acc": 0.5, "global_step/max_steps": "1/2"}])
    with pytest.raises(UserError, match="SFT"):
        read_logs(str(sft))


def weighted_run(folder: Path, weights: dict[str, float], *, logged: bool) -> RunLog:
    """A run of TRL with reward functions by weight, of which one gives NaN to a half unless logged.

    The logged reward is then no sum of logged means, as TRL takes NaN for no reward.
    """
    rng = np.random.default_rng(0)
    history = []
    for step in range(1, 13):
        values = {name: rng.integers(0, 2, 16).astype(float) for name in weights}
        if not logged:
            values["format"][:8] = np.nan
        total = np.nansum([weights[name] * each for name, each in values.items()], axis=0)
        row: dict[str, Any] = {"step": step, "reward": float(np.mean(total))}
        row |= {f"rewards/{name}/mean": float(np.nanmean(each)) for name, each in values.items()}
        history.append(row)
        prompts = [f"p{i // 8}" for i in range(16)]
        means = np.repeat(np.reshape(total, (2, 8)).mean(axis=1), 8)
        table = {"step": [step] * 16, "prompt": prompts, "completion": ["so"] * 16}
        file = folder / "completions" / f"completions_{step:05d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({**table, **values, "advantage": total - means}), file)
    return read_logs(str(state_of(folder, history)))[0]


def test_weights_of_reward_functions_are_those_of_the_logged_sums(tmp_path: Path) -> None:
    log = weighted_run(tmp_path / "a", {"accuracy": 2.0, "format": 0.0}, logged=True)
    assert log.weights == {"accuracy": 2.0, "format": 0.0}
    assert {*log.completions["reward"].to_pylist()} == {0.0, 2.0}
    assert "zero-weight" in {each.code for each in diagnose(log).findings}
    unknown = weighted_run(tmp_path / "b", {"accuracy": 0.0, "format": 1.0}, logged=False)
    assert unknown.weights == {} and unknown.completions["reward"].null_count == 0
    # Groups without a format have no advantages, and only their accuracy differs.
    assert Facts(unknown).groups.rewarded.reshape(-1, 2).mean(axis=0).tolist() == [0.0, 1.0]


def test_values_that_cannot_be_read_are_told_with_their_place(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{**row, "tokens": "many", "correct": 1} for row in table_rows()]
    lines[2]["correct"] = "perhaps"
    write_lines(tmp_path / "log.jsonl", lines)
    (log,) = read_logs(str(tmp_path / "log.jsonl"))
    assert log.unreadable == {"tokens", "correct"}
    assert any("'perhaps' in log.jsonl row 3" in note for note in log.notes)
    assert any(note.startswith(f"{len(lines)} values of tokens") for note in log.notes)
    result = diagnose(log)
    assert METRICS["tokens"].text not in result.facts.absent
    assert METRICS["kl"].text in result.facts.absent
    write_lines(tmp_path / "bad.jsonl", [{**row, "reward": "n.a.!"} for row in table_rows()])
    with pytest.raises(
        UserError, match=rf"{len(lines)} values of reward .*n\.a\.!' in bad\.jsonl row 1"
    ):
        read_logs(str(tmp_path / "bad.jsonl"))
    broken = state_of(tmp_path / "state", [{**row, "kl": "high"} for row in steps(reward=0.5)])
    unchecked = dict(diagnose(read_logs(str(broken))[0]).unchecked)
    assert unchecked["kl"] != unchecked["clipped"]


def test_grades_in_percent_and_in_words_say_what_is_correct(tmp_path: Path) -> None:
    for name, spelled in (("percent", {0: 0, 1: 100}), ("words", {0: "no", 1: "yes"})):
        file = tmp_path / f"{name}.jsonl"
        write_lines(file, [{**row, "correct": spelled[row["reward"]]} for row in table_rows()])
        assert Facts(read_logs(str(file))[0]).kinds == EXPECTED, name


def test_a_table_may_hold_advantages_alone(tmp_path: Path) -> None:
    lines = [{**row, "advantage": row["reward"] - 0.5, "reward": None} for row in table_rows()]
    write_lines(tmp_path / "log.jsonl", lines)
    facts = Facts(read_logs(str(tmp_path / "log.jsonl"))[0])
    assert facts.live == pytest.approx(1 / 3)


def test_answers_of_the_model_are_no_golds(tmp_path: Path) -> None:
    for name, gold in (("answer", None), ("gold", "3")):
        lines = [{**row, name: str(i % 4)} for i, row in enumerate(table_rows())]
        write_lines(tmp_path / f"{name}.jsonl", lines)
        (log,) = read_logs(str(tmp_path / f"{name}.jsonl"))
        assert log.completions["gold"].to_pylist()[3] == gold
    write_lines(tmp_path / "own.jsonl", [{**r, "answer": r["prompt"][-1]} for r in table_rows()])
    assert read_logs(str(tmp_path / "own.jsonl"))[0].completions["gold"].null_count == 0
