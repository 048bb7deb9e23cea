"""What policies would have chosen in recordings that are small enough to check by hand."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import decile
from orchestrator.cli.main import main
from orchestrator.evaluation import online_replay, replay
from orchestrator.evaluation.online_replay import OnlineReplay, Played, beta
from orchestrator.evaluation.recording import Recording, Visit
from orchestrator.evaluation.replay import Replay
from orchestrator.optional.exchange.recordings import read_recordings
from orchestrator.optional.exchange.replay_files import (
    check_visits,
    online_policy,
    policy_of,
    policy_parts_of,
    replay_logs,
)
from orchestrator.report.sections.replay import terminal_replay
from orchestrator.storage.errors import UserError

SIZE = 8


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "RESAMPLES", 20)
    monkeypatch.setattr(replay, "DRAWS", 4)
    monkeypatch.setattr(online_replay, "POOLS", 2)


def recording(rates: np.ndarray, **more: object) -> Recording:
    """Of the rates of prompts by visit, [prompts, visits]; nan: no such visit."""
    visits = [
        Visit(f"p{row:03}", visit, round(rate * SIZE), SIZE)
        for row, own in enumerate(rates.tolist(), 1)
        for visit, rate in enumerate(own, 1)
        if rate == rate
    ]
    return Recording.of("run", "rates", visits, **more)  # type: ignore[arg-type]


def replayed(run: Recording, *policies: str, budget: int = 10, looks: int = 1) -> Replay:
    return Replay(run, [policy_of(each, {}) for each in policies], budget, looks)


def constant(*rates: float, visits: int = 12, each: int = 10) -> np.ndarray:
    """So many prompts of each of these rates, which stay."""
    return np.repeat(np.repeat(np.array(rates, float), each)[:, None], visits, axis=1)


def test_live_groups_of_prompts_that_do_not_change() -> None:
    run = recording(constant(0, 0.25, 0.5, 1))
    asked = replayed(run, "hard", "easy", "hardest_nonzero", "learnable", "full", "random")
    live = {name: each.later.value for name, each in asked.replayed.items()}
    exact = {"hard": 0, "easy": 0, "hardest_nonzero": 1, "learnable": 1, "full": 0.5}
    assert {name: live[name] for name in exact} == exact
    hard, easy = asked.replayed["hard"], asked.replayed["easy"]
    assert hard.estimate(replay.never).value == easy.estimate(replay.always).value == 1
    assert hard.estimate(replay.always).value == easy.estimate(replay.never).value == 0
    assert hard.estimate(replay.repeated).value == 1
    assert hard.size == 10 and asked.replayed["full"].size == 40
    # A probe of 40 · 8 completions; per group of the choice, random takes live / own - 1 more.
    random = asked.replayed["random"].later.value
    learnable = asked.passes_to_repay(asked.replayed["learnable"])
    assert learnable == pytest.approx(40 * 8 / (8 * (1 / random - 1)) / 10)
    assert asked.passes_to_repay(asked.replayed["hard"]) == np.inf
    assert asked.passes_to_repay(asked.replayed["random"]) is None
    assert asked.probe_rollouts == 320


def test_what_is_chosen_by_is_not_counted() -> None:
    """The first visit is live, all later ones are dead: a leak would show as live groups."""
    rates = constant(0.5, 1, each=20)
    rates[:20, 1:] = 1
    asked = replayed(recording(rates), "learnable", "random")
    assert asked.replayed["learnable"].later.value == 0
    two = replayed(recording(rates), "learnable", "random", looks=2)
    assert two.replayed["learnable"].live.shape == (10,) and two.probe_rollouts == 40 * 16


def test_a_crossing_lies_where_the_lines_cross() -> None:
    rates = constant(0, 1, visits=21, each=20)
    rates[:20, 15:] = 0.5  # from visit 16 on the hard ones are live
    rates[20:, 1:15] = 0.75  # until visit 15 the easy ones are
    asked = replayed(recording(rates), "hard", "easy", "random", budget=5)
    crossings = {(each.first, each.second): each for each in asked.crossings}
    assert {*crossings} == {("easy", "hard"), ("easy", "random"), ("random", "hard")}
    crossing = crossings["easy", "hard"]
    assert (crossing.visit.value, crossing.visit.low, crossing.visit.high) == (15, 15, 15)
    same = replayed(recording(constant(0, 0.5, 1)), "hard", "easy", "random", budget=5)
    assert same.crossings == []


def test_drift_of_a_run_that_stands_still_and_of_one_that_is_turned_round() -> None:
    rates = np.repeat((np.arange(80) // 10 / 8)[:, None], 12, axis=1)
    assert {each.correlation.value for each in replayed(recording(rates), "random").drift} == {1.0}
    rates[:, 6:] = 1 - rates[:, 6:]
    drift = {each.distance: each for each in replayed(recording(rates), "random").drift}
    assert drift[10].correlation.value == pytest.approx(-1)
    assert drift[10].shared.value == 0 and drift[1].correlation.value > 0.5


def test_forecasts_of_binomial_draws_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(0.6, 0.8, 2000)
    rates = rng.binomial(SIZE, p[:, None], (2000, 9)) / SIZE
    forecasts = replayed(recording(rates), "random").forecasts
    assert [each.samples for each in forecasts] == [8, 16, 32]
    for each in forecasts:
        assert abs(each.error.value) < 0.03 and each.brier.value < each.plain.value
        assert sum(prompts for prompts, _, _ in each.bins) == 2000
        assert max(abs(predicted - came) for _, predicted, came in each.bins) < 0.1
    assert forecasts[0].brier.value > forecasts[2].brier.value


def test_visits_that_few_prompts_have_are_left_out() -> None:
    rates = constant(0, 0.5, 1)
    rates[:4, 8:] = np.nan  # 26 of 30 prompts have visit 9
    assert recording(rates).visits == 8
    rates = constant(0, 0.5, 1)
    rates[:3, 5] = np.nan  # their later visits move up, and 27 of 30 have visit 12
    assert recording(rates).visits == 12 and np.isnan(recording(rates).live[:, 11]).sum() == 3
    with pytest.raises(UserError, match="1 visit"):
        check_visits(recording(constant(0, 0.5, 1, visits=1)), 1)


def played(run: Recording, *written: object, budget: int = 10) -> dict[str, Played]:
    """What online policies draw, by their names."""
    parts = [policy_parts_of(each) for each in written]  # type: ignore[arg-type]
    builds = {name: online_policy(name, options) for name, options in parts}
    return {each.policy: each for each in OnlineReplay(run, builds, budget).played}


def test_online_policies_draw_the_groups_of_each_visit() -> None:
    run = recording(constant(0, 0.5, each=20))
    drawn = played(run, "predicted", "dynamic", "mopps", "pairs", "greso", "lilo", "pools")
    predicted = drawn["predicted"]
    live = predicted.live.value
    assert live > 0.9 and predicted.avoided.value == pytest.approx(1 - 2 * (1 - live))
    assert predicted.reached.value == 1
    # Half of the random groups are live; the probe has 40 groups, the updates 11 times 10.
    assert predicted.rollouts.value == pytest.approx(0.5 / live + 40 / 110)
    assert drawn["dynamic"].live.value == pytest.approx(0.5, abs=0.1)  # it draws dead ones, too
    assert drawn["mopps"].live.value > 0.8 and drawn["pairs"].live.value > 0.9
    assert drawn["greso"].live.value > drawn["dynamic"].live.value
    assert {each.unanswered for each in drawn.values()} == {0}
    gated = played(run, {"dynamic": {"gates": [{"rates": {"low": 0.1, "high": 0.9, "age": None}}]}})
    assert gated["dynamic"].live.value == 1


def test_a_policy_learns_only_what_it_has_drawn() -> None:
    """Prompts that are live at the probe die at once: whoever knows it draws the others."""
    rates = constant(0.5, 0.5, each=20)
    rates[:20, 1:] = 0
    live = played(recording(rates), "predicted", budget=5)["predicted"].live.value
    assert 0.5 < live < 1  # it finds out, but not at once


def test_groups_that_the_log_lacks_are_counted() -> None:
    rates = constant(0.5, each=40)
    rates[:4, 11] = np.nan
    run = recording(rates)
    assert run.visits == 12
    drawn = played(run, "dynamic", budget=40)["dynamic"]
    assert drawn.unanswered == pytest.approx(4 / (11 * 40)) and drawn.live.value == 1


def test_predictions_of_the_next_group() -> None:
    by = {each.by: each for each in OnlineReplay(recording(constant(0, 0.5, 1)), {}, 5).predictions}
    assert by["share of the last visit"].brier.value == pytest.approx(2 / 9)
    chance = 1 - 2 * 0.5**SIZE  # of a live group, by rates that are known
    assert by["last rate"].brier.value == pytest.approx((1 - chance) ** 2 / 3)
    assert by["last rate"].rate.value == by["mean rate"].rate.value == 0
    assert 0 < by["predicted"].brier.value < 0.1 and by["predicted"].largest_error < 0.5
    live, rate = beta(np.array([1.0]), np.array([1.0]), SIZE)
    assert live == pytest.approx(1 - 2 / (SIZE + 1)) and rate == 0.5


def test_a_missing_rate_leaves_later_visits_at_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    rows = [f"p{n},{visit},{0.5 if visit < 4 else 1}" for n in range(20) for visit in range(1, 7)]
    rows[1] = "p0,2,nan"
    file.write_text("\n".join(["prompt_id,visit,pass_rate", *rows]))
    [run] = read_recordings(str(file))
    assert run.marked[0].tolist() == [2, 0, 2, 2, 2, 2] and run.rates[0, 3] == 1
    assert run.rows.left_out == {"without a rate": 1} and run.visits == 6
    assert [note for note in run.notes if "2 completions" in note]


def test_pools_that_nearly_fail_and_runs_without_any_live_group() -> None:
    """A resampled pool may have no prompt that a policy may choose, and no group may be live."""
    rates = constant(0, each=12)
    rates[:2] = 0.5
    asked = replayed(recording(rates), "hardest_nonzero", "random", budget=1)
    assert asked.replayed["hardest_nonzero"].later.value == 1 and asked.crossings is not None
    text = terminal_replay([replayed(recording(constant(0)), "hard", "random", budget=2)])
    assert "nan" not in text and "inf" not in text
    drawn = played(recording(constant(0)), "dynamic", "predicted", budget=2)
    assert all(np.isnan(each.rollouts.value) and not each.live.high for each in drawn.values())


def test_choices_by_source() -> None:
    sources = ("a",) * 10 + ("b",) * 20
    run = recording(constant(0, 0.5, 1), columns={"source": sources})
    parts = replayed(run, "learnable", "easy", "random").parts("source")
    assert parts["learnable"] == {"a": (0.0, 0.0), "b": (1.0, 1.0)}
    assert parts["easy"]["b"] == (1.0, 0.0)


def files(folder: Path, run: Recording) -> dict[str, Path]:
    """The same recording in every form of a table."""
    counts = [
        (name, visit, right)
        for name, own in zip(run.prompt_ids, run.correct.tolist(), strict=True)
        for visit, right in enumerate(own, 1)
    ]
    marks = [[1] * right + [0] * (SIZE - right) for *_, right in counts]
    groups = [*zip(counts, marks, strict=True)]
    texts = {
        "long.csv": [
            "prompt_id,visit,pass_rate",
            *(f"{name},{visit},{right / SIZE}" for name, visit, right in counts),
        ],
        "counts.csv": [
            "id,epoch,pass_rate",
            *(f"{name},{visit},{right}/{SIZE}" for name, visit, right in counts),
        ],
        "marks.jsonl": [
            json.dumps({"prompt_id": name, "update": visit, "rewards": own})
            for (name, visit, _), own in groups
        ],
        "completions.csv": [
            "update,prompt,reward",
            *(f"{visit},{name},{mark}" for (name, visit, _), own in groups for mark in own),
        ],
        "dictionary.json": [json.dumps(dict(zip(run.prompt_ids, run.rates.tolist(), strict=True)))],
    }
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines))
    table = pa.table({"id": [*run.prompt_ids], "pass_rate": run.rates.tolist()})
    pq.write_table(table, folder / "lists.parquet")
    return {name: folder / name for name in [*texts, "lists.parquet"]}


def test_every_form_of_a_table_is_the_same_recording(tmp_path: Path) -> None:
    run = recording(constant(0, 0.125, 0.5, 1, visits=4, each=2))
    for name, file in files(tmp_path, run).items():
        [read] = read_recordings(str(file))
        assert read.prompt_ids == run.prompt_ids, name
        assert (read.correct == run.correct).all() and (read.marked == run.marked).all(), name
        assert read.rows.used == read.rows.read > 0, name


BAD = {
    "prompt_id,visit,pass_rate\na,1,1.5": "row 1",
    "prompt_id,visit,pass_rate\na,1,half": "row 1",
    "prompt_id,visit,pass_rate\na,1,0.5\na,1,0.25": "row 2",
    "prompt_id,visit,pass_rate\na,,0.5": "row 1",
    "prompt_id,visit,pass_rate\n,1,0.5": "row 1",
    "prompt_id,visit,pass_rate\na,1,": "has no rate",
    "prompt_id,visit,sample,correct\na,1,0,1\na,1,1,0.3": "row 2",
    "prompt_id,epoch,reward\na,1,": "has no rate",
    'prompt_id,visit,rewards\na,1,"[1, 0.5]"': "row 1",
    "prompt_id,visit,pass_rate\na,1,9/8": "row 1",
    "prompt_id,visit,pass_rate\na,1,0.1234567\nb,1,0.7654321\nc,1,0.002": "samples",
    "prompt_id,visit,pass_rate,n\na,1,0.3,8": "row 1",
    "prompt_id,pass_rate\na,0.5": "visit",
    "update,prompt,reward\n1,a,0.3\n1,a,0.7\n2,a,0.1": "--correct",
    "update,loss\n1,0.5": "",
}


def test_what_is_wrong_with_a_table_is_named(tmp_path: Path, capsys) -> None:
    for number, (text, named) in enumerate(BAD.items()):
        file = tmp_path / f"{number}.csv"
        file.write_text(text)
        assert main(["replay", str(file)]) == 2, text
        error = capsys.readouterr().err
        assert named in error and str(file) in error and error.count("\n") == 1, error


def run_command(arguments: Sequence[str], capsys) -> tuple[int, str, str]:
    code = main(["replay", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_prints_json_lines_and_a_page(tmp_path: Path, capsys) -> None:
    run = recording(constant(0, 0.125, 0.5, 1))
    file = files(tmp_path, run)["long.csv"]
    page = tmp_path / "page.html"
    code, out, _ = run_command([str(file), "--out", str(page), "--budget", "5"], capsys)
    assert code == 0 and "hardest_nonzero" in out and "480 read, 0 left out" in out
    assert page.read_text().count("<svg") == 1
    options = ["--policy", "{band: {low: 0.1, high: 0.6}}", "--policy", "hard", "--json"]
    code, out, _ = run_command([str(file), *options], capsys)
    [values] = json.loads(out)["runs"]
    assert [*values["policies"]] == ["band low 0.1 high 0.6", "hard", "random"]
    assert values["policies"]["hard"]["passes_to_repay"] is None  # never
    assert (
        values
        == decile.replay(file, policies=[{"band": {"low": 0.1, "high": 0.6}}, "hard"]).to_dict()[0]
    )


def test_policies_that_cannot_be_asked(tmp_path: Path, capsys) -> None:
    file = files(tmp_path, recording(constant(0, 0.5, 1)))["long.csv"]
    for option, named in {
        "--policy=harder": "harder",
        "--policy=longest": "tokens",
        "--policy={hard: {low: 1}}": "low",
        "--policy=[hard]": "hard",
        "--budget=400": "400",
        "--budget=x": "--budget",
        "--visits=12": "--visits 11",
    }.items():
        code, _, error = run_command([str(file), option], capsys)
        assert code == 2 and named in error and error.count("\n") == 1, (option, error)


def test_a_probe_file_in_place_of_visits(tmp_path: Path) -> None:
    run = recording(constant(0, 0.5, 1))
    file = files(tmp_path, run)["long.csv"]
    probe = tmp_path / "probe.csv"
    # It says that the prompts which are never solved are the easy ones, and leaves one out.
    rows = [f"{name},{1 - run.rates[row, 0]},4" for row, name in enumerate(run.prompt_ids)]
    probe.write_text("\n".join(["prompt_id,pass_rate,n", *rows[1:]]))
    [asked] = replay_logs([str(file)], ["easy"], "9", 1, str(probe))
    assert asked.replayed["easy"].estimate(replay.never).value == 1
    assert asked.replayed["easy"].live.shape == (12,)
    assert asked.probe_rollouts == 29 * 4
    probe.write_text("prompt_id,pass_rate\nother,0.5\n")
    with pytest.raises(UserError, match=r"probe\.csv"):
        replay_logs([str(file)], ["easy"], "9", 1, str(probe))


def model_file(folder: Path, name: str, rates: dict[str, float], column: str = "pass_rate") -> Path:
    file = folder / name
    lines = [f"{prompt},{rate}" for prompt, rate in rates.items()]
    file.write_text("\n".join([f"prompt_id,{column}", *lines]))
    return file


def test_what_choosing_by_another_model_costs(tmp_path: Path, capsys) -> None:
    one = {f"p{n:02}": n % 9 / 8 for n in range(90)}
    turned = {prompt: 1 - rate for prompt, rate in one.items()}
    files = [str(model_file(tmp_path, f"{n}.csv", r)) for n, r in enumerate((one, turned))]
    options = ["--budget", "10", "--json", "--policy", "hard", "--policy", "learnable"]
    code, out, _ = run_command(["--rates", *files, *options], capsys)
    values = json.loads(out)
    assert code == 0 and values["models"] == files and values["prompts"] == 90
    assert values["ranking"]["correlation"] == pytest.approx(-1)
    assert values["row_counts"]["read"] == 180
    by = {(each["policy"], each["model"]): each for each in values["exchanges"]}
    assert by["hard", files[0]]["shared"]["value"] == 0
    assert by["hard", files[0]]["cost"]["value"] == pytest.approx(0, abs=0.02)  # both ends are dead
    assert by["learnable", files[1]]["own"]["value"] > by["learnable", files[1]]["random"] + 0.1
    both = tmp_path / "both.csv"
    lines = [f"{prompt},{rate},{turned[prompt]}" for prompt, rate in one.items()]
    both.write_text("\n".join(["prompt_id,avg@8_a,avg@8_b", *lines]))
    _, out, _ = run_command(["--rates", str(both), *options], capsys)
    assert [each["cost"] for each in json.loads(out)["exchanges"]] == [
        each["cost"] for each in values["exchanges"]
    ]
    for arguments, named in (
        (["--rates", files[0]], "two"),
        (["--rates", *files, "--online"], "--online"),
        ([files[0], "--rates", *files], "--rates"),
        ([], "--rates"),
        (["--rates", files[0], str(model_file(tmp_path, "x.csv", {"q": 0.5}))], "0 prompts"),
    ):
        code, _, error = run_command(arguments, capsys)
        assert code == 2 and named in error and error.count("\n") == 1, error


def table_of(folder: Path, rates: dict[str, Sequence[float]], name: str = "rates.csv") -> str:
    """A table of the rates of each prompt by visit."""
    rows = [f"{p},{v},{rate}" for p, own in rates.items() for v, rate in enumerate(own, 1)]
    file = folder / name
    file.write_text("\n".join(["prompt_id,visit,pass_rate", *rows]))
    return str(file)


def test_a_policy_that_some_pools_cannot_fill_is_replayed_by_the_others(
    tmp_path: Path, capsys
) -> None:
    file = table_of(tmp_path, {f"p{n:02}": [0.25 * (n < 6)] * 3 for n in range(40)})
    code, out, _ = run_command([file, "--budget", "5"], capsys)
    [asked] = replay_logs([file], budget="5")
    unfilled = asked.replayed["hardest_nonzero"].unfilled
    assert code == 0 and 0 < unfilled < 20 and not asked.replayed["hard"].unfilled
    assert f"{unfilled} resampled pool" in out and "nan" not in out
    pools = {name: own["resampled_pools"] for name, own in asked.to_dict()["policies"].items()}
    assert pools["hardest_nonzero"] == 20 - unfilled and pools["hard"] == 20
    code, out, _ = run_command([file, "--budget", "10"], capsys)
    assert code == 0 and "hardest_nonzero has 6 of 10 prompts" in out and "learnable" in out
    code, _, error = run_command([file, "--budget", "10", "--policy", "hardest_nonzero"], capsys)
    assert code == 2 and "6 of 10" in error
    code, out, _ = run_command([file, "--budget", "10", "--policy", "mopps"], capsys)
    assert code == 0 and "mopps" in out


def test_the_first_and_the_last_visits_do_not_overlap(tmp_path: Path, capsys) -> None:
    rises = [0.0, 0.25, 0.5, 1.0]
    rates = {f"p{n:02}": rises if n < 2 else [0.5] * 4 for n in range(20)}
    [asked] = replay_logs([table_of(tmp_path, rates)], ["hard"], "2")
    changed = {each.prompt_id: (each.start, each.end) for each in asked.changed}
    assert changed == {"p00": (0.125, 0.75), "p01": (0.125, 0.75)}
    hard = asked.replayed["hard"]
    assert (hard.start.value, hard.end.value) == (1, 0)  # of three later visits the first and last
    file = table_of(tmp_path, {name: own[:2] for name, own in rates.items()})
    code, out, _ = run_command([file, "--out", str(tmp_path / "page.html")], capsys)
    assert code == 0 and "– → –" in out and "nan" not in out
    [values] = [each.to_dict() for each in replay_logs([file])]
    assert values["policies"]["hard"]["live_first"]["value"] is None


def test_a_probe_of_some_prompts_leaves_the_others_out(tmp_path: Path, capsys) -> None:
    file = table_of(tmp_path, {f"q{n:02}": [n / 60, 0.5, 0.5, 0.5] for n in range(60)})
    probe = tmp_path / "probe.csv"
    probe.write_text("prompt_id,pass_rate\nq03,0.25\nq09,0.5\nq10,\n")
    options = [file, "--probe", str(probe), "--policy", "hard"]
    code, out, _ = run_command([*options, "--budget", "1"], capsys)
    assert code == 0 and "58 prompts of the 60" in out and "nan" not in out
    assert "240 read, 232 left out" in out and "8 used" in out
    _, out, _ = run_command([*options, "--budget", "1", "--json"], capsys)
    [values] = json.loads(out)["runs"]
    assert values["prompts"] == 2 and values["probe_rollouts"] is None
    assert values["row_counts"]["left_out"] == {
        "without a rate": 0,
        "of a prompt that the probe lacks": 232,
    }
    code, _, error = run_command([*options, "--budget", "6"], capsys)
    assert code == 2 and "of the 2" in error
    probe.write_text("prompt_id,pass_rate\nq03,\n")
    code, _, error = run_command(options, capsys)
    assert code == 2 and "probe.csv" in error and error.count("\n") == 1


def test_rows_of_late_visits_are_left_out(tmp_path: Path, capsys) -> None:
    rates = {f"p{n:02}": [0.5, 0.25, 0.75] + [0.5] * (n < 5) for n in range(20)}
    code, out, _ = run_command([table_of(tmp_path, rates)], capsys)
    assert code == 0 and "65 read, 5 left out (5 of visit 4" in out
    log = tmp_path / "log.csv"
    rows = [
        f"{update},{prompt},{mark}"
        for prompt, own in rates.items()
        for update, _ in enumerate(own)
        for mark in (0, 1)
    ]
    log.write_text("\n".join(["update,prompt,reward", *rows]))
    code, out, _ = run_command([str(log)], capsys)
    assert code == 0 and "5 groups not counted: of visit 4" in out


def test_completions_of_visits_and_lists_in_a_csv_are_read(tmp_path: Path) -> None:
    run = recording(constant(0, 0.125, 0.5, 1, visits=4, each=2))
    for visit, mark in (("visit", "correct"), ("epoch", "reward")):
        file = tmp_path / f"{visit}.csv"
        rows = [
            f"{name},{at},{sample},{int(sample < right)}"
            for name, own in zip(run.prompt_ids, run.correct.tolist(), strict=True)
            for at, right in enumerate(own, 1)
            for sample in range(SIZE)
        ]
        file.write_text("\n".join([f"prompt_id,{visit},sample,{mark}", *rows]))
        [read] = read_recordings(str(file))
        assert (read.correct == run.correct).all() and (read.marked == SIZE).all(), visit
        assert read.rows.used == len(rows)
        file.write_text("\n".join([f"prompt_id,{visit},sample,{mark}", *rows, rows[0]]))
        with pytest.raises(UserError, match="sample 0"):
            read_recordings(str(file))
    for column in ("pass_rate", "rewards"):
        file = tmp_path / f"{column}.csv"
        file.write_text(f'prompt_id,visit,{column}\na,1,"[1, 0, 0, 1]"\na,2,"[0,0,1,0]"\n')
        [read] = read_recordings(str(file))
        assert read.correct.tolist() == [[2, 1]] and read.marked.tolist() == [[4, 4]]
    file.write_text('prompt_id,pass_rate\na,"[0.25, 0.5]"\nb,"[1, 0]"\n')
    [read] = read_recordings(str(file))
    assert read.rates.tolist() == [[0.25, 0.5], [1, 0]]


def test_messages_say_what_to_write(tmp_path: Path, capsys) -> None:
    three = table_of(tmp_path, {name: [0.5, 0.25, 0.5] for name in "abc"})
    numbers = tmp_path / "map.json"
    numbers.write_text('{"a": 0.25, "b": 0}')
    other = tmp_path / "other.csv"
    other.write_text("name,value\na,1\n")
    for arguments, named in (
        ([three], "a count such as 1"),
        ([three, "--budget", "1", "--correct", "reward"], "--correct"),
        ([str(numbers)], "[0.25, 0.5]"),
        ([str(other)], "prompt_id, visit and pass_rate"),
    ):
        code, _, error = run_command(arguments, capsys)
        assert code == 2 and named in error and error.count("\n") == 1, error


def test_policies_that_read_no_rates_are_not_compared(tmp_path: Path, capsys) -> None:
    one = {f"p{n:02}": n % 9 / 8 for n in range(40)}
    two = {prompt: (rate + 0.5) % 1 for prompt, rate in one.items()}
    files = [str(model_file(tmp_path, f"{n}.csv", rates)) for n, rates in enumerate((one, two))]
    code, out, _ = run_command(["--rates", *files], capsys)
    assert code == 0 and "not compared: random" in out and "nan" not in out
    assert not [line for line in out.splitlines() if line.startswith(("random", "full"))]
    assert "learnable" in out and " -" not in out  # one sign for minus
    code, _, error = run_command(["--rates", *files, "--policy", "random"], capsys)
    assert code == 2 and "random" in error


def test_shares_of_online_policies_are_shares() -> None:
    """Where no group is dead, or none is live, ratios have no denominator and are unknown."""
    for rates in (constant(0.5), constant(0), constant(0, 0.5, each=3)):
        for each in played(recording(rates), "pairs", "dynamic", budget=2).values():
            for name in ("live", "avoided", "rollouts", "reached"):
                value, low, high = getattr(each, name)
                known = [end for end in (low, high) if np.isfinite(end)]
                if name in ("live", "reached"):
                    assert 0 <= low <= value <= high <= 1, (name, each)
                assert all(abs(end) < 100 for end in [*known, np.nan_to_num(value)]), (name, each)
    assert np.isnan(played(recording(constant(0.5)), "dynamic", budget=2)["dynamic"].avoided.value)
