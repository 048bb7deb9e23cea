"""The commands as a user types them; invalid input ends with code 2 and one message."""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import cell_record, finished_cell, finished_sweep, small_plan
from remedies import problems

from orchestrator.cli.main import main
from orchestrator.cli.parser import build_parser
from orchestrator.pipeline.manifest import write_manifest
from orchestrator.storage.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    small_plan(tmp_path)
    return tmp_path / "experiments.yaml"


VIEW = """experiment about storage cells cells_to_run probes updates_to_run rollouts_to_run
    refresh_rollouts_to_run rollouts_to_run_at_most eta_seconds gpu_hours detectable_points
    collapse_seen datasets probe_seconds cost room sources packing memory dropped problem
    not_downloaded fetch_command notes changed tokens_to_run tokens_at_most flops_to_run
    gpu_price"""
CELL = """cell_id model dataset policy seed size updates prompts_per_update rollouts done trained
    rollouts_at_most labels labels_at_most probe_seed name axes resumes_after same_as"""
PROBE = """probe_key model dataset split prompts samples missing_samples missing_at_most label
    shared_samples weak_signal form_failures"""


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"probe": {"samples": 4}}, []),
        ({"probe": {"samples": 4, "temperature": 0}}, ["4 samples", "probe.temperature 0"]),
        ({"probe": {"samples": 1, "temperature": 0}}, ["probe.samples 1", "(hard)"]),
        (
            {"evaluate": {"every": 2, "samples": 3, "temperature": 0}},
            ["3 samples", "evaluate.temperature 0"],
        ),
    ],
)
def test_samples_that_cannot_differ_are_said(
    tmp_path: Path, capsys, settings: dict[str, object], values: list[str]
) -> None:
    small_plan(tmp_path, **settings)
    assert main(["plan", str(tmp_path / "experiments.yaml"), "-e", "small", "--json"]) == 0
    notes = [note for note in json.loads(capsys.readouterr().out)["notes"] if "sample" in note]
    assert len(notes) == bool(values) and all(value in notes[0] for value in values)


def test_plan_prints_the_cells_as_text_and_as_json(file: Path, capsys) -> None:
    plan = small_plan(file.parent)
    command = ["plan", str(file), "-e", "small"]
    assert main(command) == 0
    assert "2 cells, 2 to run" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert {*view} == {"command", "version", *VIEW.split()}
    assert {frozenset(cell) for cell in view["cells"]} == {frozenset(CELL.split())}
    assert {frozenset(probe) for probe in view["probes"]} == {frozenset(PROBE.split())}
    assert [cell["policy"] for cell in view["cells"]] == ["hard", "random"]
    assert (view["cells_to_run"], view["rollouts_to_run"]) == (2, 2 * 4 * 2 * 4)
    assert {probe["missing_samples"] for probe in view["probes"]} == {40 * 4, 12 * 8}
    unmeasured = view["eta_seconds"], view["probe_seconds"], view["gpu_hours"]
    assert unmeasured == (None, None, 0), "no cell of this model has finished, and none has a GPU"
    assert view["sources"] == {"stub": "not measured"} and view["flops_to_run"] is None
    assert view["tokens_at_most"] and view["tokens_to_run"] > (2 * 4 * 8 + 40 * 4 + 12 * 8) * 40
    assert not (file.parent / "runs").exists()
    finished_cell(Store(str(file.parent / "runs")), plan, plan.cells[0])
    assert main([*command, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert [cell["done"] for cell in view["cells"]] == [True, False]
    assert (view["cells_to_run"], view["updates_to_run"], view["gpu_hours"]) == (1, 4, 0)
    assert view["eta_seconds"] > 0


@pytest.mark.parametrize("columns", [80, 40])
def test_output_fits_the_terminal_and_json_ignores_it(
    columns: int, file: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(file.parent)
    finished_cell(Store(str(file.parent / "runs")), plan, plan.cells[0])  # for a schedule
    commands = [["plan", str(file), "-e", "small"], ["ls", "tasks"], ["ls", "policies"]]
    assert main([*commands[0], "--json"]) == 0
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in commands:
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        too_long = [line for line in lines if len(line) > columns and len(line.split()) > 1]
        assert not too_long
    assert main([*commands[0], "--json"]) == 0
    assert capsys.readouterr().out == whole


def test_plan_says_which_settings_have_changed(tmp_path: Path, capsys) -> None:
    plan, store = finished_sweep(tmp_path, policies=["hard", "random", "easy"])
    write_manifest(plan, store)

    def planned(policies: list[str], **settings: object) -> str:
        small_plan(tmp_path, policies=policies, **settings)
        assert main(["plan", str(tmp_path / "experiments.yaml"), "-e", "small"]) == 0
        return capsys.readouterr().out

    both = ["hard", "random"]
    assert "settings have changed" not in planned(both)
    assert "settings have changed" not in planned(["middle"]), "no such cell is stored"
    text = planned([*both, "easy"], budget=9, name="small")
    assert re.search("3 cells, 3 to run\n  3 to run again, .*: budget 8 → 9 \\(stored", text)
    probe = {"samples": 4, "max_completion_length": 32, "temperature": 0.5}
    text = planned(both, probe=probe, lora={"r": 5}, match_sizes=True)
    settings = re.search(r"  2 to run again, .*?: (.*) \(stored", text)
    assert settings and settings[1] == "probe.temperature 1.0 → 0.5, match_sizes, lora.r 32 → 5"
    (tmp_path / "model" / "config.json").write_text('{"new": 1}')
    assert "changed: model.identity (stored" in planned(both), "a hash says nothing"


def test_a_cell_stopped_in_training_is_at_its_last_checkpoint(tmp_path: Path, capsys) -> None:
    plan = small_plan(tmp_path, policies=["hard", "random", "easy", "middle"])
    store, place = Store(str(tmp_path / "runs")), ["plan", str(tmp_path / "experiments.yaml")]
    finished_cell(store, plan, plan.cells[3])
    for cell, updates in zip(plan.cells[:2], ([1, 3], []), strict=False):
        store.write_json(cell.model_dump(mode="json"), "cells", cell.cell_id, "cell.json")
        for update in updates:
            cell_record(plan, cell).save(store, cell.cell_id, update)
    assert main([*place, "-e", "small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    states = {c.policy: next(li for li in lines if c.cell_id in li)[20:] for c in plan.cells}
    assert states["hard"].startswith("at update 3 of 4  ")
    assert states["random"].startswith("to run  ") and states["easy"].startswith("to run  ")
    assert states["middle"].startswith("finished  ")
    assert main([*place, "-e", "small", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["updates_to_run"], view["rollouts_to_run"]) == (1 + 4 + 4, (1 + 4 + 4) * 8)
    store.set_aside("cells", plan.cells[0].cell_id, "checkpoint-3", "groups.parquet")
    assert main([*place, "-e", "small"]) == 0
    assert "at update 1 of 4  " in capsys.readouterr().out  # the checkpoint before it
    first_eta = view["eta_seconds"]
    (tmp_path / "runs" / "cells" / plan.cells[0].cell_id / "cell.json").unlink()
    assert main([*place, "-e", "small", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["eta_seconds"] > first_eta


def test_plan_prints_the_price_and_what_a_cap_would_leave_out(tmp_path: Path, capsys) -> None:
    settings = {"resources": {"gpus": 1}, "seeds": [0, 1]}
    plan = small_plan(tmp_path, **settings)
    arguments = ["plan", str(tmp_path / "experiments.yaml"), "-e", "small", "--gpus", "2"]
    assert main([*arguments, "--gpu-price", "2"]) == 0
    text = capsys.readouterr().out
    assert "\nETA: not measured (2 GPUs, 2 cells at a time)" in text
    assert "\nGPU-hours: not measured, cost not measured\n" in text
    finished_cell(Store(str(tmp_path / "runs")), plan, plan.cells[0])
    assert main([*arguments, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    small_plan(tmp_path, **settings, max_gpu_hours=round(0.8 * whole["gpu_hours"], 5))
    assert main([*arguments, "--gpu-price", "2"]) == 0
    text = capsys.readouterr().out
    assert "2 GPUs" in text and "1 finished cell" in text and "not measured" not in text
    assert "max_gpu_hours" in text and "2 of 4 cells" in text
    assert main([*arguments, "--json", "--gpu-price", "2"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["cost"] == pytest.approx(2 * view["gpu_hours"])
    assert view["dropped"]["cells"] == [cell.cell_id for cell in plan.cells if cell.seed == 1]


@pytest.mark.parametrize(
    "arguments", ["", "train", "ls planets", "plan x.yaml -e q --tracking-uri sqlite://"]
)
def test_a_command_that_does_not_exist_is_refused(arguments: str, capsys) -> None:
    assert main(arguments.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("decile: ") and not problems(line)


@pytest.mark.parametrize("command", ["plan", "run", "probe", "report"])
def test_every_command_names_the_line_of_an_error(command: str, file: Path, capsys) -> None:
    file.write_text(file.read_text().replace("budget:", "budgte:"))
    assert main([command, str(file), "-e", "small"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"decile: {file}:")
    assert "did you mean 'budget'" in captured.err
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err
    assert captured.out == ""


def test_a_bug_gives_one_line_that_names_its_traceback(file: Path, monkeypatch, capsys) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("orchestrator.cli.plan_summary.plan_summary", broken)
    assert main(["plan", str(file), "-e", "small"]) == 1
    message = capsys.readouterr().err
    assert "unexpected error: ValueError: a bug" in message and message.count("\n") == 1
    log = Path(message.rpartition("traceback: ")[2].strip().rstrip(")"))
    assert "in broken" in log.read_text()
    log.unlink()


def test_ls_reads_the_file_only_for_models_and_experiments(file: Path, capsys) -> None:
    def listed(what: str, path: object) -> list[str]:
        assert main(["ls", what, str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(len(line.split()) > 1 for line in lines) or what == "experiments"
        return [line.split()[0] for line in lines]

    assert listed("policies", "none.yaml")[:4] == ["hard", "easy", "middle", "random"]
    assert "shuffled_objects" in listed("tasks", "none.yaml")
    assert sorted(listed("models", file)) == ["other", "stub"] and listed("experiments", file) == [
        "small"
    ]
    for what in ("models", "experiments"):
        assert main(["ls", what, "none.yaml"]) == 2
        assert "none.yaml" in capsys.readouterr().err


def test_an_interrupted_command_says_how_to_resume(file: Path, monkeypatch, capsys) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.cli.plan_summary.plan_summary", interrupted)
    assert main(["plan", str(file), "-e", "small"]) == 130
    error = capsys.readouterr().err
    assert error.startswith("decile: interrupted; ") and error.count("\n") == 1


# Command -> what it takes: the converter after a colon, "!" what must be given.
OPTIONS = {
    "init": "--train --test --model --question --answer --answers --marker:marker "
    "--problems:Path --corrections --max-prompt-tokens:integer --duplicates "
    "--conflicts --clean-test --drop-overlap --out:Path --force --yes",
    "plan": "file!:Path --experiment --storage --cpus:integer --gpus:integer --json --gpu "
    "--gpu-price:number --pilot",
    "fetch": "file!:Path --experiment --json",
    "run": "file!:Path --experiment --storage --cpus:integer --gpus:integer --wait "
    "--tracking-uri --json",
    "probe": "file!:Path --experiment --storage --cpus:integer --gpus:integer --wait "
    "--out:Path --json",
    "evaluate": "file!:Path --experiment --storage --cpus:integer --gpus:integer --json "
    "--wait --model --dataset --adapter --checkpoint --out!:Path --force",
    "report": "file!:Path --experiment --storage --out:Path --json",
    "select": "file:Path --experiment --policy --budget --seed:integer --difficulty --model "
    "--dataset --storage --probe:Path --option --out:Path --to-label:Path --test "
    "--force --json",
    "mark": "--task! --option --marking --input!:Path --answer --completions --out:Path "
    "--force --json --against --against-option --examples:integer --attack",
    "import": "source!:Path --layout --question --answer --completions --prompt-id --rate "
    "--successes --samples:_samples --model --pool --task! --option --out!:Path "
    "--force --json",
    "export": "file:Path --experiment --policy --budget --seed:integer --difficulty --model "
    "--dataset --storage --subset:Path --layout --order --spread --card --texts:Path --task "
    "--option --out:Path --force --json",
    "compare": "arms! --id --score --seed --sample --group --metric --models-are-seeds "
    "--out:Path --force --json",
    "diagnose": "logs! --correct --out:Path --force --json",
    "replay": "logs! --policy --budget --rates --online --visits:integer --probe --correct "
    "--out:Path --force --json",
    "ls": "what! file:Path --json",
    "doctor": "file:Path --experiment --tracking-uri --gpu --storage --repair --json",
    "ui": "--storage --port:integer",
}


def taken(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if action.dest != "help":
            name = action.option_strings[-1] if action.option_strings else action.dest
            name = "--out" if name == "--output" else name
            converter = getattr(action.type, "__qualname__", "").partition(".")[0]
            yield name + ("!" if action.required else "") + (f":{converter}" if converter else "")


def test_no_command_has_lost_an_option() -> None:
    [commands] = build_parser()._subparsers._group_actions  # type: ignore[union-attr]
    assert isinstance(commands.choices, dict)
    options = {name: [*taken(command)] for name, command in commands.choices.items()}
    assert options == {name: words.split() for name, words in OPTIONS.items()}
    assert sum(map(len, options.values())) == 167
    without_json = {name for name, words in options.items() if "--json" not in words}
    assert without_json == {"init", "ui"}, "every command prints its values as JSON"


def test_report_prints_the_values_of_its_tables_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, _ = finished_sweep(tmp_path, policies=["hard", "random"])
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "experiments.yaml"), "--json", "--out", str(page)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [row["cell_id"] for row in values["cells"]] == [cell.cell_id for cell in plan.cells]
    pair = next(row for row in values["comparisons"] if row["measure"] == "accuracy")
    gains = {row["policy"]: 100 * row["accuracy_final"] for row in values["cells"]}
    assert pair["effect"] == pytest.approx(gains[pair["a"]] - gains[pair["b"]])
    assert values["page"] == str(page) and page.exists()
